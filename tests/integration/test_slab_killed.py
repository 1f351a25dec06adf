"""A worker killed in the middle of stores loses nothing that it had announced, and keeps nobody out."""

import asyncio
import subprocess
import sys
from pathlib import Path

import numpy as np

from blockyard.core.vocabulary import Epoch
from blockyard.testing.byte_patterns import pattern
from blockyard.tiers.arena import Arena
from blockyard.tiers.base import MoverPreference
from blockyard.tiers.checksum import payload_checksum
from blockyard.tiers.g3_slab.slab import Slab
from blockyard.tiers.header import HeaderVerdict
from blockyard.tiers.open_mover import open_mover

BLOCKS, PAYLOAD, ENOUGH = 64, 65_536, 200
WORKER = """
import asyncio, itertools, sys
from pathlib import Path
from blockyard.core.vocabulary import Epoch
from blockyard.testing.slab_kit import block_for
from blockyard.tiers.arena import Arena
from blockyard.tiers.base import MoverPreference
from blockyard.tiers.g3_slab.slab import Slab
from blockyard.tiers.open_mover import open_mover

async def main(folder, blocks, payload):
    slab = Slab.open(folder, blocks, payload, worker_epoch=Epoch(1))
    arena = Arena.create(blocks, payload)
    mover = (await open_mover(MoverPreference.AUTO, arena, folder=folder, direct=slab.direct)).mover
    async def fill(first):
        for turn in itertools.count(1):
            slots = range(first, first + 8)
            items = [block_for(slab, arena, turn * 1000 + slot, slot, slot, turn) for slot in slots]
            for slot, status in zip(slots, await slab.store(mover, items)):
                print(slot, turn, status.name, flush=True)
    await asyncio.gather(*(fill(first) for first in range(0, blocks, 8)))

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
"""


def durable_before_a_kill(folder: Path) -> dict[int, int]:
    """Run a worker, kill it; per slot the last generation that it had called durable."""
    arguments = [sys.executable, "-c", WORKER, str(folder), str(BLOCKS), str(PAYLOAD)]
    turns: dict[int, int] = {}
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout is not None
            for count, line in enumerate(worker.stdout):
                slot, turn, status = line.split()
                assert status == "OK"
                turns[int(slot)] = int(turn)
                if count == ENOUGH:
                    worker.kill()
        finally:
            worker.kill()
    assert len(turns) > 8
    return turns


async def test_what_was_durable_is_there_after_a_kill(tmp_path: Path) -> None:
    turns = await asyncio.to_thread(durable_before_a_kill, tmp_path)
    slab = await asyncio.to_thread(Slab.open, tmp_path, BLOCKS, PAYLOAD, worker_epoch=Epoch(2))
    assert not slab.was_clean
    with Arena.create(BLOCKS, PAYLOAD) as arena:
        chosen = await open_mover(MoverPreference.AUTO, arena, folder=tmp_path, direct=slab.direct)
        every = np.arange(BLOCKS, dtype=np.int32)
        await chosen.mover.read(slab.region, every, every)
        for slot in range(BLOCKS):
            reading = slab.read(slot)
            assert reading.verdict in (HeaderVerdict.READY, HeaderVerdict.FREE, HeaderVerdict.EMPTY)
            if reading.verdict.is_block:
                turn = reading.generation
                assert turn >= turns.get(slot, 0)
                assert payload_checksum(arena.payload(slot).data) == reading.header.checksum
                assert np.array_equal(arena.payload(slot), pattern(turn * 1000 + slot, PAYLOAD))
            else:
                # Its next grant had begun: the old block was given up in order.
                assert reading.generation > turns.get(slot, 0) or slot not in turns
        await chosen.mover.close()
    await slab.close()
