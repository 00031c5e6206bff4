"""Reports come back as they were written, are compared by hash, and progress survives a kill."""

import json
import math

import numpy as np
import pytest

from dataaudit import ConfigError
from dataaudit.probes.estimates import Units
from dataaudit.probes.report import EvalArtifacts, Number, Outcome, ProbeReport, latest_before, values_of
from dataaudit.probes.store import Store


def report(step=100, losses=(2.0, 3.0, 4.0), **artifacts):
    given = {"tokenizer": "t", "prompts": "p", "harness": "h", "dtype": "float32"} | artifacts
    own = EvalArtifacts(**given)
    made, outcome = ProbeReport(checkpoint="a.pt", step=step), Outcome()
    outcome.add("val_loss", Units.of(losses), "nats/token")
    outcome.add("slice_val_loss", Units.of(losses[:2]), "nats/token", source="web")
    outcome.absent("slice_val_loss", "nats/token", "few_documents", source="code")
    made.artifacts[own.digest] = own
    made.numbers = [
        Number(**{name: getattr(n, name) for name in n.__slots__} | {"artifacts": own.digest}) for n in outcome.numbers
    ]
    made.units, made.arrays = outcome.units, {"frozen:ids_0": np.arange(6).reshape(2, 3)}
    return made


def test_a_report_comes_back(tmp_path):
    own = report()
    own.compare(report(step=50, losses=(1.0, 2.5, 4.5)))
    own.write(tmp_path / "step-00000100")
    read = ProbeReport.load(tmp_path / "step-00000100")
    assert read.document() == own.document()
    assert read.arrays["frozen:ids_0"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert read.get("slice_val_loss", source="web").value == 2.5
    again = report(step=200)
    again.compare(read)
    assert again.get("val_loss").change.value == 0


def test_a_source_may_have_any_name(tmp_path):
    own, outcome = ProbeReport(checkpoint="a.pt", step=1), Outcome()
    outcome.add("slice_val_loss", Units.of([1.0, 2.0]), "nats/token", source="web/a|b")
    own.numbers, own.units = outcome.numbers, outcome.units
    own.write(tmp_path)
    assert ProbeReport.load(tmp_path).units.keys() == own.units.keys()


@pytest.mark.parametrize("name", ["tokenizer", "prompts", "templates", "decoding", "harness", "dtype"])
def test_another_artifact_makes_a_comparison_invalid(name):
    """And not a change, whatever the numbers are."""
    own = report()
    own.compare(report(step=50, **{name: "other"}))
    number = own.get("val_loss")
    assert (number.invalid, number.change) == ((name,), None)
    assert len(own.invalid) == 2


@pytest.mark.parametrize("harm", ["absent", "cut", "other version", "no arrays"])
def test_a_report_that_cannot_be_read_is_an_error(tmp_path, harm):
    report().write(tmp_path)
    path = tmp_path / "report.json"
    if harm == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    elif harm == "other version":
        path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": "dataaudit-probes/9"}))
    else:
        (path if harm == "absent" else tmp_path / "arrays.npz").unlink()
    with pytest.raises(ConfigError, match="report"):
        ProbeReport.load(tmp_path)


def test_values_that_are_no_numbers_are_null_with_a_reason():
    outcome = Outcome()
    outcome.add("val_loss", Units.of([math.nan, 1.0]), "nats/token")
    made = ProbeReport(checkpoint="a", step=1, numbers=outcome.numbers).document()["numbers"][0]
    assert (made["value"], made["reason"]) == (None, "not_finite")


def test_the_newest_report_of_an_earlier_step_is_taken(tmp_path):
    for step in (100, 900, 1_000):
        report(step).write(tmp_path / f"step-{step:08d}")
    (tmp_path / "step-junk").mkdir()
    assert latest_before(tmp_path, 1_000).name == "step-00000900"
    assert latest_before(tmp_path, 100) is None


def test_slices_have_the_names_that_rules_know():
    rows = values_of(report().numbers)
    named = {(metric, stat) for metric, stat, _ in rows}
    assert {("val_loss", "value"), ("val_loss", "low"), ("val_loss.source:web", "value")} <= named
    assert len(rows) == 6


def test_progress_goes_on_after_a_kill(tmp_path):
    path = tmp_path / "a" / "partial.jsonl"
    store = Store(path, "key")
    store.add("0", [1.5, None])
    store.add("1", [2.5])
    store.close(done=False)
    path.write_bytes(path.read_bytes()[:-4])  # the last line was cut by the kill
    again = Store(path, "key")
    assert again.items == {"0": [1.5, None]}
    again.add("1", [2.5])
    again.close(done=False)
    for key, items in (("key", {"0": [1.5, None], "1": [2.5]}), ("another checkpoint", {})):
        read = Store(path, key)
        assert read.items == items
        read.close(done=key != "key")
    assert not path.exists()


def test_progress_that_cannot_be_kept_ends_nothing(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "partial.jsonl", "key")
    store.add("0", 1)
    store.close(done=True)
    assert store.items == {"0": 1}
    assert "progress cannot be kept" in caplog.text
