"""Ask an OpenAI server, which may still be starting: ``ask.py URL TEXT_FILE``; the prompt is how the text begins."""

import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

PROMPT_CHARACTERS = 1_200
START_SECONDS = 240.0


def wait_ready(url: str) -> None:
    """Wait for the server."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5.0).close()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
        else:
            return


def main() -> None:
    """Say how many tokens of the prompt came from a cache."""
    url, text = sys.argv[1:]
    wait_ready(url)
    prompt = Path(text).read_text()[:PROMPT_CHARACTERS]
    body = {"model": "model", "prompt": prompt, "max_tokens": 16, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(
        f"{url}/v1/completions", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60.0) as response:
        usage = json.load(response)["usage"]
    cached = (usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0
    print(f"{cached} of {usage['prompt_tokens']} prompt tokens from a cache")


if __name__ == "__main__":
    main()
