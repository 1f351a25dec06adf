"""Reads PromQL as far as needed to say which series, labels and values an expression is about."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.operations.vocabulary import TARGET_LABELS, labels_of, values

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR: Final = re.compile(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")
_MATCHER: Final = re.compile(r'\s*(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_GROUPING: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_WORD: Final = re.compile(r"(?<![\w.$])[a-zA-Z_:][\w:]*")
_WINDOW: Final = re.compile(r"\[[^\]]*\]")
_LANGUAGE: Final = frozenset(
    "sum min max avg count by without on ignoring group_left group_right and or unless bool offset "
    "rate increase changes histogram_quantile round max_over_time min_over_time absent".split()
)
_JOINED: Final = re.compile(r"group_left\s*\((\w+)\)\s*(\w+)")


@dataclass(frozen=True, slots=True)
class Matcher:
    """``label op "value"`` of a series."""

    series: str
    label: str
    operator: str
    value: str


def series_of(expr: str) -> set[str]:
    """Names of all series in an expression."""
    bare = _WINDOW.sub("", _GROUPING.sub("", re.sub(r"\{[^}]*\}", "", _STRING.sub("", expr))))
    return {word for word in _WORD.findall(bare)} - _LANGUAGE


def matchers_of(expr: str) -> Iterator[Matcher]:
    """Every condition on a label."""
    for selector in _SELECTOR.finditer(expr):
        rest = selector[2]
        while rest.strip():
            found = _MATCHER.match(rest)
            if found is None:
                raise ValueError(f"cannot read {rest!r} in {expr}")
            yield Matcher(selector[1], found[1], found[2], found[3])
            rest = rest[found.end() :]


def groupings(expr: str) -> list[set[str]]:
    """Labels of every ``by``, ``on`` and ``group_left``."""
    return [{label.strip() for label in group.split(",") if label.strip()} for group in _GROUPING.findall(expr)]


def grouped_by(expr: str) -> set[str]:
    """Labels in any ``by``, ``on`` and ``group_left``."""
    return {label for group in groupings(expr) for label in group}


def mistakes(expr: str) -> list[str]:
    """What an expression asks for that does not exist."""
    known = labels_of()
    found = [f"series {name}" for name in sorted(series_of(expr)) if name not in known]
    have = TARGET_LABELS.union(*(known[name] for name in series_of(expr) if name in known))
    found += [f"label {label}" for label in sorted(grouped_by(expr)) if label not in have]
    for matcher in matchers_of(expr):
        if matcher.label in TARGET_LABELS:
            continue
        if matcher.label not in known.get(matcher.series, frozenset()):
            found.append(f"label {matcher.label} of {matcher.series}")
            continue
        possible = values(matcher.series, matcher.label)
        wanted = matcher.value.split("|") if matcher.operator in ("=~", "!~") else [matcher.value]
        if possible is not None:
            found += [f"{matcher.label} {value!r} of {matcher.series}" for value in wanted if value not in possible]
    return found
