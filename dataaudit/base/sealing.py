"""What vouches for files of a state folder: sha256 against damage, HMAC-SHA-256 under a key against who writes there.

The key is the process's: the driver has it while a build runs, a worker takes it with every task, a child with every
call. Without a key the seal of a file says that it is whole, not who wrote it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

KEY_ID_DIGITS = 16
ALIGN = 64
"""What is sealed lies at a multiple of so many bytes; as many are before a head."""


class Seal(Protocol):
    """A digest in the making."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Take more bytes."""

    def digest(self) -> bytes:
        """Return its 32 bytes."""

    def hexdigest(self) -> str:
        """Return it in hex."""


class KeyInUseError(RuntimeError):
    """This process works on a state folder under another key."""


class _Process:
    """The key of this process, and how many builds go by it."""

    key = b""
    users = 0
    lock = threading.Lock()


def seal(data: bytes = b"") -> Seal:
    """Return what seals bytes of the state folder, begun with some."""
    return hmac.new(_Process.key, data, hashlib.sha256) if _Process.key else hashlib.sha256(data)


def named_seal(name: str, body: bytes | memoryview) -> bytes:
    """Return the seal of bytes under a name, so that no others can take their place."""
    begun = seal(os.fsencode(f"{name}\n"))
    begun.update(body)
    return begun.digest()


def padded(data: bytes) -> bytes:
    """Return bytes, with zeros up to a multiple of :data:`ALIGN`."""
    return data + bytes(-len(data) % ALIGN)


def sealed_head(magic: bytes, name: str, head: bytes) -> bytes:
    """Return a head as it is stored: after 24 bytes of magic, its length (8 bytes) and its seal under a name."""
    return magic + len(head).to_bytes(8, "little") + named_seal(name, head) + padded(head)


def read_head(magic: bytes, name: str, read: Callable[[int], bytes], most: int) -> tuple[bytes, int] | None:
    """Return a head of at most so many bytes, and where what it heads begins; None when it is damaged or another's."""
    fixed = read(ALIGN)
    length = int.from_bytes(fixed[len(magic) : len(magic) + 8], "little")
    head = read(length) if fixed.startswith(magic) and length <= most else b""
    return (head, ALIGN + len(padded(head))) if fixed == sealed_head(magic, name, head)[:ALIGN] else None


def key_here() -> bytes:
    """Return the key of this process; empty when there is none."""
    return _Process.key


def take_key(key: bytes) -> None:
    """Go by a key from now on, in a process that does what another one asks; empty for none."""
    _Process.key = key


def key_id(key: bytes) -> str:
    """Return what a key is known by in the name of a folder, 16 hex digits, from which nobody finds it."""
    return hmac.new(key, b"dataaudit state key", hashlib.sha256).hexdigest()[:KEY_ID_DIGITS]


@contextmanager
def under_key(key: bytes) -> Iterator[None]:
    """Go by a key within the block; empty for none."""
    with _Process.lock:
        if _Process.users and _Process.key != key:
            raise KeyInUseError
        _Process.key, _Process.users = key, _Process.users + 1
    try:
        yield
    finally:
        with _Process.lock:
            _Process.users -= 1
            if not _Process.users:
                _Process.key = b""
