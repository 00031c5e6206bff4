"""What is read from a tokenizer file once and remembered: its vocabulary's size and its special ids.

Loading a large tokenizer only to count its entries takes half a second, in every build.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from dataaudit.atomic import write_changed

Facts = tuple[int, tuple[int, ...]]
"""Largest id + 1, and the ids of special tokens, ascending."""

_VERSION = 1


def facts_of(digest: str, form: str, facts_dir: Path | None, inspect: Callable[[], Facts]) -> Facts:
    """Return what ``inspect`` found for this content before, or ask it.

    Args:
        digest: sha256 of what is inspected and of all that decides how, hex.
        form: Format of the file.
        facts_dir: Where answers are kept; None asks each time.
        inspect: Loads the file; what it raises is passed on and not remembered.
    """
    if facts_dir is None:
        return inspect()
    libraries = [f"{name}-{version(name)}" for name in ("tokenizers", "sentencepiece")]
    key = "/".join((f"facts-{_VERSION}", digest, form, *libraries))
    path = facts_dir / f"facts-{sha256(key.encode()).hexdigest()}.json"
    try:
        known = json.loads(path.read_bytes())
        if known["key"] == key:
            return int(known["vocab_size"]), tuple(map(int, known["special_ids"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    vocab_size, special_ids = inspect()
    content = {"key": key, "vocab_size": vocab_size, "special_ids": special_ids}
    with contextlib.suppress(OSError):  # a full disk costs the memory of it, no more
        write_changed(path, json.dumps(content, sort_keys=True).encode())
    return vocab_size, special_ids
