"""What numba is spared when it compiles kernels changes no number, and leaves numba as it was."""

from __future__ import annotations

import numpy as np
import pytest
from numba.core import types
from numba.core.types.functions import BaseFunction

from dataaudit.kernels import compiler, jit

NUMBERS = f"float64({jit.READ_OFFSETS}, float64[:])"


def _power(value, exponent):
    made = value
    for _ in range(exponent - 1):
        made = made * value
    return made


def _sum(counts, shares):
    total = 0.0
    for place in range(len(counts)):
        share = max(shares[place], 1e-9)
        total += counts[place] * np.log(share) + _power(share, 2) - _power(share, 3) / 7
        total = total * 0.99 if counts[place] % 5 == 3 else total
    return total


@pytest.fixture
def kernels(monkeypatch):
    """Return a kernel and its helper, both new."""
    jit._compiler.cache_clear()
    helper = jit.cold(_power)
    monkeypatch.setitem(globals(), "_power", helper)
    monkeypatch.setattr(jit, "cache_folder", lambda: None)
    yield jit.Kernel(_sum, NUMBERS), helper
    jit._compiler.cache_clear()


@pytest.mark.parametrize("ours", [True, False])
def test_numbers_are_those_of_python_bit_by_bit_with_our_compiler_and_with_numbas(kernels, monkeypatch, ours):
    """A version of numba that was not tried compiles as it always does."""
    if not ours:
        monkeypatch.setattr(jit, "_TRIED", ((0, 1), (0, 2)))
    kernel, helper = kernels
    rng = np.random.default_rng(3)
    counts, shares = rng.integers(0, 1000, 500), rng.random(500)
    with np.errstate(all="ignore"):
        expected = float(_sum(counts, shares))
    assert float(kernel(counts, shares)).hex() == expected.hex()
    assert len(helper.load().signatures) == (1 if ours else 2)  # numba makes code for each literal
    assert (kernel.load()._compiler.pipeline_class is compiler.KernelCompiler) == ours


def test_numba_is_as_it_was_also_when_nothing_could_be_compiled(monkeypatch):
    """What a program of the user compiles is not ours."""
    monkeypatch.setattr(jit, "cache_folder", lambda: None)
    before = BaseFunction.get_call_type
    with pytest.raises(Exception, match="int64"):
        jit.Kernel(lambda text: text.nothing, "int64(int64)").load()
    assert BaseFunction.get_call_type is before


def test_a_call_is_typed_once_and_one_that_failed_again(monkeypatch):
    """The same function and types have the same signature."""
    asked = []

    def plain(self, context, args, kws):
        asked.append(args)
        return None if types.float64 in args else (self, args, kws)

    monkeypatch.setattr(BaseFunction, "get_call_type", plain)
    monkeypatch.setattr(compiler, "_TYPED", {})
    first, second = object(), object()
    with compiler.calls_typed_once():
        for function in (first, first, second):
            for kind in (types.int64, types.float64):
                found = BaseFunction.get_call_type(function, None, [kind], {})
                assert found == (None if kind == types.float64 else (function, [kind], {}))
    assert len(asked) == 2 + 3
