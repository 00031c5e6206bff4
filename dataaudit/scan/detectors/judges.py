"""What judges share: why one cannot be had here, and how its libraries are kept quiet.

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
from typing import TextIO

from dataaudit.base.extras import absent, install_line


class Absence(StrEnum):
    """Why a judge cannot work; the codes stand in the manifest beside ``not_evaluated``."""

    NOT_INSTALLED = "not_installed"
    """A library that it needs is not installed."""
    WEIGHTS_ABSENT = "weights_absent"
    """Its weights are not on this machine and cannot be fetched."""
    CONFIG_ABSENT = "config_absent"
    """The settings or the vocabulary that belong to the weights are not on this machine and cannot be fetched."""
    BROKEN_CHECKPOINT = "broken_checkpoint"
    """The file is not a whole checkpoint of a form that is known, or does not fit its settings."""
    UNSAFE_CHECKPOINT = "unsafe_checkpoint"
    """The file asks to run code while it is read."""
    NO_DEVICE = "no_device"
    """The device that the config names is not here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """A judge that cannot be had: what depends on it is not evaluated, and never zero."""

    reason: Absence
    """Stable code."""
    message: str
    """What was looked for, where, and what was found; never text of a document."""
    hint: str
    """What to do about it."""


def not_installed(judge: str, extra: str) -> Unavailable | None:
    """Return what a judge lacks of the packages of its extra, none of which is imported; None when all are here."""
    missing = absent(extra)
    if not missing:
        return None
    return Unavailable(
        reason=Absence.NOT_INSTALLED,
        message=f"{judge} needs {', '.join(missing)}",
        hint=f"Run `{install_line(extra)}`.",
    )


_LOUD = (
    "decision_process",
    "filelock",
    "httpx",
    "huggingface_hub",
    "presidio-analyzer",
    "presidio_analyzer",
    "requests",
    "spacy",
    "tldextract",
    "torch",
    "transformers",
    "urllib3",
)
"""Their loggers. presidio's tells words of the text at the level of debugging."""
_SILENT = logging.CRITICAL + 1


class _Others(io.TextIOBase):
    """Forgets what one thread writes, and hands on what the others do.

    Args:
        stream: Where the others write.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream, self._silent = stream, threading.get_ident()

    def write(self, text: str) -> int:
        """Return the number of characters, written or not."""
        if self._stream is not None and threading.get_ident() != self._silent:
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Hand on what is left."""
        if self._stream is not None:
            self._stream.flush()

    def isatty(self) -> bool:
        """Tell whether the others write to a terminal."""
        return self._stream is not None and not self._stream.closed and self._stream.isatty()


@contextmanager
def quiet() -> Iterator[None]:
    """Let no library print, log or warn in this thread; other threads and other loggers of the process go on."""
    printed = redirect_stdout(_Others(sys.stdout)), redirect_stderr(_Others(sys.stderr))
    with silenced, warnings.catch_warnings(), printed[0], printed[1]:
        warnings.simplefilter("ignore")
        yield


class _Silenced:
    """Keeps libraries from logging as long as anybody asks: a change of a level empties the caches of all loggers.

    Whoever asks later silences what has set its own level meanwhile, as some do when they are imported; that level, and
    one that was set last, stay in the end.
    """

    def __init__(self) -> None:
        self._levels: dict[str, int] = {}
        self._asking = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self._asking += 1
            for logger in map(logging.getLogger, _LOUD):
                if logger.level != _SILENT:
                    self._levels[logger.name] = logger.level
                    logger.setLevel(_SILENT)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._asking -= 1
            if self._asking == 0:
                for name, level in self._levels.items():
                    if (logger := logging.getLogger(name)).level == _SILENT:
                        logger.setLevel(level)
                self._levels.clear()


silenced = _Silenced()
