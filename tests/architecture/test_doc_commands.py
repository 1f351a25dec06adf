"""Every command in the documentation is run or checked by exactly one test module."""

import pytest
from tests.architecture.doc_commands import (
    Block,
    Command,
    Runner,
    blocks,
    claimed,
    claims,
    commands_of,
    fences,
    lines,
    pages,
)
from tests.architecture.doc_tables import ROOT


def command(text: str, page: str = "docs/page.md") -> Command:
    (found,) = lines(Block(page, 1, text, None))
    return found


def test_every_command_has_exactly_one_runner() -> None:
    assert [(str(command), runners) for command, runners in claimed() if len(runners) != 1] == []


@pytest.mark.parametrize("runner", Runner)
def test_every_runner_takes_its_commands(runner: Runner) -> None:
    source = (ROOT / runner.value).read_text()
    assert f"commands_of(Runner.{runner.name})" in source
    assert commands_of(runner), "no page shows such a command: remove the runner"


def test_every_fence_says_what_it_is() -> None:
    kinds = {f"{page.relative_to(ROOT)}:{fence.line}": fence.kind for page in pages() for fence in fences(page)}
    known = ("sh", "text", "yaml", "json", "toml", "python")
    assert {place: kind for place, kind in kinds.items() if kind not in known} == {}


def test_no_command_hides_in_another_fence() -> None:
    """What a terminal shows is text; what is typed into it has a fence of its own."""
    typed = [
        f"{page.relative_to(ROOT)}:{fence.line}"
        for page in pages()
        for fence in fences(page)
        if fence.kind != "sh" and any(row.lstrip().startswith(("$ ", "sudo ")) for row in fence.text.splitlines())
    ]
    assert typed == []


@pytest.mark.parametrize(
    ("text", "runners"),
    [
        ("make up", {Runner.MAKE}),
        ("A=b blockyard demo --json | jq .ok", {Runner.SHELL}),
        (".venv/bin/blockyard up", {Runner.SHELL}),
        ("curl -s http://127.0.0.1:8801/readyz | python3 -m json.tool", {Runner.HTTP}),
        ("docker compose -f a.yml up -d", {Runner.COMPOSE}),
        ("blockyard demo --compose a.yml", {Runner.COMPOSE}),
        ("helm template charts/blockyard | kubectl apply -f -", {Runner.CLUSTER}),
        (".venv-engines/bin/python examples/vllm/ask.py URL FILE", {Runner.ENGINES}),
        ("examples/vllm/server.sh MODEL SOCKET --port 1 &", {Runner.ENGINES}),
        ("make up && docker compose up", {Runner.MAKE, Runner.COMPOSE}),
        ("frobnicate --all", set()),
        ("docker run x", set()),
    ],
)
def test_runners_of_a_line(text: str, runners: set[Runner]) -> None:
    assert claims(command(text)) == runners
    assert claims(command(text, page="docs/tutorials/quickstart.md")) == {Runner.QUICKSTART}


def test_lines_continue_and_comments_and_blank_lines_are_none() -> None:
    found = list(lines(Block("page.md", 7, "# first\n\nmake \\\n  up  # now\nexport A=1\n", None)))
    assert [(one.line, one.parts, one.prepares) for one in found] == [
        (9, [["make", "up"]], False),
        (11, [["export", "A=1"]], True),
    ]


def test_shown_output_stands_right_behind_its_commands() -> None:
    page = ROOT / "docs" / "reference" / "settings.md"
    (shown,) = [block for block in blocks(page) if block.shown]
    assert shown.text.startswith("BLOCKYARD_G3__CAPACTY")
    assert shown.shown is not None
    assert shown.shown.startswith("blockyard-block-manager: unknown setting")
