"""Checkpoints on disk: their records, what is damaged, which is the latest, and which is the last good.

::

    FOLDER/step-00001000/data/                 what the user's function wrote
                         checkpoint.json       size and sha256 of every file, in a record with its own digest
                         reproducibility.json  code, lock, model, tokenizer, data, evaluation; what is not known
                         ranks/00000.json      digests of what rank 0 had in memory
                         test.json             outcome of the test; without it the checkpoint is not good
                         protected.json        while nothing may delete it
    FOLDER/.step-00002000.4711-5be1c2d4.saving/

A checkpoint appears whole, by a rename; a kill leaves a ``.saving`` folder, which the next save deletes.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from dataaudit import __version__
from dataaudit.base.errors import CatchErrors, ConfigError
from dataaudit.base.files import kind_of, open_safely, read_safely, sync_file, sync_folder, write_synced
from dataaudit.base.text import clean, count, plural, size, utc_now

DATA: Final = "data"
RECORD: Final = "checkpoint.json"
TEST: Final = "test.json"
PROTECTED: Final = "protected.json"
DELETING: Final = ".deleting"
RESTORED, READ_BACK = "restored", "read back"
_NAME: Final = re.compile(r"step-(\d{8,})(?:-\d+)?")
_HASHING_THREADS = 8
_SHOWN_DIGITS = 12


class Damage(NamedTuple):
    """What is wrong with a file of a checkpoint."""

    folder: str
    file: str
    why: str

    def __str__(self) -> str:
        """Return it as a line."""
        return f"{self.folder}: {clean(self.file)}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that was published."""

    step: int
    number: int
    """In the order of publishing, from 1: after a run went back, a later checkpoint may have a lower step."""
    folder: Path
    files: Mapping[str, tuple[int, str]]
    """Bytes and sha256 of each file, by its path within the folder."""
    saved_at: str
    ranks: int
    id: str
    """Digest of the record."""
    test: Mapping[str, Any]
    """Outcome of its test: ``ok``, ``what`` (restored, read back), ``why``; empty: not tested."""
    protected: bool

    @property
    def path(self) -> Path:
        """Folder of the files that the user's function wrote."""
        return self.folder / DATA

    @property
    def size_bytes(self) -> int:
        """Bytes of these files."""
        return sum(number for name, (number, _) in self.files.items() if name.startswith(f"{DATA}/"))

    @property
    def good(self) -> bool:
        """Whether it passed its test, and no file was cut or lost since; digests are not compared."""
        return bool(self.test.get("ok")) and not any(True for _ in self.damage(digests=False))

    def damage(self, *, digests: bool = True, share: tuple[int, int] = (0, 1)) -> Iterator[Damage]:
        """Yield what is not as it was saved; without digests only sizes and names are compared.

        Args:
            digests: Whether bytes are read.
            share: Which of how many shares of the files are read.
        """
        with CatchErrors() as call:
            here = dict(files_of(self.folder))
        if call.error is not None:
            yield Damage(self.folder.name, DATA, getattr(call.error, "strerror", None) or str(call.error))
            return
        for name in sorted(self.files.keys() | here.keys()):
            if name not in self.files:
                yield Damage(self.folder.name, name, "it was not saved with the checkpoint")
            elif name not in here:
                yield Damage(self.folder.name, name, "it is missing")
            elif here[name] != self.files[name][0]:
                why = f"{count(here[name])} bytes, {count(self.files[name][0])} were saved"
                yield Damage(self.folder.name, name, why)
        if digests:
            whole = [name for name in sorted(self.files) if here.get(name) == self.files[name][0]]
            for name, (_, own) in hash_files(self.folder, whole[share[0] :: share[1]]).items():
                if own != self.files[name][1]:
                    then = self.files[name][1][:_SHOWN_DIGITS]
                    why = f"other bytes: sha256 {own[:_SHOWN_DIGITS]}..., saved as {then}..."
                    yield Damage(self.folder.name, name, why)


def files_of(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield path and bytes of the files of a checkpoint that its record covers.

    Raises:
        ConfigError: Something below the folder is neither a file nor a folder.
    """
    for where, folders, names in os.walk(folder / DATA, onerror=_raise):
        for name in [*names, *(own for own in folders if os.path.islink(os.path.join(where, own)))]:
            path = Path(where, name)
            state = path.lstat()
            if not stat.S_ISREG(state.st_mode):
                kind = kind_of(state.st_mode)
                raise ConfigError(f"{path}: expected a file, found {kind}", "A checkpoint holds its files itself.")
            yield path.relative_to(folder).as_posix(), state.st_size
    for path in (*sorted((folder / "ranks").glob("*.json")), folder / "reproducibility.json"):
        if path.exists():
            yield path.relative_to(folder).as_posix(), path.stat().st_size


def link_files(source: Path, target: Path, *, copy: bool) -> None:
    """Give a file, or all files of a folder, a second name in another folder; copy them where that cannot be.

    Raises:
        ConfigError: There is no such file or folder.
    """
    if not source.exists():
        raise ConfigError(f"checkpoint {source}: there is no such file or folder")
    files = [own for own in source.rglob("*") if own.is_file()] if source.is_dir() else [source]
    for file in files:
        own = target / (file.relative_to(source) if source.is_dir() else file.name)
        own.parent.mkdir(parents=True, exist_ok=True)
        with CatchErrors() as link:
            if not copy:
                os.link(os.path.realpath(file), own)
        if copy or link.error is not None:
            shutil.copyfile(file, own)


def hash_files(folder: Path, names: list[str], *, sync: bool = False) -> dict[str, tuple[int, str]]:
    """Return bytes and sha256 of files, which are forced to disk on request."""

    def hashed(name: str) -> tuple[int, str]:
        with open(folder / name, "rb", opener=open_safely) as file:
            if sync:
                sync_file(file)
            digest = hashlib.file_digest(file, "sha256")
            return file.tell(), digest.hexdigest()

    with ThreadPoolExecutor(_HASHING_THREADS) as pool:
        return dict(zip(names, pool.map(hashed, names), strict=True))


def sealed(document: Mapping[str, Any]) -> bytes:
    """Return a document as JSON with its digest as ``id``."""
    return orjson.dumps({**document, "id": _id(document)}, option=orjson.OPT_INDENT_2) + b"\n"


def unsealed(path: Path) -> dict[str, Any] | None:
    """Return a document that :func:`sealed` made; None where it is absent or altered."""
    with CatchErrors() as call:
        document = orjson.loads(read_safely(path))
        own = document.pop("id")
    return None if call.error is not None or own != _id(document) else {**document, "id": own}


def _id(document: Mapping[str, Any]) -> str:
    return f"sha256:{hashlib.sha256(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).hexdigest()}"


def read_checkpoint(folder: Path) -> Checkpoint | Damage:
    """Return a checkpoint, or what is wrong with its record."""
    record = unsealed(folder / RECORD)
    if record is None:
        return Damage(folder.name, RECORD, "it is altered" if (folder / RECORD).exists() else "it is missing")
    test = unsealed(folder / TEST) if (folder / TEST).exists() else {}
    if test is None or (test and test.get("checkpoint") != record["id"]):
        test = {"ok": False, "what": "", "why": f"{TEST} is altered; test it again"}
    return Checkpoint(
        folder=folder,
        files={name: (own[0], own[1]) for name, own in record["files"].items()},
        test=test,
        protected=(folder / PROTECTED).exists(),
        **{name: record[name] for name in ("step", "number", "saved_at", "ranks", "id")},
    )


def list_checkpoints(folder: Path) -> tuple[list[Checkpoint], list[Damage]]:
    """Return the checkpoints of a folder, oldest first, and the records that cannot be read.

    Raises:
        ConfigError: The folder cannot be listed.
    """
    try:
        names = sorted(name for name in os.listdir(folder) if _NAME.fullmatch(name))
    except FileNotFoundError:
        return [], []
    except OSError as error:
        raise ConfigError(f"checkpoints {folder}: {error.strerror or error}") from None
    read = [read_checkpoint(folder / name) for name in names]
    checkpoints = [item for item in read if isinstance(item, Checkpoint)]
    return sorted(checkpoints, key=lambda own: own.number), [item for item in read if isinstance(item, Damage)]


def publish(draft: Path, folder: Path, step: int, ranks: int, hashed: Mapping[str, tuple[int, str]]) -> Checkpoint:
    """Write the record of a draft whose files are hashed, force it to disk, rename it, and return the checkpoint.

    Raises:
        ConfigError: A file was changed meanwhile, or nothing was written.
    """
    if wrong := {name: number for name, number in files_of(draft) if hashed.get(name, (-1,))[0] != number}:
        raise ConfigError(f"files changed while they were hashed: {', '.join(sorted(wrong)[:4])}")
    if not any(name.startswith(f"{DATA}/") for name in hashed):
        raise ConfigError("nothing was written", "Write into the folder that the function is given.")
    record = {
        "format": 1,
        "step": step,
        "number": 1 + max((own.number for own in list_checkpoints(folder)[0]), default=0),
        "saved_at": utc_now(),
        "ranks": ranks,
        "files": hashed,
        "program": __version__,
    }
    write_synced(draft / RECORD, sealed(record))
    for inner, _, _ in os.walk(draft, topdown=False):
        sync_folder(Path(inner))
    name = f"step-{step:08d}"
    again = (f"{name}-{number}" for number in itertools.count(2))
    target = next(folder / own for own in itertools.chain([name], again) if not (folder / own).exists())
    draft.rename(target)
    sync_folder(folder)
    own = read_checkpoint(target)
    assert isinstance(own, Checkpoint)
    return own


def delete_old(folder: Path, keep: int) -> None:
    """Delete all but the newest so many, two good ones and protected ones; a rename first, so that none is in part."""
    every = list_checkpoints(folder)[0][::-1]
    kept = {own.id for own in [*every[:keep], *[own for own in every if own.good][:2]]}
    for own in every:
        if own.id in kept or own.protected:
            continue
        aside = folder / f".{own.folder.name}.{os.getpid()}{DELETING}"
        with suppress(OSError):
            own.folder.rename(aside)
            if (aside / PROTECTED).exists():  # protected meanwhile, by another process
                aside.rename(own.folder)
            else:
                shutil.rmtree(aside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a folder of checkpoints holds: :func:`survey`."""

    checkpoints: list[Checkpoint]
    damage: list[Damage]
    """What is not as it was saved, and restores that failed."""
    last_good: Checkpoint | None
    """The newest that passed its test and has no damage."""

    @property
    def exit_code(self) -> int:
        """0: all are whole. 1: damage. 3: none is good. 4: there is none."""
        if self.damage:
            return 1
        return 4 if not self.checkpoints else 0 if self.last_good is not None else 3

    def document(self) -> dict[str, Any]:
        """Return it in plain types."""
        return {
            "last_good": None if self.last_good is None else self.last_good.step,
            "latest": self.checkpoints[-1].step if self.checkpoints else None,
            "checkpoints": [
                {
                    **{name: getattr(own, name) for name in ("step", "number", "saved_at", "size_bytes", "protected")},
                    "folder": own.folder.name,
                    "files": len(own.files),
                    "test": {name: value for name, value in own.test.items() if name not in {"id", "checkpoint"}},
                    "damage": [[item.file, item.why] for item in self._of(own)],
                }
                for own in self.checkpoints
            ],
            "damage": [item._asdict() for item in self.damage],
        }

    def text(self) -> str:
        """Return it for a terminal."""
        lines = []
        for own in reversed(self.checkpoints):
            marks = ["latest"] * (own is self.checkpoints[-1]) + ["last good"] * (own is self.last_good)
            marks += ["protected"] * own.protected
            tested = str(own.test["what"]) if own.test.get("ok") else "test failed" if own.test else "not tested"
            state = "DAMAGED" if self._of(own) and own.test.get("ok", True) else tested
            size_ = f"{size(own.size_bytes):>9}"
            lines.append(f"  {own.folder.name}  {size_}  {own.saved_at}  {state:<11}  {', '.join(marks)}")
        good = "none is good" if self.last_good is None else f"last good: step {self.last_good.step:,}"
        head = f"{plural(len(self.checkpoints), 'checkpoint')}, {good}"
        wrong = [f"  {item}" for item in self.damage]
        return "\n".join([head, *(line.rstrip() for line in lines), *(["damage:", *wrong] if wrong else [])]) + "\n"

    def _of(self, own: Checkpoint) -> list[Damage]:
        return [item for item in self.damage if item.folder == own.folder.name]


def survey(folder: Path, *, digests: bool = True) -> Survey:
    """Read all checkpoints of a folder, and compare every file with its digest.

    Args:
        folder: Of the checkpoints.
        digests: Whether bytes are read; else sizes alone are compared.

    Raises:
        ConfigError: The folder is not there, or cannot be listed.
    """
    if not folder.is_dir():
        raise ConfigError(f"checkpoints {folder}: there is no such folder", "Name the folder of `Checkpoints(folder)`.")
    checkpoints, damage = list_checkpoints(folder)
    last_good = None
    for own in reversed(checkpoints):
        wrong = list(own.damage(digests=digests))
        if own.test and not own.test["ok"] and not wrong:
            wrong = [Damage(own.folder.name, TEST, str(own.test["why"]))]
        damage += wrong
        if last_good is None and own.test.get("ok") and not wrong:
            last_good = own
    return Survey(checkpoints=checkpoints, damage=damage, last_good=last_good)


def _raise(error: OSError) -> None:
    raise error
