"""What a worker has to have before it may work: our versions of all that decides a number, and the state folder.

All workers are asked when a build joins them, so that nothing is done in vain. A cluster may grow later, and a nanny
may start a worker anew after somebody has installed another version; so a worker also looks at itself when a task
reaches it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataaudit import __version__
from dataaudit.engine.keys import library_versions
from dataaudit.errors import ClusterError

_CLIENT_SECONDS = 60
_ASKED = 3
"""Times that workers are asked who they are, when those that were there have left."""
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
        return Path(self.folder) / f".worker-check-{self.token}"

    def problem(self, seen: str, versions: Mapping[str, str]) -> tuple[str, str] | None:
        """Return what a worker lacks, and what to do; None when it may work.

        Args:
            seen: What it read from the file.
            versions: That it runs, by name.
        """
        expected = dict(self.versions)
        if versions != expected:
            pairs = ((name, expected.get(name), versions.get(name)) for name in sorted({*versions, *expected}))
            listed = ", ".join(f"{name} {ours} here, {theirs} there" for name, ours, theirs in pairs if ours != theirs)
            return f"runs other versions: {listed}", _INSTALL
        if seen != self.token:
            return (
                f"cannot see the state folder {self.folder}",
                "Put the manifest and the state folder on storage that every worker mounts at the same path.",
            )
        return None


@contextmanager
def terms_of(shared: Path) -> Iterator[Terms]:
    """Say what workers have to have; on leaving, the file that they look for is taken away.

    Args:
        shared: The state folder.
    """
    terms = Terms(folder=str(shared), token=secrets.token_hex(8), versions=tuple(sorted(worker_versions().items())))
    terms.probe.write_text(terms.token, encoding="utf-8")
    try:
        yield terms
    finally:
        terms.probe.unlink(missing_ok=True)


def check_workers(client: Any, terms: Terms) -> None:
    """Ask every worker that is there.

    Raises:
        ClusterError: One cannot run us, has other versions or does not see the state folder; or none is left.
    """
    for address, answer in sorted(_answers(client, terms.probe).items()):
        if isinstance(answer, Exception):
            raise ClusterError(f"worker {address} cannot run dataaudit: {type(answer).__name__}: {answer}", _INSTALL)
        if problem := terms.problem(*answer):
            raise ClusterError(f"worker {address} {problem[0]}", problem[1])


def _answers(client: Any, probe: Path) -> dict[str, Any]:
    """Return what each worker says of itself, or the error that it met; one that leaves or dies meanwhile is left out.

    Raises:
        ClusterError: None is left.
    """
    for _ in range(_ASKED):
        answers: dict[str, Any] = {}
        with contextlib.suppress(OSError):  # no worker joins in time, or the scheduler is gone
            client.wait_for_workers(1, timeout=_CLIENT_SECONDS)
            answers = client.run(worker_identity, str(probe), on_error="return")
        if there := {address: one for address, one in answers.items() if not isinstance(one, OSError)}:
            return there
    raise ClusterError(
        "no worker of the cluster answers: all have left or died since they joined",
        "See what the scheduler and the workers logged.",
    )


def worker_identity(path: str) -> tuple[str, dict[str, str]]:
    """Return what a worker reads from the state folder, and its versions."""
    try:
        seen = Path(path).read_text(encoding="utf-8")
    except OSError:
        seen = ""
    return seen, worker_versions()


def worker_versions() -> dict[str, str]:
    """Return the versions that have to be the same everywhere."""
    return {"dataaudit": __version__, **library_versions()}


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
