"""Silence of libraries that would write text of a document, or bars and advice, to the console or a log."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

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


class _Nowhere(io.TextIOBase):
    """Takes text and forgets it."""

    def write(self, text: str) -> int:
        """Return the number of characters, as if they had been written."""
        return len(text)


@contextmanager
def quiet() -> Iterator[None]:
    """Let no library print, log or warn; other loggers of the process go on."""
    loggers = [logging.getLogger(name) for name in _LOUD]
    before = [logger.level for logger in loggers]
    nowhere = _Nowhere()
    with warnings.catch_warnings(), redirect_stdout(nowhere), redirect_stderr(nowhere):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)
