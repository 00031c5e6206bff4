"""Memory stays flat over many steps: nothing of a step is kept."""

import gc

import pytest

torch = pytest.importorskip("torch", reason="vitals are of torch")

import vitals_models as made  # noqa: E402

from dataaudit.vitals.config import VitalsConfig  # noqa: E402
from dataaudit.vitals.vitals import Vitals  # noqa: E402

pytestmark = pytest.mark.vitals


class Nothing:
    """A sink that keeps nothing."""

    def add_values(self, columns):
        pass

    def add_event(self, step, kind, detail):
        pass


def held():
    """Return how many objects and tensors there are."""
    gc.collect()
    found = gc.get_objects()
    return len(found), sum(type(one) is torch.Tensor for one in found)


@pytest.mark.parametrize("optimizer", ["AdamW", "Adagrad"])
def test_no_object_of_a_step_is_kept(optimizer):
    model = made.model_of("mapped")
    optimizer = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-4)
    config = VitalsConfig(mapping=made.MAPPING, adapt=False, delta=32, healthy=(10, 60), escalate=0)
    counts = []
    with Vitals(model, optimizer, config, [Nothing()]) as vitals:
        for step in range(1, 241):
            with vitals.step():
                for micro in range(2):
                    loss = made.loss_of(model, step, micro)
                    loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                vitals.log(loss=loss)
            if step in (112, 240):
                counts.append(held())
    (objects, tensors), (later, more) = counts
    assert more - tensors <= 2
    assert later - objects <= 60
