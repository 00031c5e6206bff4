"""Visitors that ask judges: what tells their results apart in the store, and how much is asked."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dataaudit.metrics.pii import stage as pii
from dataaudit.metrics.pii.stage import MOST_ASKED, OPINIONS, PiiTask
from dataaudit.metrics.toxicity.stage import ToxicityTask
from dataaudit.scan.cross_shard.step import identity_of
from dataaudit.scan.detectors.patterns.entity import Tier
from dataaudit.scan.detectors.patterns.registry import Registry
from dataaudit.scan.detectors.pii.analyzer_model import AnalyzerModel
from dataaudit.scan.detectors.toxicity.judge_model import JudgeModel

JUDGE = JudgeModel(
    name="local",
    version="1",
    sha256="a",
    config_sha256="b",
    classes=("toxicity",),
    languages=("en",),
    path=Path("/p"),
    config_path=Path("/c"),
)
ANALYZER = AnalyzerModel(
    version="1",
    sha256="a",
    model=None,
    language="en",
    labels=(),
    entities=("PERSON",),
    recognizers=(),
    registry=Registry(entities=(), validators={}, reserved={}, versions={}),
)
VISITS = [ToxicityTask(model=JUDGE, tokenizer="t"), PiiTask(model=ANALYZER, tokenizer="t")]


@pytest.mark.parametrize("visit", VISITS, ids=lambda visit: visit.name)
def test_another_tokenizer_or_another_model_is_another_result(visit):
    """Rates are per token: what one tokenizer counted is not taken for what another would."""
    others = [replace(visit, tokenizer="u"), replace(visit, model=replace(visit.model, sha256="x"))]
    assert all(identity_of(visit) != identity_of(other) for other in others)


def test_a_document_full_of_candidates_is_asked_about_the_first_of_them(monkeypatch):
    """Every question takes milliseconds: a list of numbers must not hold up a build."""
    counts = {0: 2, 1: MOST_ASKED + 50, 3: 1}
    documents = np.repeat(list(counts), list(counts.values()))
    held = SimpleNamespace(
        tiers=np.full(len(documents), Tier.PATTERN),
        reserved=np.zeros(len(documents), bool),
        documents=documents,
        entities=("X",),
        codes=np.zeros(len(documents), int),
        starts=np.arange(len(documents)),
        ends=documents,
    )
    monkeypatch.setattr(pii, "PatternScreen", lambda registry: SimpleNamespace(find=lambda *_: held))
    batch = SimpleNamespace(rows=np.arange(4), texts=None, byte_values=lambda: None, byte_offsets=lambda: None)
    analyzer = SimpleNamespace(confirm=lambda texts, own, *_: SimpleNamespace(peers=np.ones(len(own))))
    table = VISITS[1]._opinions(batch, analyzer)
    assert table["row"].to_pylist() == [0, 1, 3]
    assert table["candidates"].to_pylist() == [2, MOST_ASKED, 1]


def test_where_a_judge_lies_runs_and_what_it_reads_decide_no_verdict():
    """Another folder, another device, other languages: the same documents have the same answers."""
    others = replace(JUDGE, path=Path("/q"), config_path=Path("/d"), device="cpu", languages=())
    assert identity_of(ToxicityTask(model=others, tokenizer="t")) == identity_of(VISITS[0])


def test_hits_are_counted_by_the_tokens_of_what_was_looked_at(monkeypatch):
    """Of 1,000 bytes with 200 tokens a quarter was shown: its hits are those of 50 tokens."""
    none = np.zeros(0, dtype=np.int64)
    found = SimpleNamespace(
        analyzed=np.array([80, 250, 0]),
        whole=np.array([True, False, True]),
        failures=(None, None, None),
        entities=(),
        codes=none,
        documents=none,
        starts=none,
        ends=none,
        scores=none,
    )
    analyzer = SimpleNamespace(analyze=lambda texts: found)
    monkeypatch.setattr(pii, "PiiAnalyzer", lambda model: analyzer)
    monkeypatch.setattr(PiiTask, "_opinions", lambda *_: OPINIONS.empty_table())
    batch = SimpleNamespace(texts=None, rows=np.arange(3), num_bytes=lambda: np.array([80, 1000, 0]))
    said = VISITS[1].run(batch, None, lambda texts: SimpleNamespace(offsets=np.array([0, 20, 220, 220])))
    assert said["seen"]["tokens"].to_pylist() == [20, 50, 0]
