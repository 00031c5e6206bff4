"""From what stands on the command line to a checked config: a YAML file, or paths and inference."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dataaudit.config import AuditConfig, Dataset, load_config, parse_config
from dataaudit.corpus.infer import infer_splits
from dataaudit.corpus.storage.address import scheme_of
from dataaudit.errors import ConfigError
from dataaudit.extras import require
from dataaudit.manifest.signing import lies_in
from dataaudit.text import plural

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
    """Load the config, or infer one from paths; options of the command line come on top.

    Raises:
        MissingExtra: The extra `build` is not installed.
        ConfigError: A config and paths are mixed, or something in them is wrong.
    """
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
        if left_out:
            shown = ", ".join(path if scheme_of(path) else os.path.relpath(path, cwd) for path in left_out[:3])
            more = f" and {len(left_out) - 3:,} more" if len(left_out) > 3 else ""
            note(f"found: {len(left_out):,} files that are no data left out: {shown}{more}")
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
        updates["tokenizer"] = _from_cwd(tokenizer, cwd)
    if reference is not None:
        updates["reference"] = str((cwd / reference).absolute())
    return config.model_copy(update=updates)


def _from_cwd(tokenizer: str, cwd: Path) -> str:
    """A path on the command line is relative to where it is typed, not to the config."""
    return str((cwd / tokenizer).absolute()) if (cwd / tokenizer).exists() else tokenizer


def read_key(path: Path) -> bytes:
    """Read the user's key for digests of findings; white space at its ends is not part of it.

    Raises:
        ConfigError: It cannot be read, is too short to keep anything secret, or too long to be a key.
    """
    try:
        with path.open("rb") as handle:
            held = handle.read(_MOST_KEY + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the key {path}: {error.strerror}") from None
    if len(held) > _MOST_KEY:
        raise ConfigError(
            f"the key {path} has more than {_MOST_KEY:,} bytes", "Expected a file that holds a key alone."
        )
    return check_key(held, str(path))


def read_state_key(path: Path, *folders: Path) -> bytes:
    """Read the key that files of a state folder are sealed under, which is of use only while nobody else has it.

    Args:
        path: Its file.
        folders: The state folder and the manifest's: who is given one of them must not get the key with it.

    Raises:
        ConfigError: It cannot be read, is no key, lies in one of the folders, or other users may read its file.
    """
    key = read_key(path)
    found = path.stat()
    for folder in folders:
        if lies_in(path, folder):
            raise ConfigError(
                f"the state key {path} lies in {folder}, where whoever gets the folder gets it too",
                "Move it to a place of its own, a secret store.",
            )
    if found.st_uid not in {0, os.geteuid()} or stat.S_IMODE(found.st_mode) & _OTHERS_READ:
        mode, owner = stat.S_IMODE(found.st_mode), found.st_uid
        raise ConfigError(
            f"other users have, or may have, the state key {path} (mode {mode:o}, of user {owner})",
            f"Make a new one where nobody else reads: (umask 077; head -c 32 /dev/urandom | base64 > {path})",
        )
    return key


def check_key(held: bytes, where: str) -> bytes:
    """Return a key without white space at its ends.

    Raises:
        ConfigError: It is too short to keep anything secret.
    """
    key = held.strip()
    if len(key) < _LEAST_KEY:
        raise ConfigError(
            f"the key {where} has {len(key)} bytes, expected {_LEAST_KEY} or more",
            "Make one with: head -c 32 /dev/urandom | base64 > key",
        )
    return key
