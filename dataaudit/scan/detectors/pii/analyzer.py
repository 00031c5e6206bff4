"""The judge of personal data: presidio, with its recognizers and ours, over documents of a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataaudit.base.errors import CatchErrors, DetectorError
from dataaudit.scan.detectors.judges import quiet
from dataaudit.scan.detectors.pii.analyzer_model import (
    AnalyzerModel,
    Engine,
    analyzer_sha256,
    build_engine,
    byte_of,
    load_nlp,
    segments,
)

DIGITS = 4
"""Decimal places of a score."""
Hit = tuple[int, int, str, float]
"""First character, character after the last, entity, score."""


class Failure(StrEnum):
    """Why a document of the sample has no answer."""

    FAILED = "analyzer_failed"
    """The libraries raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """``h`` hits in ``n`` documents, sorted by (document, start, end, entity)."""

    entities: tuple[str, ...]
    """[e] entities of the model."""
    documents: npt.NDArray[np.int32]
    """int32[h] index of the document."""
    codes: npt.NDArray[np.int16]
    """int16[h] index into ``entities``."""
    starts: npt.NDArray[np.int64]
    """int64[h] first byte in the document's UTF-8."""
    ends: npt.NDArray[np.int64]
    """int64[h] byte after the last."""
    scores: npt.NDArray[np.float32]
    """float32[h] presidio's score with context, 0 to 1, to 4 decimals."""
    analyzed: npt.NDArray[np.int64]
    """int64[n] bytes of the document that were analyzed; 0 where it failed."""
    whole: npt.NDArray[np.bool_]
    """bool[n]: those bytes are all of the document."""
    failures: tuple[Failure | None, ...]
    """[n] why there is no answer; None where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Second opinions of ``f`` candidates."""

    scores: npt.NDArray[np.float32]
    """float32[f] largest score of an overlapping hit of the entity by any recognizer, with context; 0 without a hit,
    NaN where the libraries raised or no recognizer knows the entity."""
    peers: npt.NDArray[np.float32]
    """float32[f] the same by presidio's own recognizers alone; NaN where none of them knows the entity."""


class PiiAnalyzer:
    """An analyzer, set up at its first call, once in a process."""

    def __init__(self, model: AnalyzerModel) -> None:
        self.model = model

    def analyze(self, texts: pa.LargeStringArray) -> Analysis:
        """Analyze documents, each by itself."""
        engine = _engine(self.model)
        codes = {name: code for code, name in enumerate(self.model.entities)}
        rows: list[tuple[int, int, int, int, float]] = []
        analyzed = np.zeros(len(texts), dtype=np.int64)
        whole = np.zeros(len(texts), dtype=np.bool_)
        failures: list[Failure | None] = [None] * len(texts)
        with quiet():
            for number, value in enumerate(texts):
                hits: list[Hit] = []
                with CatchErrors() as call:
                    hits, analyzed[number], whole[number] = self._document(engine, value.as_py())
                if call.error is not None:
                    failures[number] = Failure.FAILED
                rows += sorted((number, start, end, codes[name], score) for start, end, name, score in hits)
        columns = list(zip(*rows, strict=True)) or [(), (), (), (), ()]
        return Analysis(
            entities=self.model.entities,
            documents=np.array(columns[0], dtype=np.int32),
            codes=np.array(columns[3], dtype=np.int16),
            starts=np.array(columns[1], dtype=np.int64),
            ends=np.array(columns[2], dtype=np.int64),
            scores=np.array(columns[4], dtype=np.float32),
            analyzed=analyzed,
            whole=whole,
            failures=tuple(failures),
        )

    def confirm(
        self,
        texts: pa.LargeStringArray,
        documents: npt.NDArray[np.int32],
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        entities: Sequence[str],
    ) -> Confirmation:
        """Give a second opinion of candidates, from the text around each."""
        engine = _engine(self.model)
        known = set(self.model.entities)
        of_peers = {name for recognizer in engine.peers.registry.recognizers for name in recognizer.supported_entities}
        scores = np.full(len(documents), np.nan, dtype=np.float32)
        peers = np.full(len(documents), np.nan, dtype=np.float32)
        document, data = -1, b""
        with quiet():
            for row, name in enumerate(entities):
                if name not in known:
                    continue
                if document != int(documents[row]):
                    document = int(documents[row])
                    data = texts[document].as_py().encode()
                text, begin, end = self._around(data, int(starts[row]), int(ends[row]))
                with CatchErrors() as call, engine.zone():
                    scores[row] = _best(engine.all.analyze(text, engine.language, [name]), name, begin, end)
                    if name in of_peers:
                        peers[row] = _best(engine.peers.analyze(text, engine.language, [name]), name, begin, end)
                if call.error is not None:
                    scores[row] = peers[row] = np.nan
        return Confirmation(scores=scores, peers=peers)

    @staticmethod
    def release() -> None:
        """Free the memory of the model; the next call loads it again."""
        _engine.cache_clear()

    def _around(self, data: bytes, start: int, end: int) -> tuple[str, int, int]:
        """Return the text around a candidate, and the candidate's characters in it."""
        before = data[max(0, start - self.model.window) : start].decode("utf-8", "ignore")
        itself = data[start:end].decode("utf-8", "ignore")
        after = data[end : end + self.model.window].decode("utf-8", "ignore")
        return before + itself + after, len(before), len(before) + len(itself)

    def _document(self, engine: Engine, text: str) -> tuple[list[Hit], int, bool]:
        """Return hits by bytes, how many bytes were analyzed, and whether they are all."""
        model = self.model
        cut, whole = segments(text, size=model.stretch, at_most=model.max_stretches, seed=model.seed)
        hits: list[Hit] = []
        for begin, end in cut:
            shown = text[begin : end + model.overlap]
            with engine.zone():
                for item in engine.all.analyze(shown, engine.language, score_threshold=model.min_score):
                    if begin + item.start < end:
                        score = min(1.0, max(0.0, round(float(item.score), DIGITS)))
                        hits.append((begin + item.start, begin + item.end, item.entity_type, score))
        hits = sorted(set(hits))
        spans = byte_of(text, np.array([hit[:2] for hit in hits], dtype=np.int64).reshape(-1, 2)).tolist()
        bounds = byte_of(text, np.array(cut, dtype=np.int64).reshape(-1, 2))
        size = int((bounds[:, 1] - bounds[:, 0]).sum())
        return [(first, last, hit[2], hit[3]) for (first, last), hit in zip(spans, hits, strict=True)], size, whole


def _best(results: Sequence[Any], name: str, begin: int, end: int) -> float:
    scores = [
        result.score for result in results if result.entity_type == name and result.start < end and begin < result.end
    ]
    return round(float(max(scores, default=0.0)), DIGITS)


@lru_cache(maxsize=1)
def _engine(model: AnalyzerModel) -> Engine:
    with quiet():
        nlp = None
        with CatchErrors() as call:
            nlp = load_nlp(model.model, model.language)
        if call.error is not None:
            raise DetectorError(
                f"pii.model: the spaCy model cannot be loaded on a worker ({call.kind})",
                "Install it, or put it where every worker reaches it.",
            )
        if analyzer_sha256(nlp, model.registry, model.recognizers, model.labels) != model.sha256:
            raise DetectorError(
                "pii.model: a worker has another spaCy model or other versions of libraries than the build began with",
                "Install the same on every worker.",
            )
        return build_engine(
            nlp, model.language, recognizers=model.recognizers, registry=model.registry, labels=dict(model.labels)
        )
