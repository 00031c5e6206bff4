"""Models whose parameters are spread over ranks: FSDP2, tensor parallelism, both; the numbers are those of one process.

Processes of one group run all cases, one after the other, and keep what they saw; tests read that.
"""

import contextlib
import os
import time
from datetime import timedelta

import pytest

torch = pytest.importorskip("torch", reason="weights are of torch")
pytest.importorskip("torch.distributed.tensor", reason="a build of torch without torch.distributed")

from lanes import thinned  # noqa: E402
from torch import nn  # noqa: E402
from vitals_models import NoWaiting, joined, started  # noqa: E402

from dataaudit.base.errors import ConfigError  # noqa: E402
from dataaudit.vitals import sharding  # noqa: E402
from dataaudit.vitals.config import VitalsConfig  # noqa: E402
from dataaudit.vitals.sinks import MemorySink  # noqa: E402
from dataaudit.vitals.structure import Mapping  # noqa: E402
from dataaudit.vitals.vitals import Vitals  # noqa: E402

pytestmark = pytest.mark.vitals
WIDTH, HEADS, LENGTH, VOCAB = 32, 4, 12, 61
STEPS, MICRO = 20, 2
MAPPING = Mapping(layers="blocks", attention="attention", heads=HEADS, mlp="mlp", embedding="embedding")
LOCAL = (
    "max_attn_logit", "attn_entropy", "dead_head_rate", "activation_mean_abs", "residual_rms",
    "activation_outlier_rate", "dead_neuron_count", "activation_kurtosis", "massive_activation", "attn_sink_share",
    "q_norm", "k_norm",
)  # fmt: skip
SUMMED = {
    "layer_std", "grad_norm", "update_to_weight", "grad_to_weight", "opt_state_finite", "gsnr",
    "direction_consistency", "grad_noise_scale", "nan_inf_events", "skipped_updates", "gradient_spike_score",
}  # fmt: skip
"""Metrics whose numbers are added up over ranks."""
NOISE = ("direction_consistency", "grad_noise_scale")


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (item(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for item in (self.q, self.k, self.v))
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first_norm, self.second_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 48), nn.SiLU(), nn.Linear(48, WIDTH))
        self.gain = nn.Parameter(torch.ones(1))  # whole on the first of two ranks, empty on the second

    def forward(self, x):
        x = x + self.gain * self.attention(self.first_norm(x))
        return x + self.mlp(self.second_norm(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.blocks = nn.Embedding(VOCAB, WIDTH), nn.ModuleList(Block() for _ in range(2))
        self.split, self.norm, self.head = nn.Identity(), nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(self.split(x)))


def made(way=None):
    """Return a model with fixed weights, sharded over all ranks in some way; and how its batch is split."""
    torch.manual_seed(3)
    model = Model()
    if way is None:
        return model, 1, 0
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor import parallel as of

    ranks = torch.distributed.get_world_size()
    sizes = {"both": (ranks // 2, 2), "hybrid": (2, ranks // 2)}.get(way, (ranks,))
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("data", "other")[: len(sizes)])
    data, other = (mesh["data"], mesh["other"]) if way == "both" else (mesh, mesh)
    if way in {"tensor", "both"}:
        columns, rows = of.ColwiseParallel, of.RowwiseParallel
        plan = {f"attention.{name}": columns() for name in "qkv"} | {"attention.out": rows(), "mlp.0": columns()}
        for block in model.blocks:
            of.parallelize_module(block, other, {**plan, "mlp.2": rows()})
        split = of.PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(1))
        whole = columns(input_layouts=Shard(1), output_layouts=Replicate())
        # the last norm's gradient is a sum over ranks yet (Partial) when the optimizer gets it
        of.parallelize_module(model, other, {"split": split, "norm": of.SequenceParallel(), "head": whole})
    if way != "tensor":
        for block in model.blocks:
            fully_shard(block, mesh=data)
        fully_shard(model, mesh=data)
    parts = {"tensor": 1, "both": ranks // 2}.get(way, ranks)
    return model, parts, torch.distributed.get_rank() * parts // ranks


def tokens_of(step, micro):
    """Return a batch of four rows."""
    return torch.randint(VOCAB, (4, LENGTH), generator=torch.Generator().manual_seed(100 * step + micro))


def train(way=None, *, kind="AdamW", steps=STEPS, watched=True, rows=None, config=None, during=None, backend=None):
    """Train a little; return what was seen, and everything whose bits must not change."""
    model, parts, here = made(way)
    options = {"AdamW": {"weight_decay": 0.1}, "SGD": {"momentum": 0.9}}.get(kind, {})
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-3, foreach=False, **options)
    sink, vitals = MemorySink(), None
    if watched:
        # a run that may adapt begins with a step in which all is measured
        settings = {"adapt": steps < STEPS, "interval": 1, "window": 4, **(config or {})}
        vitals = Vitals(model, optimizer, VitalsConfig(mapping=MAPPING, **settings), [sink])
    run = model if backend is None else torch.compile(model, backend=backend)
    losses = []
    for step in range(1, steps + 1):
        with vitals.step() if vitals else contextlib.nullcontext():
            if during is not None:
                during(step, vitals, model)
            for micro in range(MICRO):
                tokens = tokens_of(step, micro)
                tokens = tokens.chunk(parts)[here] if rows is None else tokens[rows]
                logits = run(tokens)
                loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()) / MICRO
                loss.backward()
                losses.append(loss.item())
            optimizer.step()
            optimizer.zero_grad()
    found = {"losses": losses, "weights": [sharding.local(item).detach().clone() for item in model.parameters()]}
    if vitals is not None:
        vitals.close()
        found |= {"metrics": vitals.summary()["metrics"], "sharded": vitals.summary()["found"].get("sharded")}
        found |= {"failures": dict(vitals.failures), "values": {row[:5]: row[5] for row in sink.values}}
        found["events"] = [event[1:] for event in sink.events if event[1] not in {"vitals", "coverage"}]
    return found


def slowly(step, vitals, model):
    """Have a rank be slow, and measure closely after an alarm of its own."""
    if torch.distributed.get_rank() == 1:
        time.sleep(0.02 * (step % 3))
        if step == 6:
            vitals.escalate(5)


def failing(step, vitals, model):
    """Have a hook of a rank fail in a step, and the beginning of another step."""
    if torch.distributed.get_rank() == 1:
        vitals._weights._finite[0].some_bad = (
            None if step == 2 else type(vitals._weights._finite[0]).some_bad.__get__(vitals._weights._finite[0])
        )
        vitals._hooks.start = None if step == 3 else type(vitals._hooks).start.__get__(vitals._hooks)


def without_waiting(step, vitals, model):
    """Reject what would wait for a device, in what reads shards and adds them up."""
    batches = vitals._micro_batches
    for owner, name in ((vitals, "_add_up"), (vitals._weights, "_see"), (batches, "_end_pass")):
        call = getattr(type(owner), name).__get__(owner)

        def within(*args, call=call, **named):
            with NoWaiting():
                call(*args, **named)

        setattr(owner, name, within)


def replicas(step, vitals, model):
    """Compare replicas, of which a rank has a wrong bit from the second step on."""
    if step == 2 and torch.distributed.get_rank() == 1:
        with torch.no_grad():
            sharding.local(model.norm.weight).view(torch.int32)[0] ^= 1
    vitals.check_replicas()


def not_everywhere(way):
    """Return what a rank reports that alone makes vitals."""
    if torch.distributed.get_rank() == 0:
        sharding.WAITS = timedelta(seconds=1)
        try:
            train(way, steps=0)
        except ConfigError as error:
            return str(error)
        finally:
            sharding.WAITS = timedelta(minutes=5)
    else:
        made(way)
        next(sharding._NUMBERS)
    return ""


def refused(way):
    """Return why replicas are not compared."""
    with contextlib.suppress(AttributeError):
        try:
            train(way, steps=1, during=lambda _, vitals, __: vitals.check_replicas())
        except ConfigError as error:
            return str(error)
    return ""


TWO = {
    "fsdp": lambda: train("fsdp"),
    "fsdp without": lambda: train("fsdp", watched=False),
    "fsdp SGD": lambda: train("fsdp", kind="SGD", steps=9),
    "fsdp RMSprop": lambda: train("fsdp", kind="RMSprop", steps=9),
    "tensor": lambda: train("tensor"),
    "tensor without": lambda: train("tensor", watched=False),
    "replicated": lambda: train("hybrid", steps=2),
    "slow": lambda: train("fsdp", steps=24, config={"adapt": True}, during=slowly),
    "failing": lambda: train("fsdp", steps=4, config={"adapt": False}, during=failing),
    "failing without": lambda: train("fsdp", steps=4, watched=False),
    "no waiting": lambda: train("fsdp", steps=2, during=without_waiting),
    "refused": lambda: refused("fsdp"),
    "alone": lambda: not_everywhere("fsdp"),
}
FOUR = {
    "both": lambda: train("both", steps=3),
    "both without": lambda: train("both", steps=3, watched=False),
    "hybrid": lambda: train("hybrid", steps=3, during=replicas),
}
COMPILED = {
    "aot_eager": lambda: train("fsdp", steps=3, backend="aot_eager"),
    "aot_eager without": lambda: train("fsdp", steps=3, backend="aot_eager", watched=False),
}
DEAD = {"dead": lambda: train("fsdp", during=lambda step, *_: os._exit(7) if step == 3 and is_second() else None)}
CASES = {"two": TWO, "four": FOUR, "compiled": COMPILED, "dead": DEAD}


def is_second():
    return torch.distributed.get_rank() == 1


def worker(rank, which, folder):
    found = {}
    for name, case in CASES[which].items():
        begun = time.perf_counter()
        found[name] = case()
        print(rank, name, round(time.perf_counter() - begun, 1), flush=True)
        torch.distributed.barrier()
    torch.save(found, f"{folder}/{which}{rank}.pt")


def begun(which, ranks, folder):
    """Begin all processes of a group."""
    return started(worker, which, folder, ranks=ranks, waits=timedelta(seconds=30))


def ended(workers, which, folder):
    """Return what each rank saw."""
    joined(workers)
    return [torch.load(f"{folder}/{which}{rank}.pt", weights_only=False) for rank in range(len(workers))]


@pytest.fixture(scope="module")
def whole():
    """What one process sees: all rows, or those of a rank alone in a first step."""
    found = {kind: train(kind=kind, steps=steps) for kind, steps in (("AdamW", STEPS), ("SGD", 9), ("RMSprop", 9))}
    halves = [[0, 1], [2, 3]]
    return found | {"first": train(steps=1), "rows": [train(rows=rows, steps=1) for rows in halves]}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    return ended(begun("two", 2, folder), "two", folder)


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    folder = tmp_path_factory.mktemp("four")
    return ended(begun("four", 4, folder), "four", folder)


def same_weights(found, expected, *, noise, steps):
    """Assert that numbers of weights and gradients are those of one process, on every rank."""
    wanted = {key: value for key, value in expected["values"].items() if key[1] in SUMMED and key[0] <= steps}
    if not noise:
        wanted = {key: value for key, value in wanted.items() if key[1] not in NOISE and key[4] != "step"}
    assert {"layer_std", "grad_norm", "update_to_weight", "opt_state_finite"} <= {key[1] for key in wanted}
    for rank in found:
        assert wanted.keys() <= rank["values"].keys(), wanted.keys() - rank["values"].keys()
        for key, value in wanted.items():
            cancels = key[1] in {*NOISE, "gsnr"}  # nearly all of the noise does, and of the proxy
            near = {"rel": 1e-4, "abs": 1e-5} if cancels else {"rel": 1e-4 if key[0] > 1 else 1e-6, "abs": 1e-12}
            assert rank["values"][key] == pytest.approx(value, **near), key
        assert not rank["failures"], rank["failures"]


def test_fsdp_shows_what_one_process_shows(two, whole):
    found = [rank["fsdp"] for rank in two]
    same_weights(found, whole["AdamW"], noise=False, steps=STEPS)
    for kind in ("SGD", "RMSprop"):
        same_weights([rank[f"fsdp {kind}"] for rank in two], whole[kind], noise=False, steps=9)
    assert any(key[1] == "gradient_spike_score" for key in found[0]["values"])
    states = found[0]["metrics"]
    reason = "not_applicable: FSDP reduces gradients over ranks within each backward pass"
    assert {name for name in SUMMED & states.keys() if states[name] != "ok"} == {"direction_consistency"}, states
    assert states["direction_consistency"].startswith(reason)
    assert two[0]["fsdp SGD"]["metrics"]["gsnr"].startswith(reason)
    assert found[0]["sharded"].startswith("parameters are sharded over 2 ranks")


def test_under_fsdp_noise_is_known_from_sums_of_passes(two):
    """The first pass, and all of them: the same from gradients that autograd gives in float64."""
    model, _, _ = made()
    model, means, wanted = model.double(), torch.zeros(2, dtype=torch.float64), {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    for step in range(1, STEPS + 1):
        passes = []
        for micro in range(MICRO):
            tokens = tokens_of(step, micro)
            loss = nn.functional.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()) / MICRO
            passes.append(torch.autograd.grad(loss, list(model.parameters())))
        for item, *gradients in zip(model.parameters(), *passes, strict=True):
            item.grad = sum(gradients)
        one, mean = (
            sum(item.square().sum() for item in own) for own in (passes[0], [p.grad / 2 for p in model.parameters()])
        )
        if step % 16:  # the bare ones
            means = 0.95 * means + 0.05 * torch.stack([2 * mean - one, 2 * (one - mean)])
            wanted[step] = (means[1] / means[0]).item()
        optimizer.step()
    for rank in two:
        found = {
            key[0]: value
            for key, value in rank["fsdp"]["values"].items()
            if key[1:] == ("grad_noise_scale", -1, -1, "ema")
        }
        assert len(found) > 5
        for step, value in found.items():
            assert value == pytest.approx(wanted[step], rel=1e-2), step


def test_under_fsdp_heads_and_activations_are_those_of_the_ranks_own_rows(two, whole):
    for rank, alone in zip(two, whole["rows"], strict=True):
        wanted = {key: value for key, value in alone["values"].items() if key[1] in LOCAL}
        assert len({key[1] for key in wanted}) == 11
        for key, value in wanted.items():
            assert rank["fsdp"]["values"][key] == pytest.approx(value, rel=1e-6, abs=1e-7), key
    assert two[0]["fsdp"]["values"] != two[1]["fsdp"]["values"]


def test_tensor_parallel_shows_what_one_process_shows(two, whole):
    found = [rank["tensor"] for rank in two]
    same_weights(found, whole["AdamW"], noise=True, steps=STEPS)
    assert {found[0]["metrics"][name] for name in SUMMED - {"skipped_updates"}} == {"ok"}
    everywhere = {key for key in whole["AdamW"]["values"] if key[1] in LOCAL}
    for key in everywhere:
        here = [rank["values"][key] for rank in found if key in rank["values"]]
        value = whole["AdamW"]["values"][key]
        if key[3] >= 0:  # two heads on each rank, with the numbers of the whole model
            assert len(here) == 1
        elif key[4] == "final_norm":  # half of the rows on each rank
            here = [sum(here) / 2]
        if key[1] not in {"dead_neuron_count", "dead_head_rate"}:
            assert here == pytest.approx([value] * len(here), rel=2e-4, abs=1e-6), key
    assert {key[3] for key in found[1]["values"] if key[1] == "attn_entropy" and key[3] >= 0} == {2, 3}


def test_training_is_the_same_with_and_without_it(two, four):
    for ranks, name in ((two, "fsdp"), (two, "tensor"), (two, "failing"), (four, "both")):
        for rank in ranks:
            assert rank[name]["losses"] == rank[f"{name} without"]["losses"]
            pairs = zip(rank[name]["weights"], rank[f"{name} without"]["weights"], strict=True)
            assert all(torch.equal(item, other) for item, other in pairs)
    assert two[0]["fsdp"]["losses"] != two[1]["fsdp"]["losses"]


@pytest.mark.parametrize("which", thinned(["compiled"], few=[]))
def test_a_compiled_model_shows_and_trains_the_same(which, two, tmp_path):
    for rank, eager in zip(ended(begun(which, 2, tmp_path), which, tmp_path), two, strict=True):
        seen, plain = rank["aot_eager"], rank["aot_eager without"]
        assert seen["losses"] == plain["losses"]
        assert all(torch.equal(*pair) for pair in zip(seen["weights"], plain["weights"], strict=True))
        assert not seen["failures"]
        local = {key for key in seen["values"] if key[1] in LOCAL}
        assert {key[1] for key in local} >= {"attn_entropy", "residual_rms"}
        for key in local:
            assert seen["values"][key] == pytest.approx(eager["fsdp"]["values"][key], rel=1e-5, abs=1e-7), key


def test_a_mesh_of_two_dimensions_counts_each_replica_once(four, two, whole):
    for name, ranks in (("both", four), ("hybrid", four), ("replicated", two)):
        same_weights([rank[name] for rank in ranks], whole["first"], noise=False, steps=1)
    assert {key[3] for key in four[1]["both"]["values"] if key[1] == "attn_entropy" and key[3] >= 0} == {2, 3}
    differ = {key[0]: value for key, value in four[0]["hybrid"]["values"].items() if key[1] == "replica_checksum"}
    assert (differ[1], differ[2]) == (0, 1)  # rank 1 and its replica, rank 3, have the second shard


def test_ranks_measure_at_the_same_steps_whatever_their_clocks_and_alarms_say(two):
    values = [rank["slow"]["values"] for rank in two]
    weights = [{key: item for key, item in own.items() if key[1] == "grad_norm"} for own in values]
    assert weights[0] == weights[1]
    assert {key[0] for key in weights[0]} <= {1, 8, 9, 16, 17, 24}
    heads = [{key[0] for key in own if key[1] == "attn_entropy"} for own in values]
    assert heads[1] - heads[0] >= {7, 10, 11}


def test_a_failure_on_one_rank_costs_the_steps_numbers_on_all_and_stops_nobody(two):
    for rank in two:
        steps = {
            key[0] for key in rank["failing"]["values"] if key[1] == "gradient_spike_score" or key[1] == "grad_norm"
        }
        assert not steps & {2, 3}
        assert not any(event[0] == "nan_inf" for event in rank["failing"]["events"])
    assert not two[0]["failing"]["failures"]
    assert two[1]["failing"]["failures"]


def test_no_operator_waits_for_a_device(two):
    for rank in two:
        assert not rank["no waiting"]["failures"], rank["no waiting"]["events"]
        assert (1, "grad_norm", 0, -1, "at_step") in rank["no waiting"]["values"]


def test_what_needs_all_ranks_says_so(two):
    assert "none has a replica" in two[0]["refused"]
    assert two[0]["alone"].startswith("vitals: rank 1 made none within 1 s")


def test_a_rank_that_dies_does_not_keep_the_others(tmp_path):
    first, second = workers = begun("dead", 2, tmp_path)
    for item in workers:
        item.join(90)
    assert second.exitcode == 7
    assert first.exitcode not in {0, None}


def test_the_first_fsdp_is_refused():
    class FullyShardedDataParallel(Model):
        pass

    with pytest.raises(ConfigError, match="flat parts"):
        Vitals(FullyShardedDataParallel(), config=VitalsConfig(mapping=MAPPING))


def test_other_families_have_a_reason():
    assert sharding.why_not(Model().parameters()) is None
