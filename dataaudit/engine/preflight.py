"""What a worker has to have before it may work: our versions of all that decides a number, and the state folder.

All workers are asked when a build joins them, so that nothing is done in vain. A cluster may grow later, and a nanny
may start a worker anew after somebody has installed another version; so those are asked when they are seen, and
a worker also looks at itself when a task reaches it.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataaudit import __version__
from dataaudit.base.errors import ClusterError, Guarded
from dataaudit.engine.plan import library_versions

_CLIENT_SECONDS = 60
_ASKED = 3
"""Times that workers are asked who they are, when those that were there have left."""
_PROBE = ".worker-check-"
_LEFT_SECONDS = 30 * 86_400.0
_INSTALL = "Install the same lock file on every worker."


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is asked of every worker of a build."""

    folder: str
    """The state folder."""
    token: str
    """Of the build, written to a file of that folder."""
    versions: tuple[tuple[str, str], ...]
    """By name, as they are here."""

    @property
    def probe(self) -> Path:
        """The file that holds the token as long as the build runs."""
        return Path(self.folder) / f"{_PROBE}{self.token}"

    def problem(self, seen: str, versions: Mapping[str, str]) -> tuple[str, str] | None:
        """Return what a worker lacks, and what to do; None when it may work."""
        if differing := differences(dict(self.versions), versions):
            return f"runs other versions: {differing}", _INSTALL
        if seen != self.token:
            return (
                f"cannot see the state folder {self.folder}",
                "Put the manifest and the state folder on storage that every worker mounts at the same path.",
            )
        return None


@contextmanager
def terms_of(shared: Path) -> Iterator[Terms]:
    """Say what workers have to have; on leaving, the file that they look for is taken away."""
    terms = Terms(folder=str(shared), token=secrets.token_hex(8), versions=tuple(sorted(worker_versions().items())))
    for left in shared.glob(f"{_PROBE}*"):  # by builds that were killed
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFT_SECONDS:
                left.unlink()
    try:
        terms.probe.write_text(terms.token, encoding="utf-8")
        yield terms
    finally:
        with contextlib.suppress(OSError):  # whatever ends the build is said, not this
            terms.probe.unlink()


def check_workers(client: Any, terms: Terms) -> None:
    """Ask every worker that is there."""
    if problem := _first_problem(_answers(client, terms.probe), terms):
        raise ClusterError(*problem)


def _first_problem(answers: Mapping[str, Any], terms: Terms) -> tuple[str, str] | None:
    for address, answer in sorted(answers.items()):
        if isinstance(answer, OSError):  # it has left
            continue
        if isinstance(answer, Exception):
            return f"worker {address} cannot run dataaudit: {type(answer).__name__}: {answer}", _INSTALL
        if problem := terms.problem(*answer):
            return f"worker {address} {problem[0]}", problem[1]
    return None


class Newcomers:
    """Asks workers that join while a build runs, from a thread: one that does not answer keeps nobody waiting.

    A task would not do: to a worker that cannot import us it is a broken message, of which Dask tells nobody.

    Args:
        client: Of the cluster.
        terms: What they have to have.
        known: Addresses of those that were asked.
    """

    def __init__(self, client: Any, terms: Terms, known: Iterable[str]) -> None:
        self._client, self._terms, self._known = client, terms, set(known)
        self._problem: tuple[str, str] | None = None

    def check(self, addresses: Iterable[str]) -> None:
        """Ask those that are new."""
        if self._problem:
            raise ClusterError(*self._problem)
        if new := set(addresses) - self._known:
            self._known |= new
            threading.Thread(target=self._ask, args=(sorted(new),), daemon=True, name="newcomers").start()

    def _ask(self, new: list[str]) -> None:
        with Guarded():  # the cluster may be gone; who waits for its tasks says so
            probe = str(self._terms.probe)
            answers = self._client.run(worker_identity, probe, workers=new, on_error="return")
            self._problem = self._problem or _first_problem(answers, self._terms)


def _answers(client: Any, probe: Path) -> dict[str, Any]:
    """Return what each worker reports of itself, or its error; a worker that leaves or dies meanwhile is left out."""
    for _ in range(_ASKED):
        answers: dict[str, Any] = {}
        with contextlib.suppress(OSError):  # no worker joins in time, or the scheduler is gone
            client.wait_for_workers(1, timeout=_CLIENT_SECONDS)
            answers = client.run(worker_identity, str(probe), on_error="return")
        if there := {address: answer for address, answer in answers.items() if not isinstance(answer, OSError)}:
            return there
    raise ClusterError(
        "no worker of the cluster answers: all have left or died since they joined",
        "See what the scheduler and the workers logged.",
    )


def worker_identity(path: str) -> tuple[str, dict[str, str]]:
    """Return what a worker reads from the state folder, and its versions."""
    try:
        seen = Path(path).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        seen = ""
    return seen, worker_versions()


def worker_versions() -> dict[str, str]:
    """Return the versions that have to be the same everywhere."""
    return {"dataaudit": __version__, **library_versions()}


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Return how versions differ from ours, in words; empty when they do not."""
    pairs = ((name, ours.get(name), theirs.get(name)) for name in sorted({*ours, *theirs}))
    return ", ".join(f"{name} {here} here, {there} there" for name, here, there in pairs if here != there)


_met: set[Terms] = set()
"""Those that this process has met: it looks once for each build."""


def problem_here(terms: Terms) -> tuple[str, str] | None:
    """Return what this worker lacks, and what to do; None when it may work."""
    if terms in _met:
        return None
    if problem := terms.problem(*worker_identity(str(terms.probe))):
        return problem
    _met.add(terms)
    return None
