"""Delivery: a message to a callable, a command, Slack, PagerDuty or any webhook, from a thread of each destination.

Nothing waits for a destination. Its queue is bounded: when it is full the least grave messages are dropped and counted,
messages of severity 0 never. What fails for now is tried again, later and later, at random within the delay; a grave
message does not wait behind others. Secrets are read from the environment when a message is sent. They stand in no
record, log or error: of an error its class is kept, or the status of the answer.

A webhook's request is signed where it has a ``secret``: ``X-Dataaudit-Signature: v1=HEX``, the HMAC-SHA256 of
``X-Dataaudit-Timestamp``, a full stop, and the body.
"""

from __future__ import annotations

import email.utils
import hashlib
import hmac
import html
import logging
import os
import random
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from dataaudit.base.errors import CatchErrors
from dataaudit.base.text import utc_now
from dataaudit.live.evidence import Deliveries
from dataaudit.live.judging import of_rank
from dataaudit.live.rules import Destination

QUEUE = 64
"""Messages that wait for a destination."""
ATTEMPTS = 8
"""Times that a message is tried; one of severity 0 is tried as long as the process lives."""
FIRST_DELAY, LONGEST_DELAY, LONGEST_ASKED = 1.0, 60.0, 600.0
PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
_PAGERDUTY_SEVERITY = ("critical", "error", "warning")
_LOG = logging.getLogger("dataaudit")
_LOOK_SECONDS = 0.5
"""Between two looks whether another process has sent a message."""
_TEMPORARY = frozenset({408, 425, 429})


class Refused(Exception):
    """A message cannot be sent now; with ``final`` never."""

    def __init__(self, why: str, *, final: bool = False, after: float | None = None) -> None:
        super().__init__(why)
        self.why, self.final, self.after = why, final, after


@dataclass(frozen=True)
class Message:
    """What is sent of an incident."""

    severity: int
    title: str
    facts: Mapping[str, Any]
    """In plain types; the body of a webhook."""
    folder: Path
    """Of the evidence."""

    @property
    def lines(self) -> list[str]:
        """The message as lines of text."""
        facts = self.facts
        seen = [f"{own['seen']}, step {own['step']:,}, {of_rank(own['rank'])}" for own in facts["alerts"][:3]]
        more = [f"and {facts['number'] - 3:,} alerts more"] if facts["number"] > 3 else []
        action = [f"First: {facts['action']}"] if facts["action"] else []
        action += [f"Action {name}: {becomes}" for name, becomes in facts.get("actions", {}).items()]
        ack = [facts["ack"]] if facts["ack"] else []
        return [facts["about"], *seen, *more, *action, f"Runbook and evidence: {facts['evidence']}", *ack]


@dataclass(eq=False)
class _Waiting:
    message: Message
    number: int
    attempts: int = 0
    due: float = 0.0


Send = Callable[[Message], object]


class Outbox:
    """Sends messages to a destination in a thread of its own.

    Args:
        name: Of the destination.
        send: Sends a message, or raises.
        severity: The least grave messages that are taken.
        shared: Whether other processes of the run send there, too: the first of them does.
        resolved: Whether it takes messages that an incident is over.
    """

    def __init__(
        self, name: str, send: Send, severity: int = 2, *, shared: bool = True, resolved: bool = False
    ) -> None:
        self.name, self.severity, self.resolved = name, severity, resolved
        self.sent = 0
        self.dropped = 0
        """Messages that were too many, or were given up."""
        self.failure = ""
        """Why the latest attempt failed; empty when it did not."""
        self._send, self._shared = send, shared
        self._waiting: list[_Waiting] = []
        self._claims: set[Path] = set()
        self._sending: _Waiting | None = None
        self._numbers = 0
        self._closing: float | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"dataaudit-alerts-{name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Messages that are not sent yet."""
        return len(self._waiting)

    def put(self, message: Message) -> None:
        """Take a message; of too many the least grave is dropped, of these the oldest."""
        if message.severity > self.severity or (message.facts["news"] == "resolved" and not self.resolved):
            return
        with self._changed:
            self._numbers += 1
            self._waiting.append(_Waiting(message, self._numbers))
            while len(self._waiting) > QUEUE:
                free = [item for item in self._waiting if item is not self._sending and item.message.severity > 0]
                if not free:
                    break
                self._drop(max(free, key=lambda item: (item.message.severity, -item.number)), "the queue was full")
            self._changed.notify()

    def close(self, seconds: float) -> None:
        """Send what waits, for so many seconds at most, and end; what is left is named in the log."""
        with self._changed:
            self._closing = time.monotonic() + seconds
            self._changed.notify()
        self._thread.join(seconds + 1.0)
        for path in self._claims:  # what was not sent, another process may send now
            with suppress(OSError):
                path.unlink()
        with self._changed:
            if self._waiting:
                _LOG.warning("alerts: %s did not take %d messages (%s)", self.name, len(self._waiting), self.failure)

    def _drop(self, item: _Waiting, why: str) -> None:
        self._waiting.remove(item)
        self.dropped += 1
        record = {"news": item.message.facts["news"], "severity": item.message.severity, "sent": False, "why": why}
        Deliveries(item.message.folder).add({"time": utc_now(), "to": self.name, **record})

    def _run(self) -> None:
        while True:
            with self._changed:
                item = self._sending = self._next()
                if item is None:
                    return
            self._try(item)

    def _next(self) -> _Waiting | None:
        """Wait for a message that is due, and return the gravest; None when nothing is left to do."""
        while True:
            now = time.monotonic()
            if self._closing is not None and (not self._waiting or now >= self._closing):
                return None
            due = [item for item in self._waiting if item.due <= now and not self._early(item)]
            if due:
                return min(due, key=lambda item: (item.message.severity, item.number))
            ends = [item.due for item in self._waiting if not self._early(item)] + (
                [] if self._closing is None else [self._closing]
            )
            self._changed.wait(max(0.01, min(ends) - now) if ends else None)

    def _early(self, item: _Waiting) -> bool:
        """Return whether a message is about the end of an incident whose beginning was not sent yet."""
        facts = item.message.facts
        return facts["news"] == "resolved" and any(
            own.number < item.number and own.message.facts["incident"] == facts["incident"] for own in self._waiting
        )

    def _try(self, item: _Waiting) -> None:
        message, news = item.message, str(item.message.facts["news"])
        deliveries = Deliveries(message.folder)
        refused: Refused | None = None
        done = self._shared and deliveries.done(self.name, message.severity, news)
        if not done and self._shared and not deliveries.claim(self.name, message.severity, news, self._claims):
            item.due = time.monotonic() + _LOOK_SECONDS
            return
        item.attempts += 1
        if not done:
            with CatchErrors() as call:
                self._send(message)
            if call.error is not None:
                refused = call.error if isinstance(call.error, Refused) else Refused(call.kind)
            record = {"attempts": item.attempts, "sent": refused is None, "why": "" if refused is None else refused.why}
            if refused is None or refused.final or item.attempts in {1, ATTEMPTS}:
                facts = {"time": utc_now(), "to": self.name, "news": news, "severity": message.severity}
                deliveries.add({**facts, **record})
        with self._changed:
            self.failure = "" if refused is None else refused.why
            if refused is None:
                self.sent += 1
                self._waiting.remove(item)
                return
            if item.attempts == 1:
                _LOG.warning("alerts: %s did not take a message (%s); it is tried again", self.name, refused.why)
            if message.severity > 0 and (refused.final or item.attempts >= ATTEMPTS):
                self.dropped += 1
                self._waiting.remove(item)
                return
            longest = LONGEST_DELAY if refused.final else min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** (item.attempts - 1))
            asked = 0.0 if refused.after is None else min(refused.after, LONGEST_ASKED)
            item.due = time.monotonic() + asked + random.uniform(0.5, 1.0) * longest


def outbox(destination: Destination) -> Outbox:
    """Return the outbox of a destination of ``alerts.yaml``."""
    send = _SENDERS[destination.to]
    takes = destination.resolved or destination.to == "pagerduty"
    return Outbox(destination.name, lambda message: send(destination, message), destination.severity, resolved=takes)


def missing_variables(destinations: Iterable[Destination]) -> list[str]:
    """Return the variables of the environment that destinations name, and that are not there."""
    references = (own for item in destinations for own in (item.url, item.key, item.secret))
    names = [own[2:-1] for own in references if own is not None and own.startswith("${")]
    return sorted({name for name in names if not os.environ.get(name, "").strip()})


def called(name: str, function: Callable[[dict[str, Any]], object]) -> Outbox:
    """Return the outbox of a function, which is given the facts of a message."""
    return Outbox(name, lambda message: function(dict(message.facts)), shared=False)


def _slack(destination: Destination, message: Message) -> None:
    text = "\n".join([f"*{message.title}*", *message.lines])
    escaped = html.escape(text, quote=False)  # so that Slack sees no markup of others
    _post(_address(destination), {"text": escaped}, destination.timeout)


def _pagerduty(destination: Destination, message: Message) -> None:
    payload = {
        "summary": message.title[:1024],
        "source": str(message.facts["runlog"]),
        "severity": _PAGERDUTY_SEVERITY[message.severity],
        "custom_details": dict(message.facts),
    }
    body = {
        "routing_key": _secret(destination.key or ""),
        "event_action": "resolve" if message.facts["news"] == "resolved" else "trigger",
        "dedup_key": f"{message.facts['run']}/{message.facts['incident']}"[-255:],
        "payload": payload,
    }
    _post(PAGERDUTY if destination.url is None else _address(destination), body, destination.timeout)


def _webhook(destination: Destination, message: Message) -> None:
    secret = None if destination.secret is None else _secret(destination.secret)
    _post(_address(destination), message.facts, destination.timeout, secret=secret)


def _command(destination: Destination, message: Message) -> None:
    facts = {name: str(own) for name, own in message.facts.items() if isinstance(own, str | int | float)}
    environment = {f"DATAAUDIT_{name.upper()}": own for name, own in facts.items()}
    environment |= {"DATAAUDIT_TITLE": message.title, "DATAAUDIT_TEXT": "\n".join(message.lines)}
    try:
        done = subprocess.run(
            list(destination.command),
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=destination.timeout,
            check=False,
        )
    except FileNotFoundError:
        raise Refused("there is no such program", final=True) from None
    except PermissionError:
        raise Refused("the program may not be run", final=True) from None
    except subprocess.TimeoutExpired:
        raise Refused(f"the program ran longer than {destination.timeout:g} s") from None
    if done.returncode:
        raise Refused(f"the program ended with {done.returncode}")


_SENDERS: dict[str, Callable[[Destination, Message], None]] = {
    "slack": _slack,
    "pagerduty": _pagerduty,
    "webhook": _webhook,
    "command": _command,
}


def _address(destination: Destination) -> str:
    url = destination.url or ""
    address = _secret(url) if url.startswith("${") else url
    if not address.startswith(("https://", "http://")):
        raise Refused(f"{url} holds no address that begins with https://", final=True)
    return address


def _secret(reference: str) -> str:
    """Return the value of a variable of the environment; its name may be shown, its value never."""
    name = reference.removeprefix("${").removesuffix("}")
    value = os.environ.get(name, "").strip()
    if not value:
        raise Refused(f"the environment has no variable {name}", final=True)
    return value


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A message goes where it is addressed to, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _post(url: str, body: Mapping[str, Any], timeout: float, *, secret: str | None = None) -> None:
    data = orjson.dumps(body, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    headers = {"Content-Type": "application/json", "User-Agent": "dataaudit"}
    if secret is not None:
        headers |= signed(secret, data)
    why, final, after = "", False, None
    try:
        request = urllib.request.Request(url, data, headers, method="POST")  # noqa: S310 - http(s), checked above
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout) as answer:
            answer.read(1024)
            return
    except urllib.error.HTTPError as error:
        with error:
            why, after = f"status {error.code}", _asked(error.headers.get("Retry-After"))
            final = error.code < 500 and error.code not in _TEMPORARY
    except TimeoutError:
        why = f"no answer within {timeout:g} s"
    except urllib.error.URLError as error:
        why = f"no connection ({type(error.reason).__name__})"
    except (OSError, ValueError) as error:
        why = f"no connection ({type(error).__name__})"
    raise Refused(why, final=final, after=after)


def signed(secret: str, body: bytes, now: float | None = None) -> dict[str, str]:
    """Return the headers that sign a body."""
    stamp = str(int(time.time() if now is None else now))
    digest = hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {"X-Dataaudit-Timestamp": stamp, "X-Dataaudit-Signature": f"v1={digest}"}


def _asked(header: str | None) -> float | None:
    """Return the seconds of a header ``Retry-After``, which may hold a date."""
    if header is None:
        return None
    for read in (float, lambda date: email.utils.parsedate_to_datetime(date).timestamp() - time.time()):
        with suppress(ValueError, TypeError, OverflowError):
            return max(0.0, read(header))
    return None


@dataclass
class Boxes:
    """The outboxes of all destinations."""

    all: Sequence[Outbox] = field(default_factory=list)

    def put(self, message: Message) -> None:
        """Hand a message to each destination that takes its severity."""
        for box in self.all:
            box.put(message)

    def close(self, seconds: float) -> None:
        """Send what waits, and end; all of them at once."""
        until = time.monotonic() + seconds
        for box in self.all:
            box.close(max(0.1, until - time.monotonic()))

    def report(self) -> list[dict[str, Any]]:
        """Return what became of messages, by destination."""
        names = ("name", "sent", "waiting", "dropped", "failure")
        return [{name: getattr(box, name) for name in names} for box in self.all]
