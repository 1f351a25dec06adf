"""Entry point of the demo engine; see ``engine_program``.

It loads next to nothing before signals have a meaning. Threading: main thread only.
"""

import sys

from blockyard.runtime.first_moment import end_on_signals, loading


def main() -> int:
    """Run the demo engine; its exit code."""
    end_on_signals()
    with loading("blockyard-demo-engine", "blockyard"):
        from blockyard.connectors.mock.engine_program import run_engine

    return run_engine()


if __name__ == "__main__":
    sys.exit(main())
