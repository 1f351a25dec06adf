"""PromQL as the panels use it: everything is limited to the namespaces and nodes chosen on top of the dashboard.

Threading: pure functions.
"""

from typing import Final

SELECTED: Final = 'namespace=~"$namespace", node=~"$node"'
_WINDOW: Final = "$__rate_interval"
NODE: Final = "namespace, node"
"""What names a node: two namespaces may have nodes of one name."""
NODE_LEGEND: Final = "{{namespace}} {{node}}"
"""Without a namespace the node alone: who shows it leaves out the blank."""
_TARGET: Final = f"{NODE}, job, instance"
"""What names a process; a scrape configuration may give targets of two namespaces one name."""
_SERVICE_OF: Final = f"* on ({_TARGET}) group_left (service) blockyard_build_info"
"""Also tells our processes from all others that have metrics of the same name."""
_SIZE_OF: Final = f"* on ({_TARGET}) group_left ()"
EMPTY_ROWS: Final = 'state!~"free|await_free|abandoned"'
"""Rows of a table that hold a block, or are about to."""


def series(metric: str, labels: str = "") -> str:
    """The samples of a metric that are looked at."""
    return f"{metric}{{{', '.join(part for part in (labels, SELECTED) if part)}}}"


def now(metric: str, by: str = "", labels: str = "", *, how: str = "sum") -> str:
    """A gauge over all services, or by labels."""
    return f"{_grouped(how, by)}({series(metric, labels)})"


def readiness(by: str, *, how: str) -> str:
    """Whether processes are ready, by labels; one that does not answer is not."""
    up = series("up", 'job=~".*blockyard.*"')
    return f"{_grouped(how, by)}({series('blockyard_ready')} or on ({_TARGET}) {up})"


def per_second(metric: str, by: str = "", labels: str = "") -> str:
    """Rate of a counter."""
    return f"{_grouped('sum', by)}(rate({series(metric, labels)}[{_WINDOW}]))"


def counted(metric: str) -> str:
    """How much a counter rose in the time shown; whole, since the ends of that time fall between samples."""
    return f"round(sum(increase({series(metric)}[$__range])))"


def quantile(share: float, metric: str, by: str = "", labels: str = "") -> str:
    """Quantile of a histogram of seconds."""
    groups = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {per_second(f'{metric}_bucket', groups, labels)})"


def sized(metric: str, size: str, by: str = "", labels: str = "", *, rate: bool = False) -> str:
    """Blocks times what one block of their node is in bytes or tokens."""
    blocks = series(metric, labels)
    return f"{_grouped('sum', by)}({f'rate({blocks}[{_WINDOW}])' if rate else blocks} {_SIZE_OF} {series(size)})"


def of_processes(metric: str, by: str, *, how: str = "sum", rate: bool = False) -> str:
    """A metric of processes, by labels of which ``service`` may be one."""
    samples = series(metric)
    return f"{_grouped(how, by)}({f'rate({samples}[{_WINDOW}])' if rate else samples} {_SERVICE_OF})"


def share(part: str, whole: str) -> str:
    """One number over another; nothing where there is nothing to divide by."""
    return f"{part} / ({whole} > 0)"


def shares(parts: str, whole: str) -> str:
    """Several series over one number."""
    return f"{parts} / on () group_left () ({whole} > 0)"


def nonzero(parts: str) -> str:
    """Only series with something to show."""
    return f"{parts} > 0"


def _grouped(how: str, by: str) -> str:
    return f"{how} by ({by}) " if by else how
