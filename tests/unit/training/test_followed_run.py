"""The view of a run that is followed: how it is, its panels, its data by hour, on the page and in a terminal."""

import json
import math
import re

import made_manifest
import numpy as np
import pytest
from made_run import begin_run
from rich.console import Console

from dataaudit.base.errors import ConfigError
from dataaudit.base.render.html import fragments, render
from dataaudit.base.render.line import PLAIN, spell
from dataaudit.live.incidents import acknowledge
from dataaudit.live.rules import load_alerts
from dataaudit.live.watch import Watch
from dataaudit.manifest.load import load_manifest
from dataaudit.runlog.reader import load_run
from dataaudit.runlog.writer import RankWriter, event, supersede_ranks
from dataaudit.training.pages.live_page import ago, live_page, screen_of, sparkline
from dataaudit.training.pages.page import run_page
from dataaudit.training.pages.panels import _rate
from dataaudit.training.pages.run_view import RunView

NOW = 1_000_000.0


class Log:
    """Writes a run log, a second a step up to :data:`NOW`."""

    def __init__(self, folder, *, manifest=None, sources=("web", "code"), first=1):
        self.folder, self.step = folder, first - 1
        if first == 1:
            begin_run(folder, manifest=manifest, sources=sources, block_rows=1)
        self.writer = RankWriter(folder, 0, first, 1)
        self.writer.add("events", event(self.step, "started" if first == 1 else "resumed", {"ranks": 1}))

    def steps(self, losses, **values):
        """Write steps with their losses and further numbers."""
        for place, loss in enumerate(losses):
            self.step += 1
            for name, given in values.items():
                metric, _, stat = name.partition("__")
                row = {"step": [self.step], "metric": [metric], "layer": np.array([-1]), "head": np.array([-1])}
                row |= {"stat": [stat or "value"], "value": np.array([np.broadcast_to(given, len(losses))[place]])}
                self.writer.add("values", row)
            row = {"step": [self.step], "time": [NOW - len(losses) + place], "micro_batches": [1], "targets": [1_000]}
            row |= {"scored": [0], "loss_sum": [0.0], "user_loss": [loss], "merged": [0]}
            self.writer.add_step(self.step, row)
        return self

    def table(self, name, **columns):
        """Write rows of a table."""
        self.writer.add(name, {key: np.array(column) for key, column in columns.items()})
        return self

    def flush(self):
        """Write what waits."""
        self.writer.flush()
        return self

    def end(self):
        """End the run."""
        self.writer.add("events", event(self.step, "closed", {}))
        self.writer.close()


def viewed(folder, *, judged=True, **more):
    """Return the view of a log, read and judged to its end."""
    watch = Watch(folder, load_alerts(None), send=False) if judged else None
    if watch is not None:
        watch.look()
    view = RunView(folder, watch=watch, **more)
    view.read(math.inf)
    return view


def section(page, name):
    """Return a section as plain text."""
    top, parts = fragments(page, {})
    html = top if name == "top" else next(html for found, html, _ in parts if found == name)
    return " ".join(re.sub(r"<[^>]+>", " ", html.replace("<wbr>", "")).replace("\xa0", " ").split())


def healthy(number=300, seed=0):
    """Return losses without a spike."""
    return (2 + np.random.default_rng(seed).normal(0, 0.02, number)).tolist()


def test_a_run_that_trains_is_healthy(tmp_path):
    """The headline says so, with its step; what is not fed is named and is not counted as healthy."""
    Log(tmp_path / "run").steps(healthy(), grad_global_norm=1.0).flush()
    page = live_page(viewed(tmp_path / "run"), NOW + 5)
    assert (page.headline, page.tone) == ("Healthy at step 300", "good")
    assert "Newest row 6 s ago." in spell(page.subline, PLAIN)
    icu = section(page, "icu")
    assert "grad_global_norm 1 norm" in icu
    assert "7 numbers that nothing feeds" in icu
    assert "`" not in icu
    assert "Nothing of it is in the log." in section(page, "quality")


@pytest.mark.parametrize(("seconds", "tone"), [(100, "warn"), (700, "bad")])
def test_a_run_that_is_silent_is_not_healthy(tmp_path, seconds, tone):
    """First a warning, then red; the figure says for how long."""
    Log(tmp_path / "run").steps(healthy()).flush()
    page = live_page(viewed(tmp_path / "run", judged=False), NOW + seconds - 1)
    assert page.tone == tone
    assert page.headline == f"Nothing was heard for {ago(seconds)}"
    assert [figure.tone for figure in page.figures if figure.label == "metrics_ingest_lag"] == [tone]


def test_before_the_first_step_and_after_the_last(tmp_path):
    """Neither is an incident."""
    log = Log(tmp_path / "run").flush()
    view = viewed(tmp_path / "run", judged=False)
    assert live_page(view, NOW).headline == "Waiting for the first step"
    log.steps([2.0]).end()
    view.read(math.inf)
    assert live_page(view, NOW + 1e6).headline == "Ended at step 1"


def test_an_incident_comes_first_until_somebody_acknowledges_it(tmp_path):
    """Its severity, what was seen and what is safe stand in the headline's box, with its id for the button."""
    Log(tmp_path / "run").steps([*healthy(100), math.nan, math.nan]).flush()
    view = viewed(tmp_path / "run")
    page = live_page(view, NOW)
    opened = [item for item in view.incidents() if item.rule == "loss_not_finite"]
    assert page.headline == "1 incident open, the gravest SEV0: loss not finite"
    assert page.tone == "bad"
    assert f'data-incident="{opened[0].id}"' in render(page)
    assert "Safe action Stop the run" in section(page, "top")
    for item in view.incidents():
        acknowledge(tmp_path / "run", item.id, "ana", "back to step 90")
    page = live_page(view, NOW)
    assert page.tone == "warn"
    assert "what is acknowledged still fires" in page.headline
    assert "Acknowledged by ana : back to step 90" in section(page, "alerts")
    assert "data-incident" not in render(page)


def test_the_loss_has_its_band_and_a_spike_is_shaded(tmp_path):
    """The detector follows the losses; after a resume it begins anew."""
    losses = healthy()
    losses[200:203] = [4.0, 4.0, 4.0]
    Log(tmp_path / "run").steps(losses).flush()
    view = viewed(tmp_path / "run")
    assert view.episodes() == [(201, 203)]
    figure = next(one for one in live_page(view, NOW).charts if one.id == "live-loss")
    assert [span[:2] for span in figure.chart.spans] == [(201, 203)]
    step, low, high = figure.chart.band[100]
    assert low < losses[int(step) - 1] < high
    Log(tmp_path / "run", first=151).steps(healthy(100, seed=1)).flush()
    view.read(math.inf)
    assert view.tiles.step == 250
    assert view.episodes() == []


def test_the_average_of_losses_is_that_of_a_plain_loop(tmp_path):
    """However the log came, without what is not finite."""
    losses = (healthy(1_300) + np.linspace(3, 0, 1_300)).tolist()
    losses[700] = math.nan
    log, view, total, weight = Log(tmp_path / "run"), None, 0.0, 0.0
    for first, last in ((0, 3), (3, 900), (900, 1_300)):
        log.steps(losses[first:last]).flush()
        view = view or RunView(tmp_path / "run")
        view.read(math.inf)
    for loss in losses:
        total, weight = (0.99 * total + loss, 0.99 * weight + 1) if math.isfinite(loss) else (total, weight)
    assert view.ema.newest == (1_300, pytest.approx(total / weight, rel=1e-5))


def test_overflow_and_waiting_are_derived(tmp_path):
    """Tokens a second, the share of waiting, and the parts of a step's time add up."""
    values = {"step_time": 1.0, "dataloader_wait": 0.25, "comm_time_frac__exposed": 0.5}
    Log(tmp_path / "run").steps(healthy(), **values).flush()
    page = live_page(viewed(tmp_path / "run", judged=False), NOW)
    text = section(page, "efficiency")
    assert "tokens_per_sec 1000 tokens/s" in text
    assert "dataloader_stall_frac 0.25 ratio" in text
    assert "waiting for batches 25%, communication alone 50%, computing and the rest 25%" in section(page, "time")
    chart = next(one for one in page.charts if one.id == "time-split").chart
    assert chart.stacked
    assert np.allclose(np.sum([values for *_, values in chart.series], axis=0), 1.0)


def test_tokens_a_second_are_of_the_ranks_that_there_were(tmp_path):
    """Four for 600 steps of a second, 1,000 tokens each, then two; the second of these is a flush behind."""
    begin_run(tmp_path / "run", sources=("web",), ranks=4)
    for ranks, steps in ((4, range(1, 601)), (2, range(601, 1_201))):
        supersede_ranks(tmp_path / "run", ranks, steps[0], 1)
        for rank in range(ranks):
            log = RankWriter(tmp_path / "run", rank, steps[0], 1)
            log.add("events", event(steps[0] - 1, "started", {"ranks": ranks}))
            for step in steps[: -30 if (ranks, rank) == (2, 1) else None]:
                row = {"micro_batches": 1, "targets": 1_000, "scored": 0, "loss_sum": 0.0, "merged": 0}
                row = {name: [value] for name, value in row.items()}
                log.add_step(step, {"step": [step], "time": [1e9 + step], **row, "user_loss": [2.0]})
            log.close()
    view = RunView(tmp_path / "run")
    view.read(math.inf)
    rate = _rate(view, view.tiles)
    assert rate.mean[rate.step < 590] == pytest.approx(4_000, rel=0.1)
    assert rate.mean[rate.step > 620] == pytest.approx(2_000, rel=0.1)


def test_data_by_hour_stand_beside_the_manifest(tmp_path):
    """A declared share that the run misses is the lead; tokens of another kind are beyond chance."""
    rows = [
        made_manifest.shard("a.jsonl", tokens=500_000),
        made_manifest.shard("b.jsonl", tokens=500_000, sources={"code": 500_000}),
    ]
    mixture = {"web": 0.5, "code": 0.5}
    manifest = load_manifest_of(tmp_path / "manifest", rows, mixture)
    log = Log(tmp_path / "run", manifest=manifest.id).steps(healthy(), context=128.0, positions=1_250.0)
    log.table("lengths", step=[300, 300], source=[0, 1], length=[100, 50], stretches=[2_400, 1_200], begun=[9, 9])
    log.flush()
    page = live_page(viewed(tmp_path / "run", judged=False, manifest=manifest), NOW)
    text = section(page, "data-hours")
    assert "web is 80.0 % of the tokens trained on; the mixture declares 50.0 %." in text
    assert "01-12 13:" in text
    assert "20.0 %" in text  # padding, and the share of code
    assert any("declares" in spell(point.text, PLAIN) for point in page.findings)


def load_manifest_of(folder, rows, mixture):
    """Publish a manifest and load it."""
    made_manifest.make(folder, rows, mixture=mixture)
    return load_manifest(folder)


def test_another_manifest_is_refused(tmp_path):
    """Ordinals and shares mean nothing in another."""
    manifest = load_manifest_of(tmp_path / "manifest", [made_manifest.shard("a.jsonl")], None)
    Log(tmp_path / "run", manifest="sha256:" + "1" * 64).flush()
    with pytest.raises(ConfigError, match="is the log of a run on the manifest"):
        RunView(tmp_path / "run", manifest=manifest)


def test_several_runs_have_one_axis(tmp_path):
    """The further run is a line of the loss and of each panel, under its name."""
    for name, seed in (("new", 0), ("old", 1)):
        Log(tmp_path / name).steps(healthy(seed=seed), grad_global_norm=1.0 + seed).flush()
    page = live_page(viewed(tmp_path / "new", judged=False, beside=[tmp_path / "old"]), NOW)
    charts = {one.id: one.chart for one in page.charts}
    for figure in ("live-loss", "icu-grad_global_norm"):
        assert [spell(name, PLAIN) for name, *_ in charts[figure].series] == ["new", "old"]
    assert charts["icu-grad_global_norm"].series[1][2][-1] == 2.0


def test_newest_steps_alone(tmp_path):
    """Lines begin where the reader asks; the headline is of the whole run."""
    Log(tmp_path / "run").steps(healthy()).flush()
    view = viewed(tmp_path / "run", judged=False)
    view.first = 250
    chart = next(one for one in live_page(view, NOW).charts if one.id == "live-loss").chart
    assert min(chart.series[0][1]) >= 250


def test_what_the_run_did_by_itself_is_on_both_pages(tmp_path):
    """With the step, the result and the rule's reason, the newest first."""
    log = Log(tmp_path / "run").steps(healthy())
    for step, name in ((100, "protect_last_good"), (120, "stop")):
        record = {"action": name, "result": "done", "words": "as asked", "why": "nan: loss is nan"}
        log.writer.add("events", event(step, "action", record))
    log.end()
    text = section(live_page(viewed(tmp_path / "run", judged=False), NOW), "alerts")
    assert "120 stop done as asked nan: loss is nan 100 protect_last_good done" in text
    assert "120 stop done as asked" in section(run_page(load_run(tmp_path / "run")), "alerts")


def test_names_of_a_log_are_shown_and_not_obeyed(tmp_path):
    """A source, a metric and an incident from a hostile log are text on the page and in a terminal."""
    bad = "<img src=x onerror=alert(1)>\x1b[31m"
    log = Log(tmp_path / "run", sources=(bad, "web")).steps(healthy(), **{f"val_loss.{bad}": 1.0})
    log.table("lengths", step=[300], source=[0], length=[100], stretches=[10], begun=[1])
    log.flush()
    folder = tmp_path / "run/alerts/evil"
    folder.mkdir(parents=True)
    alert = {"rule": bad, "severity": 0, "seen": bad, "first_step": "x"}
    record = {"severity": "0", "first_step": [], "ranks": [bad], "alerts": [alert, "no"], "opened": bad}
    (folder / "incident.json").write_text(json.dumps(record))
    view = viewed(tmp_path / "run")
    html = render(live_page(view, NOW))
    assert "<img" not in html
    assert "\x1b" not in html
    console = Console(width=120, height=80, record=True, force_terminal=True)
    console.print(screen_of(view, now=NOW))
    assert "\x1b[31m<" not in console.export_text(styles=False)


def test_the_terminal_shows_health_incidents_and_lines(tmp_path):
    """With a line of each number."""
    log = Log(tmp_path / "run").steps([*healthy(100), math.nan, math.nan], grad_global_norm=1.0)
    log.table("lengths", step=[102, 102], source=[0, 1], length=[1, 1], stretches=[3, 1], begun=[1, 1]).flush()
    console = Console(width=140, height=80, record=True)
    console.print(screen_of(viewed(tmp_path / "run"), now=NOW))
    text = console.export_text()
    assert "the gravest SEV0: loss not finite" in text
    assert "SEV0  step00000101-numerics" in text
    assert re.search(r"step ICU +train_loss_ema +2\.\d+ +nats/token +[▁▂▃▄▅▆▇█]+", text)
    assert re.search(r"data +web +75.0% +of tokens", text)


def test_a_line_of_cells_goes_from_the_least_to_the_largest():
    """A flat line is at the bottom."""
    from dataaudit.live.tiles import Buckets

    def line(values):
        mean = np.array(values, float)
        return sparkline(Buckets(np.arange(len(mean)), mean, mean, mean, 1))

    assert line([0, 1, 2, 7]) == "▁▂▃█"
    assert line([3, 3]) == "▁▁"


def test_times_are_in_words():
    """In the unit that fits."""
    assert [ago(value) for value in (5, 150, 7_300, 200_000)] == ["5 s", "2.5 min", "2.03 h", "2.31 days"]
