"""Probes between and within steps of a model that vitals measure: no bit of the run, no value of vitals moves."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="vitals hook modules of torch")
from dataaudit.lab.model import Model, Size  # noqa: E402
from dataaudit.live import Probe, ProbeBatch  # noqa: E402
from dataaudit.probes import Frozen, ProbeModel, ProbeSuite, Tokenizer  # noqa: E402
from dataaudit.vitals import Mapping, MemorySink, Vitals, VitalsConfig  # noqa: E402

pytestmark = pytest.mark.torch
BYTES = Tokenizer.of_bytes(0)
SIZE = Size(experts=4, length=16)
STEPS = 9
PARTS = Mapping(layers="blocks", attention="attention", heads=4, mlp="mlp", router="mlp.router")


def trained(probe, *, within):
    """Return losses, weights and the last draw of a run, and the values of its vitals; probed after every step."""
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    model = Model(SIZE, sparse=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sink, losses = MemorySink(), []
    config = VitalsConfig(preset="nano", adapt=False, mapping=PARTS, sampled_rows=4, interval=2)
    with Vitals(model, optimizer, config, [sink]) as vitals:
        for step in range(1, STEPS + 1):
            ids = torch.from_numpy(draw.integers(0, 128, (4, 17)))
            with vitals.step():
                loss = torch.nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
                if within:
                    probe(model, step)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            if not within:
                probe(model, step)
            losses.append(loss.detach())
        assert vitals.failures == {}
    kept = [row for row in sink.values if row[1] not in {"vitals_ms", "vitals_cost"}]
    return [*losses, *model.state_dict().values(), torch.rand(3)], kept


def suite_step():
    """Return the cheap probes of a suite, as a call of a step."""
    draw = np.random.default_rng(1)
    batch = ProbeBatch.of_rows([draw.integers(0, 128, 16 - row) for row in range(3)], BYTES.digest)
    suite = ProbeSuite([Frozen(batch=batch)], every=1)

    def call(model, step):
        report = suite.step(ProbeModel(model, BYTES, context=16), step)
        assert suite.failures == []
        assert report.get("fixed_probe_loss").value > 1

    return call


def frozen_batch():
    """Return the probe of a frozen batch of the live run."""
    probe = Probe(ProbeBatch(np.random.default_rng(1).integers(0, 128, (3, 16))), every=1)
    return lambda model, step: probe.after_step(step, model)


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("make", [suite_step, frozen_batch])
def test_no_value_of_a_probe_enters_vitals_and_no_bit_of_the_run_moves(make, within):
    """Activations, heads, units and routers of the step are those of its own forward passes."""
    bits, values = trained(lambda model, step: None, within=within)
    own_bits, own_values = trained(make(), within=within)
    assert all(torch.equal(own, other) for own, other in zip(bits, own_bits, strict=True))
    assert {row[1] for row in values} >= {"residual_rms", "attn_entropy", "moe_util_entropy", "max_attn_logit"}
    different = {
        own[1]
        for own, other in zip(sorted(values, key=repr), sorted(own_values, key=repr), strict=True)
        if repr(own) != repr(other)
    }
    assert different == set()
