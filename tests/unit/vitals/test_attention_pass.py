"""Statistics of all rows against float64 over the whole matrix, and against the rows computed one by one."""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="statistics of attention are of torch")

from attention_cases import SHAPES, made, naive  # noqa: E402

from dataaudit.vitals.attention import AttentionRows, attention_rows, sample_rows  # noqa: E402
from dataaudit.vitals.attention_pass import attention_pass, pass_statistics, why_no_pass  # noqa: E402

pytestmark = pytest.mark.torch
MASKS = ["none", "causal", "bool", "added", "both"]
SINKS = torch.tensor([0.5, -1.0, 3.0, 20.0, -30.0, 0.0])


def hold(found, true, visible):
    """Assert that statistics keep their bounds, and hold no more than float32 and the dtype's rounding in them."""
    largest, lse, entropy = true
    known = ~np.isnan(entropy)
    assert (found.keys.numpy() == visible.sum(-1).numpy()).all()
    assert (np.isnan(found.entropy.numpy()) == ~known).all()
    assert (np.abs(found.entropy.numpy() - entropy) <= found.bound.numpy())[known].all()
    slack = found.lse_bound.numpy()
    assert (np.abs(found.lse.numpy() - lse) <= slack)[known].all()
    assert (found.lowest_max.numpy() - slack <= largest)[known].all()
    assert (largest <= found.highest_max.numpy() + slack)[known].all()
    assert not (slack > 2**-13 + 1e-3).any()


@pytest.mark.parametrize("masked", MASKS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [0.3, 1.0, 4.0])
def test_the_fused_pass_is_within_its_bound(shape, dtype, masked, size):
    query, key, visible, given = made(shape, dtype, masked, size)
    scale = shape[-1] ** -0.5
    hold(attention_pass(query, key, scale=scale, **given), naive(query, key, scale, visible), visible)


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("window", [None, 1, 5, 100])
@pytest.mark.parametrize("masked", ["causal", "both"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_windows_and_sinks_are_in_the_fused_pass(dtype, masked, window, sinks):
    query, key, visible, given = made((2, 4, 2, 19, 19, 8), dtype, masked, 1.5)
    if window is not None:
        visible &= torch.arange(19) > torch.arange(19)[:, None] - window
    held = SINKS[:4] if sinks else None
    found = attention_pass(query, key, scale=0.3, window=window, sinks=held, **given)
    hold(found, naive(query, key, 0.3, visible, sinks=held), visible)
    exact = attention_rows(query, key, scale=0.3, window=window, sinks=held, **given)
    assert not ((found.lse - exact.lse).abs() > found.lse_bound + exact.lse_bound).any()


def test_where_there_is_no_pass_it_says_why():
    query = torch.zeros(1, 1, 2, 4)
    assert why_no_pass(torch.device("cpu"), None) is None
    with pytest.raises(ValueError, match="no softcap"):
        attention_pass(query, query, scale=1.0, softcap=3.0)
    with pytest.raises(ValueError, match="no source was compared on meta"):
        attention_pass(query.to("meta"), query.to("meta"), scale=1.0)


def test_centred_keys_keep_the_pass_near_where_keys_have_a_mean():
    scale = 0.25
    for dtype, most in ((torch.float32, 1e-5), (torch.bfloat16, 0.02)):
        query, key, visible, _ = made((1, 4, 4, 64, 64, 16), dtype, "none", 1.0, offset=8.0)
        entropy = naive(query, key, scale, visible)[2]
        off = np.abs(attention_pass(query, key, scale=scale).entropy.numpy() - entropy).max()
        assert off <= most
    weights = (scale * query.float() @ key.float().transpose(-1, -2)).softmax(-1)
    plain = (weights.to(dtype) @ key).float()
    lse = naive(query, key, scale, visible)[1]
    uncentred = lse - scale * (query.float() * plain).sum(-1).numpy()
    assert np.abs(uncentred - entropy).max() > 3 * off


def test_a_bias_is_in_rows_and_makes_the_pass_say_nothing():
    query, key, _, _ = made((2, 4, 2, 9, 9, 8), torch.float32, "none", 1.0)
    bias = torch.randn(2, 1, 9, 9, generator=torch.Generator().manual_seed(3))
    bias[0] = 0.0
    found, exact = attention_pass(query, key, scale=0.3, mask=bias), attention_rows(query, key, scale=0.3, mask=bias)
    logits = 0.3 * query.double() @ key.double().repeat_interleave(2, 1).transpose(-1, -2) + bias.double()
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    assert torch.allclose(exact.entropy.double(), entropy, atol=1e-5)
    assert torch.allclose(found.entropy[0].double(), entropy[0], atol=1e-5)
    for one in (found.entropy, found.lse, found.highest_max, found.lowest_max, found.bound):
        assert one[1].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_numbers_of_a_head_bracket_those_of_all_rows_and_a_source_that_is_off_says_nothing(dtype):
    query, key, visible, given = made((2, 4, 2, 40, 40, 16), dtype, "both", 2.0)
    largest, _, entropy = naive(query, key, 0.25, visible)
    chosen = sample_rows(40, 7)
    some = attention_rows(query, key, scale=0.25, rows=chosen, **given)
    every = attention_pass(query, key, scale=0.25, **given)
    lower, upper, mean, bound, off = pass_statistics(every, some, chosen).numpy().T
    assert (lower <= np.nanmax(largest, (0, 2))).all()
    assert (upper >= np.nanmax(largest, (0, 2))).all()
    assert (np.abs(mean - np.nanmean(entropy, (0, 2))) <= bound).all()
    assert (off == 0).all()
    for name, shift in (("lse", 0.01), ("entropy", 1.0 if dtype == torch.bfloat16 else 0.01), ("highest_max", -9.0)):
        moved = {field: getattr(every, field) for field in every.__slots__}
        moved[name] = moved[name].clone()
        moved[name][:, 2, chosen[3]] += shift
        wrong = pass_statistics(type(every)(**moved), some, chosen)
        assert wrong[:, 4].tolist() == [0, 0, 1, 0]
        assert wrong[2, :4].isnan().all()
        assert wrong[[0, 1, 3]].isfinite().all()


def online_cases():
    """Return arguments of the online kernel, and what they mean."""
    found = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        shapes = [*SHAPES, (1, 2, 1, 70, 131, 24), (1, 2, 2, 130, 130, 64)]
        for shape, masked in product(shapes, MASKS):
            query, key, visible, given = made(shape, dtype, masked, 2.0)
            found.append((query, key, visible, None, {"scale": 0.3, **given}))
        query, key, visible, given = made((2, 4, 2, 90, 90, 8), dtype, "both", 1.5)
        near = visible & (torch.arange(90) > torch.arange(90)[:, None] - 9)
        bias = torch.randn(2, 4, 90, 90, generator=torch.Generator().manual_seed(1))
        found.append((query, key, near, None, {"scale": 0.3, "window": 9, **given}))
        found.append((query, key, near, None, {"scale": 0.3, "window": 9, "softcap": 2.0, **given}))
        found.append((query, key, torch.ones_like(visible), bias, {"scale": 0.3, "mask": bias}))
        apart = query.transpose(1, 2).contiguous().transpose(1, 2)
        found.append((apart, key, visible, None, {"scale": 0.3, **given}))
    return found


RUN_ONLINE = """
import sys
from itertools import product
import torch
from dataaudit.vitals.attention_triton import online_pass
device = "cuda" if torch.cuda.is_available() else "cpu"
def moved(one):
    return one.to(device) if isinstance(one, torch.Tensor) else one
found = []
for query, key, named in torch.load(sys.argv[1]):
    rows = online_pass(moved(query), moved(key), **{name: moved(one) for name, one in named.items()})
    found.append({name: getattr(rows, name).cpu() for name in rows.__slots__})
torch.save(found, sys.argv[2])
"""


def test_the_online_kernel_is_exact_in_float32(tmp_path):
    """On a GPU where there is one, otherwise by Triton's interpreter; in a process of its own, which it has to be."""
    pytest.importorskip("triton", reason="the kernel is Triton's")
    cases = online_cases()
    torch.save([(query, key, named) for query, key, _, _, named in cases], tmp_path / "given")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    if not torch.cuda.is_available():
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-c", RUN_ONLINE, str(tmp_path / "given"), str(tmp_path / "found")]
    subprocess.run(command, check=True, env=environment, timeout=300, cwd=Path(__file__).parent)
    for (query, key, visible, bias, named), held in zip(cases, torch.load(tmp_path / "found"), strict=True):
        found, scale = AttentionRows(**held), named["scale"]
        true = naive(query, key, scale, visible, bias=bias, softcap=named.get("softcap"))
        hold(found, true, visible)
        exact = attention_rows(query, key, **named)
        assert torch.equal(found.lowest_max.isnan(), exact.lowest_max.isnan())
        assert not ((found.highest_max - exact.highest_max).abs() > exact.lse_bound).any()
        assert not ((found.entropy - exact.entropy).abs() > exact.bound).any()
