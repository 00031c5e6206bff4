"""What is said of an evaluation set that cannot be used: which file, what is wrong, what to do; little of its text."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from dataaudit.corpus.loss import Reason
from dataaudit.errors import ConfigError
from dataaudit.manifest.uri import encode_path

_SHOWN_FILES = 3
_SHOWN_COLUMNS = 10
_SHOWN_NAME = 40
"""Characters of a column's name: without a header line, names are texts of the first item."""
_CLOSE = 0.5
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars", ",": "commas"}
_WRITE = "`pandas.read_csv(FILE, sep={!r}).to_csv(FILE, index=False)`"


def file_name(paths: Sequence[str], number: int) -> str:
    """Return how a file of a set is shown: its name, and its place where two have the same."""
    names = [os.path.basename(path) for path in paths]
    place = f" (file {number + 1} of {len(paths)})" if names.count(names[number]) > 1 else ""
    return encode_path(names[number]) + place


def unreadable(name: str, paths: Sequence[str], reason: Reason, place: str, number: int | None = None) -> ConfigError:
    """Return the error for a file that cannot be read; ``number`` is None when it is not known which."""
    if number is not None:
        said = f"{file_name(paths, number)} cannot be read"
    else:
        listed = ", ".join(file_name(paths, index) for index in range(min(len(paths), _SHOWN_FILES)))
        more = f" and {len(paths) - _SHOWN_FILES:,} more" if len(paths) > _SHOWN_FILES else ""
        said = f"its files ({listed}{more}) cannot be read"
    return ConfigError(
        f"protected.{name}: {said}: {reason} {place}".rstrip(),
        f"`dataaudit explain {reason}` says what to do; fix the file or leave the set out.",
    )


def wrong_file(name: str, paths: Sequence[str], wrong: Mapping[str, Any]) -> ConfigError:
    """Return the error for what :func:`dataaudit.engine.protected_work.read_set` stored of a file."""
    if "reason" in wrong:
        return unreadable(name, paths, Reason(wrong["reason"]), wrong["place"], wrong["file"])
    return _unknown(name, paths, wrong)


def no_items(name: str, lost: Mapping[str, int]) -> ConfigError:
    """Return the error for a set without an item."""
    said = ", ".join(f"{count:,} {reason}" for reason, count in sorted(lost.items())) or "they hold no record"
    return ConfigError(
        f"protected.{name}: its files give no item: {said}",
        "`dataaudit explain losses` says what the codes mean; fix the files or leave the set out.",
    )


def _unknown(name: str, paths: Sequence[str], wrong: Mapping[str, Any]) -> ConfigError:
    column, known, columns = wrong["unknown"], wrong["known"], wrong["columns"]
    path = paths[wrong["file"]].lower()
    is_csv = ".csv" in path or ".tsv" in path
    said = f"protected.{name}: no item of {file_name(paths, wrong['file'])} has a column {column!r}"
    listed = ", ".join(_clipped(one) for one in known[:_SHOWN_COLUMNS])
    hint = f"Its columns are: {listed}{f' and {columns - _SHOWN_COLUMNS:,} more' if columns > _SHOWN_COLUMNS else ''}."
    own = "\t" if ".tsv" in path else ","
    separator = next((one for one in _SEPARATORS if one != own and one in known[0]), "") if is_csv else ""
    if separator:
        suffix = {",": ".csv", "\t": ".tsv"}.get(separator)
        remedy = f"Rename it to {suffix}." if suffix else f"Write it with commas: {_WRITE.format(separator)}."
        hint += f" Are they separated by {_SEPARATORS[separator]}? A .csv file has commas, a .tsv file tabs. {remedy}"
        return ConfigError(said, hint)
    close = difflib.get_close_matches(column, known, n=1, cutoff=_CLOSE)
    if close:
        said += f" (did you mean `{_clipped(close[0])}`?)"
    elif is_csv and any(" " in one or len(one) > _SHOWN_NAME for one in known):
        hint += " Is there a header line? The first line of a .csv or .tsv file names the columns."
    return ConfigError(said, hint)


def _clipped(name: str) -> str:
    shown = "".join(char if char.isprintable() else "?" for char in name[:_SHOWN_NAME])
    return f"{shown}..." if len(name) > _SHOWN_NAME else shown
