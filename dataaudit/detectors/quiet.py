"""Silence of libraries that would write text of a document, or bars and advice, to the console or a log."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def quiet() -> Iterator[None]:
    """Let no library log or warn; other loggers of the process go on."""
    loggers = [logging.getLogger(name) for name in _LOUD]
    before = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)
