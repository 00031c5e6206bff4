"""What vitals add to a step, by family and beside other ways, as paired ratios of one run; on a GPU or a CPU.

    python benchmarks/vitals_gpu.py [--size 10m|124m|1b] [--compile] [--rounds 12] [--steps 4] [--ways NAMES]

Each way has a model and an optimizer of its own, with the same weights. Blocks of steps alternate between them, as long
as a way's cadence at least: a ratio is of neighbouring blocks; the first steps of each are not counted. On a CPU the
seconds are CPU seconds of all threads; on a GPU they are wall seconds up to a synchronisation at the end of a block.
Sizes: 10 million parameters with 8 x 512 tokens in float32; 124 million and 1 billion with 8 x 1024 in bfloat16.

The other ways are short versions of what is in use: histograms of all gradients at every step, read at once, as
``wandb.watch`` does at every 1,000th; forward hooks that read mean and spread of every module at once; hooks that keep
them on the device and break the graph, as OLMo-core's GAP monitor does.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from dataaudit.vitals import Mapping, MemorySink, Vitals, VitalsConfig
from dataaudit.vitals.cadence import PRESETS

SIZES = {  # width, layers, heads, vocabulary, rows, length
    "10m": (320, 6, 5, 8192, 8, 512),
    "124m": (768, 12, 12, 50304, 8, 1024),
    "1b": (2048, 18, 16, 50304, 8, 1024),
}


class Attention(nn.Module):
    """Causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [B, L, width]."""
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """A gated MLP."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = 8 * width // 3 // 16 * 16
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [B, L, width]."""
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """A layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention, self.mlp = Attention(width, heads), Mlp(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [B, L, width]."""
        x = x + self.attention(self.first_norm(x))
        return x + self.mlp(self.second_norm(x))


class Model(nn.Module):
    """A Llama-like model without rotations."""

    def __init__(self, width: int, layers: int, heads: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits [B, L, vocabulary]."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def hooks_that_read(model: nn.Module) -> Callable[[], None]:
    """Read mean, spread and largest value of what every module returns, at once."""
    held: list[float] = []

    def hook(_: nn.Module, _args: object, output: object) -> None:
        if isinstance(output, torch.Tensor):
            values = output.detach().float()
            held.extend((values.mean().item(), values.std().item(), values.abs().max().item()))

    for module in model.modules():
        module.register_forward_hook(hook)
    return held.clear


def hooks_that_break_the_graph(model: nn.Module) -> Callable[[], None]:
    """Keep mean, variance and largest value of every module's output and of parameters' gradients on the device."""
    held: list[torch.Tensor] = []

    @torch.compiler.disable
    def hook(_: nn.Module, _args: object, output: object) -> None:
        if isinstance(output, torch.Tensor):
            variance, mean = torch.var_mean(output.detach().float())
            held.extend((mean, variance, output.detach().abs().max()))

    for module in model.modules():
        module.register_forward_hook(hook)

    def after() -> None:
        for one in model.parameters():
            if one.grad is not None:
                variance, mean = torch.var_mean(one.grad.float())
                held.extend((mean, variance, one.grad.abs().max()))
        torch.stack([one.float() for one in held]).cpu()
        held.clear()

    return after


def histograms(model: nn.Module) -> Callable[[], None]:
    """Read a histogram of 64 bins of every gradient at once."""

    def after() -> None:
        for one in model.parameters():
            if one.grad is not None:
                flat = one.grad.float().flatten()
                torch.histc(flat, 64, flat.min().item(), flat.max().item()).tolist()

    return after


WAYS = {
    "all, every step": {"preset": "nano"},
    "attention, every step": {"preset": "nano", "measure": ("attention",)},
    "activations, every step": {"preset": "nano", "measure": ("activations",)},
    "weights, an eighth a step": {"preset": "nano", "measure": ("weights",)},
    "all, medium": {"preset": "medium"},
    "all, large": {"preset": "large"},
}
OTHERS = {
    "histograms of gradients, every step": histograms,
    "hooks that read at once": hooks_that_read,
    "hooks outside of the graph": hooks_that_break_the_graph,
}


class Way:
    """A model that is trained, and what looks at it."""

    def __init__(self, name: str, size: str, device: torch.device, *, compiled: bool) -> None:
        width, layers, heads, vocabulary, rows, length = SIZES[size]
        torch.manual_seed(0)
        self.dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        model = Model(width, layers, heads, vocabulary).to(device)
        self.parameters = sum(one.numel() for one in model.parameters())
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
        self.after: Callable[[], None] = lambda: None
        self.vitals = None
        if name in WAYS:
            mapping = Mapping(layers="blocks", attention="attention", heads=heads, mlp="mlp")
            self.vitals = Vitals(
                model, self.optimizer, VitalsConfig(mapping=mapping, adapt=False, **WAYS[name]), [MemorySink()]
            )
        elif name in OTHERS:
            self.after = OTHERS[name](model)
        self.run = torch.compile(model) if compiled else model
        self.shape = vocabulary, (rows, length + 1)
        self.draw = torch.Generator(device).manual_seed(0)
        self.device = device

    def steps(self, number: int) -> tuple[float, int]:
        """Return seconds of some steps and the most bytes that the device held."""
        cuda = self.device.type == "cuda"
        if cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter() if cuda else time.process_time()
        for _ in range(number):
            # others at each step: a model that learns one batch by heart ends in tiny numbers, which CPUs are slow with
            tokens = torch.randint(*self.shape, device=self.device, generator=self.draw)
            with self.vitals.step() if self.vitals else contextlib.nullcontext():
                with torch.autocast(self.device.type, self.dtype, enabled=cuda):
                    logits = self.run(tokens[:, :-1])
                    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
                loss.backward()
                self.optimizer.step()
                self.after()
                self.optimizer.zero_grad()
        if cuda:
            torch.cuda.synchronize()
        ended = time.perf_counter() if cuda else time.process_time()
        return ended - began, torch.cuda.max_memory_allocated() if cuda else 0


def main() -> None:
    """Time all ways and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--ways", help="names, separated by a semicolon and a blank; all by default")
    given = parser.parse_args()
    torch.set_flush_denormal(True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size = given.size or ("124m" if device.type == "cuda" else "10m")
    names = [name for name in (*WAYS, *OTHERS) if given.ways is None or name in given.ways.split("; ")]
    ways = {name: Way(name, size, device, compiled=given.compile) for name in ("bare", *names)}
    for way in ways.values():
        way.steps(2)
    ratios: dict[str, list[float]] = {name: [] for name in names}
    memory, seconds = {}, []
    for number in range(given.rounds):
        turn = number % len(names)
        for name in [*names[turn:], *names[:turn]]:
            order = ("bare", name) if number % 2 else (name, "bare")
            steps = max(given.steps, PRESETS[WAYS[name]["preset"]].every) if name in WAYS else given.steps
            found = {one: ways[one].steps(steps) for one in order}
            ratios[name].append(found[name][0] / found["bare"][0])
            memory[name] = found[name][1] / found["bare"][1] if found["bare"][1] else 0.0
            seconds.append(found["bare"][0] / steps)
    kind = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(
        f"{ways['bare'].parameters / 1e6:.1f} M parameters, {kind}, torch {torch.__version__},"
        f" {'compiled' if given.compile else 'eager'}: a bare step {statistics.median(seconds) * 1e3:.1f} ms"
    )
    print("| way | step, median of ratios | quartiles | memory |\n|---|--:|--:|--:|")
    for name, held in ratios.items():
        low, middle, high = statistics.quantiles(held, n=4)
        size = f"{memory[name]:.3f}" if memory[name] else "not measured"
        print(f"| {name} | {middle:.3f} | {low:.3f} to {high:.3f} | {size} |")


if __name__ == "__main__":
    main()
