"""Opens Hugging Face datasets for streaming: a shard of the dataset is a shard of the corpus.

No bytes of files are seen. A dataset on a hub is pinned to a commit, so commit, configuration, split and number of the
shard identify the rows; the rows of a local dataset are digested in a pass of their own. In the manifest a shard's
digest is that of its decoded rows. Code of a dataset is never run.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

from dataaudit.base.errors import CatchErrors, ConfigError, StoreError
from dataaudit.base.extras import require
from dataaudit.base.stores import http_status, silence_libraries
from dataaudit.config import DatasetSource
from dataaudit.manifest.locate import STREAMED
from dataaudit.scan.corpus.storage.address import Access, RemoteStat

_LOCAL_PREFIXES = ("/", "./", "../", "~")
_NO_ANSWER = frozenset(
    {"OfflineModeIsEnabled", "ConnectionError", "ConnectError", "ProxyError", "ReadError", "RemoteProtocolError"}
)
"""Errors of ``huggingface_hub`` and the HTTP library below it that are the network's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsSource:
    """A shard of a dataset: its number, from 0, among all of the split."""

    name: str
    """Id on the hub, or the absolute path of a local folder."""
    config: str
    split: str
    revision: str | None
    """Commit on the hub; None for a local folder."""
    shard: int
    shards: int
    access: Access


class RowsPath(str):
    """A readable name that carries which rows are meant, and goes wherever a path goes."""

    __slots__ = ("source",)

    source: RowsSource

    def __new__(cls, source: RowsSource) -> Self:
        """Return the path of a shard."""
        made = super().__new__(cls, f"{root_of(source)}/{uri_of(source)}")
        made.source = source
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return (RowsPath, (self.source,))


def root_of(source: RowsSource) -> str:
    """Return what the URIs of a dataset's shards are relative to."""
    return source.name if source.revision is None else f"{STREAMED}{source.name}@{source.revision}"


def uri_of(source: RowsSource) -> str:
    """Return the URI of a shard: the same wherever the dataset lies."""
    return f"{source.config}/{source.split}/{source.shard:05d}-of-{source.shards:05d}"


def find_rows(wanted: DatasetSource, base: str, access: Access, where: str) -> list[RowsPath]:
    """Return the shards of a dataset's split, pinned to a commit."""
    name, revision = wanted.id, None
    if name.startswith(_LOCAL_PREFIXES):
        name = os.path.abspath(os.path.join(base, os.path.expanduser(name)))
        if not os.path.isdir(name):
            raise ConfigError(f"{where}: there is no folder {name}", "An id on a hub is written without ./ before it.")
    _library(access, where)
    if not os.path.isabs(name):
        revision = _commit(name, wanted.revision, where)
    splits: dict[str, Any] = {}
    with CatchErrors() as call:
        splits = load_splits(name, wanted.config, revision, access)
    if call.error is not None:
        raise _explained(call.error, where, name)
    if wanted.split not in splits:
        raise ConfigError(f"{where}.split: {name} has no split {wanted.split}", f"It has: {', '.join(sorted(splits))}.")
    chosen = splits[wanted.split]
    if not chosen.num_shards:
        raise ConfigError(f"{where}: {name} has no files in the split {wanted.split}")
    config = str(chosen.info.config_name or wanted.config or "default")
    return [
        RowsPath(
            RowsSource(
                name=name,
                config=config,
                split=wanted.split,
                revision=revision,
                shard=number,
                shards=chosen.num_shards,
                access=access,
            )
        )
        for number in range(chosen.num_shards)
    ]


def _library(access: Access, where: str) -> Any:
    """Import the library and give it our time-outs and retries."""
    require(f"{where}: reading rows of datasets", "hf")
    import datasets
    import huggingface_hub.constants as hub

    silence_libraries()
    datasets.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    for name in ("READ", "OPEN"):
        setattr(datasets.config, f"STREAMING_{name}_MAX_RETRIES", access.retries + 1)
        setattr(datasets.config, f"STREAMING_{name}_RETRY_INTERVAL", 0.5)
    for name in ("SERVER_UNAVAILABLE", "RATE_LIMIT"):
        setattr(datasets.config, f"STREAMING_READ_{name}_RETRY_INTERVAL", access.timeout_seconds)
    hub.HF_HUB_DOWNLOAD_TIMEOUT = hub.HF_HUB_ETAG_TIMEOUT = max(1, round(access.timeout_seconds))
    return datasets


def _commit(name: str, revision: str | None, where: str) -> str:
    """Return the commit that a revision (a branch, a tag, none) means now."""
    from huggingface_hub import HfApi

    commit = None
    with CatchErrors() as call:
        commit = HfApi().dataset_info(name, revision=revision).sha
    if call.error is not None:
        raise _explained(call.error, where, name)
    if not commit:
        raise ConfigError(f"{where}: the hub names no commit for {name}")
    return commit


def _explained(error: Exception, where: str, name: str) -> ConfigError | StoreError:
    """Return an error of ours for a failure of the library, without its text."""
    kind, status = type(error).__name__, http_status(error)
    if kind in _NO_ANSWER or "Timeout" in kind or status == 429 or status >= 500:
        return StoreError(
            f"{where}: the hub does not answer ({kind})",
            "Check the network; where HF_HUB_OFFLINE=1 is set, it is not asked at all.",
        )
    return ConfigError(
        f"{where}: the dataset {name} cannot be opened ({kind})",
        "Check id, config and revision; HF_TOKEN opens datasets that are not public.",
    )


def load_splits(name: str, config: str | None, revision: str | None, access: Access) -> dict[str, Any]:
    """Return the splits of a dataset as streams; no row is read."""
    return _load_once(os.getpid(), name, config, revision, access)


@lru_cache(maxsize=4)
def _load_once(_pid: int, name: str, config: str | None, revision: str | None, access: Access) -> dict[str, Any]:
    return dict(_library(access, "dataset").load_dataset(name, name=config, revision=revision, streaming=True))


def stat_rows(path: RowsPath) -> RemoteStat:
    """Return a validator of the rows: the commit, or a digest of names, sizes and times of the local files."""
    source = path.source
    if source.revision is not None:
        return RemoteStat(size=0, validator=f"commit {source.revision}")
    state, newest = hashlib.sha256(), 0
    for folder, folders, files in os.walk(source.name):
        folders.sort()
        for name in sorted(files):
            stat = os.stat(os.path.join(folder, name))
            newest = max(newest, stat.st_mtime_ns, stat.st_ctime_ns)
            seen = (os.path.relpath(folder, source.name), name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            state.update(repr(seen).encode("utf-8", "backslashreplace"))
    return RemoteStat(size=0, validator=f"files {state.hexdigest()}", mtime_ns=newest)
