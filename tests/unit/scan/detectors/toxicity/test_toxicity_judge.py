"""The judge: the real class of Detoxify, on small checkpoints of its form."""

import logging
import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from tiny_judge import write_checkpoint

from dataaudit.base.errors import DetectorError
from dataaudit.scan.detectors.toxicity.judge import Failure, ToxicityJudge
from dataaudit.scan.detectors.toxicity.judge_model import JudgeModel, JudgeSettings, build, resolve_judge

pytestmark = pytest.mark.judges

SIX = ("toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate")
GOOD = "we read the good letter of a good day"


@pytest.fixture(scope="module")
def one_class(tmp_path_factory):
    return found(write_checkpoint(tmp_path_factory.mktemp("one")))


@pytest.fixture(scope="module")
def six_classes(tmp_path_factory):
    return found(write_checkpoint(tmp_path_factory.mktemp("six"), classes=SIX))


@pytest.fixture(scope="module")
def random_weights(tmp_path_factory):
    return found(write_checkpoint(tmp_path_factory.mktemp("random"), classes=SIX, knows_words=False))


def found(path, **settings):
    model = resolve_judge(JudgeSettings(judge=path.name, **settings), path.parent)
    assert isinstance(model, JudgeModel), model
    return model


def column(*texts):
    return pa.array(texts, pa.large_string())


def mixed_texts(number):
    """Make texts of many lengths, of words that the vocabulary has."""
    words = np.array(["you", "are", "vile", "fool", "good", "day", "letter", "scum", ".", "idiot"])
    rng = np.random.default_rng(3)
    return [" ".join(rng.choice(words, size)) for size in rng.integers(0, 700, number)]


def test_words_that_the_checkpoint_knows_raise_its_class(one_class):
    judged = ToxicityJudge(one_class).judge(column("you are vile scum", GOOD, ""))
    assert one_class.classes == ("toxicity",)
    assert (judged.probabilities[:, 0] >= 0.5).tolist() == [True, False, False]
    assert judged.windows.tolist() == [1, 1, 1]
    assert judged.failures == (None, None, None)


def test_each_class_has_a_column_with_detoxifys_name_for_it(six_classes):
    judged = ToxicityJudge(six_classes).judge(column("you are a fool", "you are scum"))
    names = ("toxicity", "severe_toxicity", "obscene", "threat", "insult", "identity_attack")
    assert six_classes.classes == names
    assert six_classes.main_class == 0
    high = judged.probabilities >= 0.5
    assert [name for name, one in zip(names, high[0], strict=True) if one] == ["insult"]
    assert [name for name, one in zip(names, high[1], strict=True) if not one] == ["insult"]


def test_the_answers_are_those_of_detoxify(random_weights):
    texts = [text for text in mixed_texts(40) if len(text.split()) < 500]
    detoxify = build(random_weights.path, random_weights.config_path, "cpu")
    expected = np.array([[detoxify.predict(text)[name] for name in random_weights.classes] for text in texts])
    judged = ToxicityJudge(random_weights).judge(column(*texts))
    assert expected.std(axis=0).min() > 0.01
    assert np.abs(judged.probabilities - expected).max() <= 0.5e-4 + 1e-6


def test_an_answer_does_not_depend_on_what_is_asked_beside_it(random_weights, monkeypatch):
    monkeypatch.setattr("dataaudit.scan.detectors.toxicity.judge.DIGITS", 15)  # not even in what is rounded away
    texts = mixed_texts(60)
    judge = ToxicityJudge(random_weights)
    together = judge.judge(column(*texts)).probabilities
    alone = np.concatenate([judge.judge(column(text)).probabilities for text in texts])
    backwards = judge.judge(column(*texts[::-1])).probabilities[::-1]
    assert together.tobytes() == alone.tobytes() == backwards.tobytes()


def test_the_worst_window_of_a_long_document_counts(one_class):
    clean = " ".join([GOOD] * 150)
    judged = ToxicityJudge(one_class).judge(column(clean, clean + " you are vile scum"))
    assert judged.windows.tolist() == [3, 3]
    assert judged.whole.tolist() == [True, True]
    assert (judged.probabilities[:, 0] >= 0.5).tolist() == [False, True]


def test_of_a_longer_document_eight_windows_are_drawn_by_its_text_and_the_seed(random_weights):
    long = " ".join(mixed_texts(30))
    judge, other = ToxicityJudge(random_weights), ToxicityJudge(replace(random_weights, seed=1))
    judged = judge.judge(column("x", long))
    assert judged.windows.tolist() == [1, 8]
    assert judged.whole.tolist() == [True, False]
    assert judge.judge(column(long)).probabilities.tobytes() == judged.probabilities[1:].tobytes()
    assert other.judge(column(long)).probabilities.tobytes() != judged.probabilities[1:].tobytes()


def test_no_documents_have_no_answers(one_class):
    judged = ToxicityJudge(one_class).judge(column())
    assert judged.probabilities.shape == (0, 1)
    assert judged.failures == ()


def test_what_a_document_does_to_the_model_costs_it_alone_and_is_not_told(one_class, monkeypatch, caplog, capsys):
    from transformers import BertForSequenceClassification

    usual = BertForSequenceClassification.forward
    vile = 5 + 15  # the first word after those that are not toxic

    def failing(self, *, input_ids, attention_mask):
        if (input_ids == vile).any():
            logging.getLogger("transformers").warning("canary")
            raise RuntimeError("canary")
        return usual(self, input_ids=input_ids, attention_mask=attention_mask)

    monkeypatch.setattr(BertForSequenceClassification, "forward", failing)
    judged = ToxicityJudge(one_class).judge(column("good day", "vile day", "you are scum"))
    assert judged.failures == (None, Failure.FAILED, None)
    assert np.isnan(judged.probabilities[:, 0]).tolist() == [False, True, False]
    assert judged.probabilities[2, 0] >= 0.5
    written = capsys.readouterr()
    assert "canary" not in caplog.text + written.out + written.err


def test_an_answer_that_is_no_number_is_a_failure(one_class, monkeypatch):
    import torch
    from transformers import BertForSequenceClassification

    monkeypatch.setattr(
        BertForSequenceClassification,
        "forward",
        lambda self, *, input_ids, attention_mask: (torch.full((len(input_ids), 1), float("nan")),),
    )
    assert ToxicityJudge(one_class).judge(column("good")).failures == (Failure.NOT_FINITE,)


def test_a_document_that_the_tokenizer_refuses_is_a_failure(one_class, monkeypatch):
    from transformers import BertTokenizer

    usual = BertTokenizer.__call__

    def failing(self, text, **named):
        if "canary" in text:
            raise ValueError(text)
        return usual(self, text, **named)

    monkeypatch.setattr(BertTokenizer, "__call__", failing)
    judged = ToxicityJudge(one_class).judge(column("good", "canary", "vile"))
    assert judged.failures == (None, Failure.NOT_ENCODED, None)
    assert judged.windows.tolist() == [1, 0, 1]
    assert (judged.probabilities[[0, 2], 0] >= 0.5).tolist() == [False, True]


def test_weights_that_changed_since_they_were_found_are_refused(tmp_path):
    model = found(write_checkpoint(tmp_path))
    write_checkpoint(tmp_path, knows_words=False)
    with pytest.raises(DetectorError, match="changed while the build used it"):
        ToxicityJudge(model).judge(column("good"))
    with pytest.raises(DetectorError, match="cannot be read on a worker"):
        ToxicityJudge(replace(model, path=tmp_path / "gone")).judge(column("good"))


def test_a_judge_is_sent_to_a_worker_as_a_small_name(one_class):
    sent = pickle.dumps(one_class)
    assert pickle.loads(sent) == one_class
    assert len(sent) < 2000


def test_a_judge_that_gave_its_memory_back_answers_again(one_class):
    judge = ToxicityJudge(one_class)
    first = judge.judge(column("you are vile")).probabilities
    judge.release()
    assert judge.judge(column("you are vile")).probabilities.tobytes() == first.tobytes()
