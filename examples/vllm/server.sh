#!/bin/sh
# vLLM's OpenAI server over a node: server.sh MODEL SOCKET [options of the server]
set -eu
model=$1 socket=$2
shift 2
# A node on a few busy cores answers later than the 100 ms that a lookup is waited for unless told otherwise.
# By module: `vllm serve` asks for a package named vllm, and that for CPUs has another name.
exec "${PYTHON:-.venv-engines/bin/python}" -m vllm.entrypoints.openai.api_server --model "$model" \
  --served-model-name model --enable-prompt-tokens-details --kv-transfer-config '{
    "kv_connector": "BlockyardConnector",
    "kv_connector_module_path": "blockyard.connectors.vllm.connector",
    "kv_role": "kv_both",
    "kv_load_failure_policy": "recompute",
    "kv_connector_extra_config": {"blockyard.socket": "'"$socket"'", "blockyard.lookup_wait_ms": 2000}
  }' "$@"
