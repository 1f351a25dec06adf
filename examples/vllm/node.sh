#!/bin/sh
# A node with the local tiers only, until it is stopped: node.sh FOLDER BLOCK_BYTES
# Every setting of a node may be given as a variable, such as BLOCKYARD_G2__CAPACITY=16GiB.
set -eu
if [ $# -ne 2 ]; then
  echo "usage: node.sh FOLDER BLOCK_BYTES" >&2
  exit 2
fi
export BLOCKYARD_NODE__FOLDER="$1" BLOCKYARD_NODE__BLOCK_BYTES="$2" BLOCKYARD_G4__ENABLED=false
mkdir -p "$1"
bin=${BIN:-.venv/bin}
if [ ! -x "$bin/blockyard-block-manager" ]; then
  echo "node.sh: no Blockyard in $bin: make install, or name its folder in BIN" >&2
  exit 2
fi
"$bin/blockyard-offload-worker" >>"$1/offload-worker.log" 2>&1 &
worker=$!
"$bin/blockyard-block-manager" >>"$1/block-manager.log" 2>&1 &
manager=$!
stop() {
  kill "$manager" "$worker" 2>/dev/null || true
  wait
  exit 0
}
trap stop INT TERM
wait
