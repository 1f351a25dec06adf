"""Commands that the documentation shows, and which test runs or checks each of them.

A command stands in a fence of kind ``sh``, one to a line; a fence of kind ``text`` right behind it shows what it
prints. Every line belongs to exactly one runner: a test module that takes its lines with ``commands_of`` and runs
them, or checks them against the files they name where an engine of containers or a cluster would be needed.
"""

import itertools
import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from tests.architecture.doc_tables import DOCS, ROOT

_FENCE: Final = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_SEPARATORS: Final = ("|", "&&", "||", ";", "&")
_PREPARING: Final = ("export", "cd", "cp", "mkdir")
_FILTERS: Final = ("grep", "head", "python3")
QUICKSTART: Final = "docs/tutorials/quickstart.md"


class Runner(Enum):
    """Who runs or checks a command; the value is the test module."""

    QUICKSTART = "tests/docs/test_quickstart.py"
    MAKE = "tests/docs/test_make_commands.py"
    SHELL = "tests/docs/test_shell_commands.py"
    HTTP = "tests/integration/test_doc_requests.py"
    COMPOSE = "tests/docs/test_compose_commands.py"
    CLUSTER = "tests/docs/test_cluster_commands.py"
    ENGINES = "tests/engines/test_examples.py"


@dataclass(frozen=True, slots=True)
class Fence:
    """A fence of a page."""

    line: int
    kind: str
    text: str
    adjoins: bool
    """Nothing stands between it and the one before."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fence with commands, and the text behind it that shows what they print."""

    page: str
    line: int
    text: str
    shown: str | None


@dataclass(frozen=True, slots=True)
class Command:
    """One line of a fence, with the lines it continues on."""

    block: Block
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.block.page}:{self.line}: {self.text}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables that it sets, for itself or for the lines after it."""
        words = [word for word in shlex.split(self.text, comments=True) if word != "export"]
        assigned = itertools.takewhile(_ASSIGNMENT.fullmatch, words)
        return {name: value for name, _, value in (word.partition("=") for word in assigned)}

    @property
    def parts(self) -> list[list[str]]:
        """Words of the simple commands of the line, without assignments in front of them."""
        lexer = shlex.shlex(self.text, posix=True, punctuation_chars="|&;")
        lexer.whitespace_split = True
        parts: list[list[str]] = [[]]
        for word in lexer:
            if word in _SEPARATORS:
                parts.append([])
            elif parts[-1] or not _ASSIGNMENT.fullmatch(word):
                parts[-1].append(word)
        return parts

    @property
    def prepares(self) -> bool:
        """Whether it only sets the stage for the next line."""
        return all(not part or part[0] in _PREPARING for part in self.parts)


def fences(page: Path) -> list[Fence]:
    """Fences of a page."""
    text, found = page.read_text(), []
    end = 0
    for fence in _FENCE.finditer(text):
        line = text.count("\n", 0, fence.start(3)) + 1
        found.append(Fence(line, fence[2], textwrap.dedent(fence[3]), not text[end : fence.start()].strip()))
        end = fence.end()
    return found


def pages() -> list[Path]:
    """Pages that people follow."""
    return sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "charts").rglob("*.md")])


def blocks(*kept: Path) -> Iterator[Block]:
    """Fences with commands of these pages; of all by default."""
    for page in kept or pages():
        found = fences(page)
        for fence, after in itertools.zip_longest(found, found[1:]):
            if fence is not None and fence.kind == "sh":
                shown = after.text if after and after.kind == "text" and after.adjoins else None
                yield Block(str(page.relative_to(ROOT)), fence.line, fence.text, shown)


def lines(block: Block) -> Iterator[Command]:
    """Commands of a fence."""
    first, text = block.line, ""
    for number, line in enumerate(block.text.splitlines(), start=block.line + 1):
        text += line
        if text.endswith("\\"):
            text = text.removesuffix("\\")
            continue
        if shlex.split(text, comments=True):
            yield Command(block, first, text)
        first, text = number, ""


def claims(command: Command) -> set[Runner]:
    """Runners of a line that does not only prepare; one for each kind of command in it."""
    if command.block.page == QUICKSTART:
        return {Runner.QUICKSTART}
    return {runner for part in command.parts if part and part[0] not in _FILTERS for runner in _runners(part)}


def _runners(words: list[str]) -> Iterator[Runner]:
    program = words[0]
    if program == "make":
        yield Runner.MAKE
    if program.removeprefix(".venv/bin/").startswith(("blockyard", "python", "mkdocs")):
        # On a stack that runs: the smoke run of compose does it.
        yield Runner.COMPOSE if "--compose" in words else Runner.SHELL
    if program.startswith(("examples/vllm/", ".venv-engines/")):
        yield Runner.ENGINES
    if program == "curl":
        yield Runner.HTTP
    if words[:2] == ["docker", "compose"]:
        yield Runner.COMPOSE
    if program in ("helm", "kubectl"):
        yield Runner.CLUSTER


def claimed() -> Iterator[tuple[Command, set[Runner]]]:
    """Every line with its runners; what only prepares belongs to those of the next line of its fence."""
    for block in blocks():
        waiting: list[Command] = []
        for command in lines(block):
            waiting.append(command)
            if block.page == QUICKSTART or not command.prepares:
                runners = claims(command)
                yield from ((line, runners) for line in waiting)
                waiting = []
        yield from ((line, set()) for line in waiting)


def commands_of(runner: Runner) -> list[Command]:
    """Lines of a runner, those that prepare included."""
    return [command for command, runners in claimed() if runners == {runner}]
