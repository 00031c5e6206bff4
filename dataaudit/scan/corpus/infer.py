"""Inference for builds without a config: splits from names, text and source from the first shard.

Every case is listed in ``dataaudit explain inputs``, and the inference is printed. What is ambiguous is an error that
names the choices.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from dataaudit.base.errors import ConfigError
from dataaudit.base.text import plural
from dataaudit.config import SourceRule, Split
from dataaudit.manifest.locate import encode_path
from dataaudit.scan.corpus.fields import MIXED, NOTHING, PLAIN_FOLDER, TEXT, plain_folder, source_key
from dataaudit.scan.corpus.loss import ShardUnreadable
from dataaudit.scan.corpus.readers import reader_of
from dataaudit.scan.corpus.shards import Shard, expand, remote_lister
from dataaudit.scan.corpus.storage.address import Access, RemotePath, name_of, scheme_of
from dataaudit.scan.corpus.storage.saved import saved_split

Columns = Mapping[str, str]
"""Content of each column of a shard, as :mod:`dataaudit.scan.corpus.fields` names it."""

TEXT_NAMES = ("text", "content", "raw_content", "document", "body")
_DECIDING = TEXT_NAMES[:3]
"""Names that nothing but the text has: where such a column holds no text, none is taken in its place."""
_ABOUT_TEXT = re.compile(
    r"(?:.*[_-])?(?:id|uid|[ug]uid|docid|docno|hash|sha\d*|md5|digest|ur[il]s?|links?|href|domain|host|path|file"
    r"|file_?name|key|source|lang|language|locale|license|author|user|date|time|timestamp|created|updated|split|type"
    r"|category|mime|label|meta)",
    re.IGNORECASE,
)
"""Names of properties of a text: a lone column of such a name is not the text."""
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
"""Where a word begins inside of a name like ``docId``."""
_RECORDS = frozenset({"object", "struct"})
"""What columns of nested records hold, in JSON lines and in tables."""
SOURCE_NAME = "source"
_SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    "test": "test",
    **dict.fromkeys(("heldout", "holdout"), "heldout"),
}
_FOLDER = r"(?:^|/)(?P<source>[^/]+)/[^/]+$"
_SHOWN_COLUMNS = 20
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars", ",": "commas"}
_LONGEST_NAME, _MOST_SPACES = 48, 3
_DATA = re.compile(r"@|[0-9]{5}|://")
"""What keys hold that are data: addresses, numbers, text."""


def infer_splits(paths: Sequence[str], cwd: Path, left_out: list[str] | None = None) -> dict[str, Split]:
    """Sort files into splits by the last word of their path that names a split; without any, ``train``.

    Only words of the path below ``cwd`` count, or below the deepest folder above all files. Of the folders above,
    only the whole name of the deepest may name a split: ``/home/dev/web/a.jsonl`` is no validation data.
    """
    files: list[str] = []
    remote = remote_lister(Access())
    for given in paths:
        listed, ignored = expand(given, cwd, where="paths", remote=remote)
        files += listed
        if left_out is not None:
            left_out += ignored
    here = os.path.abspath(cwd)
    by_split: dict[str, list[str]] = {}
    known: dict[str, tuple[str, ...]] = {}
    for kind in dict.fromkeys(map(scheme_of, files)):
        own = [(path, f"/{name_of(path)}" if kind else path) for path in files if scheme_of(path) == kind]
        top = os.path.commonpath([os.path.dirname(name.rstrip("/")) for _, name in own])
        for path, name in own:
            saved = saved_split(path, known)
            by_split.setdefault(_split_of(name, here, top) if saved is None else saved[1], []).append(path)
    return {
        name: Split(paths=tuple(map(_as_text, listed)), held_out=_last_word(_words(name)) != "train")
        for name, listed in sorted(by_split.items())
    }


def is_held_out_name(split: str) -> bool:
    """Tell whether a split is held out, by its name."""
    return _SPLIT_WORDS.get(split.lower(), "train") != "train"


def _last_word(words: Sequence[str]) -> str:
    """Return the split that a word names, the last of several; without any, ``train``."""
    return next((_SPLIT_WORDS[word] for word in reversed(words) if word in _SPLIT_WORDS), "train")


def _words(text: str) -> list[str]:
    return re.split(r"[^A-Za-z]+", text.lower())


def _as_text(path: str) -> str:
    """Return a path as Unicode, which a config needs: of a remote file the full address."""
    if isinstance(path, RemotePath):
        return path.full
    try:
        path.encode()
    except UnicodeEncodeError:
        return "file://" + quote(os.fsencode(path))
    return path


def _split_of(path: str, cwd: str, top: str) -> str:
    if path.startswith(cwd.rstrip("/") + "/"):
        top, words = cwd, []
    else:
        words = [os.path.basename(top).lower()]
    return _last_word([*words, *_words(os.path.relpath(path, top))])


def named_text(seen: Sequence[Columns], others: Sequence[str] = ()) -> str | None:
    """Return the column with the name of a text that holds text in any shard, or None."""
    named = (name for name in (*others, *TEXT_NAMES) if any(shard.get(name) in {TEXT, MIXED} for shard in seen))
    return next(named, None)


def infer_text(split: str, seen: Sequence[Columns], others: Sequence[str] = ()) -> str:
    """Return the column that holds the text: by its name, else the only column of text."""
    if (name := named_text(seen, others)) is not None:
        return name
    known = set[str]().union(*seen)
    strings = [name for name in sorted(known) if {shard.get(name, NOTHING) for shard in seen} - {NOTHING} == {TEXT}]
    hint = f"Name it in a config (splits.{split}.text) or with --text COLUMN, in Python text=COLUMN."
    named = [name for name in (*others, *TEXT_NAMES) if name in known]
    deciding = {*others, *_DECIDING}
    if empty := next((name for name in named if name in deciding or _is_null(name, seen)), None):
        kinds = ", ".join(sorted({shard[empty] for shard in seen if empty in shard}))
        instead = f"; text is in {_names(strings)}" if strings else ""
        raise ConfigError(
            f"splits.{split}.text: cannot tell which column is the text: `{empty}` holds {kinds} in the"
            f" first {plural(len(seen), 'shard') if len(seen) > 1 else 'shard'}{instead}",
            hint,
        )
    if len(strings) == 1 and is_plain_name(strings[0]) and not _is_about_text(strings[0]):
        _check_is_no_header(split, strings[0])
        return strings[0]
    if not seen:
        raise ConfigError(
            f"splits.{split}.text: none of the first shards can be read, so there are no columns",
            "JSON lines are an object a line: `jq -c '.[]' IN.json > OUT.jsonl` makes them of an array. With --text"
            " COLUMN the build goes on, and `dataaudit inspect` says what is wrong with each shard.",
        )
    shown = _names(known) or "no columns"
    nested = [name for name in known if is_plain_name(name) and any(shard.get(name) in _RECORDS for shard in seen)]
    if record := min(nested, key=lambda name: (_is_about_text(name), name), default=None):
        hint += f" Of a nested record name the path, as {encode_path(record)}.FIELD."
    raise ConfigError(f"splits.{split}.text: cannot tell which column is the text: {shown}", hint)


def _is_about_text(name: str) -> bool:
    return _ABOUT_TEXT.fullmatch(_HUMP.sub("_", name)) is not None


def _check_is_no_header(split: str, name: str) -> None:
    """Check that a column's name is not the whole header of a table that was read with another separator."""
    separator = next((sign for sign in _SEPARATORS if sign in name.strip(sign)), None)
    if separator is not None:
        raise ConfigError(
            f"splits.{split}.text: the only column of text, {encode_path(name)!r}, is a header whose names are"
            f" separated by {_SEPARATORS[separator]}: its file was made from a table by another separator",
            f"Make it again with that separator, in pandas read_csv(..., sep={separator!r}). If it is the text, name"
            f" it in a config (splits.{split}.text) or with --text COLUMN, in Python text=COLUMN.",
        )


def _is_null(name: str, seen: Sequence[Columns]) -> bool:
    return all(shard.get(name, NOTHING) == NOTHING for shard in seen)


def _names(columns: Collection[str]) -> str:
    """Return the names of columns, at most 20, and none that is data."""
    names = [encode_path(name) for name in sorted(columns) if is_plain_name(name)]
    shown = ", ".join(names[:_SHOWN_COLUMNS]) + (", ..." if len(names) > _SHOWN_COLUMNS else "")
    if len(names) < len(columns):
        shown += f"{' and ' if shown else ''}{len(columns) - len(names):,} that look like data, not names"
    return shown


def is_plain_name(name: str) -> bool:
    """Tell whether a key of records may be shown: others may be data, as in an object from addresses to letters."""
    return len(name) <= _LONGEST_NAME and name.count(" ") <= _MOST_SPACES and _DATA.search(name) is None


def infer_source(shards: Iterable[Shard], columns: Columns) -> SourceRule:
    """Return the rule for sources: a column ``source``, else the shard's folder when there are several.

    A folder ``source=web`` is such a column, and one like ``lang=de`` after it. Other folders ``key=value``, as
    ``year=2020``, are passed over.
    """
    if columns.get(SOURCE_NAME) == TEXT:
        return SourceRule(column=SOURCE_NAME)
    folders = {shard.uri.rpartition("/")[0] for shard in shards}
    if (key := source_key(folders)) is not None:
        return SourceRule(column=key)
    partitioned = any("=" in folder for folder in folders)
    several: set[str | None] = {plain_folder(folder) if partitioned else folder for folder in folders}
    if len(several) > 1 and several.isdisjoint({"", None}):
        return SourceRule(pattern=PLAIN_FOLDER if partitioned else _FOLDER)
    return SourceRule(constant="all")


def peek(shard: Shard) -> dict[str, str] | None:
    """Return the contents of a shard's columns, or None when it cannot be read or is empty."""
    try:
        return reader_of(shard.format).peek_columns(shard.path)
    except (ShardUnreadable, LookupError, FileNotFoundError, PermissionError, UnicodeDecodeError):
        return None
