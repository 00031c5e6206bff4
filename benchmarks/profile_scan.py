"""Where the time of a scan goes: the worker's own code in this process, CPU time by step."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from dataaudit.api import build
from dataaudit.engine import build as engine
from dataaudit.engine import join, scan
from dataaudit.engine.runner import ScanSettings
from dataaudit.scan import annotators as annotating
from dataaudit.scan import annotators as language_annotator
from dataaudit.scan import annotators as token_annotator
from dataaudit.scan import annotators as word_annotator
from dataaudit.scan.corpus.tokens import Encoder
from dataaudit.scan.detectors import LanguageIdentifier, PatternScreen, ToxicityScreen
from dataaudit.scan.stages import base

AROUND = "around the scan: start, hashes, second readings, links, publishing"
METHODS = (
    (Encoder, "encode", "encode"),
    (LanguageIdentifier, "identify", "languages"),
    (ToxicityScreen, "score", "toxicity screen"),
    (PatternScreen, "find", "patterns"),
)
START = "start: encoders, detectors"
STEPS = (
    (annotating, "text_digests", "text_digests"),
    (word_annotator, "split_words", "words"),
    (scan, "row_digests", "row_digests"),
    (join, "write_keyed", "write_keyed"),
    (scan.Scan, "__call__", "rest of the scan"),
    (scan, "scan_together", "rest of the scan"),
    (token_annotator, "load_encoder", START),
    (language_annotator, "load_languages", START),
)


class Clock:
    """CPU seconds by step; a step inside another is taken from it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inner = [0.0]

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time what is done inside."""
        self._inner.append(0.0)
        begun = time.process_time()
        try:
            yield
        finally:
            taken = time.process_time() - begun
            self.seconds[name] += taken - self._inner.pop()
            self._inner[-1] += taken

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that is timed."""

        def call(*args: Any, **kwargs: Any) -> Any:
            with self.step(name):
                return function(*args, **kwargs)

        return call

    def stream(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose iterator is timed item by item."""

        def call(*args: Any, **kwargs: Any) -> Iterator[Any]:
            items = function(*args, **kwargs)
            while True:
                with self.step(name):
                    item = next(items, None)
                if item is None:
                    return
                yield item

        return call


class TimedStage:
    """A stage whose map and emit are timed."""

    def __init__(self, stage: Any, clock: Clock) -> None:
        self._stage = stage
        self.map = clock.timed(f"stage {stage.name}", stage.map)
        self.emit = clock.timed(f"stage {stage.name}", stage.emit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)


def profile(config: dict[str, Any], work: Path) -> dict[str, Any]:
    """Build in this process, in an empty folder; return CPU milliseconds for each megabyte of text, by step."""
    clock = Clock()

    def timed_scan(settings: ScanSettings) -> scan.Scan:
        return scan.Scan(replace(settings, stages=tuple(TimedStage(stage, clock) for stage in settings.stages)))

    with ExitStack() as stack:
        for place, name, step in STEPS:
            stack.enter_context(patch.object(place, name, clock.timed(step, getattr(place, name))))
        for place in (base, scan):
            stack.enter_context(patch.object(place, "merge", clock.timed("merging partials", base.merge)))
        stack.enter_context(patch.object(scan, "read_part", clock.stream("read", scan.read_part)))
        for kind, method, step in METHODS:
            stack.enter_context(patch.object(kind, method, clock.timed(step, getattr(kind, method))))
        stack.enter_context(patch.object(engine, "Scan", timed_scan))
        with clock.step(AROUND):
            built = build(config, work / "manifest", workers=0, isolate=False, state=work / "state")
    size = built.manifest.core.totals.bytes / 1e6
    steps = sorted(clock.seconds.items(), key=lambda item: -item[1])
    return {
        "text_mb": round(size, 1),
        "cpu_s": round(sum(clock.seconds.values()), 2),
        "ms_per_mb": {name: round(1000 * seconds / size, 2) for name, seconds in steps},
    }
