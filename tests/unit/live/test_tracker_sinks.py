"""A sink of a tracker never keeps a run waiting: what it does not take is lost, and counted to the value."""

import json
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from dataaudit.live import Alerts, JSONLinesSink, PrometheusSink, TrackerSink
from dataaudit.live.sinks.forwarding import LOSS_EDGES, Forwarding
from dataaudit.live.sinks.series import BINS, Series, moments
from dataaudit.runlog.reader import load_run
from dataaudit.runlog.writer import event
from dataaudit.vitals.sinks import MemorySink, RunLogSink, histogram_columns

ROOT = Path(__file__).parents[3]
EDGES = np.array([0.0, 1.0, np.inf])


def rows(step, *own):
    """Return rows of the table of values: (metric, layer, head, stat, value) each."""
    metric, layer, head, stat, value = zip(*own, strict=True)
    return {
        "step": np.full(len(own), step),
        "metric": list(metric),
        "layer": np.array(layer),
        "head": np.array(head),
        "stat": list(stat),
        "value": np.array(value, float),
    }


def whole(step, **numbers):
    """Return rows of numbers of the whole run."""
    return rows(step, *((name, -1, -1, "value", value) for name, value in numbers.items()))


class Recorded(TrackerSink):
    """Keeps what it writes; waits at its gate, and fails where it is to."""

    NAME = "the recorder"

    def __init__(self, fails=(), gate=None, **options):
        super().__init__(**{"every": 0.0} | options)
        self.fails, self.gate, self.seen, self.calls = set(fails), gate, [], []

    def call(self, name):
        self.calls.append((name, threading.current_thread() is threading.main_thread()))
        if self.gate is not None:
            self.gate.wait()
        if name in self.fails:
            raise OSError(28, "the text of the error")

    def open(self):
        self.call("open")

    def write_scalars(self, step, numbers):
        self.call("scalars")
        self.seen += [(step, name, value) for name, value in numbers.items()]

    def write_histogram(self, step, name, histogram):
        self.call("histogram")
        self.seen.append((step, name, histogram.counts.tolist()))

    def write_event(self, step, kind, detail):
        self.call("event")
        self.seen.append((step, kind, detail))

    def flush(self):
        self.call("flush")

    def shut(self):
        self.call("shut")


def test_values_histograms_and_events_reach_a_tracker_on_a_thread_of_its_own():
    with Recorded(prefix="own/") as sink:
        sink.add_values(whole(1, grad_global_norm=0.5, **{"val_loss.web": 2.0}))
        sink.add_histogram(1, "train_loss_raw", "segments", EDGES, np.array([3, 4]))
        sink.add_event(1, "flagged", {"kind": "spike"})
    expected = [(1, "own/grad_global_norm", 0.5), (1, "own/val_loss/web", 2.0)]
    expected += [(1, "own/train_loss_raw/segments", [3, 4]), (1, "flagged", {"kind": "spike"})]
    assert sorted(sink.seen, key=str) == sorted(expected, key=str)
    assert (sink.written, sink.lost) == ({"values": 2, "histograms": 1, "events": 1}, {})
    assert {main for _, main in sink.calls} == {False}
    assert [sink.calls[0][0], sink.calls[-1][0]] == ["open", "shut"]


def test_layers_and_heads_are_summed_up_over_their_newest_values_unless_asked_for():
    """A layer that has no turn at a step counts with its last value; a NaN takes no turn."""
    series = Series(by_layer={"grad_norm"}, by_head="all")
    first = rows(1, ("grad_norm", 0, -1, "value", 1.0), ("grad_norm", 1, -1, "value", 3.0), ("a", 0, 2, "s", 5.0))
    (taken,) = series.take(first).values()
    names = {(key.metric, key.layer, key.head, key.stat): value for key, value in taken.numbers.items()}
    of_layers = {("grad_norm", -1, -1, f"layers_{over}"): own for over, own in (("min", 1), ("mean", 2), ("max", 3))}
    of_heads = {("a", -1, -1, f"s/heads_{over}"): 5.0 for over in ("min", "mean", "max")}
    assert names == {("grad_norm", 0, -1, "value"): 1.0, ("grad_norm", 1, -1, "value"): 3.0, ("a", 0, 2, "s"): 5.0} | (
        of_layers | of_heads
    )
    assert [(own.metric, own.stat, own.counts.sum(), len(own.counts)) for own in taken.histograms] == [
        ("grad_norm", "layers", 2, BINS)
    ]
    second = rows(2, ("grad_norm", 1, -1, "value", 9.0), ("grad_norm", 0, -1, "value", np.nan))
    (taken,) = series.take(second).values()
    newest = {key.stat: value for key, value in taken.numbers.items() if key.layer < 0}
    assert newest == {"layers_min": 1.0, "layers_mean": 5.0, "layers_max": 9.0}


def test_heads_of_a_large_model_are_few_series_and_no_more_than_the_cap_where_asked_for(caplog):
    heads = [("attn_entropy", layer, head, "value", 1.0) for layer in range(40) for head in range(40)]
    with Recorded() as sink:
        sink.add_values(rows(1, *heads))
    assert (len({name for _, name, _ in sink.seen if isinstance(name, str)}), sink.capped) == (4, 0)
    with Recorded(by_head="all", most_series=100) as sink:
        sink.add_values(rows(1, *heads))
    assert (sum(isinstance(value, float) for *_, value in sink.seen), sink.capped) == (100, 1503)
    assert "1,503 values of series beyond most_series" in caplog.text


def test_a_tracker_that_hangs_costs_the_oldest_histograms_first_and_no_time():
    """Then the oldest values; events last. Every value is written, lost, or both counts would disagree."""
    gate = threading.Event()
    sink = Recorded(gate=gate, most_waiting=50, close_seconds=0.2)
    began = time.monotonic()
    for step in range(1, 41):
        sink.add_values(whole(step, loss=float(step)))
        sink.add_histogram(step, "m", "value", EDGES, np.array([1, 1]))
        sink.add_event(step, "flagged", {})
    assert sink.lost["histograms"] == 40
    assert sink.lost["values"] >= 30
    assert not sink.lost["events"]
    sink.close()
    assert time.monotonic() - began < 5
    assert sink.lost == {"values": 40, "histograms": 40, "events": 40}
    gate.set()
    sink._worker._thread.join(5)
    assert sink.lost == {"values": 40, "histograms": 40, "events": 40}
    assert not sink.written
    assert sink.failure == "no answer within 0.2 s"


def test_a_tracker_that_fails_costs_what_it_was_given_and_its_error_shows_no_text(caplog):
    with Recorded(fails={"scalars"}) as sink:
        for step in (1, 2):
            sink.add_values(whole(step, loss=1.0, norm=2.0))
        sink.add_event(1, "flagged", {})
    assert (sink.lost, sink.written) == ({"values": 4}, {"events": 1})
    assert sink.failure.startswith("OSError at test_tracker_sinks.py:")
    assert "training goes on" in caplog.text
    assert "4 values" in caplog.text
    assert "the text of the error" not in caplog.text


def test_what_a_flush_could_not_bring_is_lost():
    with Recorded(fails={"flush"}) as sink:
        sink.add_values(whole(1, loss=1.0))
    assert (sink.lost, sink.written) == ({"values": 1}, {})


def test_a_tracker_that_is_dead_at_first_gets_what_waited_for_it():
    """It is tried again; until then values wait."""
    sink = Recorded(fails={"open"})
    sink.add_values(whole(1, loss=1.0))
    for _ in range(100):
        if sink.failure:
            break
        time.sleep(0.02)
    sink.fails.clear()
    for _ in range(200):
        if sink.seen:
            break
        time.sleep(0.02)
    sink.close()
    assert sink.seen == [(1, "loss", 1.0)]
    assert not sink.lost


def test_rows_that_are_none_cost_themselves_and_what_comes_after_the_end_is_lost():
    with Recorded() as sink:
        sink.add_values({"metric": ["loss"], "step": [1]})
        sink.add_values(whole(1, loss=1.0))
    sink.add_values(whole(2, loss=1.0))
    assert (sink.lost, sink.written) == ({"values": 2}, {"values": 1})
    assert "KeyError" in sink.failure


def test_a_sink_that_nobody_closes_writes_when_the_process_ends(tmp_path):
    code = "import sys\nfrom dataaudit.live import JSONLinesSink\nJSONLinesSink(sys.argv[1]).add_event(3, 'a', {})"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "own.jsonl")], check=True, timeout=60)
    assert json.loads((tmp_path / "own.jsonl").read_text("utf-8"))["event"] == "a"


FULL = """
import resource, signal, sys, time
from dataaudit.live import JSONLinesSink
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sink = JSONLinesSink(sys.argv[1], every=0.0)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
for step in range(200):
    sink.add_event(step, "flagged", {"kind": "spike"})
    time.sleep(0.002)
sink.close()
print(sink.written["events"], sink.lost["events"])
"""


def test_a_full_disk_costs_lines_and_leaves_no_half_line(tmp_path):
    path = tmp_path / "run.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], check=True, capture_output=True, text=True, timeout=60
    )
    written, lost = map(int, done.stdout.split())
    assert written + lost == 200
    assert lost > 100
    assert len([json.loads(line) for line in path.read_bytes().splitlines()]) == written
    assert "training goes on" in done.stderr


def test_json_lines_hold_what_was_given_and_null_where_it_is_not_finite(tmp_path):
    with JSONLinesSink(tmp_path / "deep/run.jsonl") as sink:
        sink.add_values(whole(7, loss=0.1 + 0.2, norm=np.nan))
        sink.add_histogram(7, "train_loss_raw", "segments", EDGES, np.array([3, 4]))
        sink.add_event(7, "flagged", {"kind": "spike"})
    lines = [json.loads(line) for line in (tmp_path / "deep/run.jsonl").read_text("utf-8").splitlines()]
    assert {line.pop("step") for line in lines} == {7}
    assert all(abs(line.pop("time") - time.time()) < 60 for line in lines)
    assert lines[0] == {"values": {"loss": 0.1 + 0.2, "norm": None}}
    assert lines[1] == {"histogram": "train_loss_raw/segments", "edges": [0.0, 1.0, None], "counts": [3, 4]}
    assert lines[2] == {"event": "flagged", "detail": {"kind": "spike"}}


@pytest.mark.parametrize("before", ["", '{"step":1}\n', '{"step":1,"val'])
def test_json_lines_go_on_behind_a_line_that_was_cut(tmp_path, before):
    """It took the first record of the next start with it, which counted as written."""
    path = tmp_path / "run.jsonl"
    path.write_text(before)
    with JSONLinesSink(path) as sink:
        sink.add_values(whole(7, loss=3.0))
    lines = path.read_text("utf-8").splitlines()
    assert json.loads(lines[-1])["values"] == {"loss": 3.0}
    assert lines[:-1] == before.splitlines()


def test_metrics_whose_names_become_the_same_are_two_families(tmp_path):
    """Prometheus refuses a page with a series twice."""
    parser = pytest.importorskip("prometheus_client.parser", reason="Prometheus's client reads what is offered")
    with PrometheusSink(file=tmp_path / "run.prom") as sink:
        sink.add_values(whole(3, **{"eval/acc": 1.0, "eval_acc": 2.0, "lost": 7.0, "loss": 3.0}))
    families = list(parser.text_string_to_metric_families((tmp_path / "run.prom").read_text()))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    values = {family.name[:20]: family.samples[0].value for family in families if "eval" in family.name}
    assert sorted(values.values()) == [1.0, 2.0]
    assert {"dataaudit_eval_acc", "dataaudit_loss", "dataaudit_lost"} < set(names)


def test_a_histogram_in_a_run_log_is_counts_up_to_each_edge(tmp_path):
    with RunLogSink(tmp_path / "run") as sink:
        sink.add_histogram(3, "train_loss_raw", "segments", EDGES, np.array([3, 4]))
    table = load_run(tmp_path / "run").table("values").to_pylist()
    assert [(row["step"], row["metric"], row["stat"], row["value"]) for row in table] == [
        (3, "train_loss_raw", "segments_le_1", 3.0),
        (3, "train_loss_raw", "segments_le_inf", 7.0),
    ]
    assert histogram_columns(3, "m", "s", EDGES, np.array([1, 1]))["head"].tolist() == [-1, -1]


def test_percentiles_of_a_histogram_lie_within_its_bins():
    own = Series().take(rows(1, *(("m", layer, -1, "value", layer / 99) for layer in range(100))))[1].histograms[0]
    for name, expected in (("p5", 0.05), ("p50", 0.5), ("p95", 0.95)):
        assert moments(own)[name] == pytest.approx(expected, abs=0.02)


def test_rows_of_a_log_reach_sinks_by_the_names_of_metrics():
    """Loss, tokens, shares, losses by source and their histogram, values as they are, events."""
    sink = MemorySink()
    own = Forwarding([sink], ("web", "code"), 0, 0)
    own.take("events", event(0, "started", {"sparse": {"skipped_updates": 0.0}}))
    for step in (1, 2):
        for losses, source in (([1.0, 3.0], 0), ([2.0, np.nan], 1)):  # two micro-batches
            loss = np.ma.masked_invalid(np.array(losses, np.float32))
            own.take("stretches", segments(step, loss, source))
        own.take("values", whole(step, grad_global_norm=0.25 * step))
        own.take(
            "lengths", {"step": [step] * 2, "source": [0, 1], "length": [1, 3], "stretches": [3, 1], "begun": [0, 0]}
        )
        own.take("steps", step_row(step))
    at = {(metric, stat): value for step, metric, _, _, stat, value in sink.values if step == 2}
    assert at["train_loss_raw", "value"] == 2.5
    assert at["grad_global_norm", "value"] == 0.5
    assert at["loss_by_source", "web"] == pytest.approx((1 * 10 + 3 * 30) / 40)
    assert at["loss_by_source", "code"] == 2.0
    assert (at["source_mix_share", "web"], at["source_mix_share", "code"]) == (0.5, 0.5)
    assert (at["tokens_seen", "value"], at["tokens_per_update", "value"]) == (200.0, 100.0)
    assert at["skipped_updates", "value"] == 0.0
    assert len(sink.values) == len({(step, *key) for step, *key, _ in sink.values}), "no number comes twice"
    assert [(step, metric, stat, sum(counts)) for step, metric, stat, _, counts in sink.histograms] == [
        (step, "train_loss_raw", "segments", 3) for step in (1, 2)
    ]
    assert sink.histograms[0][4][LOSS_EDGES.tolist().index(3.0)] == 1
    assert [kind for _, kind, _ in sink.events] == ["started"]


def segments(step, loss, source):
    number = len(loss)
    columns = {"step": np.full(number, step), "source": np.full(number, source), "loss": loss}
    return columns | {"targets": np.array([10, 30]), "shard": np.zeros(number, np.int64)}


def step_row(step):
    row = {"step": [step], "time": [float(step)], "micro_batches": [2], "targets": [100], "scored": [70]}
    return row | {"loss_sum": [140.0], "user_loss": [2.5], "merged": [0]}


def test_alerts_reach_the_sinks_of_a_run(tmp_path):
    with Alerts(tmp_path / "run", sinks=[sink := MemorySink()]) as alerts:
        alerts.add_event(7, "nan_inf", {"what": "grad_global_norm"})
        alerts.add_histogram(7, "train_loss_raw", "segments", EDGES, np.array([3, 4]))
    ((step, kind, detail),) = sink.events
    assert (step, kind, detail["severity"], detail["news"]) == (7, "alert", 0, "opened")
    assert "grad_global_norm" in detail["alerts"][0]["seen"]


def test_a_sink_that_raises_ends_no_run_and_is_counted(caplog):
    """Here one that is none of ours, in the log's thread."""

    class Broken(MemorySink):
        def add_values(self, columns):
            raise RuntimeError

    caplog.set_level(logging.WARNING)
    own = Forwarding([Broken(), kept := MemorySink()], (), 0, 0)
    own.take("values", whole(1, loss=1.0))
    assert own.reporter.lost == 1
    assert kept.values
    assert "training goes on" in caplog.text
