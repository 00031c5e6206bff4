"""One real run in the trackers' own readers: what they show is what the log has; and what becomes of a full disk.

`make test-frameworks` installs the trackers and Prometheus, and counts a test that is skipped as failed.
"""

import contextlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from made_corpus import MadeCorpus

from dataaudit.base.errors import ConfigError
from dataaudit.live import Alerts, JSONLinesSink, MLflowSink, PrometheusSink, TensorBoardSink, WandbSink
from dataaudit.runlog.reader import load_run

torch = pytest.importorskip("torch", reason="the run is torch's")
accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="TensorBoard's reader is what is tested"
)
wandb = pytest.importorskip("wandb", reason="W&B is what is tested")
mlflow = pytest.importorskip("mlflow", reason="MLflow is what is tested")
prometheus_client = pytest.importorskip("prometheus_client", reason="Prometheus's client is what is tested")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # those of other people's libraries
ROOT = Path(__file__).parents[3]
PROMETHEUS = os.environ.get("PROMETHEUS") or shutil.which("prometheus")
ROWS, CONTEXT, STEPS = 4, 64, 40
CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs: [{{job_name: run, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}]
"""


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Rows of a corpus that was opened, packed; and the corpus."""
    from dataaudit.training.documents import Documents, byte_encoder
    from dataaudit.training.packing import PackedDocuments

    corpus = MadeCorpus(tmp_path_factory.mktemp("corpus")).open()
    return PackedDocuments(Documents(corpus, "train", byte_encoder(end=0)), CONTEXT, epochs=3), corpus


def train(packed, folder, sinks, alerts=None):
    """Train a small transformer by a monitor with vitals; return the bits of its losses and weights."""
    sys.path.insert(0, str(ROOT / "tests/unit/vitals"))
    try:
        from vitals_models import Mapped
    finally:
        sys.path.pop(0)
    from dataaudit.training.monitor import TrainingMonitor
    from dataaudit.vitals import Mapping, Vitals, VitalsConfig

    rows, corpus = packed
    torch.manual_seed(0)
    model = Mapped()
    model.embedding, model.head = torch.nn.Embedding(256, 64), torch.nn.Linear(64, 256, bias=False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    mapping = Mapping(layers="blocks", attention="attention", heads=4, mlp="mlp")
    config = VitalsConfig(mapping=mapping, interval=1, adapt=False, window=16)
    losses = []
    with contextlib.ExitStack() as stack:
        monitor = None
        if folder is not None:
            given = {"optimizer": optimizer, "sinks": sinks, "alerts": alerts}
            monitor = stack.enter_context(TrainingMonitor(folder, corpus, **given))
            vitals = stack.enter_context(Vitals(model, optimizer, config, [monitor]))
        loader = torch.utils.data.DataLoader(rows, ROWS, drop_last=True)
        feed = iter(loader if monitor is None else monitor.loader(loader))
        for step in range(STEPS):
            batch = next(feed)
            with contextlib.nullcontext() if monitor is None else vitals.step():
                optimizer.zero_grad()
                logits = model(batch["input_ids"])
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
                loss.backward()
                if monitor is not None:
                    monitor.clip_grad_norm_(model.parameters(), 1.0)
                else:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            if monitor is not None:
                monitor.batch(batch["tags"], logits=logits, labels=batch["labels"])
                monitor.step(loss)
                if step == 20:
                    monitor.validation(3.25, "web")
            losses.append(loss.detach().numpy().tobytes())
    return losses, [item.detach().numpy().tobytes() for item in model.parameters()]


class Server:
    """A Prometheus that asks a port each second."""

    def __init__(self, folder, port):
        folder.mkdir()
        (folder / "prometheus.yml").write_text(CONFIG.format(port=port), "utf-8")
        self.own = 20_000 + os.getpid() % 20_000
        command = [PROMETHEUS, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
        command.append(f"--web.listen-address=127.0.0.1:{self.own}")
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def query(self, text):
        """Return the series of an expression: labels and the newest value."""
        address = f"http://127.0.0.1:{self.own}/api/v1/query?{urllib.parse.urlencode({'query': text})}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            found = json.loads(answer.read())["data"]["result"]
        return [(item["metric"], float(item["value"][1])) for item in found]

    def wait(self, text, seconds=30):
        """Wait until an expression has series."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                if found := self.query(text):
                    return found
            time.sleep(0.2)
        raise AssertionError(f"no series within {seconds} s: {text}")

    def close(self):
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture(scope="module")
def monkeypatch_module():
    """As pytest's own, for fixtures of the module."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def run(packed, tmp_path_factory, monkeypatch_module):
    """A run with all trackers at once: its folder, its sinks, and what Prometheus answers to the dashboards."""
    if PROMETHEUS is None:
        pytest.skip("Prometheus's server is what is tested: set PROMETHEUS, or apt-get install prometheus")
    folder = tmp_path_factory.mktemp("run")
    monkeypatch_module.chdir(folder)  # W&B leaves a folder where it begins
    init = {"mode": "offline", "dir": str(folder), "project": "own", "settings": wandb.Settings(silent=True)}
    sinks = {
        "tensorboard": TensorBoardSink(folder / "tb", close_seconds=60),
        "wandb": WandbSink(init=init, close_seconds=60),
        "mlflow": MLflowSink(f"sqlite:///{folder / 'runs.db'}", name="own", close_seconds=120),
        "prometheus": PrometheusSink(port=0, file=folder / "run.prom", run="own", rank=0, every=0.2),
        "json": JSONLinesSink(folder / "run.jsonl"),
    }
    sinks["prometheus"].add_event(0, "began", {})  # its port opens with what comes first
    while not sinks["prometheus"].port:
        time.sleep(0.05)
    server = Server(folder / "server", sinks["prometheus"].port)
    try:
        server.wait("dataaudit_step")
        with Alerts(folder / "log", sinks=list(sinks.values())) as alerts:
            bits = train(packed, folder / "log", list(sinks.values()), alerts)
        server.wait(f"dataaudit_step == {STEPS}")
        time.sleep(2.5)  # two more scrapes: rates need them
        answers = {text: server.query(text.replace("$run", ".*").replace("$rank", ".*")) for text in queries()}
        newest = server.query("dataaudit_train_loss_raw")
    finally:
        server.close()
        for sink in sinks.values():
            sink.close()
    return folder, sinks, bits, answers, newest


def queries():
    """Return the expressions of all dashboards."""
    found = []
    for path in sorted((ROOT / "dataaudit/live/dashboards").glob("*.json")):
        panels = json.loads(path.read_text("utf-8"))["panels"]
        found += [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return found


@pytest.fixture(scope="module")
def logged(run):
    """What the log has of the whole model: number by series and step."""
    log = load_run(run[0] / "log")
    found = {}
    for row in log.table("values").to_pylist():
        if row["layer"] < 0 and row["head"] < 0:
            name = row["metric"].replace(".", "/", 1) + ("" if row["stat"] == "value" else f"/{row['stat']}")
            found[name, row["step"]] = row["value"]
    for row in log.table("steps").to_pylist():
        found["train_loss_raw", row["step"]] = row["user_loss"]
    return found


@pytest.fixture(scope="module")
def summed_up(run):
    """What the log has of layers and heads: least, mean and largest of the newest value of each, by series and step."""
    newest, found = {}, {}
    rows = load_run(run[0] / "log").table("values").to_pylist()
    for row in sorted(rows, key=lambda row: row["step"]):
        if (row["layer"] < 0 and row["head"] < 0) or np.isnan(row["value"]):
            continue
        group = (row["metric"], row["stat"], row["head"] >= 0)
        newest.setdefault(group, {})[row["layer"], row["head"]] = row["value"]
        name = "/".join([row["metric"], *([] if row["stat"] == "value" else [row["stat"]])])
        values = list(newest[group].values())
        for over, value in (("min", min(values)), ("mean", float(np.mean(values))), ("max", max(values))):
            found[f"{name}/{'heads' if row['head'] >= 0 else 'layers'}_{over}", row["step"]] = value
    return found


def same(found, expected):
    """Compare numbers by series and step: exactly, but means, whose sums have another order."""
    assert len(expected) > 200
    missing = [key for key in expected if key not in found]
    assert not missing, missing[:5]
    for key, value in expected.items():
        own = pytest.approx(value, rel=1e-12) if key[0].endswith("_mean") else value
        assert found[key] == own or (np.isnan(value) and np.isnan(found[key])), key


def test_nothing_was_lost_and_no_bit_of_the_run_is_another(run, packed):
    _, sinks, bits, _, _ = run
    assert {name: (dict(sink.lost), sink.capped, sink.failure) for name, sink in sinks.items()} == dict.fromkeys(
        sinks, ({}, 0, "")
    )
    assert bits == train(packed, None, ())


def test_tensorboards_own_reader_has_the_logs_numbers(run, logged, summed_up):
    from tensorboard.util.tensor_util import make_ndarray

    reader = accumulator.EventAccumulator(str(run[0] / "tb"), {"tensors": 0, "histograms": 0}).Reload()
    tags = reader.Tags()
    texts = [tag for tag in tags["tensors"] if tag.startswith("events/")]
    found = {
        (tag, item.step): float(make_ndarray(item.tensor_proto))
        for tag in tags["tensors"]
        if tag not in texts
        for item in reader.Tensors(tag)
    }
    same(found, logged | summed_up)
    assert {"events/started", "events/closed"} <= set(texts)
    text = make_ndarray(reader.Tensors("events/closed")[0].tensor_proto).item().decode()
    assert json.loads(text.strip("`\n"))["lost_steps"] == 0
    segments = reader.Histograms("train_loss_raw/segments")
    assert [item.step for item in segments] == [*range(1, STEPS + 1)]
    scored = sum(row["stretches"] for row in load_run(run[0] / "log").table("lengths").to_pylist())
    assert sum(item.histogram_value.num for item in segments) == scored
    assert reader.summary_metadata["train_loss_raw"].plugin_data.plugin_name == "scalars"


def test_mlflows_own_reader_has_the_logs_numbers(run, logged, summed_up):
    """Names that it does not take have a digest; here there is none."""
    folder, sinks = run[:2]
    client = mlflow.tracking.MlflowClient(f"sqlite:///{folder / 'runs.db'}")
    own = client.get_run(sinks["mlflow"].run)
    assert (own.info.status, own.info.run_name) == ("FINISHED", "own")
    found = {}
    for name in own.data.metrics:
        for item in client.get_metric_history(sinks["mlflow"].run, name):
            found[name, item.step] = item.value
    same(found, logged | summed_up)
    assert json.loads(own.data.tags["newest/closed"])["lost_steps"] == 0
    assert ("train_loss_raw/segments/p50", STEPS) in found


def test_wandbs_own_records_have_the_logs_numbers(run, logged, summed_up):
    """Of its file: the framing is LevelDB's, the records are read by its own messages."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = (run[0] / "wandb").glob("offline-run-*/run-*.wandb")
    found, kinds = {}, set()
    for data in log_records(path.read_bytes()[7:]):
        record = Record.FromString(data)
        items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        if "step" in items:
            numbers = {name: value for name, value in items.items() if isinstance(value, int | float)}
            found |= {(name, int(items["step"])): value for name, value in numbers.items()}
            kinds |= {name for name, value in items.items() if value == "histogram"}
    same(found, logged | summed_up)
    assert "train_loss_raw/segments/histogram/_type" in kinds
    assert found["events/closed", STEPS] == 1


def log_records(data):
    """Yield the records of a log of LevelDB: blocks of 32 KiB, parts with checksum, length and kind.

    The first block lacks the seven bytes of the file's head.
    """
    whole, at, block = b"", 0, 32_768 - 7
    while at + 7 <= len(data):
        if block < 7:
            at, block = at + block, 32_768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        if kind == 0:
            at, block = at + block, 32_768
            continue
        whole += data[at + 7 : at + 7 + length]
        at, block = at + 7 + length, block - 7 - length
        if kind in (1, 4):
            yield whole
            whole = b""


def test_a_real_prometheus_returns_series_for_every_query_of_the_dashboards(run):
    """After a real run; and the newest loss is the log's."""
    _, _, _, answers, newest = run
    assert len(answers) > 25
    assert [text for text, series in answers.items() if not series] == []
    last = load_run(run[0] / "log").table("steps").to_pylist()[-1]
    assert newest[0][1] == last["user_loss"]
    assert (newest[0][0]["run"], newest[0][0]["rank"], newest[0][0]["stat"]) == ("own", "0", "value")


def test_the_file_of_the_node_exporter_has_the_newest_numbers_and_promtool_takes_it(run, logged):
    from prometheus_client.parser import text_string_to_metric_families

    text = (run[0] / "run.prom").read_text("utf-8")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    (step,) = families["dataaudit_step"].samples
    assert step.value == STEPS
    (clipped,) = families["dataaudit_grad_global_norm"].samples
    assert clipped.value == logged["grad_global_norm", STEPS]
    (validated,) = families["dataaudit_val_loss"].samples
    assert (validated.labels["stat"], validated.value) == ("web", 3.25)
    buckets = [item for item in families["dataaudit_train_loss_raw_segments"].samples if item.labels["le"] == "+Inf"]
    assert buckets[0].value > STEPS
    promtool = Path(PROMETHEUS).with_name("promtool")
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert "error while linting" not in done.stderr


def test_the_port_is_of_this_machine_alone_and_a_sink_without_a_way_out_is_refused(tmp_path):
    with PrometheusSink(port=0, every=0.0) as sink:
        sink.add_event(1, "a", {})
        while not sink.port:
            time.sleep(0.02)
        assert sink._server.server_address[0] == "127.0.0.1"
    with pytest.raises(ConfigError, match=r"needs a `port` on 127.0.0.1, or a `file`"):
        PrometheusSink()
    with pytest.raises(ConfigError, match=r"files that end with .prom, found own.txt"):
        PrometheusSink(file=tmp_path / "own.txt")


def test_a_port_that_is_taken_costs_the_values_and_not_the_run(caplog):
    with PrometheusSink(port=0, every=0.0) as first:
        first.add_event(1, "a", {})
        while not first.port:
            time.sleep(0.02)
        with PrometheusSink(port=first.port, every=0.0) as second:
            second.add_event(1, "a", {})
            time.sleep(0.3)
    assert second.lost == {"events": 1}
    assert "Prometheus takes no values (OSError" in caplog.text


FULL = """
import resource, signal, sys, time, numpy as np
from dataaudit.live import TensorBoardSink
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sink = TensorBoardSink(sys.argv[1], every=0.0)
rows = lambda step: dict(metric=["loss"], step=[step], layer=[-1], head=[-1], stat=["value"], value=[float(step)])
sink.add_values(rows(0))
while not sink.written: time.sleep(0.01)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
for step in range(1, 200):
    sink.add_values(rows(step))
    time.sleep(0.002)
sink.close()
print(sink.written["values"], sink.lost["values"])
"""


def test_tensorboard_reads_what_a_full_disk_left(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], check=True, capture_output=True, text=True, timeout=100
    )
    written, lost = map(int, done.stdout.split())
    assert (written + lost, lost > 100) == (200, True)
    reader = accumulator.EventAccumulator(str(tmp_path), {"tensors": 0}).Reload()
    assert len(reader.Tensors("loss")) == written > 1
    assert "training goes on" in done.stderr


def test_a_tracking_server_that_is_not_there_costs_values_and_no_time():
    """MLflow itself would wait for minutes."""
    sink = MLflowSink("http://127.0.0.1:9", close_seconds=0.5, every=0.0)
    began = time.monotonic()
    sink.add_event(1, "a", {})
    time.sleep(0.2)
    sink.close()
    assert time.monotonic() - began < 5
    assert sink.lost == {"events": 1}


def test_the_python_of_the_page_runs(packed, tmp_path, monkeypatch, capsys):
    """docs/live/trackers.md: each sink gets a run's numbers, and so does the sink of one's own."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/live/trackers.md").read_text("utf-8")
    wiring, own = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    sys.path.insert(0, str(ROOT / "tests/unit/vitals"))
    import vitals_models as made

    sys.path.pop(0)
    model = made.model_of("llama")
    names = {"corpus": packed[1], "model": model, "optimizer": torch.optim.AdamW(model.parameters())}
    exec(wiring.replace("port=9464", "port=0"), names)  # noqa: S102 - our own page
    names["monitor"].validation(1.5)
    names["vitals"].close()
    names["monitor"].close()
    for sink in names["sinks"]:
        sink.close()
        assert (sink.written["values"], dict(sink.lost)) == (1, {}), sink.NAME
    exec(own, names)  # noqa: S102 - our own page
    with names["Printed"]() as sink:
        sink.add_values({"metric": ["a"], "step": [1], "layer": [-1], "head": [-1], "stat": ["value"], "value": [2.0]})
    assert "1 {'a': 2.0}" in capsys.readouterr().out


def test_names_that_mlflow_does_not_take_become_others_each():
    from dataaudit.live.sinks.mlflow import _named

    names = ["loss_by_source/c++", "loss_by_source/c--", "loss_by_source/c__", "a/../b", "/a", "x" * 300, "x" * 301]
    made = [_named(name) for name in names]
    assert len(set(made)) == len(names)
    assert made[2] == names[2]
    for name in made:
        mlflow.utils.validation._validate_metric_name(name)


def test_the_dashboards_are_what_their_script_makes():
    pytest.importorskip("grafana_foundation_sdk", reason="it has Grafana's schema")
    sys.path.insert(0, str(ROOT / "tests/golden"))
    try:
        from make_dashboards import DASHBOARDS, FOLDER, made
    finally:
        sys.path.pop(0)
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.json" for name in DASHBOARDS}
    for name in DASHBOARDS:
        assert (FOLDER / f"{name}.json").read_text("utf-8") == made(name)
