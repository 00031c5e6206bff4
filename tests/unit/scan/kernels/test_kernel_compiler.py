"""What numba is spared when it compiles kernels changes no number, and concerns kernels alone."""

import numba
import numpy as np
import pytest
from numba import types
from numba.core.typing import Context

from dataaudit.scan.kernels import compiler, jit

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
    helper = jit.cold(_power)
    monkeypatch.setitem(globals(), "_power", helper)
    monkeypatch.setattr(jit, "cache_folder", lambda: None)
    return jit.Kernel(_sum, NUMBERS), helper


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


def test_what_a_program_of_the_user_compiles_is_not_ours(kernels):
    """Also after a kernel that could not be compiled."""
    with pytest.raises(Exception, match="int64"):
        jit.Kernel(lambda text: text.nothing, "int64(int64)").load()
    kernel, _ = kernels
    kernel.load()
    plain = numba.njit(_power.function)
    assert plain(2.0, 3) == 8.0
    assert type(plain.targetdescr.typing_context) is Context
    assert plain._compiler.pipeline_class is not compiler.KernelCompiler


def test_a_call_is_typed_once_and_one_that_failed_again(monkeypatch):
    """The same function and types have the same signature; a helper is asked for numbers in place of literals."""
    asked = []

    def plain(self, func, args, kws):
        asked.append(args)
        return None if types.float64 in args else (func, args, kws)

    monkeypatch.setattr(Context, "resolve_function_type", plain)
    monkeypatch.setattr(compiler, "_SIGNATURES", {})
    context = compiler._Types.of(Context())
    first, second = object(), object()
    for function in (first, first, second):
        for kind in (types.int64, types.float64):
            found = context.resolve_function_type(function, (kind,), {})
            assert found == (None if kind == types.float64 else (function, (kind,), {}))
    assert len(asked) == 2 + 3
    of_helper = types.Dispatcher(numba.njit(_power))
    assert context.resolve_function_type(of_helper, (types.literal(3),), {})[1] == (types.int64,)
