"""A program in the engine's environment as a child.

Invariants: those of ``Child``. Threading: one thread.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import final

from bench.child import Child
from bench.engine.environment import child_environment, engine_python


@final
class EngineChild(Child):
    """One running program; use as a context manager."""

    def __init__(self, program: str, log_file: Path, environment: Mapping[str, str] = {}) -> None:
        """Start the module ``program`` of ``bench.engine.programs``; it says nothing until it is asked."""
        command = [str(engine_python()), "-m", f"bench.engine.programs.{program}"]
        super().__init__(command, log_file, child_environment() | dict(environment))
