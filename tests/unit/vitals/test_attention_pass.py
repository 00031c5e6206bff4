"""Statistics of all rows against float64 over the whole matrix, and against the rows computed one by one."""

import os
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="statistics of attention are of torch")

from attention_cases import SHAPES, hold, made, naive  # noqa: E402

from dataaudit.vitals.attention import Scores, attention_rows, sample_rows  # noqa: E402
from dataaudit.vitals.attention_pass import attention_pass, pass_statistics, why_no_pass  # noqa: E402

pytestmark = pytest.mark.vitals
MASKS = ["none", "causal", "bool", "added", "both"]
SINKS = torch.tensor([0.5, -1.0, 3.0, 20.0, -30.0, 0.0])


@pytest.mark.parametrize("masked", MASKS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [0.3, 1.0, 4.0])
def test_the_fused_pass_is_within_its_bound(shape, dtype, masked, size):
    query, key, visible, given = made(shape, dtype, masked, size)
    scale = shape[-1] ** -0.5
    hold(attention_pass(query, key, Scores(scale=scale, **given)), naive(query, key, scale, visible), visible)


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("window", [None, 1, 5, 100])
@pytest.mark.parametrize("masked", ["causal", "both"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_windows_and_sinks_are_in_the_fused_pass(dtype, masked, window, sinks):
    query, key, visible, given = made((2, 4, 2, 19, 19, 8), dtype, masked, 1.5)
    if window is not None:
        visible &= torch.arange(19) > torch.arange(19)[:, None] - window
    held = SINKS[:4] if sinks else None
    found = attention_pass(query, key, Scores(scale=0.3, window=window, sinks=held, **given))
    hold(found, naive(query, key, 0.3, visible, sinks=held), visible)
    exact = attention_rows(query, key, Scores(scale=0.3, window=window, sinks=held, **given))
    assert not ((found.lse - exact.lse).abs() > found.lse_bound + exact.lse_bound).any()
    if sinks:  # a sink of each row
        rows = held[:, None, None].expand(2, 4, 19, 1)
        again = attention_pass(query, key, Scores(scale=0.3, window=window, sinks=rows, **given))
        assert torch.equal(again.entropy.nan_to_num(-1), found.entropy.nan_to_num(-1))


def test_where_there_is_no_pass_it_says_why():
    query = torch.zeros(1, 1, 2, 4)
    assert why_no_pass(torch.device("cpu"), None) is None
    with pytest.raises(ValueError, match="no softcap"):
        attention_pass(query, query, Scores(scale=1.0, softcap=3.0))
    with pytest.raises(ValueError, match="no source was compared on meta"):
        attention_pass(query.to("meta"), query.to("meta"), Scores(scale=1.0))


def test_centred_keys_keep_the_pass_near_where_keys_have_a_mean():
    scale = 0.25
    for dtype, most in ((torch.float32, 1e-5), (torch.bfloat16, 0.02)):
        query, key, visible, _ = made((1, 4, 4, 64, 64, 16), dtype, "none", 1.0, offset=8.0)
        entropy = naive(query, key, scale, visible)[2]
        off = np.abs(attention_pass(query, key, Scores(scale=scale)).entropy.numpy() - entropy).max()
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
    found, exact = (
        attention_pass(query, key, Scores(scale=0.3, mask=bias)),
        attention_rows(query, key, Scores(scale=0.3, mask=bias)),
    )
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
    some = attention_rows(query, key, Scores(scale=0.25, **given), chosen)
    every = attention_pass(query, key, Scores(scale=0.25, **given))
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


RUN_KERNEL = """
from gpu.kernel import SETS, cases, compare
for dtype, few in ((dtype, few) for dtype in ("float32", "bfloat16", "float16") for few in SETS):
    print(dtype, few, *compare(list(cases(dtype, few)), "cpu"), sep=": ")
"""


def test_the_online_kernel_is_exact_in_float32():
    """By Triton's interpreter, in a process of its own, which it has to be; on a GPU by `make gpu-check`."""
    pytest.importorskip("triton", reason="the kernel is Triton's")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", RUN_KERNEL]
    done = subprocess.run(command, check=False, env=environment, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 9


COMPILE_KERNEL = """
import sys, torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from dataaudit.vitals import attention_triton
from dataaudit.vitals.attention import Scores
class Driver:
    def get_current_target(self): return GPUTarget("cuda", 90, 32)
    def get_current_device(self): return 0
    def get_current_stream(self, _device): return 0
driver.set_active(Driver())
compiled = []
def compile_only(kernel):
    run = kernel.run
    kernel.run = lambda *given, warmup, **named: compiled.append(run(*given, warmup=True, **named))
compile_only(attention_triton._online)
compile_only(attention_triton._summed)
def held(*shape, dtype=getattr(torch, sys.argv[1])): return torch.empty(shape, dtype=dtype, device="meta")
query, key, mask = held(1, 4, 70, 64), held(1, 2, 70, 64), held(1, 1, 70, 70, dtype=torch.bool)
scores = Scores(scale=0.3, mask=mask, causal=True, window=9, softcap=2.0)
attention_triton.online_pass(query, key, scores)
attention_triton.write_sampled(held(4, 12, dtype=torch.float32)[:, :7], query, key, scores, 7)
print([len(one.asm["cubin"]) > 0 for one in compiled])
"""


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_kernel_compiles_for_a_gpu_that_is_not_there(dtype, tmp_path):
    """Triton's interpreter takes what its compiler refuses, such as annotations of names that are not its own."""
    pytest.importorskip("triton", reason="the kernel is Triton's")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TRITON_CACHE_DIR": str(tmp_path),
    }
    command = [sys.executable, "-c", COMPILE_KERNEL, dtype]
    done = subprocess.run(command, check=False, env=environment, timeout=300, capture_output=True, text=True)
    assert done.stdout == "[True, True, True]\n", done.stderr
