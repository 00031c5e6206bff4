"""Faults as they are planted: gradients against explicit attention, bits against NumPy, healthy steps untouched."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from lab_runs import SIZE  # noqa: E402

from dataaudit.lab.model import Run, Text  # noqa: E402
from dataaudit.lab.rounding import cut, passed_on, read_back, shifted  # noqa: E402
from dataaudit.lab.scenarios import FAULTS, SCENARIOS  # noqa: E402

pytestmark = pytest.mark.torch


def explicit(q, k, v, grad, stored, bias):
    """Return gradients of queries, keys and values, as FlashAttention's backward pass makes them, in float64."""
    scale = q.shape[-1] ** -0.5
    logits = (q @ k.transpose(-1, -2) * scale).masked_fill(
        torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1), -torch.inf
    )
    shares = logits.softmax(-1)
    output = shares @ v
    delta = (grad * stored(output)).sum(-1, keepdim=True) - bias * (grad * output).abs().sum(-1, keepdim=True)
    of_logits = shares * (grad @ v.transpose(-1, -2) - delta)
    return of_logits @ k * scale, of_logits.transpose(-1, -2) @ q * scale, shares.transpose(-1, -2) @ grad


@pytest.mark.parametrize("bias", [0.0, 0.01])
@pytest.mark.parametrize("store", [lambda out: out, lambda out: 1.25 * out], ids=["as it is", "too large"])
def test_the_backward_pass_reads_what_was_stored(store, bias):
    torch.manual_seed(0)
    q, k, v, grad = (torch.randn(2, 3, 7, 4, dtype=torch.float64) for _ in range(4))
    leaves = [item.clone().requires_grad_() for item in (q, k, v)]
    mixed = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
    read_back(store, bias)(mixed, *leaves[:2]).backward(grad)
    for leaf, wanted in zip(leaves, explicit(q, k, v, grad, store, bias), strict=True):
        assert torch.allclose(leaf.grad, wanted, atol=1e-12)


def test_cut_numbers_lie_below_and_random_ones_are_right_in_the_mean():
    torch.manual_seed(1)
    values = torch.randn(20_000)
    low = cut(values, 7, biased=True)
    assert (low <= values).all()
    assert torch.equal(low, cut(low, 7, biased=True))
    assert ((values - low) <= 2.0**-7 * values.abs() * 1.01).all()
    drift = (cut(values, 4, biased=False) - values).mean() / values.std()
    assert abs(drift) < 1e-3 < abs((cut(values, 4, biased=True) - values).mean() / values.std())


def test_a_shift_of_128_units_doubles_a_bfloat16():
    values = torch.tensor([1.0, -3.0, 0.15625])
    assert torch.equal(shifted(values, 128), 2 * values)
    assert torch.equal(shifted(values, 1).view(torch.int32) - values.view(torch.int32), torch.full((3,), 1 << 16))


def test_what_is_passed_on_is_rounded_and_its_gradient_is_exact():
    mixed = torch.randn(1, 1, 3, 4, requires_grad=True)
    out = passed_on(lambda values: cut(values, 2, biased=True))(mixed, mixed, mixed)
    out.sum().backward()
    assert not torch.equal(out, mixed)
    assert torch.equal(mixed.grad, torch.ones_like(mixed))


def test_every_fault_of_the_file_is_known_and_changes_a_run():
    text = Text.load()
    assert {name for item in SCENARIOS for name in item.faults} == FAULTS.keys()
    for item in SCENARIOS:
        losses = []
        for planted in (False, True):
            run = Run(5, text, SIZE, sparse=item.model == "experts", delta=16)
            for step in range(6):
                if planted and step >= 2:
                    item.plant(run, step - 2)
                run.step()
            run.vitals.close()
            losses.append((run.losses[:2], [*run.losses, *run.norms]))
        assert losses[0][0] == losses[1][0], item.name
        assert (losses[0][1] == losses[1][1]) == (not item.faults), item.name


def test_a_fault_that_is_withdrawn_leaves_rate_rows_and_attention_as_they_were():
    run = Run(5, Text.load(), SIZE, sparse=True, delta=16)
    for item in SCENARIOS:
        item.plant(run, 0)
    run.withdraw()
    assert [group["lr"] for group in run.optimizer.param_groups] == [SIZE.rate] * 2
    assert (run.rows, run.spoilt) == (SIZE.rows, 0.0)
    assert all(block.attention.fault is None for block in run.model.blocks)
    run.vitals.close()


def test_a_run_that_goes_on_from_another_has_its_bits():
    text = Text.load()
    whole, begun = (Run(7, text, SIZE, sparse=True, delta=16) for _ in range(2))
    for _ in range(4):
        begun.step()
    rest = begun.branch()
    for _ in range(8):
        whole.step()
    for _ in range(4):
        rest.step()
    assert rest.losses == whole.losses
    assert rest.norms == whole.norms
    for run in (whole, begun, rest):
        run.vitals.close()


def test_monitors_change_no_bit_of_a_run():
    losses = []
    for watched in (True, False):
        run = Run(3, Text.load(), SIZE, sparse=False, delta=16)
        if not watched:
            run.vitals.close()
            run.vitals = SimpleNamespace(step=nullcontext, close=bool)
        for _ in range(6):
            run.step()
        losses.append(run.losses + run.norms)
        run.vitals.close()
    assert losses[0] == losses[1]


def test_a_text_has_a_digest_and_rows_of_neighbours(tmp_path):
    file = tmp_path / "own.txt"
    file.write_bytes(b"abcdefghij" * 6_000 + "é".encode())
    text = Text.load(file)
    rows = text.rows(np.random.default_rng(0), 4, 11)
    assert rows.shape == (4, 11)
    assert (rows[:, 0] == rows[:, 10]).all()
    assert text.tokens.max() < 128
    assert text.digest != Text.load().digest
