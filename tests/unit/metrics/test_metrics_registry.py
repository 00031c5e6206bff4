"""The registry, the texts for codes, and the stages that a config chooses: the same as pages and manifests say."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dataaudit.base.errors import ConfigError, ExitCode
from dataaudit.manifest.load import load_manifest
from dataaudit.metrics import shown
from dataaudit.metrics.recomputed import shapes_of
from dataaudit.metrics.registry import METRICS, STATISTICS, statistic
from dataaudit.metrics.stages import STAGES, make_stages
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.tokens import guard

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
                shapes |= set(map(frozenset, shapes_of(each(cells[2]))))
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


def test_every_reason_code_has_a_text_and_no_text_is_left_over():
    """The texts are for exactly the codes of the ledger."""
    assert set(shown.REASONS) == {str(reason) for reason in Reason}


def test_every_exit_code_has_a_text():
    """Each exit code is explained."""
    assert set(shown.EXIT_CODES) == {int(code) for code in ExitCode}


def test_every_path_to_the_reference_encoder_has_a_text():
    """Each reason that the check of the encoders can give is explained."""
    tree = ast.parse(inspect.getsource(guard))
    found = {
        keyword.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "reason" and isinstance(keyword.value, ast.Constant)
    }
    assert "ok" in found
    assert found <= set(shown.ENCODERS)


def test_an_unknown_code_is_shown_and_said_to_be_unknown():
    """A manifest of a newer version can still be read."""
    assert "no text" in shown.reason_text("melted")
    assert "melted" in shown.encoder_text("melted")
    assert "no text" in shown.exit_text(77)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"lenghts": True}, "did you mean `lengths`"),
        ({"lengths": {"max_distnct": 300}}, "did you mean `max_distinct`"),
        ({"lengths": {"max_distinct": 3}}, "at least 256"),
        ({"lengths": {"max_distinct": "many"}}, "max_distinct"),
        ({"volume": False}, "cannot be switched off"),
    ],
)
def test_wrong_stage_choices_are_named(chosen, message):
    """An unknown stage, an unknown parameter, a wrong value and a required stage each get their own words."""
    with pytest.raises(ConfigError, match=message):
        make_stages(chosen)


def test_wrong_choices_of_several_stages_are_named_together():
    """Nobody has to run once for each mistake."""
    with pytest.raises(ConfigError) as caught:
        make_stages(
            {
                "lenghts": True,
                "lengths": {"max_distinct": 3},
                "volume": False,
                "near_dup": {"treshold": 1, "ngram": "x"},
            }
        )
    lines = str(caught.value).splitlines()
    assert lines[0] == "stages: 5 problems"
    assert [line.split(":")[0].strip(" -") for line in lines[1:6]] == [
        "stages.lenghts",
        "stages.volume",
        "stages.lengths",
        "stages.near_dup.treshold",
        "stages.near_dup.ngram",
    ]


def test_stages_can_be_left_out_and_parametrised():
    """`false` leaves a stage out, a mapping sets its parameters, the order stays."""
    stages = make_stages({"exact_dup": False, "lengths": {"max_distinct": 500}})
    assert [stage.name for stage in stages] == [kind.name for kind in STAGES if kind.name != "exact_dup"]
    assert stages[1].max_distinct == 500
