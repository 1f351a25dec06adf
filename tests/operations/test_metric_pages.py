"""Pages name only labels and values of metrics that exist, and the reference names every label."""

import re
from pathlib import Path
from typing import Final

import pytest
from tests.operations.vocabulary import labels_of, values, values_of

DOCS: Final = Path(__file__).parents[2] / "docs"
REFERENCE: Final = DOCS / "reference" / "metrics.md"
_SAMPLE: Final = re.compile(r"`(blockyard_\w+)`(?:,| of| with)? (kind|status|reason|tier|check|name|end) `([\w-]+)`")
_CODE: Final = re.compile(r"`([\w-]+)`")


def named_samples(text: str) -> list[tuple[str, str, str]]:
    """Metric, label and value where a page names all three."""
    return _SAMPLE.findall(text)


def wrong_samples(text: str) -> list[tuple[str, str, str]]:
    """Those that do not exist."""
    return [
        (metric, label, value)
        for metric, label, value in named_samples(text)
        if label not in labels_of().get(metric, ()) or value not in (values(metric, label) or ())
    ]


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_samples_on_pages_exist(page: Path) -> None:
    assert wrong_samples(page.read_text()) == []


def test_the_pages_name_samples() -> None:
    assert len(named_samples((DOCS / "reference" / "failures.md").read_text())) >= 4


@pytest.mark.parametrize(
    ("planted", "wrong"),
    [
        ("`blockyard_job_items_total` of kind `g2_g4`", True),
        ("`blockyard_job_items_total` of kind `g4_put`", False),
        ("`blockyard_dropped_total`, reason `index_writes`", True),
        ("`blockyard_sessions` with tier `g2`", True),
    ],
)
def test_a_planted_sample_is_found(planted: str, wrong: bool) -> None:
    assert bool(wrong_samples(planted)) is wrong


def label_rows() -> dict[str, str]:
    """Label to what the reference says about its values."""
    _, _, table = REFERENCE.read_text().partition("| label | values |\n")
    return dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE))


def test_the_reference_names_every_label() -> None:
    own = {label for name, labels in labels_of().items() if name.startswith("blockyard_") for label in labels}
    assert set(label_rows()) == own - {"le"}


def test_the_reference_names_only_values_that_exist() -> None:
    for label, text in label_rows().items():
        possible = {value for (_, name), found in values_of().items() if name == label for value in found}
        assert [value for value in _CODE.findall(text) if value not in possible] == [], label
