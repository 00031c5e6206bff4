"""Dask cluster of a build: a LocalCluster with the settings that matter, or one that exists; and checks of workers.

Every setting is there for a failure that was met: one task at a time on a worker, so that a death blames one task; no
spilling, because results are tiny; a second death ends a task's retries, because the batch is then run in pieces; no
thread pools inside a worker, because every core has one; short logs, because the scheduler's hold all units of the last
thousand tasks.

A worker needs our versions of all that decides a number, and the state folder. All are asked when a build joins them,
newcomers when they are seen, and a worker checks itself when a task reaches it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dataaudit.base.errors import CatchErrors, ClusterError, ConfigError
from dataaudit.base.process import signals_held
from dataaudit.base.sealing import key_here
from dataaudit.base.text import clean
from dataaudit.engine.inputs import check_guard, workers_report
from dataaudit.engine.plan import differences, worker_versions
from dataaudit.engine.sandbox import ONE_THREAD, end_child

_START_SECONDS = 120.0
_CLOSED = frozenset({"inproc", "tls", "wss"})
"""Schemes of addresses that nobody without a certificate gets an answer from."""
_SAFE_PATH = "PYTHONSAFEPATH"
"""Set, Python does not look for modules in the working directory."""
SETTINGS: dict[str, Any] = {
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.scheduler.allowed-failures": 1,
    "distributed.scheduler.no-workers-timeout": "10m",
    "distributed.scheduler.worker-ttl": "5m",
    "distributed.worker.daemon": False,
    "distributed.worker.preload": ["dataaudit.engine.preload"],
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": 0.80,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.worker.profile.enabled": False,
    "distributed.nanny.pre-spawn-environ": ONE_THREAD,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.low-level-log-length": 10,
    "logging": {"distributed": "critical", "tornado": "critical", "asyncio": "critical"},
}
LOCAL_SETTINGS: dict[str, Any] = {
    "distributed.comm.tls.ciphers": None,
    "distributed.comm.tls.min-version": None,
    "distributed.comm.tls.max-version": None,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Of clusters that we start: nothing of the user's environment makes TLS weaker, and no page shows what a build does to
whoever asks on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChoice:
    """What the user asked for."""

    workers: int | None = None
    """Workers of a LocalCluster; one for every core when None; with 0 the work is done in this process."""
    scheduler: str | None = None
    client: Any = None
    """A distributed.Client that is there already; it is left open."""
    open_scheduler: bool = False
    """Whether work that is signed or sealed may go to a scheduler that answers everybody who reaches its port."""
    memory_limit: str | int = "auto"
    """Memory of a local worker: bytes, ``2GiB`` or ``auto`` (an even share)."""
    worker_ttl: str = "5m"
    """Silence after which a worker counts as lost."""
    isolate: bool = True
    """With 0 workers: whether what can crash a process runs in a child; a debugger wants to see it."""

    @property
    def in_process(self) -> bool:
        """Whether the work is done in this process."""
        return self.workers == 0 and self.scheduler is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A connected cluster."""

    client: Any
    num_workers: int
    """Workers, each with one thread, that it should have."""
    hosts: tuple[str, ...]
    dashboard: str | None
    """Address of the dashboard; None for a cluster of ours, and when bokeh is not installed."""
    memory_limit: int
    """Bytes of memory of one worker; 0 when it is not limited."""
    terms: Terms
    newcomers: Newcomers
    local: Any = None

    def heal(self) -> int:
        """Replace local workers that are gone for good; return how many workers there are.

        A nanny restarts its worker, but gives up when the worker dies while it starts.
        """
        addresses = list(self.client.scheduler_info(n_workers=-1)["workers"])
        self.newcomers.check(addresses)
        alive = len(addresses)
        if self.local is not None and alive < self.num_workers:
            self.local.sync(_replace_dead, self.local)
            self.local.scale(self.num_workers)
        return alive


def expect_closed(choice: ClusterChoice, addresses: Iterable[str]) -> None:
    """Refuse work that is signed or sealed where whoever reaches a port runs code as its user, and reads the key."""
    for address in () if choice.open_scheduler else addresses:
        if (address.partition("://")[0] if "://" in address else "tcp") not in _CLOSED:
            raise ConfigError(
                f"{clean(address, 100)} is an open port: whoever reaches it can run code, read the key, and change what"
                " is signed or sealed",
                "Name a tls:// scheduler with certificates, or leave it out: local workers have their own. To trust"
                " everybody who reaches it: --open-scheduler, in Python open_scheduler=True.",
            )


def _expect_closed_for_key(choice: ClusterChoice, addresses: Iterable[str]) -> None:
    if key_here():
        expect_closed(choice, addresses)


@contextmanager
def open_cluster(choice: ClusterChoice, shared: Path) -> Iterator[Cluster]:
    """Start or join a cluster; on leaving, stop what was started."""
    with terms_of(shared) as terms:
        yield from _opened(choice, terms)


def _opened(choice: ClusterChoice, terms: Terms) -> Iterator[Cluster]:
    import dask
    import distributed

    if choice.client is not None:
        check_client(choice.client)
        _expect_closed_for_key(choice, [choice.client.scheduler.address])
        with _joined(choice, choice.client, terms) as cluster:
            yield cluster
        return
    for name in ("distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    settings = SETTINGS | {"distributed.scheduler.worker-ttl": choice.worker_ttl}
    with dask.config.set(settings):
        if choice.scheduler is not None:
            _expect_closed_for_key(choice, [choice.scheduler])
            client = _join(distributed, choice.scheduler)
            try:
                with _joined(choice, client, terms) as cluster:
                    yield cluster
            finally:
                client.close(timeout=5)
            return
        with contextlib.ExitStack() as stack:
            stack.enter_context(dask.config.set(LOCAL_SETTINGS))
            with signals_held():
                cluster = _start_local(dask, distributed, choice, stack, terms)
            yield cluster


@contextmanager
def _joined(choice: ClusterChoice, client: Any, terms: Terms) -> Iterator[Cluster]:
    """Use workers that are there already; on leaving, their children are ended and they go on."""
    _expect_closed_for_key(choice, client.scheduler_info(n_workers=-1)["workers"])
    check_workers(client, terms)
    try:
        yield _connected(client, terms)
    finally:
        with contextlib.suppress(Exception):  # workers may be gone, or busy for long
            client.run(_end_child, wait=False)


async def _end_child() -> None:
    """End a worker's child; Dask waits for every function that is no coroutine, for busy workers too."""
    end_child()


def check_client(client: Any) -> None:
    """Refuse a client whose workers cannot do the work."""
    import distributed

    if not isinstance(client, distributed.Client) or client.asynchronous:
        raise TypeError(
            f"client: expected a distributed.Client that is not asynchronous, found {type(client).__name__}"
        )
    try:
        client.wait_for_workers(1, timeout=_CLIENT_SECONDS)
        workers = client.scheduler_info(n_workers=-1)["workers"]
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        raise ClusterError(
            f"client: no worker answers ({type(error).__name__})", "Expected a connected client with workers."
        ) from None
    _refuse_shared(workers, "client", "Client(n_workers=4, threads_per_worker=1, security=True)")


def _refuse_shared(workers: Mapping[str, Any], where: str, remedy: str) -> None:
    """Refuse workers that run several tasks in one process."""
    shared = [name for name, worker in workers.items() if name.startswith("inproc://") or worker["nthreads"] != 1]
    if shared:
        raise ClusterError(
            f"{where}: the worker {shared[0]} runs several tasks in one process",
            f"Units of work may crash or need much memory, and are told apart by process: {remedy}.",
        )


@contextmanager
def _environment_of_workers() -> Iterator[Path]:
    """Set what processes that start meanwhile go by; yield where one reports that it runs an unguarded script.

    They import nothing from the folder that a build runs in (an `enum.py` of a user). A worker has the module path of
    this process as soon as it runs, so what is found here is found there.
    """
    own = {_SAFE_PATH: "1"}
    with workers_report(own) as reported:
        before = {name: os.environ[name] for name in own if name in os.environ}
        os.environ.update(own)
        try:
            yield reported
        finally:
            for name in own:
                os.environ.pop(name, None)
            os.environ.update(before)


def _start_local(
    dask: Any, distributed: Any, choice: ClusterChoice, stack: contextlib.ExitStack, terms: Terms
) -> Cluster:
    """Start a scheduler here and workers around it; workers that die while they start are replaced."""
    from dataaudit.engine.preload import LocalSecurity, serve_no_pages

    os.environ.update(ONE_THREAD)
    reported = stack.enter_context(_environment_of_workers())
    num_workers = choice.workers or dask.system.CPU_COUNT
    limit = choice.memory_limit
    local = distributed.LocalCluster(
        n_workers=0,
        threads_per_worker=1,
        processes=True,
        memory_limit=distributed.system.MEMORY_LIMIT // num_workers if limit == "auto" else memory_bytes(limit),
        host="127.0.0.1",
        protocol="tls://",
        security=LocalSecurity.temporary(),
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": False},
        silence_logs=logging.CRITICAL,
    )
    local.shutdown_on_close = False  # by Dask, at exit: we close it, and then it may be half started
    stack.callback(_close, local)
    client = stack.enter_context(distributed.Client(local, set_as_default=False))
    local.sync(_without_pages, serve_no_pages, local.scheduler)
    ours = {"num_workers": num_workers, "local": local, "dashboard": None}
    starting = replace(_connected(client, terms), **ours)
    local.scale(num_workers)
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with contextlib.suppress(TimeoutError):
            client.wait_for_workers(num_workers, timeout=1)
        check_guard(reported, num_workers)
        alive = starting.heal()
        if alive == num_workers or (alive and time.monotonic() > deadline - _START_SECONDS / 2):
            return replace(_connected(client, terms), **ours)
        if time.monotonic() > deadline:
            raise ClusterError(
                f"no local worker has started within {_START_SECONDS:.0f} s",
                "`dataaudit doctor` shows memory and cores; one worker needs the least.",
            )


def usable_machine() -> tuple[int, int]:
    """Return the cores and the bytes of memory that this process may use, of which local workers get their shares."""
    from dask.system import CPU_COUNT
    from distributed.system import MEMORY_LIMIT

    return CPU_COUNT, MEMORY_LIMIT


def memory_bytes(limit: str | int) -> int:
    """Return a limit of memory in bytes."""
    from dask.utils import parse_bytes

    try:
        size = int(parse_bytes(limit))
    except ValueError:
        size = -1
    if size < 0:
        raise ConfigError(
            f"memory limit: expected a size like 2GiB, or auto, found {limit}", "Units: MB, MiB, GB, GiB."
        )
    return size


def _close(local: Any) -> None:
    with contextlib.suppress(Exception):  # workers may be dying at the same moment
        local.close(timeout=10)


async def _without_pages(stop: Callable[[Any], None], scheduler: Any) -> None:
    stop(scheduler)


async def _replace_dead(local: Any) -> None:
    """Forget nannies that have given up, so that scaling starts new ones in their place."""
    for name, nanny in list(local.workers.items()):
        if nanny.status.name in {"closed", "closing", "failed", "closing_gracefully", "stopped", "undefined"}:
            del local.workers[name]


def _join(distributed: Any, address: str) -> Any:
    if address.startswith("tls://") and distributed.Security().get_connection_args("client")["ssl_context"] is None:
        raise ConfigError(
            f"scheduler {address}: Dask's configuration names no certificates",
            "Set DASK_DISTRIBUTED__COMM__TLS__CA_FILE, ...__CLIENT__CERT and ...__CLIENT__KEY, or give a client in"
            " Python: Client(..., security=Security(...)).",
        )
    try:
        client = distributed.Client(address, timeout=10, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"scheduler {address}: no scheduler answers ({type(error).__name__})",
            "Expected an address like tcp://host:8786, as `dask scheduler` prints it.",
        ) from None
    try:
        client.wait_for_workers(1, timeout=60)
    except TimeoutError:
        client.close(timeout=5)
        raise ClusterError(
            f"scheduler {address}: no worker joined within 60 s",
            f"Start some: dask worker {address} --nthreads 1",
        ) from None
    try:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        _refuse_shared(workers, f"scheduler {address}", f"dask worker {address} --nthreads 1")
    except ClusterError:
        client.close(timeout=5)
        raise
    return client


def _connected(client: Any, terms: Terms) -> Cluster:
    addresses = client.scheduler_info(n_workers=-1)["workers"]
    workers = addresses.values()
    limits = [int(worker["memory_limit"] or 0) for worker in workers]
    has_dashboard = importlib.util.find_spec("bokeh") is not None
    return Cluster(
        client=client,
        num_workers=max(1, len(limits)),
        hosts=tuple(sorted({worker["host"] for worker in workers})),
        dashboard=client.dashboard_link if has_dashboard else None,
        memory_limit=min(limits, default=0),
        terms=terms,
        newcomers=Newcomers(client, terms, addresses),
    )


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
        with contextlib.suppress(OSError):  # whatever ends the build is reported, not this
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
        with CatchErrors():  # the cluster may be gone; who waits for its tasks says so
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
