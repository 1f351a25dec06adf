"""The programs in docs/reference/api.md, as they stand there, on a node of real processes."""

import asyncio
import re
import sys
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

from pydantic import ByteSize, SecretStr

from blockyard.cli.embedded.nats import NatsServer
from blockyard.cli.run_folder import RunFolder
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import G2Section, G3Section, G4Section, NatsSection, NodeSection, NodeSettings
from blockyard.testing.running_node import running_node

BLOCKS = re.findall(
    r"^```(\w*)\n(.*?)^```$",
    (Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text(),
    re.DOTALL | re.MULTILINE,
)


def example(name: str) -> tuple[str, str]:
    """A program of the page, and the block behind it: what it printed."""
    (found,) = [
        (program, shown) for (kind, program), (_, shown) in pairwise(BLOCKS) if kind == "python" and name in program
    ]
    return found


async def output_of(program: str, *arguments: str) -> str:
    run = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, *arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    stdout, stderr = await run.communicate()
    assert (run.returncode, stderr.decode()) == (0, "")
    return stdout.decode()


async def test_both_programs_print_what_the_page_shows(run_folder: RunFolder) -> None:
    folder = run_folder.path / f"n{uuid4().hex[:6]}"
    folder.mkdir()
    with NatsServer(run_folder, f"nats-{folder.name}") as nats:  # its stream holds no events of other tests
        settings = NodeSettings(
            node=NodeSection(name="a", namespace="demo", folder=folder),  # of the block size that the programs expect
            g2=G2Section(capacity=ByteSize(4 << 20)),
            g3=G3Section(capacity=ByteSize(4 << 20)),
            g4=G4Section(enabled=False),
            nats=NatsSection(url=SecretStr(nats.url)),
        )
        async with running_node(settings, ServiceName.OFFLOAD_WORKER, ServiceName.BLOCK_MANAGER) as node:
            await node.ready()
            program, shown = example("engine.py")
            assert await output_of(program, str(node.engine_socket)) == shown
            program, shown = example("events.py")
            printed = (await output_of(program, nats.url, "2")).splitlines()
    assert printed == [
        "kv.events.demo.a seq 1   stored    G1        by engine example: 4 blocks",
        "kv.events.demo.a seq 2   offloaded G1 to G2  by node a: 4 blocks",
    ]
    # The page shows a longer run of another engine.
    form = r"kv\.events\.demo\.a seq \d+ +(stored +G1|offloaded G1 to G2) +by (engine|node) \S+: \d+ blocks"
    assert all(re.fullmatch(form, line) for line in (*printed, *shown.splitlines()))
