"""Patterns compiled by hyperscan: a second of work for all of a registry, so a process finds them on disk."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from dataaudit.kept import kept


def make_database(patterns: Sequence[tuple[bytes, int]]) -> Any:
    """Return a database of patterns and their flags, from disk when an earlier process compiled it on such a machine.

    Raises:
        hyperscan.error: A pattern that it does not take.
    """
    inputs = [_machine(), *(f"{flags} ".encode() + pattern for pattern, flags in patterns)]
    return kept("patterns", inputs, lambda: _written(patterns), _read)


def _written(patterns: Sequence[tuple[bytes, int]]) -> bytes:
    import hyperscan

    written: bytes = hyperscan.dumpb(compile_patterns(patterns))
    return written


def _read(written: bytes) -> Any:
    """Return a kept database; None when it is not of this machine or version after all."""
    import hyperscan

    try:
        database = hyperscan.loadb(written, hyperscan.HS_MODE_BLOCK)
        database.scratch = hyperscan.Scratch(database)
    except hyperscan.error:
        return None
    return database


def compile_patterns(patterns: Sequence[tuple[bytes, int]]) -> Any:
    """Compile patterns; their ids are their places."""
    import hyperscan

    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[pattern for pattern, _ in patterns],
        ids=list(range(len(patterns))),
        elements=len(patterns),
        flags=[flags for _, flags in patterns],
    )
    return database


@lru_cache(maxsize=1)
def _machine() -> bytes:
    """Return what decides, beside the patterns, how they are compiled: the library, and what the processor can do."""
    features: bytes = compile_patterns([(b"a", 0)]).info()
    return b" ".join([version("hyperscan").encode(), platform.machine().encode(), features])
