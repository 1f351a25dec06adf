"""A real Prometheus: started as a child, told its targets through a file, asked over HTTP.

Invariants: it listens on loopback, keeps its data in the folder it is given, and does not outlive this process.
Threading: the main thread's event loop.
"""

import asyncio
import json
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import httpx
import yaml

from blockyard.cli.child_process import ChildProcess, ChildSpec, read_tail
from blockyard.cli.embedded.ports import free_ports
from blockyard.core.errors import ServerStartError

_READY_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05
_TIMEOUT_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """A process to scrape, under a name that stays when its address changes."""

    address: str
    job: str
    node: str
    instance: str


@dataclass(frozen=True, slots=True)
class Series:
    """Samples of one set of labels, in order of time."""

    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]


class QueryError(Exception):
    """Prometheus does not take a query."""


def prometheus_program() -> str | None:
    """The server, if it is installed."""
    return shutil.which("prometheus")


class Prometheus:
    """One server; use as ``async with``."""

    def __init__(self, folder: Path, *, scrape_seconds: float, rules: Sequence[Path] = ()) -> None:
        """Keep everything in ``folder``, and scrape every ``scrape_seconds``."""
        self._folder = folder
        self._targets = folder / "targets.json"
        self._scrape_seconds = scrape_seconds
        self._rules = [str(path) for path in rules]
        self._child: ChildProcess | None = None
        self._http = httpx.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False)
        self._url = ""

    async def __aenter__(self) -> Self:
        """Start it, and wait until it answers.

        Raises:
            ServerStartError: it is not installed, or did not start.
        """
        program = prometheus_program()
        if program is None:
            raise ServerStartError("the program is not installed", server="prometheus")
        self._folder.mkdir(parents=True, exist_ok=True)
        self.scrape(())
        config = self._folder / "prometheus.yml"
        config.write_text(yaml.safe_dump(self._config()))
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        command = (
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        )
        log = self._folder / "prometheus.log"
        self._child = ChildProcess(ChildSpec("prometheus", command, log))
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while True:
                    if await self._answers():
                        break
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            self._child.kill()
            raise ServerStartError(f"not ready in time: {read_tail(log)}", server="prometheus") from None
        return self

    async def __aexit__(self, *exc: object) -> None:
        """End it."""
        await self._http.aclose()
        if self._child is not None:
            self._child.kill()

    def scrape(self, targets: Iterable[ScrapeTarget]) -> None:
        """From now on scrape these."""
        groups = [
            {
                "targets": [target.address],
                "labels": {"job": target.job, "node": target.node, "instance": target.instance},
            }
            for target in targets
        ]
        fresh = self._targets.with_suffix(".new")
        fresh.write_text(json.dumps(groups))
        # It watches the name: a file that is half written is never seen.
        fresh.replace(self._targets.with_suffix(".json"))

    async def query(self, expr: str, time: float) -> list[Series]:
        """Value of an expression at a time.

        Raises:
            QueryError: the expression is wrong.
        """
        result = await self._ask("query", {"query": expr, "time": f"{time:.3f}"})
        return [_series(item["metric"], [item["value"]]) for item in result]

    async def query_range(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        """Course of an expression.

        Raises:
            QueryError: the expression is wrong.
        """
        parameters = {"query": expr, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        return [_series(item["metric"], item["values"]) for item in await self._ask("query_range", parameters)]

    async def alerts(self) -> list[str]:
        """Names of the alerts that are pending or fire."""
        answer = await self._http.get(f"{self._url}/api/v1/alerts")
        return sorted({alert["labels"]["alertname"] for alert in answer.json()["data"]["alerts"]})

    async def _ask(self, what: str, parameters: dict[str, str]) -> list[dict[str, Any]]:
        answer = await self._http.post(f"{self._url}/api/v1/{what}", data=parameters)
        body = answer.json()
        if body["status"] != "success":
            raise QueryError(f"{body.get('error')}: {parameters['query']}")
        result: list[dict[str, Any]] = body["data"]["result"]
        return result

    async def _answers(self) -> bool:
        if self._child is not None and self._child.exit_code is not None:
            raise ServerStartError(f"it ended: {self._child.log_tail()}", server="prometheus")
        try:
            return (await self._http.get(f"{self._url}/-/ready")).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def _config(self) -> dict[str, Any]:
        seconds = f"{int(self._scrape_seconds * 1_000)}ms"
        return {
            "global": {"scrape_interval": seconds, "scrape_timeout": seconds, "evaluation_interval": "5s"},
            "rule_files": self._rules,
            "scrape_configs": [
                {
                    "job_name": "blockyard",
                    "file_sd_configs": [{"files": [str(self._targets)], "refresh_interval": "1s"}],
                }
            ],
        }


def _series(labels: Mapping[str, str], samples: Sequence[tuple[float, str]]) -> Series:
    kept = [(float(time), float(value)) for time, value in samples]
    kept = [(time, value) for time, value in kept if not math.isnan(value)]
    return Series(labels, tuple(time for time, _ in kept), tuple(value for _, value in kept))
