"""What it costs to see experts: the operator and the router's rows alone, and whole steps with and without, in pairs.

    OMP_NUM_THREADS=1 python benchmarks/vitals_experts.py [--tokens 2048] [--steps 40]

Seconds are of the process, so that what else runs on the machine counts less. Experts are measured in every step here;
presets measure in fewer.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from dataaudit.vitals import MemorySink, Vitals, VitalsConfig, routers
from dataaudit.vitals.recorder import Recorder

WIDTH = 256


def best(call: Callable[[], object], times: int = 30) -> tuple[float, float]:
    """Return the least seconds of a process in a call, and the median."""
    taken = []
    for _ in range(times):
        begun = time.process_time()
        call()
        taken.append(time.process_time() - begun)
    return min(taken), statistics.median(taken)


def alone(experts: int, tokens: int, top_k: int) -> list[tuple[float, float]]:
    """Return microseconds of the operator, and of a router's rows."""
    router = routers.Router(
        layer=0,
        module=nn.Identity(),
        weight=nn.Parameter(torch.randn(experts, WIDTH)),
        experts=experts,
        top_k=top_k,
        sigmoid=False,
    )
    own, recorder = routers.Routers([router], torch.device("cpu")), Recorder(1, 8)
    site = own.site(0, recorder, 0)
    logits = torch.randn(tokens, experts)
    chosen = logits.topk(top_k).indices
    recorder.start([0], turn=0)
    seen = best(lambda: routers.see_router(logits, chosen, own.sums, site.id))
    own.sources.use(torch.arange(8), 8)
    by_source = best(lambda: routers.see_router(logits, chosen, own.sums, site.id))
    return [seen, by_source, best(lambda: routers.numbers_of_rows(router.weight.detach()))]


def model_of(experts: int, top_k: int) -> nn.Module:
    """Return a small mixture of transformers, of random weights."""
    import transformers

    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(
        vocab_size=512,
        hidden_size=WIDTH,
        moe_intermediate_size=128,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=64,
        num_experts=experts,
        num_experts_per_tok=top_k,
        use_cache=False,
    )
    return transformers.Qwen3MoeForCausalLM(config).train()


def paired(experts: int, tokens: int, top_k: int, steps: int) -> tuple[float, list[float]]:
    """Return seconds of a step, and quartiles of what steps with experts measured take more than their neighbours."""
    model = model_of(experts, top_k)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randint(0, 512, (tokens // 256, 256))
    config = VitalsConfig(adapt=False, measure=("experts",), interval=8)

    def step() -> None:
        model(batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def watched(vitals: Vitals) -> None:
        with vitals.step():
            step()

    step()
    more, plain = [], []
    with Vitals(model, optimizer, config, [MemorySink()]) as vitals:
        watched(vitals)
        for turn in range(steps):
            ways: list[Callable[[], None]] = [step, lambda: watched(vitals)]
            seconds = {}
            for way in ways if turn % 2 else ways[::-1]:
                begun = time.process_time()
                way()
                seconds[way is step] = time.process_time() - begun
            more.append(seconds[False] / seconds[True] - 1)
            plain.append(seconds[True])
    quarters = statistics.quantiles(more, n=4)
    return statistics.median(plain), quarters


def main() -> None:
    """Print costs for 8, 32 and 128 experts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=40)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for experts, top_k in ((8, 2), (32, 4), (128, 8)):
        costs = alone(experts, given.tokens, top_k)
        least = ", ".join(f"{1e6 * least:.0f} (median {1e6 * median:.0f})" for least, median in costs)
        print(f"E={experts} k={top_k}: operator, by source, rows of the router: {least} us")
        seconds, (low, middle, high) = paired(experts, given.tokens, top_k, given.steps)
        print(f"  a step {1e3 * seconds:.0f} ms; with experts {middle:+.2%} (quartiles {low:+.2%} to {high:+.2%})")


if __name__ == "__main__":
    main()
