"""The registry says what manifests hold: the same as the metrics page, and as a real manifest."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dataaudit.manifest.load import load_manifest
from dataaudit.metrics.family import shapes_of
from dataaudit.metrics.registry import METRICS, STATISTICS, statistic

ROOT = Path(__file__).parents[3]
CELL = re.compile(r"`([^`]+)`")


def told():
    """Return (unit, shapes) by (metric, stat) as docs/reference/metrics.md has them; one may stand on several rows."""
    found: dict = {}
    for section in re.split(r"^## ", (ROOT / "docs/reference/metrics.md").read_text("utf-8"), flags=re.MULTILINE)[1:]:
        metric = CELL.search(section.partition("\n")[0])
        for line in section.splitlines():
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            if (
                metric
                and len(cells) == 5
                and CELL.fullmatch(cells[0])
                and cells[3] in {"exact", "sampled", "estimated", "exact or sampled", "exact or estimated"}
            ):
                unit, shapes = found.setdefault((metric[1], CELL.fullmatch(cells[0])[1]), (cells[1], set()))
                assert unit == cells[1]
                shapes |= shapes_of(each(cells[2]))
    return found


def each(words):
    """Spell `everywhere`, `by entity` and `each with entity` out."""
    by_entity = "entity, split and entity, source and entity, split and source and entity"
    words = words.replace("by entity", by_entity).replace("everywhere", "all, split, source, split and source")
    if not words.endswith(", each with entity"):
        return words
    plain = words.removesuffix(", each with entity").split(", ")
    return ", ".join([*plain, *("entity" if one == "all" else f"{one} and entity" for one in plain)])


def test_the_registry_is_the_metrics_page():
    """Names, units and scopes."""
    page = {key: (unit, frozenset(shapes)) for key, (unit, shapes) in told().items()}
    assert {key: (one.unit, one.shapes) for key, one in STATISTICS.items()} == page


def test_every_record_of_the_demo_is_in_the_catalogue():
    """With its unit and scope."""
    for record in load_manifest(ROOT / "manifests/demo").metrics():
        known = statistic(record.metric, record.stat)
        assert known is not None, record
        assert record.unit == known.unit
        assert frozenset(record.scope.as_dict()) in known.shapes, record


def test_the_context_lengths_of_padding_are_the_users():
    """`packed_16384` is known, `packed_` is not."""
    assert statistic("pad_fraction", "packed_16384").unit == "ratio"
    for name in ("packed_", "packed_0", "packed_1k", "packed"):
        assert statistic("pad_fraction", name) is None
    assert statistic("near_dup_rate", "rate_2048") is None
    assert set(METRICS) == {metric for metric, _ in told()}


@pytest.mark.parametrize("key", STATISTICS)
def test_shares_of_something_say_which_part_may_be_absent(key):
    """Only fields that a statistic is kept for."""
    one = STATISTICS[key]
    assert one.absent_is_zero <= {"source", "language", "entity", "rule"}


def test_what_is_known_of_metrics_needs_no_pandas():
    """Arrow imports pandas, where it is installed, to make a condition on a column: definitions make none."""
    code = "import sys, dataaudit.metrics.registry; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "False\n"
