"""Where the time of a scan goes: the worker's own code in this process, CPU time by step."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from dataaudit.annotators import base as annotating
from dataaudit.annotators import languages as language_annotator
from dataaudit.annotators import tokens as token_annotator
from dataaudit.annotators import words as word_annotator
from dataaudit.annotators.findings import Findings
from dataaudit.annotators.languages import Languages
from dataaudit.annotators.tokens import Tokens
from dataaudit.annotators.toxicity import Toxicity
from dataaudit.annotators.words import Words
from dataaudit.config import AuditConfig, Split
from dataaudit.corpus.shards import discover
from dataaudit.corpus.tokens import Encoder
from dataaudit.detectors import LanguageIdentifier, PatternScreen, ToxicityScreen, resolve_content
from dataaudit.engine import work as worker
from dataaudit.engine.job import prepare_languages, prepare_tokenizer
from dataaudit.engine.keys import decisive_values
from dataaudit.engine.plan import missing_units, plan_shard
from dataaudit.engine.progress import Progress
from dataaudit.engine.store import PartialStore
from dataaudit.engine.units import ProbeUnit, ScanSettings
from dataaudit.metrics.stages import make_stages
from dataaudit.stages import base

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
    (worker, "row_digests", "row_digests"),
    (worker, "write_keyed", "write_keyed"),
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


def profile(folder: Path, work: Path) -> dict[str, Any]:
    """Scan a corpus in this process; return CPU milliseconds for each megabyte of text, by step.

    Args:
        folder: With shards that have a column `text`.
        work: An empty folder.
    """
    config = AuditConfig(splits={"all": Split(paths=(str(folder),), text="text", source={"column": "source"})})
    stages = make_stages(config.stages)
    progress = Progress(quiet=True)
    tokenizer, risks = prepare_tokenizer(None, folder, work, progress)
    languages = prepare_languages(config, folder, work, stages)
    shards = discover(config.splits, folder, root_at_base=True, follow_symlinks=False).shards
    clock = Clock()
    store = PartialStore(work)
    content = resolve_content(config, base_dir=folder, screen=True, detectors=frozenset({"pii", "secrets"}))
    annotators = (
        Tokens(tokenizer=tokenizer, risks=risks, force_reference=False, seed=0),
        Words(),
        Languages(models=languages, seed=0),
        Toxicity(model=content.screen),
        Findings(patterns=content.patterns, digests={name: one.digest for name, one in content.registries.items()}),
    )
    decisive = decisive_values(annotators)
    planned = []
    for shard in shards:
        unit = ProbeUnit(
            path=shard.path,
            format=shard.format,
            compression=shard.compression,
            part_bytes=config.reader.part_bytes,
            size=shard.size,
        )
        with clock.step("hash of the file"):
            probe = worker.probe_file(unit).probe
        planned.append(plan_shard(shard, probe, None, config, stages, decisive))
    timed = tuple(TimedStage(stage, clock) for stage in stages)
    settings = ScanSettings(state=work, stages=timed, annotators=annotators)
    begun = time.process_time()
    with ExitStack() as stack:
        for place, name, step in STEPS:
            stack.enter_context(patch.object(place, name, clock.timed(step, getattr(place, name))))
        stack.enter_context(patch.object(base, "merge", clock.timed("merging partials", base.merge)))
        stack.enter_context(patch.object(worker, "read_part", clock.stream("read", worker.read_part)))
        for kind, method, step in METHODS:
            stack.enter_context(patch.object(kind, method, clock.timed(step, getattr(kind, method))))
        for unit in missing_units(planned, store, fresh=True):
            with clock.step("rest"):
                worker.scan_part(unit, settings)
    total = time.process_time() - begun
    entries = [store.read("volume", part.stage_keys["volume"]) for item in planned for part in item.parts]
    size = sum(sum(entry.tables["volume"]["bytes"].to_pylist()) for entry in entries if entry) / 1e6
    steps = sorted(clock.seconds.items(), key=lambda item: -item[1])
    return {
        "text_mb": round(size, 1),
        "cpu_s": round(total, 2),
        "ms_per_mb": {name: round(1000 * seconds / size, 2) for name, seconds in steps},
    }
