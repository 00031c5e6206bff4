"""The judge: real class, small real-format checkpoints."""

from __future__ import annotations

from importlib.util import find_spec

import pyarrow as pa
import pytest
from tiny_judge import write_checkpoint

from dataaudit.detectors.toxicity.judge import ToxicityJudge
from dataaudit.detectors.toxicity.judge_model import JudgeModel, JudgeSettings
from dataaudit.detectors.toxicity.judge_resolve import resolve_judge

pytestmark = pytest.mark.skipif(
    find_spec("detoxify") is None, reason="the extra `toxicity` is not installed: run `make judges`"
)

SIX = ("toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate")


def column(texts):
    return pa.array(texts, pa.large_string())


def test_words_that_the_checkpoint_knows_raise_its_class(tmp_path):
    path = write_checkpoint(tmp_path)
    model = resolve_judge(JudgeSettings(judge=path.name), tmp_path)
    assert isinstance(model, JudgeModel), model
    judged = ToxicityJudge(model).judge(column(["you are vile scum", "we read the good letter", ""]))
    assert model.classes == ("toxicity",)
    assert (judged.probabilities[:, 0] >= 0.5).tolist() == [True, False, False]
    print(judged)
