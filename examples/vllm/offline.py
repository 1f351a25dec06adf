"""vLLM without a server over a node: the same prompt twice, and in between the engine forgets what it computed.

``offline.py MODEL SOCKET TEXT_FILE``; the prompt is the beginning of the text.
"""

import sys
import time
from pathlib import Path

from vllm import LLM, SamplingParams
from vllm.config import KVTransferConfig

PROMPT_CHARACTERS = 1_200
STORE_SECONDS = 30.0


def main() -> int:
    """Say how many tokens of the prompt came from a cache, and whether the answers are equal."""
    model, socket, text = sys.argv[1:]
    prompt = Path(text).read_text()[:PROMPT_CHARACTERS]
    engine = LLM(
        model=model,
        max_model_len=2_048,
        kv_cache_memory_bytes=256 << 20,
        enforce_eager=True,
        # With two bytes the engine itself answers differently after a prefix than without one, on some processors.
        dtype="float32",
        kv_transfer_config=KVTransferConfig(
            kv_connector="BlockyardConnector",
            kv_connector_module_path="blockyard.connectors.vllm.connector",
            kv_role="kv_both",
            kv_load_failure_policy="recompute",
            kv_connector_extra_config={"blockyard.socket": socket, "blockyard.lookup_wait_ms": 2_000},
        ),
    )
    greedy = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True)

    def answer(when: str) -> str:
        (output,) = engine.generate([prompt], greedy, use_tqdm=False)
        print(f"{when}: {output.num_cached_tokens} of {len(output.prompt_token_ids or ())} prompt tokens from a cache")
        return str(output.outputs[0].text)

    first = answer("at first")
    # Stores go on beside the engine. What it holds for them is not forgotten before they are done.
    deadline = time.monotonic() + STORE_SECONDS
    time.sleep(1.0)
    while not engine.reset_prefix_cache() and time.monotonic() < deadline:
        time.sleep(0.1)
    second = answer("after the engine forgot everything")
    print("the answers are equal" if first == second else "THE ANSWERS DIFFER")
    return int(first != second)


if __name__ == "__main__":
    sys.exit(main())
