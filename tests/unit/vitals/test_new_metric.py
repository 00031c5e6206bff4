"""A metric is one class, registered in one line: it is measured in turn, recorded, judged, summed up and kept."""

import pytest

torch = pytest.importorskip("torch", reason="vitals are of torch")
pytest.importorskip("transformers", minversion="5", reason="its models are of transformers 5")

import vitals_models as made  # noqa: E402

from dataaudit.vitals import MemorySink, Vitals, VitalsConfig, metrics, vitals  # noqa: E402
from dataaudit.vitals.measurement import Measurement  # noqa: E402
from dataaudit.vitals.metric import Column, Metric, Threshold  # noqa: E402

pytestmark = pytest.mark.vitals


class SpectralNorms(Measurement):
    """The largest singular value of a layer's largest matrix, where the layer has its turn."""

    FAMILY = "weights"
    METRICS = (
        Metric(
            "largest_singular",
            "log",
            thresholds=(Threshold(0.1, "a test"),),
            chart=("largest", "Largest singular value"),
        ),
    )

    def __init__(self, sources):
        super().__init__(sources)
        self.steps = 0

    def columns(self):
        return [Column("largest_singular", layer, -1, "largest") for layer, _ in self.sources.weights.groups]

    def values(self):
        self.steps += 1
        weights = self.sources.weights
        norms = torch.full((len(weights.groups),), torch.nan)
        for index in weights.due:
            matrices = [item for item in weights.groups[index][1] if item.dim() == 2]
            norms[index].copy_(torch.linalg.matrix_norm(max(matrices, key=torch.Tensor.numel), 2))
        return [norms]

    def why_not(self):
        return None if self.sources.optimizers else "no optimizer was given"

    def state(self):
        return {"own": self.steps}

    def load(self, state):
        self.steps = state["own"]


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    kinds = (*metrics.MEASUREMENTS, SpectralNorms)
    for module in (metrics, vitals):
        monkeypatch.setattr(module, "MEASUREMENTS", kinds)
    monkeypatch.setitem(metrics.METRICS, "largest_singular", SpectralNorms.METRICS[0])


def test_a_new_metric_is_one_class_and_one_line():
    model, sink = made.model_of("mapped"), MemorySink()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    config = VitalsConfig(interval=1, adapt=False, mapping=made.MAPPING)
    true = {}
    with Vitals(model, optimizer, config, [sink]) as looked:
        assert looked.summary()["metrics"]["largest_singular"] == "ok"
        for step in range(1, 25):
            with looked.step():
                made.loss_of(model, step).backward()
                optimizer.step()
                optimizer.zero_grad()
            for layer, block in enumerate(model.blocks):
                matrices = [item.detach() for item in block.parameters() if item.dim() == 2]
                true[step, layer] = torch.linalg.svdvals(max(matrices, key=torch.Tensor.numel))[0].item()
        state = looked.state_dict()
        assert state["own"] == 24
        looked.load_state_dict({**state, "own": 5})
        assert looked.state_dict()["own"] == 5
    own = [row for row in sink.values if row[1] == "largest_singular"]
    assert {row[2] for row in own} == {-1, *range(made.LAYERS)}
    assert len(own) < 24 * (made.LAYERS + 1) / 2
    for step, _, layer, _, _, largest in own:
        assert layer < 0 or largest == pytest.approx(true[step, layer], rel=1e-5)
    warned = [detail["metric"] for _, kind, detail in sink.events if kind == "warning"]
    assert "largest_singular" in warned
    assert looked.coverage()["largest_singular"]["series"] == made.LAYERS + 1
    assert ("largest_singular", "largest", "Largest singular value") in metrics.charts(of_heads=False)


def test_a_new_metric_that_does_not_apply_says_why():
    with Vitals(made.model_of("mapped"), None, VitalsConfig(mapping=made.MAPPING)) as looked:
        assert looked.summary()["metrics"]["largest_singular"] == "not_applicable: no optimizer was given"
