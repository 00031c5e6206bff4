"""Alerts: the process and a watch see the same, an incident is one message, evidence is there before it."""

import csv
import json
import logging
import os
import time

import numpy as np
import pytest
from click.testing import CliRunner
from lanes import sample
from live_logs import Run, at, file_of, from_another, in_the_process, judged, steps, told

from dataaudit.base.errors import ConfigError
from dataaudit.cli import main
from dataaudit.live import incidents as incidents_module
from dataaudit.live.alerts import Alerts, Response
from dataaudit.live.delivery import Boxes
from dataaudit.live.evidence import LogTail
from dataaudit.live.incidents import acknowledge, acknowledged
from dataaudit.live.rules import load_alerts
from dataaudit.live.watch import Watch

NAN = float("nan")
NOT_FINITE = {"metric": "loss", "not_finite": True, "severity": 0, "name": "nan", "group": "numerics"}


def collected():
    """Return a function that keeps what it is given, and what it kept."""
    kept = []

    def keep(facts):
        kept.append((facts["news"], facts["incident"], facts["severity"]))

    return keep, kept


def rows_of(path):
    """Return the rows of a file of evidence."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("seed", sample(range(4), 4, part="runs"))
def test_the_same_log_gives_the_same_alerts(tmp_path, seed):
    """Within the process and from another, once and while it grows, by the shipped rules and a few more."""
    draws = np.random.default_rng(seed)

    def script(run):
        for step in range(1, 1_301):
            values = {
                "step_time": 1.0,
                "dataloader_wait": float(draws.uniform(0, 0.25)),
                "mfu": float(draws.normal(0.4, 0.2)),
            }
            if step % 7 == 0 and draws.random() < 0.3:
                values["skipped_updates"] = 1.0
            if step % 100 == 0:
                values["val_loss"], values["val_loss.code"] = draws.normal(3, 0.3, 2).tolist()
            if step % 10 == 0:
                logits = draws.lognormal(6, 0.6, 8)
                run.value("max_attn_logit", logits, "sampled", step=step)
            if draws.random() < 0.01:
                run.happen("flagged", kind="spike")
            if draws.random() < 0.003:
                run.happen("alarm", rule="collapse", metric="attn_entropy", layer=3, value=0.1)
            run.end_step(loss=NAN if draws.random() < 0.002 else 3.0, **values)
            if draws.random() < 0.02:
                run.writer.flush()
        run.close()

    file = load_alerts(None)
    own = in_the_process(tmp_path / "run", file, script)
    assert own[0]
    assert own == from_another(tmp_path / "run", file)
    for bytes_read in (20_000, 3_000):
        watch = Watch(tmp_path / "run", file, send=False)
        watch._follower.most = bytes_read
        watch.look()
        assert told(watch.response) == own


def test_a_watch_follows_a_log_as_it_grows(tmp_path):
    """Alerts are there once their rows are on disk, of all ranks; a tail that is cut is read when it is whole."""
    folder = tmp_path / "run"
    runs = [Run(folder, rank, 2) for rank in range(2)]
    watch = Watch(folder, file_of(NOT_FINITE, {"metric": "mfu", "threshold": {"below": 0.2}}), send=False)
    for round_ in range(5):
        for rank, run in enumerate(runs):
            for _ in range(10):
                run.end_step(loss=NAN if (rank, round_) == (1, 3) else 3.0, mfu=0.4)
            run.writer.flush()
        part = next((folder / "ranks/00001").glob("steps-*"))
        whole = part.read_bytes()
        if round_ == 3:
            part.write_bytes(whole[:-20])
            watch.look()
            assert not watch.response.incidents.all
            with part.open("r+b") as file:  # the writer goes on at its place
                file.seek(len(whole) - 20)
                file.write(whole[-20:])
        watch.look()
        assert bool(watch.response.incidents.all) == (round_ >= 3)
    (incident,) = watch.response.incidents.all
    assert (incident.id, incident.ranks) == ("step00000031-numerics", {1})


def test_a_batch_that_was_damaged_is_named_and_nothing_behind_it_is_judged(tmp_path):
    """A log's own checksum says so."""
    folder = tmp_path / "run"
    run = Run(folder)
    for _ in range(3):
        for _ in range(10):
            run.end_step()
        run.writer.flush()
    run.close()
    part = next((folder / "ranks/00000").glob("steps-*"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 255
    part.write_bytes(data)
    watch = Watch(folder, file_of(NOT_FINITE), send=False)
    watch.look()
    result = watch.close()
    assert result.damaged == [str(part)]
    assert (result.rules[0]["last_step"] or 0) < 30
    assert result.exit_code == 3


def test_an_incident_is_one_message(tmp_path):
    """Forty alerts of a group are one; it is sent again when it becomes graver, and after its cool-down."""
    keep, kept = collected()
    low = {"metric": "mfu", "threshold": {"below": 0.2}, "severity": 2, "group": "numerics", "name": "mfu"}
    rules = [{**low, "cool_down": 50}, {**NOT_FINITE, "cool_down": 50}]

    script = steps(399, loss=at(NAN, 60, 300, 310), mfu=lambda step: 0.1 if step % 2 and 20 < step < 100 else 0.4)
    incidents, _ = in_the_process(tmp_path / "run", file_of(*rules), script, deliver=[keep])
    assert kept == [
        ("opened", "step00000021-numerics", 2),
        ("graver", "step00000021-numerics", 0),
        ("opened", "step00000300-numerics", 0),
    ]
    assert incidents["step00000021-numerics"][:2] == (0, 41)
    assert len(incidents["step00000300-numerics"][2]) == 2


def test_an_incident_lasts_while_a_rule_of_it_fires(tmp_path):
    """A further rule of the group joins it, however long after."""
    rules = [
        {"metric": "mfu", "threshold": {"below": 0.2}, "group": "g", "cool_down": 5, "name": "mfu"},
        {"metric": "loss", "threshold": {"above": 9}, "group": "g", "cool_down": 5, "name": "loss"},
    ]

    script = steps(199, mfu=lambda step: 0.1 if step > 10 else 0.4, loss=at(10.0, 150))
    judged(tmp_path / "run", file_of(*rules), script)
    incidents, _ = from_another(tmp_path / "run", file_of(*rules))
    assert list(incidents) == ["step00000011-g"]


def test_a_rank_that_follows_joins_the_incident_of_its_rule(tmp_path):
    """Layers do, too; another group whose name ends like it has its own."""
    folder = tmp_path / "run"
    for rank in range(2):
        run = Run(folder, rank, 2)
        for step in range(1, 101):
            run.value("x", [step > 10 + 50 * rank, step > 40], step=step)
            run.end_step()
        run.close()
    rule = {"metric": "x", "threshold": {"above": 0}, "cool_down": 5}
    for group, number in (("the-x", 4), ("x", 4)):
        incidents, _ = from_another(folder, file_of({**rule, "group": group}))
        assert {name: own[1] for name, own in incidents.items()} == {f"step00000011-{group}": number}


def test_a_silent_rule_is_counted_and_neither_an_incident_nor_sent(tmp_path):
    """Up to a step, or a time."""
    keep, kept = collected()
    rules = [
        {**NOT_FINITE, "name": "a", "group": "a", "silence": {"until_step": 10, "why": "new data"}},
        {**NOT_FINITE, "name": "b", "group": "b", "silence": {"until": "2999-01-01T00:00:00Z"}},
        {**NOT_FINITE, "name": "c", "group": "c", "silence": {"until": "2020-01-01T00:00:00Z"}},
    ]
    with Alerts(tmp_path / "run", file_of(*rules), deliver=[keep]) as alerts:
        Run(tmp_path / "run", alerts=alerts).steps(29, loss=at(NAN, 5, 20))
    assert sorted(own[1] for own in kept) == ["step00000005-c", "step00000020-a"]
    assert alerts.response.silenced == {"a": 1, "b": 2}


def test_evidence_says_what_was_before_after_and_missing(tmp_path):
    """Numbers of 200 steps on both sides, the layer, events, the log's end, digests, the runbook, and an action."""
    folder = tmp_path / "run"
    rule = {
        "metric": "max_attn_logit",
        "stat": "sampled",
        "threshold": {"above": 1000},
        "runbook": "attention_logits",
        "action": "Lower the rate.",
        "name": "logits",
    }
    with Alerts(folder, file_of(rule)) as alerts:
        run = Run(folder, alerts=alerts)
        (folder / "attribution.json").write_text('{"episodes": []}')
        for step in range(1, 701):
            run.value("max_attn_logit", [1, 2, 2_000 if step == 400 else 3], "sampled", step=step)
            run.end_step(mfu=0.4)
            if step == 390:
                time.sleep(0.2)
                logging.getLogger("somebody").warning("ECC error of https://user:s3cr3t@host/x")
                run.happen("flagged", kind="spike")
        run.close()
    place = folder / "alerts/step00000400-logits"
    record = json.loads((place / "incident.json").read_text())
    assert record["run"] == {"dataset": "made", "manifest": None, "code": "sha256:" + "1" * 64}
    assert record["alerts"][0]["layer"] == 2
    assert record["rules"][0]["name"] == "logits"
    assert record["action"] == "Lower the rate."
    assert set(record["missing"]) == {"batches.csv", "ranks.csv"}
    assert record["digests"]["run.json"].startswith("sha256:")
    before, after = (rows_of(place / name) for name in ("numbers.csv", "numbers-after.csv"))
    assert {int(own["step"]) for own in before if own["metric"] == "mfu"} == set(range(200, 400))
    assert {int(own["step"]) for own in after if own["metric"] == "mfu"} == set(range(400, 601))
    assert {(own["metric"], own["layer"]) for own in rows_of(place / "layer.csv")} == {("max_attn_logit", "2")}
    assert "flagged" in {own["kind"] for own in rows_of(place / "events.csv")}
    assert "ECC error of https://***@host/x" in (place / "log.txt").read_text()
    assert (place / "attribution.json").read_text() == '{"episodes": []}'
    runbook = (place / "runbook.md").read_text()
    assert runbook.startswith("Incident `step00000400-logits`, severity 1.")
    assert "## Safe action" in runbook
    assert not [own for own in (folder / "alerts").iterdir() if own.name.startswith(".")]


def test_the_newest_batches_are_named_by_shard_and_row(tmp_path):
    """Of the process from what it was handed, of a watch from what lies in the log."""
    folder = tmp_path / "run"

    def script(run):
        for step in range(1, 31):
            columns = {"step": [step, step], "micro_batch": [0, 0], "batch_row": [0, 1], "start": [0, 0]}
            columns |= {"shard": [3, -1], "row": [step, -1], "offset": [0, 0], "source": [0, -1], "epoch": [0, 0]}
            columns |= {"targets": [5, 6], "loss": np.ma.masked_array([2.5, 0], [False, True])}
            run.writer.add("stretches", {name: np.asanyarray(own) for name, own in columns.items()})
            run.end_step(loss=NAN if step == 25 else 3.0)
        run.close()

    file = file_of(NOT_FINITE, evidence={"steps": 10, "batches": 4})
    in_the_process(folder, file, script)
    path = folder / "alerts/step00000025-numerics/batches.csv"
    own = rows_of(path)
    assert [(each["step"], each["shard"], each["source_name"], each["loss"]) for each in own[:2]] == [
        ("22", "3", "web", "2.5"),
        ("22", "-1", "", ""),
    ]
    assert {each["step"] for each in own} == {"22", "23", "24", "25"}
    path.unlink()
    (path.parent / "incident.json").unlink()
    for left in path.parent.iterdir():
        left.unlink()
    path.parent.rmdir()
    from_another(folder, file)
    assert rows_of(path) == own


def test_what_one_process_sent_another_does_not_send_again(tmp_path, monkeypatch):
    """And what it had no time to send, the other does."""
    folder = tmp_path / "run"
    out = tmp_path / "sent"
    append = {"name": "c", "to": "command", "command": ["sh", "-c", f'echo "$DATAAUDIT_INCIDENT" >> {out}']}
    file = file_of(NOT_FINITE, {**NOT_FINITE, "name": "other", "group": "other"}, deliver=[append])

    in_the_process(folder, file, steps(29, loss=at(NAN, 20)))
    assert sorted(out.read_text().split()) == ["step00000020-numerics", "step00000020-other"]
    (folder / "alerts/step00000020-other/deliveries.jsonl").unlink()
    for _ in range(2):
        watch = Watch(folder, file)
        watch.look()
        watch.close()
    assert sorted(out.read_text().split()) == ["step00000020-numerics", "step00000020-other", "step00000020-other"]


@pytest.mark.runs
def test_ranks_that_see_the_same_send_it_once(tmp_path):
    """Each has alerts of its own; the first that begins to send does. A function is called by each."""
    folder, out, called = tmp_path / "run", tmp_path / "sent", []
    slow = {"name": "c", "to": "command", "command": ["sh", "-c", f'sleep 1; echo "$DATAAUDIT_INCIDENT" >> {out}']}
    file = file_of(NOT_FINITE, deliver=[slow])
    ranks = [Alerts(folder, file, deliver=[called.append]) for _ in range(4)]
    runs = [Run(folder, rank, 4, alerts=alerts) for rank, alerts in enumerate(ranks)]
    for step in range(1, 11):
        for run in runs:
            run.end_step(loss=NAN if step == 5 else 3.0)
    for run, alerts in zip(runs, ranks, strict=True):
        run.close()
        alerts.close()
    assert out.read_text().split() == ["step00000005-numerics"]
    assert len(called) == 4
    assert [own.name for own in (folder / "alerts").iterdir()] == ["step00000005-numerics"]


def test_ranks_that_a_resumed_run_lacks_are_not_silent(tmp_path):
    """The newest attempt says how many it has."""
    folder = tmp_path / "run"
    for rank in range(3):
        run = Run(folder, rank, 3)
        run.end_step()
        run.writer.close()
    run = Run(folder, 0, 3, first=2)
    run.happen("resumed", ranks=1)
    run.end_step()
    run.writer.close()
    watch = Watch(folder, file_of({"metric": "*", "absent": {"seconds": 60}, "name": "silent"}), send=False)
    watch.look()
    watch.response.tick(time.time() + 90)
    (incident,) = watch.response.incidents.all
    assert incident.ranks == {0}


@pytest.mark.parametrize("odd", [None, "x", [1], {"a": 1}, True, 2.5])
def test_events_of_any_shape_are_judged(tmp_path, odd):
    """Anybody may write an event; its detail is what it is."""
    names = ("layer", "head", "first_step", "value", "what", "metric", "metrics", "sparse", "ranks")

    def script(run):
        for kind in ("started", "vitals", "alarm", "closed"):
            run.happen(kind, **dict.fromkeys(names, odd))
        run.end_step()
        run.close()

    alerts, _ = judged(tmp_path / "run", file_of({"event": "alarm"}, NOT_FINITE), script)
    assert [own[0] for own in alerts] == ["rule0"]


def test_of_another_order_of_rows_comes_the_same_incident(tmp_path):
    """A watch whose first alert of the group is another joins the folder that is there, and sends nothing again."""
    folder = tmp_path / "run"
    out = tmp_path / "sent"
    append = {"name": "c", "to": "command", "command": ["sh", "-c", f'echo "$DATAAUDIT_INCIDENT" >> {out}']}
    rules = [
        NOT_FINITE,
        {"metric": "late", "threshold": {"above": 0}, "severity": 0, "name": "late", "group": "numerics"},
    ]

    def script(run):
        for _ in range(1, 30):
            run.end_step(loss=NAN if run.step == 19 else 3.0)
        run.value("late", 1.0, step=15)
        run.close()

    file = file_of(*rules, deliver=[append])
    assert list(in_the_process(folder, file, script)[0]) == ["step00000020-numerics"]
    watch = Watch(folder, file)
    watch.look()
    watch.close()
    ((name, own),) = told(watch.response)[0].items()
    assert name == "step00000020-numerics"
    assert {each["rule"] for each in own[2]} == {"nan", "late"}
    assert out.read_text().split() == [name]
    assert [own.name for own in (folder / "alerts").iterdir()] == [name]


def test_the_logs_end_shows_no_tensor(tmp_path):
    """To print a tensor waits for its device."""

    class Tensor:
        def __str__(self):
            raise AssertionError("it was printed")

    tail = LogTail()
    logger = logging.getLogger("of this test")
    logger.propagate = False
    logger.addHandler(tail)
    logger.warning("loss %s", Tensor())
    logger.warning(Tensor())
    logger.warning("loss %(loss).1f", {"loss": 2.0})
    shown = [line.split(": ", 1)[1] for line in tail.text().splitlines()]
    assert shown == ["loss %s (not shown)", "Tensor (not shown)", "loss 2.0"]


def test_without_room_for_evidence_the_message_says_so(tmp_path, monkeypatch):
    """A full disk silences nobody."""
    folder = tmp_path / "run"
    facts = []
    monkeypatch.setattr("dataaudit.live.evidence.write_synced", _no_room)
    with Alerts(folder, file_of(NOT_FINITE), deliver=[facts.append]) as alerts:
        Run(folder, alerts=alerts).steps(1, loss=NAN)
    assert [own["evidence"] for own in facts] == ["not written: step00000001-numerics: No space left on device"]
    assert not alerts.failures


def _no_room(*_):
    raise OSError(28, os.strerror(28))


def test_what_fails_inside_costs_itself(tmp_path, monkeypatch, caplog):
    """The run's log is whole; what could not be judged is counted and named once."""
    monkeypatch.setattr(Response, "take", lambda *_: 1 / 0)
    with Alerts(tmp_path / "run", file_of(NOT_FINITE)) as alerts:
        Run(tmp_path / "run", alerts=alerts).steps(5)
    assert alerts.lost == 7
    assert list(alerts.failures.values()) == [7]
    assert caplog.text.count("training goes on") == 1
    watch = Watch(tmp_path / "run", file_of(NOT_FINITE), send=False)
    monkeypatch.undo()
    watch.look()
    assert watch.close().steps == 5


def test_rows_that_come_too_fast_are_counted(tmp_path, monkeypatch):
    """Nobody waits for the judge."""
    monkeypatch.setattr("dataaudit.live.alerts._WAITING_ITEMS", 2)
    monkeypatch.setattr(Response, "take", lambda *_: time.sleep(0.05))
    with Alerts(tmp_path / "run", file_of(NOT_FINITE)) as alerts:
        Run(tmp_path / "run", alerts=alerts).steps(50)
    assert alerts.lost > 30


def heard_at(response, rank, seconds_ago):
    """Make a rank silent since some seconds."""
    response.feed.ranks[rank].heard = time.time() - seconds_ago


def test_a_silent_run_is_an_incident_and_a_closed_run_is_none(tmp_path):
    """Of each rank that did not close; it fires once, and again after rows came."""
    folder = tmp_path / "run"
    runs = [Run(folder, rank, 3) for rank in range(3)]
    for run in runs:
        run.end_step()
        run.writer.flush()
    runs[2].close()
    file = file_of({"metric": "*", "absent": {"seconds": 60}, "severity": 0, "name": "silent", "cool_down": 1})
    watch = Watch(folder, file, send=False)
    watch.look()
    assert not watch.response.incidents.all
    for rank in range(3):
        os.utime(next((folder / f"ranks/{rank:05d}").glob("steps-*")), (0, time.time() - 90))
        heard_at(watch.response, rank, 90)
    for _ in range(3):
        watch.response.tick(time.time())
    (incident,) = watch.response.incidents.all
    assert incident.ranks == {0, 1}
    assert incident.number == 2
    for run in runs[:2]:
        run.steps(5)
    watch.look()
    assert {own.state for own in watch.response.judge.states()} == {"ok"}


def test_a_rank_that_never_wrote_is_silent_since_the_run_began(tmp_path):
    """It is expected by run.json. Steps of the others are none of its own, nor those of what lies around the log."""
    for silent in range(2):
        folder = tmp_path / f"run{silent}"
        first = Run(folder, 0, 2)
        if silent == 0:
            first.writer.flush()
        (Run(folder, 1, 2) if silent == 0 else first).steps(40)
        watch = Watch(folder, file_of({"metric": "*", "absent": {"seconds": 60}, "name": "silent"}), send=False)
        watch.look()
        watch.response.tick(time.time() + 90)
        (incident,) = watch.response.incidents.all
        assert [(own.rank, own.step) for own in incident.alerts] == [(silent, 0)]


def test_an_acknowledged_incident_is_sent_again_only_if_it_becomes_graver(tmp_path, monkeypatch):
    """And nobody is reminded of it."""
    monkeypatch.setattr("dataaudit.live.alerts.REMIND_SECONDS", 0.0)
    rules = [
        {"metric": "*", "absent": {"seconds": 60}, "severity": 0, "name": "silent", "group": "g"},
        {"metric": "mfu", "threshold": {"below": 0.2}, "severity": 1, "name": "mfu", "group": "g"},
    ]
    sent = []

    class Kept(Boxes):
        def put(self, message):
            sent.append((message.facts["news"], message.severity))

    folder = tmp_path / "run"
    response = Response(folder, file_of(*rules), Kept())
    feed = response.feed
    run = Run(folder)
    run.writer.observers.append(lambda table, columns: response.take(feed.take(table, 0, columns, time.time())))
    response.take(feed.begin(0, 0, time.time()))
    run.end_step(mfu=0.1)
    assert sent == [("opened", 1)]
    acknowledge(folder, "step00000001-g", "ana", "looking")
    response.tick(time.time())
    run.end_step(mfu=0.4)
    run.end_step(mfu=0.1)
    assert sent == [("opened", 1)]
    heard_at(response, 0, 90)
    response.tick(time.time())
    assert sent == [("opened", 1), ("graver", 0)]
    (folder / "alerts/step00000001-g/ack.json").unlink()
    for _ in range(9):
        response.tick(time.time())
    assert sent[2:] == [(f"reminder-{number}", 0) for number in range(1, incidents_module.REMINDERS + 1)]
    run.close()


def test_an_incident_that_is_not_there_cannot_be_acknowledged(tmp_path):
    """The message names those that are; an acknowledgement that is no JSON is none."""
    Run(tmp_path).steps(1, loss=NAN)
    from_another(tmp_path, file_of(NOT_FINITE))
    with pytest.raises(ConfigError, match="step00000001-numerics"):
        acknowledge(tmp_path, "../x", "ana", "")
    with pytest.raises(ConfigError, match="expected a name"):
        acknowledge(tmp_path, "step00000001-numerics", " ", "")
    place = tmp_path / "alerts/step00000001-numerics"
    (place / "ack.json").write_text("{")
    assert acknowledged(place) is None


def cli(*arguments):
    """Run a command; return its exit code and output."""
    result = CliRunner().invoke(main, [str(own) for own in arguments])
    return result.exit_code, result.output


def test_watch_once_says_by_its_code_how_the_run_stands(tmp_path):
    """0, 1, 2, 3 and 4, as its help lists them."""
    folder, rules = tmp_path / "run", tmp_path / "alerts.yaml"
    assert cli("watch", folder, "--once")[0] == 2
    run = Run(folder)
    run.writer.flush()
    rules.write_text("version: 1\nrules:\n  - {name: a, about: A., severity: 0, metric: loss, not_finite: true}\n")
    assert cli("watch", folder, "--alert", rules, "--once")[0] == 4
    run.end_step()
    run.writer.flush()
    code, output = cli("watch", folder, "--alert", rules, "--once")
    assert (code, output.splitlines()[0]) == (0, f"{folder}: step 1, 1 rank, no incident")
    assert cli("watch", folder, "--alert", rules, "--once", "--manifest", tmp_path) == (code, output)
    assert "goes with what is shown" in cli("watch", folder, "--alert", rules, "--once", "--beside", folder)[1]
    code, output = cli("watch", folder, "--once", "--log", tmp_path / "train.lgo")
    assert (code, "train.lgo is not there" in output) == (2, True)
    more = "  - {name: b, about: B., severity: 0, metric: mfu, not_finite: true, required: true}\n"
    rules.write_text(rules.read_text() + more)
    code, output = cli("watch", folder, "--alert", rules, "--once")
    assert code == 3
    assert "not evaluated  b  no value of `mfu` came" in output
    run.end_step(loss=NAN)
    run.close()
    code, output = cli("watch", folder, "--alert", rules, "--once")
    assert code == 1
    assert "SEV0  step00000002-a: loss is nan" in output
    assert cli("alerts", "ack", folder, "step00000002-a", "--who", "ana", "--note", "back to step 1")[0] == 0
    code, output = cli("watch", folder, "--alert", rules, "--once", "--json")
    document = json.loads(output)
    assert (code, document["exit_code"]) == (3, 3)
    assert document["incidents"][0]["acknowledged"]["note"] == "back to step 1"
    rules.write_text(rules.read_text() + "deliver:\n  - {name: ops, to: slack, url: '${NOT_THERE}'}\n")
    code, output = cli("watch", folder, "--alert", rules, "--once")
    assert code == 3
    assert output.startswith("nothing is sent: the environment has no variable NOT_THERE\n")
    assert cli("watch", folder, "--alert", rules)[0] == 2


def test_watch_ends_when_the_run_is_closed_and_shows_what_is_new(tmp_path):
    """Without --once it follows."""
    Run(tmp_path / "run").steps(1, loss=NAN)
    code, output = cli("watch", tmp_path / "run", "--alert", "--interval", "0.1")
    assert code == 1
    assert output.count("step00000001-numerics: loss is nan") == 2


def test_alerts_draft_writes_the_shipped_rules(tmp_path):
    """What is written is what is judged by default; a file that is there stays."""
    out = tmp_path / "alerts.yaml"
    assert cli("alerts", "draft", "--out", out)[0] == 0
    assert load_alerts(out) == load_alerts(None)
    assert cli("alerts", "draft")[1] == out.read_text()
    out.write_text("mine")
    assert cli("alerts", "draft", "--out", out)[0] == 2
    assert out.read_text() == "mine"


@pytest.mark.parametrize("stopped", [30, 10])
def test_a_resumed_run_keeps_what_was_healthy(tmp_path, stopped):
    """Within its span and behind it, in a process that begins and from another; what fired before fires anew."""
    folder = tmp_path / "run"
    file = file_of({"metric": "mfu", "ratio": {"below": 0.5, "healthy": 20}, "name": "slow", "cool_down": 1})
    seen = []
    for first, last in ((1, stopped), (stopped + 1, 60)):
        with Alerts(folder, file) as alerts:
            run = Run(folder, first=first, alerts=alerts)
            run.steps(last + 1 - first, mfu=lambda step: 0.6 if step <= 40 else 0.2)
        assert not alerts.failures
        seen.append([(own.step, own.words) for each in alerts.response.incidents.all for own in each.alerts])
    assert seen == [[], [(41, "mfu is 0.2, 0.333 times the median 0.6 when healthy")]]
    incidents, states = from_another(folder, file)
    assert [alert["step"] for _, _, own in incidents.values() for alert in own] == [41]
    assert states[0]["state"] == "firing"


def test_a_mean_begins_anew_with_a_resumed_run(tmp_path):
    """A first slow step of it is no mean; the healthy span is that of before."""
    rule = {"metric": "mfu", "ratio": {"below": 0.5, "healthy": 20}, "mean_over": 10, "name": "slow"}
    folder = tmp_path / "run"
    for first in (1, 41):
        Run(folder, first=first).steps(40, mfu=lambda step: 0.1 if step in {41, 42} else 0.6)
    incidents, states = from_another(folder, file_of(rule))
    assert (incidents, states[0]["state"]) == ({}, "ok")


def test_a_watch_waits_for_a_run_that_has_not_begun(tmp_path, monkeypatch):
    """It says so once; `--once` does not wait, and is exit code 2."""
    folder, slept = tmp_path / "run", []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            Run(folder).steps(1)

    assert CliRunner().invoke(main, ["watch", str(folder), "--once"]).exit_code == 2
    monkeypatch.setattr("dataaudit.live.watch.time.sleep", sleep)
    done = CliRunner().invoke(main, ["watch", str(folder), "--interval", "0.5"])
    assert slept == [0.5] * 3
    assert done.stderr == f"{folder}: no run log is there yet; `watch` waits for it, and Ctrl-C ends it\n"
    assert "step 1, 1 rank, no incident" in done.stdout
