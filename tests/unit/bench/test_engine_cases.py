"""Benchmarks of a real engine: what they replay, and what they say where there is no engine."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bench.cases import CASES
from bench.engine.child import EngineChild
from bench.engine.environment import ROOT, obstacle
from bench.engine.models import MODELS
from bench.engine.replay import TRACE, TracedRequest, prompt_of, random_prompts, read_trace
from bench.errors import ChildError

ENGINE_CASES = [name for name in CASES if name == "scheduler_half" or name.startswith("vllm_")]


def test_the_trace_has_conversations_of_three_turns_of_which_two_are_mostly_known() -> None:
    requests = read_trace()
    cold = [request for request in requests if request.seen_blocks <= 1]
    hits = [request for request in requests if request.seen_blocks > 1]
    assert (len(cold), len(hits)) == (10, 20)
    assert all(request.seen_blocks >= 0.6 * len(request.blocks) for request in hits)
    assert all(14 <= len(request.blocks) <= 32 for request in requests)


def test_prompts_share_the_tokens_of_the_blocks_they_share_and_nothing_across_salts() -> None:
    one, other = TracedRequest((7, 8, 9), 0), TracedRequest((7, 8, 10, 11), 2)
    first, second = (prompt_of(request, block_tokens=8, vocabulary=100, salt=1) for request in (one, other))
    assert first[:16] == second[:16]
    assert first[16:24] != second[16:24]
    assert len(second) == 8 * 4 + 1
    assert prompt_of(other, block_tokens=8, vocabulary=100, salt=2)[:8] != second[:8]


def test_random_prompts_share_no_beginning() -> None:
    prompts = random_prompts(8, 64, vocabulary=2_048, salt=0) + random_prompts(8, 64, vocabulary=2_048, salt=1)
    assert len({tuple(prompt[:8]) for prompt in prompts}) == 16


def test_a_block_of_every_model_fits_a_node() -> None:
    assert [model.block_bytes % 4_096 for model in MODELS] == [0, 0, 0]
    assert [model.block_bytes >> 10 for model in MODELS] == [256, 768, 2_048]


@pytest.mark.parametrize("case", ENGINE_CASES)
def test_without_an_engine_every_measure_says_what_makes_one(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_PYTHON", "/nowhere/at/all/python")
    measures = list(CASES[case](case))
    assert measures
    assert all((measure.ok, measure.value) == (True, None) for measure in measures)
    assert all("make engines" in measure.skipped for measure in measures)


def test_an_environment_without_an_engine_is_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_PYTHON", sys.executable)
    assert obstacle() == "the engine's environment is incomplete: make engines"


def test_an_order_that_fails_is_told_with_the_log_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE_PYTHON", sys.executable)
    with EngineChild("engine", tmp_path / "log") as child:
        with pytest.raises(ChildError, match=r"failed in the order idle: AttributeError(?s:.*)Traceback"):
            child.ask("idle", seconds=1.0)
        with pytest.raises(ChildError, match="failed in the order nonsense"):
            child.ask("nonsense")


def test_a_program_that_ends_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_PYTHON", sys.executable)
    with (
        EngineChild("no_such_program", tmp_path / "log") as child,
        pytest.raises(ChildError, match=r"order idle(?s:.*)No module named"),
    ):
        child.ask("idle", seconds=1.0)


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE)
child.stdin.write(b'{"order": "hang"}\\n')
child.stdin.flush()
child.wait()
"""
CHILD = """
import os, signal, sys
from bench.orders import serve

class Engine:
    def hang(self):
        os.write(2, b"%d\\n" % os.getpid())
        signal.pause()

serve(Engine())
"""


def test_a_program_in_the_middle_of_an_order_ends_with_a_parent_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stderr=subprocess.PIPE, cwd=ROOT)
    assert parent.stderr is not None
    with parent.stderr as said, parent:
        child = os.pidfd_open(int(said.readline()))
        try:
            parent.kill()
            ended, _, _ = select.select([child], [], [], 30.0)
            assert ended == [child]
        finally:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(child, signal.SIGKILL)
            os.close(child)


def test_a_line_of_the_trace_names_its_conversation() -> None:
    lines = [json.loads(line) for line in TRACE.read_text().splitlines()]
    assert {(line["session"], line["turn"]) for line in lines} == {(s, t) for s in range(10) for t in range(3)}
    assert [line["timestamp"] for line in lines] == sorted(line["timestamp"] for line in lines)
