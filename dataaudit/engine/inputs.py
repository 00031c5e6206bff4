"""Inputs of a build, checked: its config (a YAML file, or paths and inference), its keys, its script, its files.

Scripts that start workers without ``if __name__ == "__main__":`` are refused, with the lines to type. Python starts a
worker as a new interpreter, which imports the script of its parent and so calls ``build`` again, where no process may
be started. Such a call leaves its line in a file that the parent reads while it waits, and ends its process.

Files that list paths are refused too: given as text, each of their lines would become a document.
"""

from __future__ import annotations

import inspect
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import current_process
from pathlib import Path

from dataaudit.base.errors import ConfigError
from dataaudit.base.extras import require
from dataaudit.base.files import lies_in, open_safely
from dataaudit.base.text import clean, plural
from dataaudit.config import AuditConfig, Dataset, load_config, parse_config
from dataaudit.decide.quarantine.applied import RECORD
from dataaudit.scan.corpus.infer import infer_splits
from dataaudit.scan.corpus.shards import Shard, passed_over
from dataaudit.scan.corpus.storage.address import scheme_of

_OTHERS_READ = 0o077
_LEAST_KEY, _MOST_KEY = 16, 4096
"""Bytes of a key: fewer can be guessed, and more are another file that was named by mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A config and the folder its relative paths start from."""

    config: AuditConfig
    base: Path
    root_at_base: bool
    """Whether the root of all URIs is ``base`` when that holds every shard."""


def prepare(
    inputs: Sequence[str],
    cwd: Path,
    *,
    tokenizer: str | None,
    text: str | None,
    reference: str | None,
    note: Callable[[str], None],
) -> Prepared:
    """Load the config, or infer one from paths; options of the command line come on top."""
    require("build", "build")
    configs = [given for given in inputs if Path(given).suffix.lower() in {".yaml", ".yml"}]
    if any(map(scheme_of, configs)):
        raise ConfigError("found an address of a config; a config is read from a local file", "Copy it here.")
    if configs and len(inputs) > 1:
        raise ConfigError(
            f"expected one config or any number of data paths, found both: {configs[0]} and others",
            "Put the paths into the config's `splits`.",
        )
    if configs:
        path = Path(configs[0])
        config, base = load_config(path), path.absolute().parent
        if text is not None:
            raise ConfigError("text goes with paths", "With a config, name the column in `splits.NAME.text`.")
        root_at_base = True
    else:
        left_out: list[str] = []
        splits = infer_splits(inputs, cwd, left_out)
        near = [path if scheme_of(path) else path.removeprefix(f"{os.path.abspath(cwd)}/") for path in left_out]
        for line in passed_over(near):
            note(f"found: {line}")
        for name, split in splits.items():
            held_out = " (held out)" if split.held_out else ""
            verb = "is" if len(split.paths) == 1 else "are"
            note(f"inferred: {plural(len(split.paths), 'file')} {verb} split {name}{held_out}")
        dumped = {name: split.model_dump() | {"text": text} for name, split in splits.items()}
        config, base = parse_config({"splits": dumped}, where="command line"), cwd
        config = config.model_copy(update={"dataset": Dataset()})
        root_at_base = False
    config = with_choices(config, cwd, tokenizer=tokenizer, reference=reference)
    return Prepared(config=config, base=base, root_at_base=root_at_base)


def with_choices(config: AuditConfig, cwd: Path, *, tokenizer: str | None, reference: str | None) -> AuditConfig:
    """Return a config with a tokenizer and a reference named beside it; paths of them start from ``cwd``."""
    updates: dict[str, object] = {}
    if tokenizer is not None:
        path = cwd / tokenizer  # relative to where it is typed, not to the config
        updates["tokenizer"] = str(path.absolute()) if path.exists() else tokenizer
    if reference is not None:
        updates["reference"] = str((cwd / reference).absolute())
    return config.model_copy(update=updates)


def read_key(path: Path) -> bytes:
    """Read the user's key for digests of findings; white space at its ends is not part of it."""
    try:
        with path.open("rb") as handle:
            content = handle.read(_MOST_KEY + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the key {path}: {error.strerror}") from None
    if len(content) > _MOST_KEY:
        raise ConfigError(
            f"the key {path} has more than {_MOST_KEY:,} bytes", "Expected a file that holds a key alone."
        )
    return check_key(content, str(path))


def read_state_key(path: Path, *folders: Path) -> bytes:
    """Read the key that files of a state folder are sealed under, which is of use only while nobody else has it."""
    key = read_key(path)
    status = path.stat()
    for folder in folders:
        if lies_in(path, folder):
            raise ConfigError(
                f"the state key {path} lies in {folder}, where whoever gets the folder gets it too",
                "Move it to a place of its own, a secret store.",
            )
    if status.st_uid not in {0, os.geteuid()} or stat.S_IMODE(status.st_mode) & _OTHERS_READ:
        mode, owner = stat.S_IMODE(status.st_mode), status.st_uid
        raise ConfigError(
            f"other users have, or may have, the state key {path} (mode {mode:o}, of user {owner})",
            f"Make a new one where nobody else reads: (umask 077; head -c 32 /dev/urandom | base64 > {path})",
        )
    return key


def check_key(content: bytes, where: str) -> bytes:
    """Return a key without white space at its ends."""
    key = content.strip()
    if len(key) < _LEAST_KEY:
        raise ConfigError(
            f"the key {where} has {len(key)} bytes, expected {_LEAST_KEY} or more",
            "Make one with: head -c 32 /dev/urandom | base64 > key",
        )
    return key


_VARIABLE = "DATAAUDIT_UNGUARDED"
_GUARD = """Put the call under the guard:
      import dataaudit
      if __name__ == "__main__":
          dataaudit.build(..., workers={workers})"""


@contextmanager
def workers_report(environment: dict[str, str]) -> Iterator[Path]:
    """Yield the file in which a worker leaves the line of an unguarded script; its name goes into an environment."""
    with tempfile.TemporaryDirectory(prefix="dataaudit-") as folder:
        file = Path(folder) / "line"
        environment[_VARIABLE] = str(file)
        yield file


def check_guard(file: Path, workers: int) -> None:
    """Refuse to wait for workers that run the script again."""
    if file.exists():
        raise _unguarded(file.read_text(encoding="utf-8"), workers)


def end_if_restarted(workers: int | None) -> None:
    """End this process when it is a worker that imports its parent's script; called first by every build."""
    if not getattr(current_process(), "_inheriting", False):  # Python's mark of a process that is still starting
        return
    file = os.environ.get(_VARIABLE)
    if file is not None:
        Path(file).write_text(_line(), encoding="utf-8")
        os._exit(0)  # what the script has printed a second time, and not yet written, is dropped
    if workers != 0:
        raise _unguarded(_line(), workers or 2)


def _unguarded(line: str, workers: int) -> ConfigError:
    return ConfigError(
        f'{line} starts workers without `if __name__ == "__main__":`, and each worker runs the script again',
        _GUARD.format(workers=workers),
    )


def _line() -> str:
    """Return file and line of the statement of the script that is being run."""
    main = (item for item in inspect.stack(0) if item.frame.f_globals.get("__name__") == "__mp_main__")
    place = next((item for item in main if item.function == "<module>"), None)
    return "the script" if place is None else f"{Path(place.filename).name}, line {place.lineno},"


_LONGEST_PATH = 4096
_HEAD_BYTES = 65_536


def check_inputs(shards: Iterable[Shard]) -> None:
    """Refuse what lists files in place of data: a folder of `quarantine apply`, a text file of nothing but paths."""
    listed = [*shards]
    local = [shard for shard in listed if not scheme_of(shard.path)]
    for folder in dict.fromkeys(os.path.dirname(shard.path) for shard in local):
        if os.path.isfile(os.path.join(folder, RECORD)):
            raise ConfigError(
                f"{folder} holds lists of paths that `quarantine apply` wrote, no data",
                "Name the data itself, and the list: --quarantine FILE leaves out what it holds back.",
            )
    plain = [shard for shard in local if (shard.format, shard.compression, shard.skip) == ("text", "none", None)]
    names = frozenset(name for shard in listed for name in (shard.path, shard.uri)) if plain else frozenset()
    for shard in plain:
        if first := _first_path(shard.path, names):
            raise ConfigError(
                f"{shard.path} lists paths of files, no data: it begins with {clean(first, 200)}",
                "Name the files themselves, or leave the list out of the folder.",
            )


def _first_path(path: str, names: AbstractSet[str]) -> str:
    """Return the first line of a file whose beginning holds nothing but paths of files; empty of any other."""
    try:
        with os.fdopen(open_safely(path), "rb") as file:
            head = file.read(_LONGEST_PATH)
            if not _are_paths(head.split(b"\n")[:1], path, names):
                return ""
            head += file.read(_HEAD_BYTES - len(head))
            is_all = not file.read(1)
    except OSError:
        return ""  # the scan tells what is wrong with it
    lines = head.split(b"\n")
    lines = [line for line in (lines if is_all else lines[:-1]) if line.strip()]
    if not lines or not _are_paths(lines, path, names):
        return ""
    first = lines[0].decode("utf-8", "replace").strip()
    # A text of a single name may be a link that was checked out as a file.
    return first if len(lines) > 1 or first in names or os.path.isabs(first) else ""


def _are_paths(lines: Iterable[bytes], path: str, names: AbstractSet[str]) -> bool:
    """Tell whether each line is a shard of this build, or a path of a file: from the root, here, or beside the list."""
    beside = os.path.dirname(path)
    for line in lines:
        text = line.strip().decode("utf-8", "replace")
        if text and text not in names:
            if len(text) >= _LONGEST_PATH or "\0" in text:
                return False
            if not any(os.path.isfile(name) for name in (text, os.path.join(beside, text))):
                return False
    return True
