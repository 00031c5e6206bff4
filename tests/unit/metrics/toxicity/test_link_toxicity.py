"""The family of toxicity: from what a judge said to findings and rates."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from made_build import config

from dataaudit.manifest.locate import places_of
from dataaudit.metrics.toxicity import stage as toxicity
from dataaudit.metrics.toxicity.stage import SCORES, Toxicity
from dataaudit.scan.cross_shard.judge_rates import SEEN
from dataaudit.scan.cross_shard.sampling import Frame, Sampled
from dataaudit.scan.cross_shard.step import SecondPassPart, SecondPassResult, Survey
from dataaudit.scan.detectors.toxicity.judge_model import JudgeModel
from dataaudit.scan.kernels.two_phase import Allocation

JUDGE = JudgeModel(
    name="local",
    version="1",
    sha256="a",
    config_sha256="b",
    classes=("insult", "toxicity"),
    languages=("en",),
    path=Path("/p"),
    config_path=Path("/c"),
)
ROWS = [0, 1, 2]


@pytest.fixture
def found(monkeypatch):
    """What is found where all of three documents were judged: 0.4999, 0.5 and 0.8765 toxic."""
    sampled = Sampled(
        frame=Frame(sources=("web",), languages=("en",), strata=((0, "web", "en", 0),)),
        splits=("train",),
        documents=np.array([3]),
        tokens=np.array([30]),
        guesses=np.array([0.1]),
        unread=0,
        plan=Allocation(counts=np.array([3]), wanted=3, half_width=0.0),
        strata=np.zeros(3, dtype=np.int64),
        places=places_of(np.zeros(3, dtype=np.int64), np.array(ROWS)),
    )
    monkeypatch.setattr(toxicity, "draw", lambda linking, question: sampled)
    family = toxicity.toxic_documents(
        SimpleNamespace(
            config=config(),
            content=SimpleNamespace(judge=JUDGE),
            survey=Survey(by_split={("toxicity", "scores"): Toxicity().shapes()["scores"].schema().empty_table()}),
            tokenizer=lambda: "t",
            stage=Toxicity(),
        )
    )
    next(family)
    seen = pa.table([ROWS, [10] * 3, [True] * 3, [""] * 3], schema=SEEN)
    said = [0.1, 0.4999, 0.1, 0.5, 0.1, 0.8765]
    scores = pa.table([np.repeat(ROWS, 2), [50] * 6, list(JUDGE.classes) * 3, said], schema=SCORES)
    part = SecondPassPart(shard=0, split=0, first_row=0, key="", tables={"seen": seen, "scores": scores})
    with pytest.raises(StopIteration) as stop:
        family.send([SecondPassResult.of("visit", [part])])
    return stop.value.value


def test_a_document_is_toxic_from_one_half_on_and_scores_are_shown_rounded(found):
    """0.4999 would be 0.50 when rounded, and is not toxic."""
    rows = found.tables["findings"].to_pylist()
    assert [(row["row"], row["class"], row["start"], row["end"], row["score"]) for row in rows] == [
        (1, "toxicity", 0, 50, 0.5),
        (2, "toxicity", 0, 50, 0.88),
    ]
    rates = {one.scope.entity: one.value for one in found.metrics if one.stat == "rate"}
    assert rates == pytest.approx({None: 2 / 3, "toxicity": 2 / 3, "insult": 0.0})


def test_findings_name_the_judge_as_the_manifest_does(found):
    assert set(found.tables["findings"]["detector"].to_pylist()) == {"detoxify local"}
