"""A program in the place of docker compose: answers from a script, and writes down what it was asked.

``fake_compose.py FOLDER ...``: looks for the first line of FOLDER/script.jsonl whose ``when`` is the beginning of what
follows the options, does what it says and forgets it unless it is to be kept. What was asked is added to FOLDER/asked.
"""

import json
import shlex
import sys
from pathlib import Path


def main() -> int:
    folder, *words = sys.argv[1:]
    asked = shlex.join(words).partition("--profile demo ")[2]
    with (Path(folder) / "asked").open("a") as log:
        log.write(f"{asked}\n")
    script = Path(folder) / "script.jsonl"
    lines = [json.loads(line) for line in script.read_text().splitlines()]
    for line in lines:
        if asked.startswith(line["when"]):
            if not line["keep"]:
                lines.remove(line)
                script.write_text("".join(f"{json.dumps(left)}\n" for left in lines))
            sys.stdout.write(line["output"])
            sys.stderr.write(line["errors"])
            return int(line["status"])
    sys.stderr.write(f"not in the script: {asked}\n")
    return 99


if __name__ == "__main__":
    sys.exit(main())
