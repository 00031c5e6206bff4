"""From a shard's URI to the path that a loader opens; written here so that nothing of the reading side is imported."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from urllib.parse import quote, unquote_to_bytes

_COPY = "#copy="
_WEB = ("http://", "https://")
STREAMED = "datasets:"
"""How the root of a streamed dataset begins: its shards are no files."""


def relative_path(uri: str) -> str | None:
    """Return the path of a URI relative to its root (``os.fsdecode`` form); None when it leaves the root."""
    path = os.fsdecode(unquote_to_bytes(uri.partition(_COPY)[0]))
    parts = PurePosixPath(path)
    if not path or parts.is_absolute() or ".." in parts.parts or "\0" in path:
        return None
    return path


def full_path(root: str, relative: str) -> str:
    """Return the path or address of a file below a root, a folder or an address."""
    if root.startswith(_WEB):
        return f"{root.rstrip('/')}/{quote(os.fsencode(relative))}"
    if "://" in root:
        return root + relative if root.endswith("/") else f"{root}/{relative}"
    return os.path.join(root, relative)


def is_local(root: str) -> bool:
    """Tell whether a root is a folder of this machine."""
    return "://" not in root and not root.startswith(STREAMED)
