"""What every export does last: write its file in one step; and the time of an export, which can be given."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

from dataaudit.base.errors import ConfigError
from dataaudit.manifest.outfiles import check_files
from dataaudit.manifest.outfiles import write_file as replace_file

EPOCH = "SOURCE_DATE_EPOCH"
"""Environment variable of reproducible builds: seconds since 1970."""


def write_file(out: Path, data: bytes, folder: Path, *, option: str = "--out") -> None:
    """Write a file so that a reader sees the old or the whole new file, as of :mod:`dataaudit.manifest.outfiles`."""
    check_files({option: out}, folders=(folder,))
    replace_file(out, data)


def export_time(given: str | None) -> str:
    """Return the time to write, UTC, ``2026-11-22T01:36:40Z``: as given, else of SOURCE_DATE_EPOCH, else now."""
    if given is not None:
        return utc(given, "--time")
    epoch = os.environ.get(EPOCH)
    if epoch is None:
        return _text(dt.datetime.now(dt.UTC))
    try:
        return _text(dt.datetime.fromtimestamp(int(epoch), dt.UTC))
    except (ValueError, OverflowError, OSError):
        raise ConfigError(f"{EPOCH}: expected seconds since 1970, found {epoch!r}") from None


def utc(given: str, where: str) -> str:
    """Return an ISO 8601 time in UTC with seconds; a time without a zone is taken for UTC."""
    try:
        moment = dt.datetime.fromisoformat(given)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        return _text(moment.astimezone(dt.UTC))
    except (ValueError, OverflowError):
        raise ConfigError(f"{where}: expected a time such as 2026-11-22T01:36:40Z, found {given!r}") from None


def _text(moment: dt.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if moment.year > 999 else moment.isoformat()
