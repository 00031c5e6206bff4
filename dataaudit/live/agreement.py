"""Agreement of ranks on the step at which all of them do the same, by keys of a store and never by a collective.

A rank that asks writes a request for the step ``ahead`` of its own. Each rank reads requests at the end of a step and
writes at which step it saw them. At the step asked for it waits until all have, for ``timeout`` seconds at most. The
first to know writes the decision, which all obey: the latest of these steps, or which ranks are missing.

A loop that synchronises its ranks in each step is never more than a step ahead of another, so ``ahead=2`` is enough. A
loop whose host runs ahead of its device by more steps takes a larger number.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import orjson

from dataaudit.base.background_jobs import Jobs
from dataaudit.base.errors import CatchErrors, ConfigError

_LOOK_SECONDS, _LONGEST_LOOK = 0.005, 0.1


class Store(Protocol):
    """What is needed of a store: a TCPStore, FileStore, HashStore or PrefixStore of ``torch.distributed`` has it."""

    def set(self, key: str, value: str, /) -> object:
        """Write a key."""

    def get(self, key: str, /) -> bytes:
        """Return the value of a key that is there."""

    def check(self, keys: list[str], /) -> bool:
        """Return at once whether all keys are there."""

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Write a key that is not there, where ``expected`` is empty; return what it holds now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request for an action."""

    action: str
    step: int
    """Step after which it was asked for."""
    rank: int = 0
    rule: str = ""
    """That asked; empty: the loop did."""
    incident: str = ""
    folder: str = ""
    """Of the incident's evidence."""
    first_step: int = 0
    """From which on the rule's condition was met."""
    why: str = ""
    undo: bool = False

    def same(self, other: Asked) -> bool:
        """Return whether another asks for the same."""
        return (self.action, self.undo) == (other.action, other.undo)


@dataclass(frozen=True, slots=True)
class Due:
    """A request that is to be done now, by all ranks."""

    asked: Asked
    key: str
    """Below which keys of the request may be written."""
    missing: tuple[int, ...]
    """Ranks that did not answer in time; where there are any, nothing was agreed."""


class Unanswered(Exception):
    """A store did not answer in time."""


@dataclass(slots=True)
class _Pending:
    asked: Asked
    number: int
    at: int
    missing: tuple[int, ...] | None = None


class Agreement:
    """Lets the ranks of a run do an action at the same step.

    Args:
        store: Of ``torch.distributed``, which all ranks reach; best a store of its own, or ``store.clone()``: another
            thread that waits in the same store would be waited for.
        rank: Of this process.
        ranks: Processes of the run.
        timeout: Seconds after which a rank, or the store, is missing.
        ahead: Steps from a request to its action.
        prefix: Of the keys; another for each start of the run where the store outlives it. By default that of
            torchrun: TORCHELASTIC_RUN_ID and TORCHELASTIC_RESTART_COUNT.

    Raises:
        ConfigError: An argument is out of range.
    """

    def __init__(
        self,
        store: Store | None = None,
        rank: int = 0,
        ranks: int = 1,
        *,
        timeout: float = 60.0,
        ahead: int = 2,
        prefix: str | None = None,
    ) -> None:
        if not 0 <= rank < ranks or timeout <= 0 or ahead < 1:
            raise ConfigError(
                f"agreement: expected 0 <= rank < ranks, timeout > 0 and ahead >= 1, found {rank}, {ranks}, {timeout:g}"
                f" and {ahead}"
            )
        if store is None and ranks > 1:
            raise ConfigError(f"agreement: {ranks} ranks need a store", "Hand over a torch.distributed.TCPStore.")
        self.rank, self.ranks, self.timeout = rank, ranks, timeout
        launch = f"{os.environ.get('TORCHELASTIC_RUN_ID', '')}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        self._prefix = f"dataaudit/actions/{launch if prefix is None else prefix}/"
        self._store: Store = _Local() if store is None else _Bounded(store, timeout)
        self._ahead = 0 if store is None else ahead
        self._next = 0
        """Number of the first request that was not read."""
        self._pending: list[_Pending] = []

    def ask(self, asked: Asked) -> bool:
        """Write a request; return whether it is new: another rank may have asked for the same."""
        if any(own.asked.same(asked) for own in self._pending):
            return False
        text, number = orjson.dumps(asdict(asked)).decode(), self._next
        while (stored := self.settle(f"ask/{number}", text)) != text:
            if _read(stored).same(asked):
                return False
            number += 1
        return True

    def due(self, step: int) -> list[Due]:
        """Read requests after a step, and return those that all ranks do now; it may wait for the others.

        Raises:
            Unanswered: The store did not answer; so may errors of its own be raised.
        """
        while self._there([f"ask/{self._next}"]):
            asked = _read(self._get(f"ask/{self._next}"))
            self._set(f"seen/{self._next}/{self.rank}", str(step))
            self._pending.append(_Pending(asked, self._next, asked.step + self._ahead))
            self._next += 1
        due = []
        while self._pending and step >= self._pending[0].at:
            own = self._pending[0]
            if own.missing is None:
                self._decide(own)
                continue
            due.append(Due(own.asked, f"done/{own.number}", own.missing))
            del self._pending[0]
        return due

    def _decide(self, own: _Pending) -> None:
        missing = self._wait(f"seen/{own.number}")
        there = [rank for rank in range(self.ranks) if rank not in missing]
        at = max(own.at, *(int(self._get(f"seen/{own.number}/{rank}")) for rank in there))
        text = self.settle(f"decided/{own.number}", orjson.dumps({"step": at, "missing": missing}).decode())
        decided = orjson.loads(text)
        own.at, own.missing = int(decided["step"]), tuple(decided["missing"])

    def meet(self, key: str) -> tuple[int, ...]:
        """Wait until all ranks are here, and return which are missing: the same for all that came."""
        self._set(f"{key}/{self.rank}", "")
        return tuple(orjson.loads(self.settle(f"{key}/all", orjson.dumps(self._wait(key)).decode())))

    def settle(self, key: str, value: str) -> str:
        """Return what was settled: this value, unless another rank settled another before."""
        return self._store.compare_set(self._prefix + key, "", value).decode()

    def settled(self, key: str) -> str | None:
        """Return what was settled; None: nothing so far."""
        return self._get(key) if self._there([key]) else None

    def _wait(self, key: str) -> list[int]:
        """Wait until every rank wrote its key; return the ranks that did not in time."""
        names, until, look = [f"{key}/{rank}" for rank in range(self.ranks)], time.monotonic() + self.timeout, 0.0
        while not self._there(names):
            if time.monotonic() > until:
                return [rank for rank, name in enumerate(names) if not self._there([name])]
            look = min(max(2 * look, _LOOK_SECONDS), _LONGEST_LOOK)
            time.sleep(look)
        return []

    def _there(self, keys: Sequence[str]) -> bool:
        return self._store.check([self._prefix + key for key in keys])

    def _get(self, key: str) -> str:
        return self._store.get(self._prefix + key).decode()

    def _set(self, key: str, value: str) -> None:
        self._store.set(self._prefix + key, value)


def _read(text: str) -> Asked:
    return Asked(**orjson.loads(text))


class _Local:
    """The store of a single process."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self._values[key] = value

    def get(self, key: str) -> bytes:
        return self._values[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def compare_set(self, key: str, _: str, desired: str) -> bytes:
        return self._values.setdefault(key, desired).encode()


class _Bounded:
    """A store whose calls are made by a thread: a server that hangs costs the loop ``seconds`` once."""

    def __init__(self, store: Store, seconds: float) -> None:
        self._store, self._seconds = store, seconds
        self._jobs = Jobs("dataaudit-agreement")
        self._newest = threading.Event()
        """Set when the newest call has ended."""
        self._newest.set()

    def set(self, key: str, value: str) -> None:
        self._call("set", key, value)

    def get(self, key: str) -> bytes:
        return bytes(self._call("get", key))

    def check(self, keys: list[str]) -> bool:
        return bool(self._call("check", keys))

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        return bytes(self._call("compare_set", key, expected, desired))

    def _call(self, name: str, *arguments: Any) -> Any:
        if not self._newest.is_set():
            raise Unanswered("the store does not answer")
        done, call, values = threading.Event(), CatchErrors(), list[Any]()

        def job() -> None:
            with call:
                values.append(getattr(self._store, name)(*arguments))
            done.set()

        self._newest = done
        self._jobs.put(job)
        if not done.wait(self._seconds):
            raise Unanswered(f"the store did not answer for {self._seconds:g} s")
        if call.error is not None:
            raise call.error
        return values[0]
