"""Delivery: to a server of this process, that is slow, dead or refuses; what is dropped, and that no secret shows."""

import hashlib
import hmac
import json
import logging
import shlex
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from live_logs import Run, at, file_of
from local_server import LocalServer

from dataaudit.base.errors import ConfigError
from dataaudit.live import delivery
from dataaudit.live.alerts import Alerts
from dataaudit.live.delivery import ATTEMPTS, Message, Outbox, Refused, called, outbox
from dataaudit.live.rules import Destination

SECRET = "s3cr3t-4f1c"  # noqa: S105 - looked for in what is shown
FACTS = {
    "news": "opened",
    "incident": "step00000040-numerics",
    "severity": 0,
    "about": "About <it> & more.",
    "action": "Stop.",
    "number": 5,
    "alerts": [{"seen": "loss is nan", "step": 40, "rank": 0}] * 5,
    "run": "7b",
    "runlog": "runs/7b",
    "evidence": "runs/7b/alerts/step00000040-numerics",
    "ack": "dataaudit alerts ack",
}


class Server(LocalServer):
    """Answers by a list of (status, headers), the last again and again; keeps what came."""

    def __init__(self, *answers, wait=0.0):
        self.came, self.answers, self.wait = [], list(answers or [(200, {})]), wait
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.came.append((time.monotonic(), self.path, dict(self.headers), body))
                time.sleep(server.wait)
                status, headers = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
                self.send_response(status)
                for name, value in {**headers, "Content-Length": "0"}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_):
                pass

        super().__init__(Handler)


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """What failed is tried again soon."""
    monkeypatch.setattr(delivery, "FIRST_DELAY", 0.005)


@pytest.fixture
def serve():
    """Start servers; they are closed at the end."""
    made = []

    def start(*answers, **more):
        made.append(Server(*answers, **more))
        return made[-1]

    yield start
    for server in made:
        server.close()


def message(folder, severity=0, **facts):
    """Return a message whose evidence lies in a folder."""
    return Message(severity, f"SEV{severity} 7b", {**FACTS, "severity": severity, **facts}, folder)


def webhook(server, **more):
    """Return an outbox of a webhook that tries again soon."""
    given = {"name": "hook", "to": "webhook", "url": server.address, **more}
    return outbox(Destination.model_validate(given))


def records(folder):
    """Return what is recorded of deliveries."""
    path = folder / "deliveries.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_until(condition, seconds=30.0):
    """Wait for something to become true."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)


def test_a_webhook_gets_the_facts_signed(serve, tmp_path, monkeypatch):
    """Whoever has the secret can check body and time."""
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    server = serve()
    box = webhook(server, secret="${HOOK_SECRET}")
    box.put(message(tmp_path))
    box.close(10)
    ((_, _, headers, body),) = server.came
    expected = hmac.new(SECRET.encode(), f"{headers['X-Dataaudit-Timestamp']}.".encode() + body, hashlib.sha256)
    assert headers["X-Dataaudit-Signature"] == f"v1={expected.hexdigest()}"
    assert abs(int(headers["X-Dataaudit-Timestamp"]) - time.time()) < 60
    assert json.loads(body) == FACTS
    assert [(own["to"], own["sent"], own["attempts"]) for own in records(tmp_path)] == [("hook", True, 1)]


@pytest.mark.parametrize(
    ("answers", "came", "sent"),
    [
        ([(200, {})], 1, 1),
        ([(500, {}), (503, {}), (200, {})], 3, 1),
        ([(429, {"Retry-After": "0.2"}), (200, {})], 2, 1),
        ([(429, {"Retry-After": "Fri, 27 Nov 2015 19:00:00 GMT"}), (200, {})], 2, 1),
        ([(404, {})], 1, 0),
        ([(302, {"Location": "http://127.0.0.1:9/elsewhere"})], 1, 0),
        ([(500, {})], ATTEMPTS, 0),
    ],
)
def test_what_fails_for_now_is_tried_again(serve, tmp_path, answers, came, sent):
    """Errors of the server and of too many requests are; others and redirections are final. Each is counted."""
    server = serve(*answers)
    box = webhook(server)
    box.put(message(tmp_path, 1))
    wait_until(lambda: box.sent + box.dropped)
    box.close(1)
    assert (len(server.came), box.sent, box.dropped) == (came, sent, 1 - sent)
    if "Retry-After" in answers[0][1] and answers[0][1]["Retry-After"] == "0.2":
        assert server.came[1][0] - server.came[0][0] >= 0.2
    assert records(tmp_path)[-1]["sent"] is bool(sent)


def test_severity_0_is_never_given_up(serve, tmp_path, monkeypatch):
    """Neither after many attempts nor when the answer is final."""
    monkeypatch.setattr(delivery, "LONGEST_DELAY", 0.1)
    server = serve(*[(500, {})] * (ATTEMPTS + 2), (200, {}))
    box = webhook(server)
    box.put(message(tmp_path, 0))
    wait_until(lambda: box.sent)
    box.close(1)
    assert (len(server.came), box.dropped) == (ATTEMPTS + 3, 0)


def test_a_grave_message_does_not_wait_behind_one_that_fails(tmp_path):
    """While a message is tried again and again, others are sent."""
    sent = []

    def send(given):
        if given.severity == 2:
            raise Refused("not now", after=600)
        sent.append(given.severity)

    box = Outbox("box", send)
    box.put(message(tmp_path, 2))
    wait_until(lambda: box.failure)
    box.put(message(tmp_path, 0))
    wait_until(lambda: sent == [0])
    box.close(0.1)


def test_of_too_many_messages_the_least_grave_are_dropped_and_counted(tmp_path, monkeypatch):
    """Severity 0 stays, whatever the queue's size."""
    monkeypatch.setattr(delivery, "QUEUE", 4)
    gate, sent = threading.Event(), []

    def send(given):
        gate.wait(30)
        sent.append((given.severity, given.facts["incident"]))

    box = Outbox("box", send)

    def put(severity, name):
        (tmp_path / name).mkdir()
        box.put(message(tmp_path / name, severity, incident=name))

    put(1, "first")
    for number in range(6):
        put(2, f"low{number}")
        put(0, f"grave{number}")
    gate.set()
    box.close(30)
    assert sorted(own for grade, own in sent if grade == 0) == [f"grave{number}" for number in range(6)]
    assert box.dropped + len(sent) == 13
    lost = [own for folder in tmp_path.iterdir() for own in records(folder) if not own["sent"]]
    assert [own["why"] for own in lost] == ["the queue was full"] * box.dropped


def test_a_slow_or_dead_server_makes_nobody_wait(serve, tmp_path):
    """Messages are handed over at once; what could not be sent is named when it ends."""
    slow, dead = serve(wait=5.0), serve()
    dead.close()
    boxes = [webhook(slow, timeout=0.2), webhook(dead, name="dead")]
    for box in boxes:
        box.put(message(tmp_path, 0))
        wait_until(lambda box=box: box.failure)
    assert boxes[0].failure == "no answer within 0.2 s"
    assert boxes[1].failure == "no connection (ConnectionRefusedError)"
    for box in boxes:
        box.close(0.1)
        assert box.sent == 0
        assert box.waiting == 1


def test_no_secret_shows_anywhere(serve, tmp_path, monkeypatch, caplog):
    """Not in records, the log, the state of an outbox or the environment's error."""
    caplog.set_level(logging.DEBUG)
    server = serve((404, {}))
    monkeypatch.setenv("HOOK", f"{server.address}/{SECRET}?token={SECRET}")
    monkeypatch.setenv("KEY", SECRET)
    monkeypatch.setenv("BAD", f"ftp://{SECRET}")
    given = [
        {"name": "slack", "to": "slack", "url": "${HOOK}"},
        {"name": "pager", "to": "pagerduty", "key": "${KEY}", "url": "${HOOK}"},
        {"name": "bad", "to": "webhook", "url": "${BAD}"},
        {"name": "none", "to": "webhook", "url": "${NOT_THERE}"},
    ]
    boxes = [outbox(Destination.model_validate(own)) for own in given]
    for box in boxes:
        box.put(message(tmp_path, 1))
        wait_until(lambda box=box: box.dropped)
        box.close(1)
    shown = [caplog.text, (tmp_path / "deliveries.jsonl").read_text(), *(box.failure for box in boxes)]
    assert SECRET not in "".join(shown)
    assert boxes[2].failure == "${BAD} holds no address that begins with https://"
    assert boxes[3].failure == "the environment has no variable NOT_THERE"
    assert SECRET in server.came[0][1]
    slack, pager = (json.loads(own[3]) for own in server.came)
    assert slack["text"].startswith("*SEV1 7b*\nAbout &lt;it&gt; &amp; more.\nloss is nan, step 40, rank 0")
    assert "and 2 alerts more" in slack["text"]
    assert pager["routing_key"] == SECRET
    assert (pager["event_action"], pager["dedup_key"]) == ("trigger", "7b/step00000040-numerics")
    assert (pager["payload"]["severity"], pager["payload"]["source"]) == ("error", "runs/7b")


def test_the_end_of_an_incident_goes_to_pagerduty_and_to_who_asks_for_it(serve, tmp_path, monkeypatch):
    """Behind its beginning, though that is tried again; by the same key."""
    server = serve((500, {}), (202, {}))
    monkeypatch.setenv("KEY", SECRET)
    monkeypatch.setenv("HOOK", server.address)
    given = [
        {"name": "pager", "to": "pagerduty", "key": "${KEY}", "url": "${HOOK}"},
        {"name": "quiet", "to": "webhook", "url": "${HOOK}"},
        {"name": "asks", "to": "webhook", "url": "${HOOK}", "resolved": True},
    ]
    for own in given:
        server.came.clear()
        server.answers = [(500, {}), (202, {})]
        box = outbox(Destination.model_validate(own))
        (tmp_path / own["name"]).mkdir()
        box.put(message(tmp_path / own["name"], 1))
        box.put(message(tmp_path / own["name"], 1, news="resolved"))
        wait_until(lambda box=box: not box.waiting)
        box.close(1)
        bodies = [json.loads(each[3]) for each in server.came]
        if own["to"] == "pagerduty":
            assert [each["event_action"] for each in bodies] == ["trigger", "trigger", "resolve"]
            assert {each["dedup_key"] for each in bodies} == {"7b/step00000040-numerics"}
        else:
            news = ["opened", "opened", "resolved"] if own["name"] == "asks" else ["opened", "opened"]
            assert [each["news"] for each in bodies] == news


@pytest.mark.parametrize("here", [False, True])
def test_a_run_has_the_name_of_its_folder_and_what_is_typed_is_quoted(tmp_path, monkeypatch, here):
    """A message of a run log in the current folder named no run, and a shell took a name with a space for two."""
    folder = tmp_path / "my run"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder, sent = Path() if here else folder, []
    alerts = Alerts(folder, file_of({"name": "high", "metric": "loss", "threshold": {"above": 5}}))
    alerts.response.boxes.put = lambda given: sent.append(given.facts)
    run = Run(folder, alerts=alerts)
    run.end_step(loss=9.0)
    run.close()
    alerts.close()
    assert sent[0]["run"] == "my run"
    assert shlex.split(sent[0]["ack"])[3] == str(folder)


def test_an_incident_that_is_over_is_resolved_once_by_whichever_start_of_the_run(tmp_path):
    """When no rule of it fires and its cool-down is over; what a start before left open, too."""
    rules = [
        {"name": "high", "metric": "loss", "threshold": {"above": 5}, "cool_down": 5, "group": "loss"},
        {"name": "flags", "event": "flagged", "cool_down": 5},
    ]
    sent = []

    def attempt(first, steps, highs, flags):
        alerts = Alerts(tmp_path, file_of(*rules))
        alerts.response.boxes.put = lambda given: sent.append((given.facts["news"], given.facts["incident"]))
        run = Run(tmp_path, alerts=alerts, first=first)
        for step in range(first, steps + 1):
            run.end_step(loss=9.0 if step in highs else 3.0)
            if step in flags:
                run.happen("flagged")
        run.close()
        alerts.close()
        assert not alerts.failures

    attempt(1, 40, range(10, 21), {12})
    opened = [("opened", "step00000010-loss"), ("opened", "step00000012-flags")]
    assert sent == [*opened, ("resolved", "step00000012-flags"), ("resolved", "step00000010-loss")]
    sent.clear()
    attempt(41, 52, {50, 51, 52}, ())
    attempt(45, 70, (), ())
    opened = [own for own in sent if own[0] == "opened"]
    assert [own for own in sent if own[0] == "resolved"] == [("resolved", opened[0][1])]
    assert (tmp_path / "alerts" / opened[0][1] / "resolved.json").exists()


def test_an_incident_that_nothing_feeds_any_more_is_closed_and_opens_anew(tmp_path):
    """It is not called over: the message says what came last. Values that come again and are high are news."""
    rule = {"name": "high", "metric": "norm", "threshold": {"above": 5}, "cool_down": 5}
    sent, alerts = [], Alerts(tmp_path, file_of(rule))
    alerts.response.boxes.put = lambda given: sent.append((given.facts["news"], given.facts["about"]))
    run = Run(tmp_path, alerts=alerts)
    run.steps(200, norm=lambda step: 9.0 if step <= 20 or step > 190 else None)
    alerts.close()
    assert [news for news, _ in sent] == ["opened", "resolved", "opened"]
    assert sent[1][1] == (
        "It is not judged any more, and may go on: norm came last at step 20 (rank 0), and step 89 has none."
    )
    assert alerts.states()[0].state == "firing"


def test_a_variable_that_is_not_there_is_an_error_at_the_start(tmp_path):
    """Not at three in the morning."""
    file = file_of({"event": "x"}, deliver=[{"name": "s", "to": "slack", "url": "${NOT_THERE}"}])
    with pytest.raises(ConfigError, match="no variable NOT_THERE"):
        Alerts(tmp_path, file)


def test_a_command_gets_facts_by_its_environment(tmp_path):
    """No shell takes part; a program that fails is tried again, a program that is not there is not."""
    out = tmp_path / "out"
    code = f"import os; open({str(out)!r}, 'a').write(os.environ['DATAAUDIT_TITLE'] + os.environ['DATAAUDIT_RUN'])"
    destination = {"name": "c", "to": "command", "command": [sys.executable, "-c", code]}
    box = outbox(Destination.model_validate(destination))
    box.put(message(tmp_path, 1, run="$(touch pwned); 'x'"))
    wait_until(lambda: box.sent)
    box.close(1)
    assert out.read_text() == "SEV1 7b$(touch pwned); 'x'"
    for command, why in (("/not/there", "no such program"), (sys.executable, "ended with 3")):
        arguments = [command, "-c", "raise SystemExit(3)"]
        box = outbox(Destination.model_validate({**destination, "name": why.split()[0], "command": arguments}))
        box.put(message(tmp_path, 1))
        wait_until(lambda box=box: box.dropped)
        box.close(1)
        assert why in box.failure


def test_a_function_gets_the_facts_and_its_errors_are_its_own(tmp_path):
    """An error in it is counted by its class; the run goes on."""
    seen = []

    def good(facts):
        seen.append(facts["incident"])

    def bad(_):
        raise ValueError(SECRET)

    boxes = [called("good", good), called("bad", bad)]
    boxes[1]._first = 0.001
    for box in boxes:
        box.put(message(tmp_path, 1))
        wait_until(lambda box=box: box.sent + box.dropped)
        box.close(1)
    assert seen == ["step00000040-numerics"]
    assert boxes[1].failure == "ValueError"
    assert SECRET not in (tmp_path / "deliveries.jsonl").read_text()


def test_a_destination_takes_the_severities_that_it_names(serve, tmp_path):
    """A pager is left alone by what is to be investigated."""
    server = serve()
    box = webhook(server, severity=0)
    box.put(message(tmp_path, 1))
    box.put(message(tmp_path, 0))
    box.close(10)
    assert [json.loads(own[3])["severity"] for own in server.came] == [0]


def test_a_nan_in_a_run_reaches_a_webhook_behind_its_evidence(serve, tmp_path):
    """When the message arrives its evidence is on disk."""
    server = serve()
    there = []
    server.answers = [(200, {})]
    folder = tmp_path / "run"
    hook = {"name": "hook", "to": "webhook", "url": server.address}
    file = file_of({"metric": "loss", "not_finite": True, "severity": 0}, deliver=[hook])
    look = lambda facts: there.append(sorted(own.name for own in (folder / "alerts" / facts["incident"]).iterdir()))  # noqa: E731
    with Alerts(folder, file, deliver=[look]) as alerts:
        run = Run(folder, alerts=alerts)
        run.steps(29, loss=at(float("nan"), 20))
    ((_, _, _, body),) = server.came
    assert json.loads(body)["incident"] == "step00000020-rule0"
    assert {"incident.json", "numbers.csv", "events.csv", "runbook.md"} <= set(there[0])
