"""Spectra of weights: right in float64, in turn, late beside a device, and without a trace in the training."""

import json
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="vitals are of torch")
pytest.importorskip("transformers", minversion="5", reason="its models are of transformers 5")

import vitals_models as made  # noqa: E402
from torch import nn  # noqa: E402

from dataaudit.vitals import MemorySink, Vitals, VitalsConfig, spectra  # noqa: E402
from dataaudit.vitals.host_work import HostWork  # noqa: E402
from dataaudit.vitals.metrics.spectra import Spectra  # noqa: E402
from dataaudit.vitals.structure import find  # noqa: E402

pytestmark = pytest.mark.vitals
BY_NAME = {"spectral_norm": 0, "stable_rank": 2, "singular_entropy": 3}


def true_numbers(matrix):
    """The twin: from singular values of NumPy in float64, term by term."""
    values = np.linalg.svd(np.asarray(matrix, np.float64), compute_uv=False)
    shares = [value**2 / sum(values**2) for value in values]
    entropy = -sum(p * np.log(p) for p in shares if p > 0) / np.log(len(values)) if len(values) > 1 else np.nan
    return {
        "spectral_norm": values[0],
        "stable_rank": np.linalg.norm(np.asarray(matrix, np.float64), "fro") ** 2 / values[0] ** 2,
        "singular_entropy": entropy,
    }


def matrix_of(shape, dtype=torch.float32, seed=0):
    draw = torch.Generator().manual_seed(seed)
    made_up = torch.randn(shape, generator=draw, dtype=torch.float64) * torch.rand(shape[1], generator=draw)
    return made_up.to(dtype)


def tall(matrix):
    return matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(40, 40), (24, 96), (130, 31), (700, 500)])
def test_numbers_of_a_gram_are_those_of_singular_values_in_float64(shape, dtype, monkeypatch):
    monkeypatch.setattr(spectra, "_PIECES", {"cpu": 3_000})
    matrix = matrix_of(shape, dtype)
    own, vector = tall(matrix), np.zeros(min(shape), np.float32)
    found = spectra.solved(spectra.gram(own).numpy(), max(shape), vector)
    true = true_numbers(matrix.double().numpy())
    for name, at in BY_NAME.items():
        assert found[at] == pytest.approx(true[name], rel=1e-10)
    first = np.linalg.svd(own.double().numpy())[2][0]
    assert abs(first @ vector) == pytest.approx(1, abs=1e-6)
    numbers = spectra.power_iteration(own, torch.from_numpy(vector))  # from there it stays exact
    assert numbers[0].item() == pytest.approx(true["spectral_norm"], rel=2e-7)
    assert numbers[2].item() == pytest.approx(true["stable_rank"], rel=2e-6)
    assert numbers[1] < 1e-5 * numbers[0]


def test_degenerate_matrices_have_numbers_or_a_reason():
    vector = np.zeros(32, np.float32)
    assert np.isnan(spectra.solved(np.full((32, 32), np.nan), 32, vector)).all()
    assert spectra.solved(np.zeros((32, 32)), 32, vector)[:2] == (0.0, 0.0)
    one = np.outer(np.arange(1.0, 33), np.arange(1.0, 33))
    found = spectra.solved(one @ one, 32, vector)
    assert found[2] == pytest.approx(1)
    assert found[3] == pytest.approx(0, abs=1e-9)
    assert np.isnan(found[4])
    flat = spectra.solved(np.eye(32), 32, vector)
    assert flat[2:4] == pytest.approx((32, 1))
    start = torch.ones(32)
    for bad in (torch.zeros(40, 32), torch.full((40, 32), torch.nan)):
        spectra.power_iteration(bad, start)
        assert torch.allclose(start, torch.ones(32) / 32**0.5)  # a vector outlives what has no image


def test_a_singular_value_lies_within_the_bound_and_the_estimate_is_never_above():
    """300 estimates of 60 matrices, from cold vectors and from warm ones, whose matrix moves."""
    tight = []
    for seed in range(60):
        matrix = matrix_of((50 + seed, 20 + seed), seed=seed)
        vector = torch.randn(20 + seed, generator=torch.Generator().manual_seed(seed))
        for turn in range(5):
            moved = matrix + 0.01 * turn * matrix_of(matrix.shape, seed=999)
            sigma, bound, _ = spectra.power_iteration(moved, vector, passes=1 + turn).double().tolist()
            values = np.linalg.svd(moved.double().numpy(), compute_uv=False)
            assert np.abs(values - sigma).min() <= bound
            assert sigma <= values[0] * (1 + 1e-6)
            tight.append(bound / sigma)
    assert np.median(tight) < 0.1
    assert max(tight) > 0.05  # from a cold vector it is wide


def looked(model, steps, *, config=None, sink=None, before=None, state=None, work=None, lr=1e-3, **given):
    """Train with spectra alone; return the sink, and the vitals' state."""
    sink = sink or MemorySink()
    mapping = made.MAPPING if isinstance(model, made.Mapped) else None
    names = {"interval": 1, "adapt": False, "measure": ("spectra",), "escalate": 0, "mapping": mapping, **given}
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    with Vitals(model, optimizer, config or VitalsConfig(**names), [sink]) as vitals:
        own = next(item for item in vitals._measurements if isinstance(item, Spectra))
        if work is not None:
            own._work, own._host = work, torch.zeros(4096)
        if state is not None:
            vitals.load_state_dict(state)
        for step in steps:
            if before is not None:
                before(step)
            with vitals.step():
                made.loss_of(model, step).backward()
                optimizer.step()
                optimizer.zero_grad()
        kept = json.loads(json.dumps(vitals.state_dict()))
    return sink, kept


def stored(model):
    """Each matrix by layer and name, as the names of columns say."""
    return {(item.layer, item.name): item for item in spectra.matrices_of(find(model, None), model)[0]}


@pytest.mark.parametrize("family", ["llama", "gpt2", "mixtral", "multihead"])
def test_every_matrix_has_its_turn_and_its_numbers_are_true(family):
    model = made.model_of(family)
    true, parts = {}, {}

    def keep(step):
        for key, item in stored(model).items():
            for part in range(item.places):
                true[step - 1, *key, part] = item.part(part).clone()

    steps = range(1, 140 if family == "mixtral" else 80)
    sink, _ = looked(model, steps, before=keep)
    for step, metric, layer, _, stat, value in sink.values:
        if metric == "spectra_part":
            parts[step, layer, stat] = int(value)
    seen, exact = set(), 0
    entropies = {(row[0], row[2], row[4]) for row in sink.values if row[1] == "singular_entropy"}
    for step, metric, layer, _, stat, value in sink.values:
        key = (step, layer, stat, parts.get((step, layer, stat), 0))
        if metric in BY_NAME and key in true:
            if (step, layer, stat) in entropies:
                assert value == pytest.approx(true_numbers(true[key])[metric], rel=1e-6), (metric, key)
                exact += 1
            elif metric == "spectral_norm":
                assert value <= true_numbers(true[key])[metric] * (1 + 1e-6)
            seen.add((metric, layer, stat, key[3]))
    names = {(layer, name, part) for (layer, name), item in stored(model).items() for part in range(item.places)}
    assert {item[1:] for item in seen if item[0] == "spectral_norm"} == names
    assert {item[1:3] for item in seen if item[0] == "singular_entropy"} == {name[:2] for name in names}
    assert exact > 30
    whole = [row for row in sink.values if row[1] == "spectral_norm" and row[4] == "largest"]
    assert {row[2] for row in whole} == set(range(made.LAYERS))


def test_results_that_come_late_are_of_a_later_step_and_one_gram_is_solved_at_a_time(monkeypatch):
    """A host with a thread, as beside a GPU, that needs 30 ms for a Gram: steps go on in between."""
    model, running, at_once, threads = made.model_of("llama"), [], [], set()
    solved = spectra.solved

    def slow(*given):
        import threading

        running.append(1)
        at_once.append(len(running))
        threads.add(threading.current_thread().name)
        time.sleep(0.03)
        running.pop()
        return solved(*given)

    monkeypatch.setattr(spectra, "solved", slow)
    work = HostWork(torch.device("meta"))  # any device but the CPU has a thread
    sink, _ = looked(model, range(1, 60), work=work)
    work.close()
    assert set(at_once) == {1}
    assert threads == {"dataaudit-vitals"}
    late = [row for row in sink.values if row[1] == "singular_entropy" and row[4] != "least"]
    assert 3 < len(late) < 58
    norms = {row[0] for row in sink.values if row[1] == "spectral_norm"}
    assert len(norms) > len(late)  # power iteration went on meanwhile
    for _, _, layer, _, stat, value in late:
        true = true_numbers(stored(model)[layer, stat].part(0).numpy())["singular_entropy"]
        assert value == pytest.approx(true, rel=0.05)


def test_a_failure_on_the_host_is_a_reason_and_not_the_end(monkeypatch):
    def fails(*_):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(np.linalg, "eigvalsh", fails)
    sink, _ = looked(made.model_of("llama"), range(1, 20))
    assert any(row[1] == "spectral_norm" for row in sink.values)
    assert not any(row[1] == "singular_entropy" for row in sink.values)
    coverage = sink.events[-1][2]["metrics"]
    assert "LinAlgError" in coverage["singular_entropy"]["why"]


def times_three(model):
    model.blocks[1].mlp[0].weight.mul_(3)


def half_rank(model):
    weight = model.blocks[0].attention.qkv.weight
    left, values, right = torch.linalg.svd(weight, full_matrices=False)
    values[len(values) // 4 :] = 0
    weight.copy_(left @ torch.diag(values) @ right)


@pytest.mark.parametrize(
    ("fault", "metric", "where"),
    [
        (times_three, "spectral_norm", (1, "mlp.0")),
        (half_rank, "singular_entropy", (0, "attention.qkv")),
        (lambda _: None, None, None),
    ],
)
def test_a_matrix_that_breaks_is_named(fault, metric, where):
    model = made.model_of("mapped")

    def breaks(step):
        if step == 241:
            with torch.no_grad():
                fault(model)

    sink, _ = looked(model, range(1, 350), before=breaks)
    alarms = [(step, detail) for step, kind, detail in sink.events if kind == "alarm"]
    if metric is None:
        assert not alarms
        return
    assert min(step for step, _ in alarms) > 241
    named = {(detail["layer"], detail["stat"]) for _, detail in alarms if detail["metric"] == metric}
    assert named == {where}


@pytest.mark.parametrize("heavy", [True, False])
def test_a_tail_is_called_heavy_by_the_upper_end_of_a_law_that_fits(heavy):
    """An exponent of 1.4 is; squares of singular values in two groups have an exponent below 2 and no law."""
    model, draw = made.model_of("mapped"), np.random.default_rng(1)
    squares = (1 - draw.random(64)) ** (-1 / 0.4) if heavy else np.geomspace(1e-3, 1, 64) ** 0.5
    left, _, right = torch.linalg.svd(model.blocks[0].attention.qkv.weight.detach(), full_matrices=False)
    with torch.no_grad():
        model.blocks[0].attention.qkv.weight.copy_(left * torch.from_numpy(squares**0.5).float() @ right)
    sink, _ = looked(model, range(1, 40), lr=0.0)
    raised = {
        (detail["layer"], detail["stat"], detail["severity"]) for _, kind, detail in sink.events if kind == "warning"
    }
    assert raised == ({(0, "upper", 3)} if heavy else set())
    found = {row[1:5]: row[5] for row in sink.values if row[0] > 20}
    assert found["ht_sr_alpha", 0, -1, "attention.qkv"] < 2
    if heavy:
        alpha, error = (found[name, 0, -1, "attention.qkv"] for name in ("ht_sr_alpha", "ht_sr_error"))
        assert found["ht_sr_alpha", 0, -1, "upper"] == pytest.approx(alpha + 2.5 * error)


class Odd(made.Mapped):
    """With what is no plain matrix: a convolution, tied weights, a tensor of four dimensions, a frozen matrix."""

    def __init__(self):
        super().__init__()
        self.head.weight = self.embedding.weight
        self.blocks[0].conv = nn.Conv1d(made.WIDTH, 24, 3)
        self.blocks[0].strange = nn.Parameter(torch.ones(2, 2, 24, 24))
        self.blocks[1].frozen = nn.Linear(24, 24).requires_grad_(False)
        self.blocks[1].vector = nn.Parameter(torch.ones(1, 24))
        self.blocks[1].scalar = nn.Parameter(torch.ones(()))


def test_odd_weights_are_taken_right_or_left_out_with_a_reason(monkeypatch):
    model = Odd()
    own, left_out = spectra.matrices_of(find(model, made.MAPPING), model)
    names = [(item.layer, item.name) for item in own]
    assert len(names) == len(set(names))
    assert [name for layer, name in names if layer < 0] == ["embedding"]  # tied, once
    assert next(item.sides for item in own if item.name == "conv") == (3 * made.WIDTH, 24)
    assert left_out == {"it has 4 dimensions": [0]}
    assert not {"frozen", "vector", "scalar"} & {name for _, name in names}
    monkeypatch.setattr(spectra, "LARGEST_SIDE", 30)
    sink, _ = looked(model, range(1, 30), mapping=made.MAPPING)
    said = {detail["what"]: detail for _, kind, detail in sink.events if kind == "no_value"}
    assert said["spectra"]["why"] == "it has 4 dimensions"
    assert said["singular_entropy, ht_sr_alpha, ht_sr_distance, ht_sr_error"]["layers"] == [-1, 0, 1]
    assert "embedding" in said["singular_entropy, ht_sr_alpha, ht_sr_distance, ht_sr_error"]["why"]
    assert {row[4] for row in sink.values if row[1] == "singular_entropy"} == {"conv", "least"}
    assert sum(detail["what"] == "spectra" for _, kind, detail in sink.events if kind == "no_value") == 1


def test_a_model_without_a_matrix_that_can_be_solved_says_why(monkeypatch):
    monkeypatch.setattr(spectra, "LARGEST_SIDE", 3)
    sink, _ = looked(made.model_of("mapped"), range(1, 5))
    why = sink.events[-1][2]["metrics"]["ht_sr_alpha"]["why"]
    assert "small side is above 3" in why


def test_of_very_many_matrices_some_are_measured(monkeypatch):
    from dataaudit.vitals.metrics import spectra as own

    monkeypatch.setattr(own, "MOST", 4)
    sink, _ = looked(made.model_of("mapped"), range(1, 60))
    names = {row[2:5] for row in sink.values if row[1] == "spectral_norm" and row[4] != "largest"}
    assert len(names) == 4
    assert "10 matrices, of which 4 are measured" in str(
        [detail for _, kind, detail in sink.events if kind == "no_value"]
    )


def test_on_a_device_that_is_not_there_no_value_is_asked_for():
    device = torch.device("meta")
    for shape, dtype in (((64, 16), torch.bfloat16), ((64, 16), torch.float32)):
        matrix = torch.empty(shape, dtype=dtype, device=device)
        assert spectra.power_iteration(matrix, torch.empty(16, device=device)).shape == (3,)
        assert spectra.gram(matrix).shape == (16, 16)
    with made.NoWaiting():
        matrix = matrix_of((64, 16))
        spectra.power_iteration(matrix, torch.ones(16))
        spectra.gram(matrix)
