"""What URIs are relative to: the root of local files, and that of each kind of store."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from dataaudit.corpus.address import Address, RemotePath, common_folder, relative_name, scheme_of
from dataaudit.corpus.uri import encode_path
from dataaudit.errors import ConfigError


def scheme_of_path(path: str) -> str:
    """Return the scheme of a file that was found; empty for a local one."""
    return scheme_of(path) if isinstance(path, RemotePath) else ""


def check_queries(paths: Iterable[str]) -> None:
    """Refuse two addresses that differ in their secrets alone: their URIs would be the same.

    Raises:
        ConfigError: There are such.
    """
    full: dict[str, str] = {}
    for path in paths:
        if isinstance(path, RemotePath) and full.setdefault(path, path.full) != path.full:
            raise ConfigError(
                f"two addresses of {encode_path(path)} differ in their query or user alone",
                "A shard is named by its path; list each file once, or under paths of their own.",
            )


def find_tops(found: list[tuple[str, str]], base: Path | None, far: Address | None) -> dict[str, str]:
    """Return the root of the local files and that of each kind of store, by scheme.

    Raises:
        ConfigError: A split has files of two kinds, so that its URIs have no common root.
    """
    by_kind: dict[str, list[str]] = {}
    kind_of: dict[str, str] = {}
    for name, path in found:
        kind = scheme_of_path(path)
        if kind_of.setdefault(name, kind) != kind:
            both = " and ".join(sorted(f"{one}://" if one else "local files" for one in (kind_of[name], kind)))
            raise ConfigError(f"splits.{name}.paths: found {both} in one split", "Give each a split of its own.")
        by_kind.setdefault(kind, []).append(path)
    tops = {}
    for kind, paths in by_kind.items():
        if kind:
            tops[kind] = common_folder(paths, far if far is not None and far.scheme == kind else None)
        else:
            tops[kind] = _root(paths, None if base is None else os.path.abspath(base))
    return tops


def _root(paths: list[str], base: str | None) -> str:
    """Return ``base`` when it holds every file, else the deepest folder that does."""
    if base is not None and all(path.startswith(base.rstrip("/") + "/") for path in paths):
        return base
    return os.path.commonpath([os.path.dirname(path.rstrip("/")) for path in paths])


def relative_to_top(path: str, tops: Mapping[str, str], kind: str) -> str:
    """Return a path relative to the root of its kind; ``/`` at its end stays."""
    if kind:
        return relative_name(path, tops[kind])
    return os.path.relpath(path, tops[kind]) + ("/" if path.endswith("/") else "")
