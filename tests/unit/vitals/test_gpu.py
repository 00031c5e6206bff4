"""On a GPU: no step waits for it, bits are the same, and all rows of attention are exact."""

import pytest

torch = pytest.importorskip("torch", reason="vitals are of torch")
pytest.importorskip("transformers", minversion="5", reason="its models are of transformers 5")

import vitals_models as made  # noqa: E402

from dataaudit.vitals.config import VitalsConfig  # noqa: E402
from dataaudit.vitals.sinks import MemorySink  # noqa: E402
from dataaudit.vitals.vitals import Vitals  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")]
DEVICE = "cuda"


def train(*, watched, compiled=False, steps=12, around=None):
    """Return what must not change, and the sink; ``around`` is entered from the third step on."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = made.model_of("llama").to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    sink = MemorySink()
    vitals = Vitals(model, optimizer, VitalsConfig(interval=4, adapt=False), [sink]) if watched else None
    run = torch.compile(model) if compiled else model
    batches = [[one.to(DEVICE) for one in made.batch_of(step)] for step in range(1, steps + 1)]
    kept = []
    for step, (tokens, mask) in enumerate(batches, 1):
        if step == 3 and around is not None:
            around(True)
        if vitals is not None:
            with vitals.step():
                loss = update(run, optimizer, tokens, mask)
                vitals.log(loss=loss)
        else:
            loss = update(run, optimizer, tokens, mask)
        kept.append(loss.detach())
    if around is not None:
        around(False)
    if vitals is not None:
        vitals.close()
    return [*kept, *(one.detach() for one in model.parameters()), torch.cuda.get_rng_state()], sink


def update(run, optimizer, tokens, mask):
    with torch.autocast(DEVICE, torch.bfloat16):
        logits = run(tokens, attention_mask=mask).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


@pytest.mark.parametrize("compiled", [False, True])
def test_training_on_a_gpu_has_the_same_bits(compiled):
    plain, _ = train(watched=False, compiled=compiled)
    looked, sink = train(watched=True, compiled=compiled)
    assert made.same(plain, looked)
    assert {row[0] for row in sink.values if row[1] == "attn_entropy"} == set(range(1, 13))


def test_no_step_waits_for_the_gpu():
    train(watched=False, around=lambda on: torch.cuda.set_sync_debug_mode("error" if on else "default"))
    train(watched=True, around=lambda on: torch.cuda.set_sync_debug_mode("error" if on else "default"))


def test_a_trace_has_no_more_waits_than_without():
    def waits(*, watched):
        profiler = torch.profiler.profile()
        train(watched=watched, around=lambda on: profiler.start() if on else profiler.stop())
        names = [one.name for one in profiler.events()]
        return sum("Synchronize" in name and "Device" not in name for name in names)

    assert waits(watched=True) == waits(watched=False)


def test_all_rows_on_a_gpu_agree_with_sampled_ones():
    pytest.importorskip("triton", reason="the kernel is Triton's")
    _, sink = train(watched=True, steps=9)
    off = [row[5] for row in sink.values if row[1] == "attn_entropy" and row[4] == "off"]
    assert off
    assert not any(off)
    assert not [one for one in sink.events if one[1] == "refused"]
