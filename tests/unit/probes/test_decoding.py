"""Tokens are drawn by the distribution, and by their own seed alone."""

import numpy as np
import pytest

from dataaudit import ConfigError
from dataaudit.probes.models import Decoding

LOGITS = np.log(np.array([0.5, 0.2, 0.2, 0.1], np.float32))


def drawn(decoding, number=4_000):
    uniform = np.random.default_rng(0).random(number)
    return np.bincount(decoding.choose(np.tile(LOGITS, (number, 1)), uniform), minlength=4) / number


def test_tokens_come_as_often_as_the_model_says():
    assert drawn(Decoding()) == pytest.approx([0.5, 0.2, 0.2, 0.1], abs=0.025)


def test_temperature_sharpens():
    squares = np.array([0.25, 0.04, 0.04, 0.01]) / 0.34
    assert drawn(Decoding(temperature=0.5)) == pytest.approx(squares, abs=0.025)
    assert drawn(Decoding(temperature=0)).tolist() == [1, 0, 0, 0]


def test_the_nucleus_holds_the_least_tokens_that_reach_its_mass():
    assert drawn(Decoding(top_p=0.69)) == pytest.approx([5 / 7, 2 / 7, 0, 0], abs=0.025)
    assert drawn(Decoding(top_p=0.4)).tolist() == [1, 0, 0, 0]


def test_a_seed_and_a_key_decide():
    own = Decoding(seed=3).uniforms(7)
    assert (Decoding(seed=3).uniforms(7) == own).all()
    assert not (Decoding(seed=3).uniforms(8) == own).any()
    assert not (Decoding(seed=4).uniforms(7) == own).any()


@pytest.mark.parametrize("wrong", [{"tokens": 0}, {"temperature": -1}, {"top_p": 0}, {"top_p": 1.5}])
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError, match="decoding: expected tokens >= 1"):
        Decoding(**wrong)
