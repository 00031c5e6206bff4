"""Who changes a list, unless ``--who`` says it."""

from __future__ import annotations

import datetime as dt
import getpass
import subprocess

from dataaudit.quarantine.changes import Author

_SECONDS = 5


def author(who: str | None, note: str | None) -> Author:
    """Return who changes a list now: as given, else git's ``user.email``, else the name of the user."""
    return Author(who=who or _git_email() or _user(), now=dt.datetime.now(dt.UTC), note=note)


def _git_email() -> str:
    try:
        done = subprocess.run(
            ["git", "config", "user.email"], capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout.strip()


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
