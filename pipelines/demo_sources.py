"""The demo's documents: real text taken out of pinned wheels, four sources in about a hundred languages.

========  ===============================================  ====================  ===========
source    what it is                                       taken from            language
========  ===============================================  ====================  ===========
messages  translated messages, some lines a document       Django, Thonny        of the catalogue
handbook  help pages, translated paragraph by paragraph    Mercurial, Thonny     of the catalogue
manual    worked examples of a command line                AWS CLI               English
code      modules                                          Django, Mercurial,    unknown
                                                           Thonny
========  ===============================================  ====================  ===========

A wheel is a zip file and is read as one: nothing of a package is installed, imported or run.
"""

from __future__ import annotations

import ast
import re
import struct
import textwrap
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MESSAGE_BYTES = 600
"""Messages are joined until a document holds this many bytes of text."""

MIN_BYTES = 64
"""Shorter texts (empty modules, mostly) are left out."""

MIN_TRANSLATED = 0.5
"""Share of a help page's paragraphs that a catalogue must translate; the others are dropped."""

_MO_MAGIC = 0x950412DE
_PO_LINE = re.compile(r'(?:(msg[a-z_]+(?:\[\d\])?)\s+)?"(.*)"\s*$')
_PO_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_LOCALE = re.compile(r"/locale/([A-Za-z]+)[^/]*/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One row of the corpus."""

    id: str
    text: str
    source: str
    lang: str | None
    """Language subtag such as ``de``; None when it is not a natural language."""


def documents(wheels: Mapping[str, Path]) -> Iterator[Document]:
    """Yield every document of the four sources; ``wheels`` maps a package's name to its file."""
    for name in ("django", "thonny"):
        yield from _messages(_read(wheels[name], r"\.po$"))
    mercurial = _read(wheels["mercurial"], r"\.py$|\.mo$|/helptext/.*\.txt$")
    yield from _translated_handbook(mercurial)
    yield from _handbook(mercurial, r"\.txt$")
    yield from _handbook(_read(wheels["thonny"], r"/(HELP_CONTENT|help)/.*\.rst$"), "")
    for path, data in _read(wheels["awscli"], r"/(examples|topics)/.*\.rst$").items():
        yield Document(id=path, text=data.decode(), source="manual", lang="en")
    for name in ("django", "mercurial", "thonny"):
        for path, data in _read(wheels[name], r"\.py$").items():
            yield Document(id=path, text=data.decode(), source="code", lang=None)


def distinct(found: Iterator[Document]) -> list[Document]:
    """Sort by source and id; drop short texts and those equal to an earlier one but for case and spaces.

    So the exact duplicates that an audit reports are the planted ones. Near-duplicates stay.
    """
    kept: dict[str, Document] = {}
    for document in sorted(found, key=lambda each: (each.source, each.id)):
        if len(document.text.encode()) >= MIN_BYTES:
            kept.setdefault(" ".join(document.text.casefold().split()), document)
    return list(kept.values())


def po_messages(content: str) -> list[str]:
    """Return the translations of a gettext catalogue in its order, without header, fuzzy and empty ones."""
    messages: list[str] = []
    for block in re.split(r"\n[ \t]*\n", content):
        if re.search(r"^#,.*\bfuzzy\b", block, re.MULTILINE):
            continue
        fields: dict[str, str] = {}
        key = ""
        for line in block.splitlines():
            if match := _PO_LINE.match(line):
                key = match[1] or key
                fields[key] = fields.get(key, "") + _unescape(match[2])
        if fields.get("msgid"):
            forms = (text for name, text in fields.items() if name.startswith("msgstr"))
            messages += dict.fromkeys(text for text in forms if text.strip())
    return messages


def mo_catalog(data: bytes) -> dict[str, str]:
    """Return message -> translation of a compiled little-endian gettext catalogue, without its header."""
    magic, _, count, ids_at, texts_at = struct.unpack_from("<5I", data)
    if magic != _MO_MAGIC:
        raise ValueError(f"expected a little-endian .mo catalogue, found magic number {magic:#x}")

    def entry(table: int, row: int) -> str:
        length, start = struct.unpack_from("<2I", data, table + 8 * row)
        return data[start : start + length].decode()

    pairs = ((entry(ids_at, row), entry(texts_at, row)) for row in range(count))
    return {message: text for message, text in pairs if message}


def translate_page(page: str, catalog: Mapping[str, str]) -> str | None:
    """Translate a page paragraph by paragraph, as Mercurial does when it shows one.

    Returns:
        The translated paragraphs, or None where fewer than ``MIN_TRANSLATED`` of them are known.
    """
    paragraphs = page.split("\n\n")
    texts = [catalog.get(each) or catalog.get(each.strip("\n")) for each in paragraphs]
    known = [text for text in texts if text]
    if len(known) < MIN_TRANSLATED * len(paragraphs):
        return None
    return _flush_left("\n\n".join(known))


def docstrings(path: str, data: bytes) -> dict[str, str]:
    """Return the raw docstrings of a module's source by ``path#name``; the first of a name wins."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # old escapes in the package's strings
        warnings.simplefilter("ignore", DeprecationWarning)  # the same, before Python 3.12
        tree = ast.parse(data)
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
            name = "" if isinstance(node, ast.Module) else f"#{node.name}"
            if text := ast.get_docstring(node, clean=False):
                found.setdefault(path + name, text)
    return found


def _messages(catalogs: Mapping[str, bytes]) -> Iterator[Document]:
    for path, data in catalogs.items():
        lines: list[str] = []
        part = 0
        messages = po_messages(data.decode())
        for index, message in enumerate(messages):
            lines.append(message)
            text = "\n".join(lines)
            if len(text.encode()) >= MESSAGE_BYTES or index == len(messages) - 1:
                yield Document(id=f"{path}:{part:03d}", text=text, source="messages", lang=_language(path))
                lines, part = [], part + 1


def _translated_handbook(files: Mapping[str, bytes]) -> Iterator[Document]:
    pages = {path: data.decode() for path, data in files.items() if path.endswith(".txt")}
    for path, data in files.items():
        if path.endswith(".py"):
            pages |= docstrings(path, data)
    for path, data in files.items():
        if path.endswith(".mo"):
            catalog, language = mo_catalog(data), _language(path)
            for name, page in pages.items():
                if text := translate_page(page, catalog):
                    yield Document(id=f"{name}@{language}", text=text, source="handbook", lang=language)


def _handbook(files: Mapping[str, bytes], pattern: str) -> Iterator[Document]:
    for path, data in files.items():
        if re.search(pattern, path):
            yield Document(id=path, text=data.decode(), source="handbook", lang=_language(path))


def _language(path: str) -> str:
    match = _LOCALE.search(f"/{path}")
    return match[1].lower() if match else "en"


def _flush_left(text: str) -> str:
    """Remove the indentation that a docstring has from its second line on."""
    first, newline, rest = text.partition("\n")
    return first.strip() + newline + textwrap.dedent(rest).rstrip()


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _PO_ESCAPES.get(match[1], match[1]), text)


def _read(wheel: Path, pattern: str) -> dict[str, bytes]:
    """Return path -> bytes of a wheel's files whose path matches, sorted by path."""
    with zipfile.ZipFile(wheel) as archive:
        return {path: archive.read(path) for path in sorted(archive.namelist()) if re.search(pattern, path)}
