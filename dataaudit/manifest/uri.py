"""URIs of shards: relative to a root, printable, reversible, the same on every machine.

A file name may hold any byte but ``/`` and NUL. In a URI, ``%``, ``#``, ``?``, control characters, invisible
and bidirectional ones and bytes that are not UTF-8 are percent-encoded; everything else stays readable. A
file that is listed more than once is that many shards, told apart by ``#copy=2``, ``#copy=3``, ...
"""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from urllib.parse import unquote_to_bytes

STREAMED = "datasets:"
"""How the root of a streamed dataset begins: its shards are no files."""
_COPY = "#copy="
_LONGEST = 100_000
"""Characters: no file system has longer paths."""
# Categories Cc, Cf, Cs, Zl and Zp, written out: no identity may depend on the tables of a Python version.
_UNSAFE = re.compile(
    "[%#?\\x00-\\x1f\\x7f-\\x9f\\xad\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890\\u0891\\u08e2\\u180e"
    "\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ud800-\\udfff\\ufeff\\ufff9-\\ufffb\\U000110bd\\U000110cd"
    "\\U00013430-\\U0001345f\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff]"
)


def encode_path(relative: str) -> str:
    """Return the URI of a relative path (``os.fsdecode`` form); also how a path is shown in a message."""
    return _UNSAFE.sub(_percent, relative)


def decode_path(uri: str) -> str:
    """Return the relative path (``os.fsdecode`` form) of a URI, its copy number dropped."""
    return os.fsdecode(unquote_to_bytes(uri.partition(_COPY)[0]))


def with_copy(uri: str, copy: int) -> str:
    """Return the URI of the ``copy``-th listing of a file, counted from 1."""
    return uri if copy == 1 else f"{uri}{_COPY}{copy}"


def relative_path(uri: str) -> str | None:
    """Return the relative path of a URI; None when it leaves its root, which no build writes."""
    path = decode_path(uri)
    parts = PurePosixPath(path)
    if not parts.parts or parts.is_absolute() or ".." in parts.parts or "\0" in path:
        return None
    return path


def is_canonical(uri: str) -> bool:
    """Return whether a build may write a URI: no other one is of the same file and copy, and no path is as long."""
    path, _, copy = uri.partition(_COPY)
    is_copy = uri == path or bool(re.fullmatch("[1-9][0-9]{0,8}", copy) and int(copy) > 1)
    return is_copy and len(uri) <= _LONGEST and encode_path(decode_path(path)) == path


def is_roundabout(uri: str) -> bool:
    """Return whether a URI is a second name of a file below a folder: `a//b` and `./a` are `a/b` and `a`.

    In a store they are objects of their own. A `/` at the end is that of a folder that could not be listed.
    """
    return not {"", "."}.isdisjoint(decode_path(uri).removesuffix("/").split("/"))


def _percent(match: re.Match[str]) -> str:
    try:
        encoded = os.fsencode(match.group())
    except UnicodeEncodeError:  # a surrogate that stands for no byte; no file name holds one, a pattern may
        encoded = match.group().encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in encoded)
