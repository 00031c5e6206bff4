"""Silence of libraries that would write text of a document, or bars and advice, to the console or a log."""

from __future__ import annotations

import io
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO

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
    loggers = [logging.getLogger(name) for name in _LOUD]
    before = [logger.level for logger in loggers]
    with warnings.catch_warnings(), redirect_stdout(_Others(sys.stdout)), redirect_stderr(_Others(sys.stderr)):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)
