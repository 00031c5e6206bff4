"""The page of a training run: what stands out, the loss, which head changed and from when."""

import json

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from made_run import begin_run

from dataaudit.base.render.blocks import Point
from dataaudit.base.render.line import PERCENT, spell
from dataaudit.cli import main
from dataaudit.runlog.format import ATTRIBUTION_FILE
from dataaudit.runlog.reader import load_run
from dataaudit.runlog.writer import RankWriter, event
from dataaudit.training.pages import page as training_page
from dataaudit.training.pages.grids import changes, grids_of
from dataaudit.training.pages.page import run_page

pytest.importorskip("bokeh", reason="charts are drawn by dataaudit[report]")
LAYERS, HEADS = 4, 6
HOSTILE = "</script><b onmouseover=alert(1)>\x1b[31m::error::"


def made(folder, steps=240, *, broken=None, every=1, values=True, spike=True, name="toy"):
    """Write a run; from a step on, head 5 of layer 3 attends to one key, and layers from 2 on grow 20 steps later."""
    draw = np.random.default_rng(0)
    begin_run(folder, dataset=name, sources=(), block_rows=1)
    writer = RankWriter(folder, 0, 1, 1)
    layer, head = np.repeat(np.arange(LAYERS), HEADS), np.tile(np.arange(HEADS), LAYERS)
    chosen = (layer == 3) & (head == 5)
    for step in range(1, steps + 1):
        bad = broken is not None and step >= broken
        loss = 2 + 4 * np.exp(-step / 60) + 0.02 * draw.normal() + (2 if spike and 200 <= step < 204 else 0)
        if values and step % every == 0:
            entropy = np.clip(0.8 + 0.02 * draw.normal(size=len(layer)), 0, 1)
            entropy[chosen] = 0.02 if bad else entropy[chosen]
            number = len(layer)
            row = {"step": np.full(number, step), "layer": layer, "head": head, "value": entropy}
            writer.add("values", {**row, "metric": ["attn_entropy"] * number, "stat": ["normalised"] * number})
            grown = 1 + 0.01 * draw.normal(size=LAYERS) + 0.5 * (np.arange(LAYERS) >= 2) * (bad and step >= broken + 20)
            row = {
                "step": np.full(LAYERS, step),
                "layer": np.arange(LAYERS),
                "head": np.full(LAYERS, -1),
                "value": grown,
            }
            writer.add("values", {**row, "metric": ["residual_rms"] * LAYERS, "stat": ["block"] * LAYERS})
        row = {"micro_batches": [1], "targets": [64], "scored": [64], "loss_sum": [64 * loss], "user_loss": None}
        writer.add_step(step, {"step": [step], "time": [float(step)], "merged": [0], **row})
    return writer


def report(folder, out, *more):
    return CliRunner().invoke(main, ["report", "--run", str(folder), "--out", str(out), *more])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("since", [1, 121])
def test_a_loss_that_is_not_finite_is_on_the_page(tmp_path, value, since):
    """Up to the end, with a line before it or without any."""
    writer = made(tmp_path / "run", since - 1, spike=False, values=False)
    for step in range(since, 131):
        row = {"micro_batches": [1], "targets": [64], "scored": [64], "loss_sum": [value], "user_loss": None}
        writer.add_step(step, {"step": [step], "time": [float(step)], "merged": [0], **row})
    writer.close()
    done = report(tmp_path / "run", tmp_path / "page.html")
    assert done.exit_code == 0
    assert "Not finite at steps" in (tmp_path / "page.html").read_text()
    figures = {figure.label: figure.value for figure in run_page(load_run(tmp_path / "run")).figures}
    assert figures["last loss"] == "not finite"


def test_what_changed_without_an_alarm_is_drawn_and_no_layer_is_said_to_diverge(tmp_path):
    made(tmp_path / "run", broken=120).close()
    done = report(tmp_path / "run", tmp_path / "page.html", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["findings"] == ["Loss spike at steps 200 to 203."]
    page = (tmp_path / "page.html").read_text()
    assert "layer 3, head 5 changed most: 0.802 before step 120, 0.02 after" in page
    assert "diverges" not in page


def alarm(step, incident, severity, metric="attn_entropy", layer=3, head=5, **more):
    where = {"metric": metric, "layer": layer, "head": head, "stat": "normalised"}
    held = {"rule": "drift", "value": 0.1, "low": 0.7, "high": 0.9, "first_step": step - 4, **more}
    return event(step, "alarm", {**where, **held, "incident": incident, "severity": severity})


def test_an_incident_says_how_grave_what_where_since_when_how_far_now_and_what_to_do(tmp_path):
    writer = made(tmp_path / "run", broken=120, spike=False)
    for step, layer, value in ((124, 3, 0.02), (126, 2, 0.3), (130, 1, 0.4)):
        writer.add("events", alarm(step, 1, 2, layer=layer, value=value))
    grave = {"rule": "limit", "value": 17_700.0, "threshold": 1000.0, "others": 9, "first_step": 190}
    writer.add("events", alarm(190, 2, 1, metric="max_attn_logit", layer=0, head=1, **grave))
    cover = {"attn_entropy": {"judged": 20, "series": 24, "why": "12 of 64 values yet"}}
    writer.add("events", event(240, "coverage", {"metrics": cover}))
    writer.close()
    page = run_page(load_run(tmp_path / "run"))
    grave, first = page.findings
    assert spelled(grave.text) == (
        "layer 0, head 1, since step 190: max_attn_logit is 17,700, beyond 1000. 9 alarms followed."
    )
    assert spelled(first.text) == (
        "layer 3, head 5, since step 120: attn_entropy is 0.02, expected 0.7 to 0.9; now 0.02."
        " 2 alarms followed (attn_entropy)."
    )
    assert [one.head for one in page.findings] == ["Severity 1", "Severity 2"]
    assert all(one.runbook is not None and one.reason for one in page.findings)
    assert [one.id for one in page.sections][:3] == ["incidents", "coverage", "loss"]
    assert "20 of 24 series" in page.sections[1].lead
    heat = next(one.chart for one in page.charts if one.id == "attn_entropy-normalised-steps")
    assert [heat.rows[row] for row, *_ in heat.marks] == ["layer 1, head 5", "layer 2, head 5", "layer 3, head 5"]
    assert heat.scale == "attn_entropy"
    assert [heat.columns[one] for one in heat.ticks] == ["50", "100", "150", "200"]


def test_what_is_over_is_no_cause_and_a_hint_that_became_an_alarm_is_listed_once(tmp_path):
    """A healthy head left its band and came back; the layer of the gravest alarm is what the page names."""
    writer = made(tmp_path / "run", broken=120, spike=False)
    writer.add("events", alarm(30, 0, 3, layer=1, head=0))
    writer.add("events", alarm(114, 1, 2, layer=0, head=2, value=0.65))
    writer.add("events", alarm(124, 0, 3, value=0.02))
    writer.add("events", alarm(121, 1, 2, layer=2, value=0.5, low=0.9, high=1.0))
    writer.add("events", alarm(126, 1, 2, value=0.02, first_step=120))
    writer.add("events", alarm(140, 1, 1, metric="residual_rms", head=-1, stat="block", rule="fold", high=1.2))
    writer.close()
    found, hint = run_page(load_run(tmp_path / "run")).findings
    assert (hint.head, "nothing to do unless" in hint.reason) == ("Severity 3", True)
    assert (found.head, "nothing to do unless" in found.reason) == ("Severity 1", False)
    assert spelled(found.text) == (
        "layer 3, head 5, since step 120: attn_entropy is 0.02, expected 0.7 to 0.9; now 0.02."
        " 2 alarms began before it (layer 0, head 2; layer 2, head 5). 1 alarm followed (residual_rms)."
    )


def test_incidents_of_two_starts_have_a_number_each_and_hints_are_none(tmp_path):
    """A start that did not go on with the state of vitals, and each rank, counts incidents from 1."""
    writer = made(tmp_path / "run", spike=False)
    writer.add("events", alarm(20, 0, 3, layer=0))
    writer.add("events", alarm(40, 1, 2))
    writer.add("events", alarm(220, 1, 1, metric="residual_rms", head=-1, stat="block", rule="fold"))
    writer.close()
    page = run_page(load_run(tmp_path / "run"))
    assert [one.head for one in page.findings] == ["Severity 1", "Severity 2", "Severity 3"]
    (section,) = [one for one in page.sections if one.id == "incidents"]
    assert section.lead == "2 incidents, the gravest of severity 1: contain it. 1 hint."
    titles = [spelled(block.title) for block in section.blocks]
    assert titles == ["Incident 2: severity 1, contain it", "Incident 1: severity 2, look into it", "A hint"]


def test_hints_alone_are_no_incident(tmp_path):
    writer = made(tmp_path / "run", spike=False)
    writer.add("events", alarm(20, 0, 3))
    writer.close()
    (section,) = [one for one in run_page(load_run(tmp_path / "run")).sections if one.id == "incidents"]
    assert (section.lead, section.tone) == ("No incident. 1 hint.", "warn")


def test_a_calm_run_says_so_in_a_line_with_how_much_was_looked_at(tmp_path):
    writer = made(tmp_path / "run", spike=False)
    cover = {"attn_entropy": {"judged": 24, "series": 24, "why": ""}}
    writer.add("events", event(240, "coverage", {"metrics": cover}))
    writer.close()
    page = run_page(load_run(tmp_path / "run"))
    assert page.headline == "Nothing stands out"
    assert page.subline == ("No incident. At step 240, 24 of 24 series were judged against what is expected of them.")


def test_events_show_no_marks_of_a_programming_language_and_code_is_code(tmp_path):
    writer = made(tmp_path / "run")
    detail = {"limits": {"a": [1, None, True]}, "none": {}, "what": "a `word`"}
    writer.add("events", event(9, "cadence", detail))
    writer.close()
    assert report(tmp_path / "run", tmp_path / "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text()
    assert "limits a 1 none yes; none none" in page
    assert "<code>dataaudit attribute</code>" in page


@pytest.mark.runs
def test_a_healthy_run_says_so_and_the_same_log_gives_the_same_bytes(tmp_path):
    made(tmp_path / "run", spike=False).close()
    for name in ("one", "two"):
        assert report(tmp_path / "run", tmp_path / name).stdout.endswith("Nothing stands out\n")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_run_without_values_has_its_loss(tmp_path):
    made(tmp_path / "run", values=False).close()
    page = run_page(load_run(tmp_path / "run"))
    assert [one.id for one in page.sections] == ["loss", "icu", "efficiency", "data-hours", "run", "about"]
    assert [one.text for one in page.findings] == ["Loss spike at steps 200 to 203."]


def test_alarms_come_first_and_are_said_once(tmp_path):
    writer = made(tmp_path / "run", spike=False)
    alarm = {"metric": "attn_entropy", "layer": 3, "head": 5, "stat": "mean", "value": 0.1, "low": 2.0, "high": 3.0}
    for step in (60, 61, 62):
        writer.add("events", event(step, "alarm", alarm))
    writer.add(
        "events",
        event(9, "warning", {"metric": "max_attn_logit", "layer": 1, "head": 2, "value": 120, "threshold": 100}),
    )
    writer.add("events", event(70, "nan_inf", {"metric": "activation_mean_abs", "layer": 0, "head": -1, "stat": "mlp"}))
    writer.close()
    assert [one["text"] for one in texts(tmp_path / "run")] == [
        "layer 0, since step 70: activation_mean_abs is not finite.",
        "layer 3, head 5, since step 60: attn_entropy is 0.1, expected 2 to 3.",
        "Step 9: max_attn_logit of layer 1, head 2 is 120, beyond 100.",
    ]
    assert run_page(load_run(tmp_path / "run")).tone == "bad"


def test_what_needs_action_comes_before_warnings(tmp_path, monkeypatch):
    writer = made(tmp_path / "run", spike=False)
    early = {"metric": "max_attn_logit", "layer": 1, "head": 2, "value": 120, "threshold": 100}
    writer.add("events", event(9, "warning", early))
    writer.close()
    found = Point(text="Steps 200 to 203: one shard held all of the excess.", tone="bad", section="loss")
    monkeypatch.setattr(training_page, "_episodes", lambda log: [found])
    assert [one["text"] for one in texts(tmp_path / "run")] == [
        found.text,
        "Step 9: max_attn_logit of layer 1, head 2 is 120, beyond 100.",
    ]


def spelled(line):
    return spell(line, PERCENT)


def texts(folder):
    return [{"text": spelled(one.text)} for one in run_page(load_run(folder)).findings]


def test_hostile_names_are_escaped(tmp_path):
    writer = made(tmp_path / "run", name=HOSTILE)
    writer.add("events", event(5, "alarm", {"metric": HOSTILE, "layer": HOSTILE, "value": [HOSTILE]}))
    writer.add(
        "events", event(0, "vitals", {"found": {HOSTILE: HOSTILE}, "metrics": {HOSTILE: HOSTILE}, "estimators": 3})
    )
    row = {"step": [5, 6], "layer": [-1, -1], "head": [-1, -1], "value": [1.0, 2.0]}
    writer.add("values", {**row, "metric": [HOSTILE] * 2, "stat": ["value"] * 2})
    writer.close()
    done = report(tmp_path / "run", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.html").read_text()
    assert "<b onmouseover" not in page
    assert "\x1b" not in page
    assert "onmouseover" in page


def test_a_damaged_attribution_is_said_and_nothing_else_is_lost(tmp_path):
    made(tmp_path / "run", spike=False).close()
    (tmp_path / "run" / ATTRIBUTION_FILE).write_text("{")
    assert texts(tmp_path / "run") == [{"text": "attribution.json cannot be read: run `dataaudit attribute` again."}]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--out", "p.html"], 2, "expected a manifest, DIR, or --run RUNLOG"),
        (["m", "--run", "empty", "--out", "p.html"], 2, "no manifest at m"),
        (["--run", "r", "--policy", "strict", "--out", "p.html"], 2, "--policy is of a manifest"),
        (["--run", "nothing", "--out", "p.html"], 2, "no run log at nothing"),
        (["--run", "empty", "--out", "p.html"], 4, "empty holds no step and no value"),
        (["--run", "empty", "--out", "."], 2, ". is a folder"),
    ],
)
def test_wrong_use_is_said(tmp_path, monkeypatch, arguments, code, said):
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "empty", steps=0).close()
    done = CliRunner().invoke(main, ["report", *arguments])
    assert done.exit_code == code
    assert said in done.stderr
    assert not (tmp_path / "p.html").exists()


def test_a_torn_log_has_a_page_of_what_is_whole(tmp_path):
    made(tmp_path / "run", broken=120).close()
    for path in (tmp_path / "run" / "ranks").rglob("*.arrows"):
        path.write_bytes(path.read_bytes()[:-40])
    assert report(tmp_path / "run", tmp_path / "page.html").exit_code in {0, 4}


def grid_of(rows):
    """Return the only grid of rows of values."""
    names = ("step", "metric", "layer", "head", "stat", "value")
    (grid,) = grids_of(pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))).values()
    return grid


def test_what_rises_all_the_time_changed_most():
    """A slow rise by twenty deviations of neighbours comes before jumps by five."""
    draw, rows = np.random.default_rng(3), []
    for head in range(40):
        own = 10 + draw.normal(size=60) + (np.arange(60) / 3 if head == 7 else 5.0 * (np.arange(60) >= 30))
        rows += [(step, "m", 0, head, "s", value) for step, value in enumerate(own, 1)]
    grid = grid_of(rows)
    most, *others = changes(grid)
    assert grid.places[most.row] == (0, 7)
    assert np.mean([item.score for item in others]) == pytest.approx(5, rel=0.1)


def test_a_level_that_changed_is_found_where_it_did():
    """Against the truth, over many draws; series that do not change seldom count as loud."""
    draw, right, false = np.random.default_rng(7), 0, 0
    for _ in range(200):
        cut = int(draw.integers(60, 200))
        rows = []
        for head in range(2):
            values = draw.standard_t(5, 240) + (30.0 if head else 0.0) * (np.arange(240) >= cut)
            rows += [(step + 1, "m", 0, head, "s", value + 100) for step, value in enumerate(values)]
        grid = grid_of(rows)
        found = {one.row: one for one in changes(grid)}
        right += found[1].step == cut + 1
        false += found[0].score >= 8
    assert right == 200
    assert false == 0
