"""Alerts of a real run: torch, tags, the monitor and vitals; and of a run that is killed."""

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from live_logs import file_of, from_another, told
from made_corpus import MadeCorpus

from dataaudit.live.alerts import Alerts
from dataaudit.live.rules import load_alerts
from dataaudit.live.watch import Watch

TESTS = Path(__file__).parents[2]
ROWS, CONTEXT, STEPS, BAD = 4, 64, 40, 30


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Rows of a corpus that was opened, packed; and the corpus."""
    pytest.importorskip("torch", reason="a real run is torch's")
    from dataaudit.training.documents import Documents, byte_encoder
    from dataaudit.training.packing import PackedDocuments

    corpus = MadeCorpus(tmp_path_factory.mktemp("corpus")).open()
    return PackedDocuments(Documents(corpus, "train", byte_encoder(end=0)), CONTEXT, epochs=3), corpus


def train(rows, monitor=None):
    """Train a small transformer, a weight of which is not finite from a step on; return the bits of all losses."""
    import torch
    from torch.nn import functional
    from vitals_models import Mapped

    from dataaudit.vitals import Mapping, Vitals, VitalsConfig

    torch.manual_seed(0)
    model = Mapped()
    model.embedding, model.head = torch.nn.Embedding(256, 64), torch.nn.Linear(64, 256, bias=False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    config = VitalsConfig(mapping=Mapping(layers="blocks", attention="attention", heads=4, mlp="mlp"))
    vitals = None if monitor is None else Vitals(model, optimizer, config, [monitor])
    losses = []
    feed = iter(torch.utils.data.DataLoader(rows, ROWS, drop_last=True))
    for step in range(1, STEPS + 1):
        batch = next(feed)
        if step == BAD:
            with torch.no_grad():
                model.blocks[1].mlp[0].weight[0, 0] = float("nan")
        with contextlib.nullcontext() if vitals is None else vitals.step():
            optimizer.zero_grad()
            logits = model(batch["input_ids"])
            loss = functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
            loss.backward()
            optimizer.step()
        if monitor is not None:
            monitor.batch(batch["tags"], logits=logits, labels=batch["labels"])
            monitor.step(loss)
        losses.append(loss.detach().numpy().tobytes())
    if vitals is not None:
        vitals.close()
    return losses


@pytest.mark.torch
def test_a_nan_of_a_real_run_is_an_incident_with_its_batches(rows, tmp_path, monkeypatch):
    """No bit of the run is another; the layer, the shards and rows of its batches are named; a watch sees the same."""
    monkeypatch.syspath_prepend(str(TESTS / "unit/vitals"))
    from dataaudit.training.monitor import TrainingMonitor

    packed, corpus = rows
    folder, file, facts = tmp_path / "run", load_alerts(None), []
    with (
        Alerts(folder, file, deliver=[facts.append]) as alerts,
        TrainingMonitor(folder, corpus, alerts=alerts) as monitor,
    ):
        losses = train(packed, monitor)
    assert losses == train(packed)
    assert not alerts.failures
    assert facts[0]["group"] == "numerics"
    numerics = next(own for own in alerts.response.incidents.all if own.group == "numerics")
    assert numerics.first_step == BAD
    assert {"loss_not_finite", "nan_inf"} <= {own.rule.name for own in numerics.alerts}
    assert 1 in {own.layer for own in numerics.alerts}
    place = folder / "alerts" / numerics.id
    with (place / "batches.csv").open(newline="") as file_:
        named = [own for own in csv.DictReader(file_) if int(own["step"]) == BAD]
    assert {own["shard_name"] for own in named} - {""} <= set(corpus.table["uri"].to_pylist())
    assert len({own["batch_row"] for own in named}) == ROWS
    states = {own.rule: own.state for own in alerts.states()}
    assert states["loss_not_finite"] == "firing"
    assert states["throughput"] == "not_evaluated"
    own = told(alerts.response)
    other = from_another(folder, file)
    assert set(own[0]) == set(other[0])
    of = lambda seen: sorted((each["rule"], each["step"]) for _, _, own_ in seen.values() for each in own_)  # noqa: E731
    assert of(own[0]) == of(other[0])
    assert own[1] == other[1]


@pytest.mark.torch
def test_an_optimizer_that_is_handed_over_feeds_rules_of_skips(rows, tmp_path):
    """Where nothing is written nothing was skipped; an error that ends the run is an incident."""
    import torch

    from dataaudit.training.monitor import TrainingMonitor

    packed, corpus = rows
    folder = tmp_path / "run"
    rules = [
        {"metric": "skipped_updates", "threshold": {"above": 0}, "name": "skips"},
        {"event": "failed", "fed_by": ["started"], "name": "failed", "severity": 0},
    ]
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    feed = iter(torch.utils.data.DataLoader(packed, ROWS, drop_last=True))
    alerts = Alerts(folder, file_of(*rules))
    monitor = TrainingMonitor(folder, corpus, alerts=alerts, optimizer=optimizer)
    for step in range(1, 11):
        monitor.batch(next(feed)["tags"])
        if step != 7:
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        monitor.step(3.0)
    with pytest.raises(ZeroDivisionError), monitor:
        raise ZeroDivisionError
    alerts.close()
    incidents, states = told(alerts.response)
    assert list(incidents) == ["step00000007-skips", "step00000010-failed"]
    assert incidents["step00000010-failed"][2][0]["detail"] == {"error": "ZeroDivisionError"}
    assert (incidents, states) == from_another(folder, file_of(*rules))


KILLED = """
import os, signal, sys
from pathlib import Path
from live_logs import Run, file_of
from dataaudit.live.alerts import Alerts
folder = Path(sys.argv[1])
hook = {"name": "hook", "to": "webhook", "url": "http://127.0.0.1:9"}
alerts = Alerts(folder, file_of({"metric": "loss", "not_finite": True, "name": "nan", "severity": 0}, deliver=[hook]))
run = Run(folder, alerts=alerts)
for step in range(1, 31):
    run.end_step(loss=float("nan") if step == 20 else 3.0)
run.writer.flush()
while not alerts.response.boxes.all[0].failure:
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.children
def test_what_a_killed_run_could_not_send_a_watch_sends(tmp_path):
    """Its evidence is whole, and the watch says that the run is silent."""
    folder, out = tmp_path / "run", tmp_path / "sent"
    paths = f"{TESTS}:{TESTS / 'unit/live'}:{TESTS.parent}"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder)], env={"PYTHONPATH": paths}, check=False, timeout=120
    )
    assert done.returncode == -signal.SIGKILL
    place = folder / "alerts/step00000020-nan"
    assert json.loads((place / "incident.json").read_text())["severity"] == 0
    rules = [
        {"metric": "loss", "not_finite": True, "name": "nan", "severity": 0},
        {"metric": "*", "absent": {"seconds": 0.001}, "name": "silent", "severity": 0},
    ]
    hook = {"name": "hook", "to": "command", "command": ["sh", "-c", f'echo "$DATAAUDIT_INCIDENT" >> {out}']}
    watch = Watch(folder, file_of(*rules, deliver=[hook]))
    watch.look()
    watch.close()
    assert sorted(out.read_text().split()) == ["step00000020-nan", "step00000030-silent"]


ENDED = """
import sys
from pathlib import Path
from live_logs import Run, file_of
from dataaudit.live.alerts import Alerts
folder, out = Path(sys.argv[1]), sys.argv[2]
hook = {"name": "hook", "to": "command", "command": ["sh", "-c", f"echo sent >> {out}"]}
alerts = Alerts(folder, file_of({"metric": "loss", "not_finite": True, "severity": 0}, deliver=[hook]))
run = Run(folder, alerts=alerts)
run.end_step(loss=float("nan"))
raise ZeroDivisionError
"""


@pytest.mark.children
def test_what_an_error_ends_is_sent(tmp_path):
    """Nobody closed anything."""
    folder, out = tmp_path / "run", tmp_path / "sent"
    paths = f"{TESTS}:{TESTS / 'unit/live'}:{TESTS.parent}"
    command = [sys.executable, "-c", ENDED, str(folder), str(out)]
    done = subprocess.run(command, env={"PYTHONPATH": paths, "PATH": os.environ["PATH"]}, check=False, timeout=120)
    assert done.returncode == 1
    assert out.read_text() == "sent\n"
