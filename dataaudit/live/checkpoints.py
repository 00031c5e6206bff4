"""``Checkpoints``: around a loop's own save and load, so that there is always a checkpoint that restores.

::

    checkpoints = Checkpoints("runs/7b/checkpoints", restore_test="train:build", sinks=[monitor])
    checkpoints.save(step, lambda path: torch.save(state, path / "state.pt"))
    checkpoints.restore(lambda path: load(path / "state.pt"))

The function writes into a new folder; every file is hashed, forced to disk, and the folder appears by a rename. The
test runs in a process of its own while the loop goes on. A save that fails is reported, and the run goes on; only where
the folder has no checkpoint yet the error is raised. Ranks meet by files of the shared folder, never by a collective.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np
import orjson

from dataaudit.base.background_jobs import Jobs
from dataaudit.base.errors import CatchErrors, CheckpointDamaged, ConfigError
from dataaudit.base.files import sync_folder, write_synced, write_whole
from dataaudit.base.text import size, utc_now
from dataaudit.live.checkpoint_files import (
    DATA,
    DELETING,
    PROTECTED,
    READ_BACK,
    RESTORED,
    TEST,
    Checkpoint,
    Damage,
    delete_old,
    files_of,
    hash_files,
    link_files,
    list_checkpoints,
    publish,
    read_checkpoint,
    sealed,
)
from dataaudit.live.heartbeats import ALONE, launch_key
from dataaudit.live.reproducibility import reproducibility_manifest
from dataaudit.live.restore_check import RestoreCheck
from dataaudit.vitals.metric import Column
from dataaudit.vitals.sinks import Reporter, Sink

if TYPE_CHECKING:
    from dataaudit.live.probe_batch import Probe

_LOG = logging.getLogger("dataaudit")
_SAVING: Final = ".saving"
_GIGA = 1e9
_CLOSE_SECONDS = 600.0
_POLL_SECONDS = (0.01, 2.0)
_SHOWN_DAMAGE = 20
_SHOWN_LETTERS = 200


class Checkpoints:
    """Publishes, tests, protects and restores the checkpoints of a run.

    Args:
        folder: Of the checkpoints; ranks share it, and no other run saves into it.
        restore_test: Function ``(path)``, or ``(path, rank)``, that builds the loop's parts, restores them from a
            checkpoint as a resumed run does, and returns them by name: ``"module:function"``, ``"file.py:function"``
            or a function of a module. Without it files are read back, and nothing is restored.
        test_every: Checkpoints between two tests, from 1; those between are neither tested nor good.
        test_seconds: After which a test has failed.
        test_devices: ``CUDA_VISIBLE_DEVICES`` of the test: none by default, so that it takes no memory of the run's.
        test_ranks: Ranks whose state is restored, in turn; of the others only sharded parts are compared.
        probe: Its loss is computed as a checkpoint is saved, and again when it is restored.
        keep: Newest checkpoints that are kept; so are two good ones, and those that are protected.
        sinks: Where ``checkpoint_ok``, ``checkpoint_time`` and ``checkpoint_size`` go: a monitor, a run log, alerts.
        reproducibility: Of :func:`reproducibility_manifest`; by default of code, libraries, the model of ``state`` and
            the corpus of a monitor.
        rank: Of this process, and ``ranks`` of the run: by default RANK and WORLD_SIZE.
        launch: What all ranks of this start have in common, and no other start; by default torchrun's or SLURM's id.
        rank_seconds: How long rank 0 waits for the parts of others.

    Raises:
        ConfigError: An argument cannot be.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        restore_test: str | Callable[..., Mapping[str, Any]] | None = None,
        test_every: int = 1,
        test_seconds: float = 3600.0,
        test_devices: str = "",
        test_ranks: Sequence[int] = (0,),
        probe: Probe | None = None,
        keep: int = 3,
        sinks: Sequence[Sink] = (),
        reproducibility: Mapping[str, Any] | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        launch: str = "",
        rank_seconds: float = 600.0,
    ) -> None:
        self.folder = Path(folder)
        self.rank = _number("RANK", 0) if rank is None else rank
        self.ranks = _number("WORLD_SIZE", 1) if ranks is None else ranks
        if keep < 1 or test_every < 1 or not 0 <= self.rank < self.ranks:
            numbers = f"{keep}, {test_every}, {self.rank}, {self.ranks}"
            raise ConfigError(f"checkpoints: expected keep >= 1, test_every >= 1, 0 <= rank < ranks, found {numbers}")
        self._launch = launch or launch_key()
        if self.ranks > 1 and self._launch == ALONE:
            raise ConfigError(
                "checkpoints: nothing distinguishes this start of the ranks from others",
                "Give all ranks the same `launch=`, another at each start; torchrun and SLURM have their own.",
            )
        self._check = (
            None if restore_test is None else RestoreCheck(restore_test, test_seconds, test_devices, test_ranks)
        )
        self._test_every, self._probe, self._keep = test_every, probe, keep
        self._reporter, self._sinks = Reporter(sinks), tuple(sinks)
        self._reproducibility, self._rank_seconds = reproducibility, rank_seconds
        self._newest, self._saves, self._cleaned, self._due = 0, 0, False, ""
        self._saved: Checkpoint | None = None
        self._meetings = 0
        self._tries: dict[int, int] = {}
        self._lock = threading.RLock()
        self._publishing, self._testing = Jobs("dataaudit-publish"), Jobs("dataaudit-restore")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def report_to(self, sink: Sink) -> None:
        """Hand numbers and events to a further sink, such as a monitor, which is made after the checkpoints."""
        self._sinks = (*self._sinks, sink)
        self._reporter = Reporter(self._sinks)

    @property
    def latest(self) -> Checkpoint | None:
        """The newest that was published; None: there is none."""
        return next(reversed(self.list()), None)

    @property
    def last_good(self) -> Checkpoint | None:
        """The newest that passed its test and lost no file since; :meth:`restore` compares digests, too."""
        return next((own for own in reversed(self.list()) if own.good), None)

    def list(self) -> list[Checkpoint]:
        """Return the checkpoints, oldest first."""
        return list_checkpoints(self.folder)[0]

    def save(
        self, step: int, write: Callable[[Path], object], *, state: Mapping[str, Any] | None = None
    ) -> Checkpoint | None:
        """Save a checkpoint by the loop's own function; every rank calls it.

        Args:
            step: The last step that was done.
            write: Writes into the folder that it is given: by torch, safetensors, DCP, ``save_pretrained``, ...
            state: Model, optimizer, scheduler, scaler, ... by name: compared in the test with what it restores.

        Returns:
            The checkpoint; None where it failed, or where several ranks save and their parts are not all there yet.
        """
        with self.saving(step, state=state) as path:
            write(path)
        return self._saved

    @contextmanager
    def saving(self, step: int, *, state: Mapping[str, Any] | None = None) -> Iterator[Path]:
        """Yield the folder to write into; after the block it is published. Arguments as those of :meth:`save`."""
        begun, step, self._saved = time.monotonic(), int(step), None
        self._newest = max(self._newest, step)
        draft, memory = Path(os.devnull), {}  # where the folder cannot be made, what the block writes fails
        with CatchErrors() as begin:
            draft = self._draft(step)
            memory = self._in_memory(state or {})
            if self._reproducibility is None:
                corpus = next((own for sink in self._sinks if (own := getattr(sink, "corpus", None)) is not None), None)
                self._reproducibility = reproducibility_manifest(model=(state or {}).get("model"), corpus=corpus)
        try:
            yield draft / DATA
            if begin.error is not None:
                raise begin.error
            write_synced(draft / f"ranks/{self.rank:05d}.json", orjson.dumps(memory, option=orjson.OPT_SORT_KEYS))
            if self.ranks == 1:
                self._saved = self._publish(step, draft)
        except BaseException as error:
            if isinstance(error, Exception):
                self._failed(step, draft, begin.error or error)
            if begin.error is None and self.ranks == 1:
                shutil.rmtree(draft, ignore_errors=True)
            if not isinstance(error, Exception) or self._is_empty():
                raise
            return
        finally:
            self._report(step, {"checkpoint_time": time.monotonic() - begun})
        if self.ranks > 1:
            self._publishing.put(lambda: self._gather(step, draft))

    def adopt(
        self, path: str | os.PathLike[str], step: int, *, state: Mapping[str, Any] | None = None, copy: bool = False
    ) -> Checkpoint | None:
        """Take over a checkpoint that a trainer wrote on its own: a file or a folder.

        Files get a second name by hard links, which need no room and stay when the trainer deletes its own; on another
        file system they are copied. Other arguments as those of :meth:`save`.

        Args:
            path: The file or folder.
            step: Of the checkpoint.
            state: What is in memory.
            copy: For a trainer that writes into the same file again: a link would change with it.
        """
        source = Path(path)

        def write(target: Path) -> None:
            if self.rank == 0:
                link_files(source, target, copy=copy)

        return self.save(step, write, state=state)

    def restore(
        self, load: Callable[[Path], object] | None = None, *, at: int | Literal["last_good", "latest"] = "last_good"
    ) -> Checkpoint | None:
        """Compare the digests of a checkpoint, load it, and return it; None where there is none yet.

        ``last_good`` that is damaged is reported, and the good checkpoint before it is taken. Where none was tested, as
        after a kill, the newest are tested now. Of several ranks all call it, each reads a share of the files, and all
        take the same.

        Args:
            load: Reads from the folder that ``write`` wrote into.
            at: A step, ``latest`` or ``last_good``.

        Raises:
            CheckpointDamaged: The checkpoint, or all that are good, are damaged.
            ConfigError: There is no checkpoint of that step.
        """
        checkpoints, records = list_checkpoints(self.folder)
        if not checkpoints and not records and isinstance(at, str):
            return None
        for item in records:
            self._name_damage(item.folder, 0, [item])
        chosen = [own for own in checkpoints[::-1] if own.test.get("ok")]
        if at == "last_good":
            chosen = chosen or checkpoints[::-1]
        else:
            chosen = checkpoints[-1:] if at == "latest" else [own for own in checkpoints if own.step == at][-1:]
        damage = list(records)
        for own in chosen:
            wrong = self._wrong(own, tests=at == "last_good" and not own.test.get("ok"))
            if not wrong:
                for newer in checkpoints[checkpoints.index(chosen[0]) + 1 :] if at == "last_good" else ():
                    why = newer.test.get("why") or "it was not tested"
                    _LOG.warning("checkpoint of step %d is not good: %s", newer.step, why)
                if load is not None:
                    load(own.path)
                return self._again(own)
            self._damaged(own, wrong)
            damage += wrong
        if not chosen and isinstance(at, int):
            raise ConfigError(f"checkpoints {self.folder}: there is none of step {at:,}", _list_hint(self.folder))
        lines = "".join(f"\n  {item}" for item in damage[:_SHOWN_DAMAGE])
        raise CheckpointDamaged(f"checkpoints {self.folder}: {at} cannot be restored:{lines}", _list_hint(self.folder))

    def protect(self, at: int | Literal["last_good", "latest"], why: str = "") -> Checkpoint:
        """Keep a checkpoint from being deleted until :meth:`unprotect`, across processes and starts.

        Raises:
            ConfigError: There is no such checkpoint.
        """
        own = self._at(at)
        detail = orjson.dumps({"why": why, "since": utc_now(), "by": f"process {os.getpid()}"})
        try:
            write_synced(own.folder / PROTECTED, detail)  # makes no folder: what is deleted meanwhile is an error
            sync_folder(own.folder)
        except OSError as error:
            raise ConfigError(f"checkpoint {own.folder}: it cannot be protected: {error.strerror or error}") from None
        return self._again(own)

    def unprotect(self, at: int | Literal["last_good", "latest"]) -> None:
        """Let a checkpoint be deleted again.

        Raises:
            ConfigError: There is no such checkpoint.
        """
        (self._at(at).folder / PROTECTED).unlink(missing_ok=True)

    def test(self, checkpoint: Checkpoint) -> Checkpoint:
        """Test a checkpoint now, wait for the outcome, and return it with that; the outcome is reported."""
        wrong = list(checkpoint.damage())
        outcome: dict[str, Any] = {"ok": not wrong, "what": READ_BACK, "why": "; ".join(map(str, wrong[:3]))}
        if not wrong and self._check is not None:
            outcome = {"what": RESTORED, **self._check.run(checkpoint.folder, self._probe)}
        with self._lock:
            with CatchErrors() as call:
                if checkpoint.folder.is_dir():
                    self._write_outcome(checkpoint, outcome)
            if call.error is not None:  # so it is not the last good
                why = f"its outcome could not be written: {getattr(call.error, 'strerror', None) or call.origin}"
                outcome |= {"ok": False, "why": why}
            if self.rank == 0:
                delete_old(self.folder, self._keep)
        where = {"folder": checkpoint.folder.name, "step": checkpoint.step, "what": outcome["what"]}
        self._report(checkpoint.step, {"checkpoint_ok": float(outcome["ok"])}, {**where, "why": outcome["why"]})
        if not outcome["ok"]:
            _LOG.warning("checkpoint of step %d failed its test: %s", checkpoint.step, outcome["why"])
        return self._again(checkpoint)

    def wait(self, seconds: float = _CLOSE_SECONDS) -> bool:
        """Wait until all that was saved is published and tested, and return whether it is."""
        return self._publishing.wait(seconds) and self._testing.wait(seconds)

    def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Wait for the tests that are under way; what is not tested stays, and is not good."""
        if not self.wait(seconds):
            _LOG.warning("checkpoints: the newest was not tested after %.0f s", seconds)

    @staticmethod
    def _again(own: Checkpoint) -> Checkpoint:
        return again if isinstance(again := read_checkpoint(own.folder), Checkpoint) else own

    def _is_empty(self) -> bool:
        """Return whether there surely is no checkpoint."""
        with suppress(ConfigError):
            return not self.list()
        return False

    def _wrong(self, own: Checkpoint, *, tests: bool) -> Sequence[Damage]:
        """Return what is wrong with a checkpoint; ranks compare a share of the files each, and come to one list."""
        wrong = list(own.damage(share=(self.rank, self.ranks)))
        if tests and self.rank == 0 and not wrong and not (tested := self.test(own)).test.get("ok"):
            wrong = [Damage(own.folder.name, TEST, str(tested.test["why"]))]
        if self.ranks == 1:
            return wrong
        self._meetings += 1
        meeting = self.folder / f".step-{own.step:08d}.{self._launch}-restore{self._meetings}{_SAVING}"
        write_whole(meeting / f"{self.rank:05d}.json", orjson.dumps([[*item] for item in wrong]))
        self._await_ranks(meeting)
        lists = [orjson.loads(path.read_bytes()) for path in sorted(meeting.glob("*.json"))]
        return sorted({Damage(*item) for each in lists for item in each})

    def _at(self, at: int | Literal["last_good", "latest"]) -> Checkpoint:
        if at == "last_good":
            own = self.last_good
        else:
            own = self.latest if at == "latest" else next((o for o in self.list()[::-1] if o.step == at), None)
        if own is None:
            which = f"of step {at:,}" if isinstance(at, int) else f"that is {at.replace('_', ' ')}"
            raise ConfigError(f"checkpoints {self.folder}: there is none {which}", _list_hint(self.folder))
        return own

    def _draft(self, step: int) -> Path:
        """Make the folder that a checkpoint is written into; ranks share it."""
        if step < 0:
            raise ConfigError(f"checkpoints: expected a step from 0, found {step}")
        if not self._cleaned:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._clean()
        self._tries[step] = self._tries.get(step, 0) + 1
        start = f"{os.getpid()}-{secrets.token_hex(4)}" if self.ranks == 1 else f"{self._launch}-{self._tries[step]}"
        draft = self.folder / f".step-{step:08d}.{start}{_SAVING}"
        for name in (DATA, "ranks", *(["hashed"] if self.ranks > 1 else [])):
            (draft / name).mkdir(parents=True, exist_ok=True)
        return draft

    def _clean(self) -> None:
        """Delete what killed processes left."""
        self._cleaned = True
        for path in self.folder.glob(".step-*") if self.rank == 0 else ():
            if path.name.endswith((_SAVING, DELETING)) and f".{self._launch}-" not in path.name:
                shutil.rmtree(path, ignore_errors=True)

    def _in_memory(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return digests of what the test is to restore; nothing where it is not due."""
        self._saves += 1
        if self._check is None or (self._saves - 1) % self._test_every:
            return {}
        from dataaudit.live.state_digests import digests, leaves

        memory: dict[str, Any] = {}
        with CatchErrors() as call:
            memory["leaves"] = digests(leaves(state))
            if self._probe is not None and (model := state.get("model")) is not None:
                memory["probe"] = self._probe.measure(model).document()
        return memory if call.error is None else {"error": call.origin}

    def _gather(self, step: int, draft: Path) -> None:
        """Hash this rank's share of the files once all ranks have written; rank 0 publishes when all are hashed."""
        with CatchErrors() as call:
            self._await_ranks(draft / "ranks")
            names = [name for name, _ in files_of(draft)][self.rank :: self.ranks]
            write_whole(draft / f"hashed/{self.rank:05d}.json", orjson.dumps(hash_files(draft, names, sync=True)))
            if self.rank == 0:
                self._await_ranks(draft / "hashed")
                self._publish(step, draft)
        if call.error is not None and self.rank == 0:
            self._failed(step, draft, call.error)
            shutil.rmtree(draft, ignore_errors=True)
        elif call.error is not None:
            _LOG.warning("checkpoint of step %d: rank %d has no part in it (%s)", step, self.rank, call.origin)

    def _await_ranks(self, folder: Path) -> None:
        ends, pause = time.monotonic() + self._rank_seconds, _POLL_SECONDS[0]
        wanted = {f"{rank:05d}.json" for rank in range(self.ranks)}
        while missing := wanted - set(os.listdir(folder)):
            if time.monotonic() > ends:
                ranks = ", ".join(str(int(name[:5])) for name in sorted(missing)[:16])
                raise TimeoutError(f"no part of rank {ranks} came within {self._rank_seconds:,.0f} s")
            time.sleep(pause)
            pause = min(2 * pause, _POLL_SECONDS[1])

    def _publish(self, step: int, draft: Path) -> Checkpoint:
        """Write the record of a draft, rename it, and return it; its test is to come."""
        begun = time.monotonic()
        about = orjson.dumps(dict(self._reproducibility or {}), option=orjson.OPT_INDENT_2)
        write_synced(draft / "reproducibility.json", about + b"\n")
        if self.ranks == 1:
            hashed = hash_files(draft, [name for name, _ in files_of(draft)], sync=True)
        else:
            parts = [orjson.loads(path.read_bytes()) for path in sorted((draft / "hashed").glob("*.json"))]
            hashed = {name: own for part in parts for name, own in part.items()}
            hashed |= hash_files(draft, ["reproducibility.json"], sync=True)
            shutil.rmtree(draft / "hashed")
        with self._lock:
            own = publish(draft, self.folder, step, self.ranks, hashed)
        self._report(step, {"checkpoint_size": own.size_bytes / _GIGA})
        _LOG.info("checkpoint of step %d: %s in %.1f s", step, size(own.size_bytes), time.monotonic() - begun)
        if self._check is None or orjson.loads((own.folder / "ranks/00000.json").read_bytes()):
            self._due = own.id
            self._testing.put(lambda: self.test(own) if self._due == own.id else None)  # a newer came meanwhile
        return own

    def _failed(self, step: int, draft: Path, error: Exception) -> None:
        first = next(iter(str(error).splitlines()), "")[:_SHOWN_LETTERS]
        why = f"{type(error).__name__}: {getattr(error, 'strerror', None) or first}"
        with suppress(OSError):
            why += f"; {size(shutil.disk_usage(self.folder).free)} are free there"
        with suppress(ConfigError):
            good = self.last_good
            why += f"; last good: {'none' if good is None else f'step {good.step:,}'}"
        _LOG.warning("checkpoint of step %d could not be saved: %s", step, why)
        self._report(step, {"checkpoint_ok": 0.0}, {"step": step, "folder": draft.name, "what": "saved", "why": why})

    def _damaged(self, own: Checkpoint, wrong: Sequence[Damage]) -> None:
        """Report what is damaged, and mark it as not good."""
        words = self._name_damage(own.folder.name, own.step, wrong)
        if self.rank == 0:
            with CatchErrors():
                self._write_outcome(own, {"ok": False, "what": own.test.get("what", READ_BACK), "why": words})

    def _write_outcome(self, own: Checkpoint, outcome: Mapping[str, Any]) -> None:
        write_whole(own.folder / TEST, sealed({**outcome, "checkpoint": own.id, "at": utc_now()}))

    def _name_damage(self, folder: str, step: int, wrong: Sequence[Damage]) -> str:
        words = "; ".join(map(str, wrong[:_SHOWN_DAMAGE]))
        _LOG.warning("a checkpoint is damaged: %s", words)
        if self.rank == 0:
            self._report(step, {"checkpoint_ok": 0.0}, {"folder": folder, "what": "restored", "why": words})
        return words

    def _report(self, step: int, values: Mapping[str, float], event: Mapping[str, Any] | None = None) -> None:
        step = max(step, self._newest)
        self._reporter.values(step, [Column(name, -1, -1, "value") for name in values], np.array([*values.values()]))
        if event is not None:
            self._reporter.event(step, "checkpoint", event)


def _number(name: str, default: int) -> int:
    given = os.environ.get(name, str(default))
    if not given.isdecimal():
        raise ConfigError(f"the variable {name}: expected a whole number, found {given!r}")
    return int(given)


def _list_hint(folder: Path) -> str:
    return f"`dataaudit checkpoints {quote(str(folder))}` lists them, and names what is damaged."
