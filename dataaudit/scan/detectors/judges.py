"""Shared by the judges of samples: absence as a value, drawing of windows, and libraries that stay quiet.

An absent judge is a value, not an exception. Libraries are silenced that would write text of a document, or bars and
advice, to the console or a log.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import TextIO

from dataaudit.base.extras import absent, install_line


class Absence(StrEnum):
    """Why a judge cannot work; the codes stand in the manifest beside ``not_evaluated``."""

    NOT_INSTALLED = "not_installed"
    WEIGHTS_ABSENT = "weights_absent"
    """Its weights are not on this machine and cannot be fetched."""
    CONFIG_ABSENT = "config_absent"
    """The settings or the vocabulary that belong to the weights are not on this machine and cannot be fetched."""
    BROKEN_CHECKPOINT = "broken_checkpoint"
    """The file is not a whole checkpoint of a known form, or does not fit its settings."""
    UNSAFE_CHECKPOINT = "unsafe_checkpoint"
    """The file asks to run code while it is read."""
    NO_DEVICE = "no_device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """A judge that is not here: metrics that depend on it are not evaluated, and never zero."""

    reason: Absence
    message: str
    """Never holds text of a document."""
    hint: str


def not_installed(judge: str, extra: str) -> Unavailable | None:
    """Return the absence of a judge when packages of its extra are missing; none is imported."""
    missing = absent(extra)
    if not missing:
        return None
    message = f"{judge} needs {', '.join(missing)}"
    return Unavailable(reason=Absence.NOT_INSTALLED, message=message, hint=f"Run `{install_line(extra)}`.")


def draw(text: str, among: int, number: int, seed: int) -> list[int]:
    """Draw ``number`` of the first ``among`` integers from 0 on by a hash of a text: the smallest hashes, ascending.

    The draw depends on the text and the seed alone, so it is the same wherever a document lies.
    """
    key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, key=seed.to_bytes(8, "little")).digest()
    ranks = sorted(
        (blake2b(index.to_bytes(8, "little"), digest_size=8, key=key).digest(), index) for index in range(among)
    )
    return sorted(index for _, index in ranks[:number])


_LOUD_LIST = (
    "decision_process filelock httpx huggingface_hub presidio-analyzer presidio_analyzer requests spacy tldextract "
    "torch transformers urllib3"
)
_LOUD = _LOUD_LIST.split()
"""Their loggers. At the level of debugging, presidio's logs words of the text."""
_SILENT = logging.CRITICAL + 1


class _Others(io.TextIOBase):
    """Drops the text that the creating thread writes; that of others goes to the stream."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream, self._silent = stream, threading.get_ident()

    def write(self, text: str) -> int:
        """Return the number of characters, written or not."""
        if self._stream is not None and threading.get_ident() != self._silent:
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        if self._stream is not None:
            self._stream.flush()

    def isatty(self) -> bool:
        """Tell whether the others write to a terminal."""
        return self._stream is not None and not self._stream.closed and self._stream.isatty()


@contextmanager
def quiet() -> Iterator[None]:
    """Let no library print, log or warn in this thread; other threads and other loggers are not affected."""
    printed = redirect_stdout(_Others(sys.stdout)), redirect_stderr(_Others(sys.stderr))
    with silenced, warnings.catch_warnings(), printed[0], printed[1]:
        warnings.simplefilter("ignore")
        yield


class _Silenced:
    """Keeps libraries from logging while any block is entered: a change of a level empties the caches of all loggers.

    A later block also silences a logger that has set its own level meanwhile, as some do when they are imported. That
    level is restored in the end; a level that was set last stays.
    """

    def __init__(self) -> None:
        self._levels: dict[str, int] = {}
        self._entered = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self._entered += 1
            for logger in map(logging.getLogger, _LOUD):
                if logger.level != _SILENT:
                    self._levels[logger.name] = logger.level
                    logger.setLevel(_SILENT)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._entered -= 1
            if self._entered == 0:
                for name, level in self._levels.items():
                    if (logger := logging.getLogger(name)).level == _SILENT:
                        logger.setLevel(level)
                self._levels.clear()


silenced = _Silenced()
