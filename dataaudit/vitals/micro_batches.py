"""How noisy gradients are, from norms of a step's micro-batches: noise scale, signal to noise, how directions agree.

A micro-batch is a backward pass. Torch's engine numbers them, so that nobody has to say when one begins. Gradients g_i
of W micro-batches (or workers) scatter around the true gradient G: E|g_i|² = G² + S, S the trace of the covariance of
one micro-batch's gradient. Their mean g has E|g|² = G² + S/W (arXiv 1812.06162, appendix A).

B_simple = S / G² is the batch size, in micro-batches, at which noise and signal are alike. Both are averaged over steps
before they are divided: a mean of ratios is neither.

An estimate of G² may be negative, where noise hides the gradient. It goes into the averages as it is (clipping it would
bias them); where the average itself is not positive, B_simple is NaN, not measured, and its interval has no upper end.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from dataaudit.vitals.hooks import Hook, nothing
from dataaudit.vitals.norms import norms_of
from dataaudit.vitals.ranks import ranks
from dataaudit.vitals.sharding import Sharding, gradient_of

_STATE = ("weight", "squared_weight", "g2", "s", "g2_g2", "g2_s", "s_s")
_Z = 1.959963984540054
"""Of a normal distribution, 95 % lie within it."""
_TASK = "_current_graph_task_id"
_ENGINE = importlib.import_module("torch._C")
_FEW = 16
"""Parameters, the smallest, by which is known what a scaler and clipping did."""
_KEPT_BYTES = 64 << 20
"""Of gradients that wait until their norms are taken together."""
_SAME = 1e-3
"""Of a logarithm of base 2: how far from a whole number the factor of a scaler alone may be."""
_AVERAGED = "gradients are averaged over ranks between micro-batches"
_OTHERS = "ranks beyond those of the shards may average gradients between micro-batches"
REST = 64
"""Steps between two measurements where a step has one backward pass."""


def signal_and_noise(squares: torch.Tensor, square_of_mean: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return estimates without bias of G² and of S, float64 scalars, from one step; nothing waits for a device."""
    if len(squares) < 2:
        raise ValueError("signal_and_noise: two gradients or more are needed")
    squares, mean = squares.double(), square_of_mean.double()
    w = torch.full_like(squares, 1 / len(squares))
    small, a, c = (w * squares).sum(), w.sum(), (w * w).sum()
    return (a * mean - c * small) / (a - c), (small - mean) / (a - c)


def gsnr(squares: torch.Tensor, square_of_mean: torch.Tensor) -> torch.Tensor:
    """Return the signal over the noise of a micro-batch's gradient, all coordinates together, a float64 scalar.

    Over coordinates, the sum of squared means less their noise, over the sum of variances: of equal micro-batches it is
    1/B_simple in units of a micro-batch. Negative where noise hides the gradient; NaN without noise.
    """
    squares, mean = squares.double(), square_of_mean.double()
    count = len(squares)
    variance = (squares.sum() - count * mean) / (count - 1)
    return _over(mean - variance / count, variance)


def direction_consistency(squares: torch.Tensor, square_of_mean: torch.Tensor) -> torch.Tensor:
    """Return the mean cosine of pairs of gradients, weighted by their norms, a float64 scalar of -1/(W-1) to 1.

    (W²|g|² - Σ|g_i|²) / (W (W-1)) is the mean inner product of a pair; it is divided by the mean of |g_i|². Of equal
    micro-batches of b tokens it is G² / (G² + S/b), with the estimates of that step.
    """
    squares, mean = squares.double(), square_of_mean.double()
    count = len(squares)
    inner = (count * count * mean - squares.sum()) / (count * (count - 1))
    return _over(inner, squares.mean())


class NoiseScale:
    """B_simple over steps: moving averages of S and of G², on the device, and an interval of 95 %.

    The averages are corrected for their start. The interval is Fieller's, of the ratio of two means, with the variances
    and the covariance that steps within the averages' span show; it takes them as independent and their truth as
    standing still. A step whose numbers are not finite (a skipped step) is left out.
    """

    def __init__(self, decay: float = 0.95, device: torch.device | str = "cpu") -> None:
        if not 0 < decay < 1:
            raise ValueError("NoiseScale: decay: between 0 and 1")
        self.decay = decay
        self._state = torch.zeros(len(_STATE), dtype=torch.float64, device=device)
        self._decays = torch.full_like(self._state, decay)
        self._decays[1] = decay * decay

    def update(self, g2: torch.Tensor, s: torch.Tensor) -> None:
        """Take in a step's estimates, scalars of :func:`signal_and_noise`; nothing waits for the device."""
        ones = torch.ones_like(g2)
        seen = torch.stack([ones, ones * (1 - self.decay), g2, s, g2 * g2, g2 * s, s * s]).to(self._state)
        moved = self._decays * self._state + (1 - self.decay) * seen
        self._state.copy_(torch.where(seen.isfinite().all(), moved, self._state))

    @property
    def g2(self) -> torch.Tensor:
        """Average of G², a float64 scalar; NaN before the first step."""
        return _over(self._state[2], self._state[0])

    @property
    def s(self) -> torch.Tensor:
        """Average of S, a float64 scalar; NaN before the first step."""
        return _over(self._state[3], self._state[0])

    @property
    def b_simple(self) -> torch.Tensor:
        """Return S / G², a float64 scalar, in the unit of S; NaN where the average of G² is not positive."""
        return _over(self.s, self.g2)

    def interval(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the ends of B_simple's interval of 95 %, float64 scalars.

        The lower end is 0 where S cannot be told from 0, the upper one infinite where G² cannot; both are NaN before
        the second step.
        """
        mean = self._state[2:] / self._state[0]
        g2, s = mean[0], mean[1]
        spread = self._state[1] / self._state[0] ** 2  # the sum of squared weights: 1 over the steps that count
        of_mean = spread / (1 - spread)
        g2_g2, g2_s, s_s = (mean[2] - g2 * g2) * of_mean, (mean[3] - g2 * s) * of_mean, (mean[4] - s * s) * of_mean
        t2 = _student(1 / spread - 1).square()
        a, b, c = g2 * g2 - t2 * g2_g2, g2 * s - t2 * g2_s, s * s - t2 * s_s
        root = b + (b * b - a * c).clamp(min=0).sqrt()
        known = self._state[0] > (1 - self.decay) * 1.5
        low = torch.where((c > 0) & (s > 0), c / root, 0.0)
        high = torch.where((a > 0) & (g2 > 0), root / a, torch.inf)
        return torch.where(known, low, torch.nan), torch.where(known, high, torch.nan)

    def state_dict(self) -> dict[str, float]:
        """Return the state as plain numbers; this waits for the device."""
        return {"decay": self.decay, **dict(zip(_STATE, self._state.tolist(), strict=True))}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Go on from a state."""
        if not {"decay", *_STATE} <= set(state):
            raise ValueError(f"NoiseScale: state lacks {', '.join(sorted({'decay', *_STATE} - set(state)))}")
        if state["decay"] != self.decay:
            raise ValueError(f"NoiseScale: state is of decay {state['decay']}, not {self.decay}")
        self._state.copy_(torch.tensor([state[name] for name in _STATE], dtype=torch.float64))


class GradientNorms:
    """Squared norms of each micro-batch's own gradient, before it is added to what others left; no gradient is copied.

    A hook on each leaf parameter is given the gradient of one backward pass, and writes its squared norm into a slot.
    Under data parallelism of full replicas it is the worker's own, before it is reduced. The gradient is not touched.

    A shared (tied) parameter is seen once, with the sum of its uses. Where a hook fires twice in a micro-batch (a
    parameter used in two reentrant checkpoints, a graph run backward twice), it saw parts: its slot is NaN,
    as :meth:`totals` is where hooks never fire (FSDP2 holds other tensors).

    Norms are of what backward passes computed: a loss divided by W gives g_i / W, one scaled by a GradScaler its scale.
    """

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        micro_batches: int,
        failed: Callable[[str], None] = nothing,
        sharding: Sharding | None = None,
    ) -> None:
        self._parameters = list(dict.fromkeys(parameters))
        self._counts = [sharding is None or sharding.counts(item) for item in self._parameters]
        self._slots = torch.full((len(self._parameters), micro_batches), torch.nan, device=self._parameters[0].device)
        self._micro: int | None = None
        self._fired: dict[int, set[int]] = {}
        self._kept: list[tuple[int, torch.Tensor]] = []
        """Gradients whose norms are taken together, and of which parameter."""
        self._bytes = 0
        self._most_bytes = _KEPT_BYTES if why_not(sharding) is None else -1  # or they would be reduced in place
        self._none, self._twice = self._slots.new_tensor([0.0, math.nan])
        self._norms = [self._none] * len(self._parameters)
        self._handles = [
            item.register_hook(Hook(self._sees(index), failed)) for index, item in enumerate(self._parameters)
        ]

    def begin(self, micro_batch: int) -> None:
        """Write what follows into the slots of a micro-batch, from 0; called before its backward pass."""
        self.pause()
        self._norms = [self._none] * len(self._parameters)
        self._fired[micro_batch] = set()
        self._micro = micro_batch

    def end(self) -> None:
        """Write the norms of a micro-batch, in a few kernels for all parameters; its backward pass is over."""
        if self._micro is not None:
            self._take()
            self._slots[:, self._micro].copy_(torch.stack(self._norms).square())

    def pause(self) -> None:
        """End a micro-batch, and write nothing until the next one begins."""
        self.end()
        self._micro = None

    def clear(self) -> None:
        """Forget what was written, and pause."""
        self._micro, self._bytes = None, 0
        self._kept.clear()
        self._fired.clear()
        self._slots.fill_(torch.nan)

    @property
    def slots(self) -> torch.Tensor:
        """Squared norms, float32[parameters, micro_batches]; NaN in columns that never began."""
        self.end()
        return self._slots

    def totals(self) -> torch.Tensor:
        """Return |g_i|² over all parameters, float64[micro_batches]; NaN where it is not known."""
        totals = self.slots.double().sum(0)
        for micro in range(len(totals)):
            if not self._fired.get(micro):
                totals[micro].fill_(torch.nan)
        return totals

    def close(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()

    def _take(self) -> None:
        """Take the norms of what was kept."""
        kept, self._kept, self._bytes = self._kept, [], 0
        own = [(at, gradient_of(self._parameters[at], item)) for at, item in kept]
        own = [(at, item) for at, item in own if self._counts[at]]
        for (at, _), value in zip(own, norms_of([item for _, item in own]), strict=True):
            self._norms[at] = value

    def _sees(self, index: int) -> Callable[[torch.Tensor], None]:
        parameter = self._parameters[index]

        def see(gradient: torch.Tensor) -> None:
            if self._micro is None:
                return
            fired = self._fired[self._micro]
            if index in fired:
                self._kept = [(at, item) for at, item in self._kept if at != index]
                self._norms[index] = self._twice
                return
            fired.add(index)
            self._kept.append((index, gradient.detach()))  # another holder of it would have `grad` be a copy
            self._bytes += 0 if parameter.grad is None else gradient.numel() * gradient.element_size()
            if self._bytes > self._most_bytes:
                with torch.no_grad():
                    self._take()

        return see


def _over(above: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
    return torch.where(below > 0, above / below, torch.nan)


def _student(freedom: torch.Tensor) -> torch.Tensor:
    """Student's t of 95 %, from the normal's by the expansion of Cornish and Fisher: off by 1 % at 4 degrees."""
    z = _Z
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def why_not(sharding: Sharding | None = None) -> str | None:
    """Return why gradients of micro-batches cannot be told apart; None where they can."""
    if sharding:
        return None if sharding.reduced or sharding.covers_all else _OTHERS
    return _AVERAGED if ranks() > 1 else None


class MicroBatches:
    """Measures gradients as backward passes make them.

    The noise scale averages gradients as the first optimizer gets them: clipped, and unscaled, since the scale of a
    loss changes. Steps without its update are left out.

    FSDP adds the gradient of each pass up, reduced over ranks, before any hook. Known are norms of the sums G_k of the
    first k passes: |G_1|² and |G_W/W|² give G² and S as unbiased, of one micro-batch's norm in place of W; no cosines.
    """

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        most: int,
        failed: Callable[[str], None] = nothing,
        optimizers: Sequence[torch.optim.Optimizer] = (),
        sharding: Sharding | None = None,
    ) -> None:
        self.scale = NoiseScale(device=parameters[0].device)
        self._most = most
        self._task = -1
        self._on = self._adding = self._added = False
        self._last = 0
        """Backward passes of the latest step that was measured."""
        self._fired: list[set[int]] = []
        self._sharding = sharding
        self.reduced = sharding.reduced if sharding else ""
        """Why gradients of single passes are not known; empty where they are."""
        self._nested = torch.zeros(most, dtype=torch.float64, device=parameters[0].device)
        """Under FSDP, |G_k|² of this rank's shards."""
        self._counts = torch.tensor(
            [not sharding or sharding.counts(item) for item in parameters], device=parameters[0].device
        )
        self._together = torch.zeros(len(parameters), device=parameters[0].device)
        self._failed = failed
        self._parameters = parameters
        self._handles = [
            # of a sharded parameter of FSDP a hook on the tensor is never called
            (parameter.register_post_accumulate_grad_hook if self.reduced else parameter.register_hook)(
                Hook(self._passes(index), self._spoilt)
            )
            for index, parameter in enumerate(parameters)
        ]
        # its hooks run after those that say which pass it is
        self._norms = GradientNorms(parameters, most, self._spoilt, sharding)
        self._now: torch.Tensor | None = None
        """Squared norm of some gradients, as the first optimizer got them."""
        self._sums = torch.zeros(3 + most, dtype=torch.float64, device=parameters[0].device)
        self.num_sums = len(self._sums)
        self._factor: torch.Tensor | None = None
        """What the squared norm of a gradient was multiplied by before the update."""
        self._few = _smallest(parameters, optimizers[0]) if optimizers else {}
        self._which = torch.tensor([*self._few], dtype=torch.int64, device=parameters[0].device)
        self._handles += [
            optimizer.register_step_pre_hook(Hook(self._updates, self._spoilt)) for optimizer in optimizers[:1]
        ]

    def start(self, step: int, *, measured: bool) -> None:
        """Begin a step; where steps have one backward pass, most of them are not measured."""
        self._on = measured and (self._last != 1 or step % REST == 0)
        self._adding, self._added = measured, False
        self._task, self._now, self._factor = -1, None, None
        self._fired = []
        if self._on:
            self._norms.clear()
            self._nested.fill_(math.nan)
        if measured:
            self._together.zero_()

    def sums(self) -> torch.Tensor:
        """Return what is added up over ranks, float64: squared norms of all gradients, of some, of each pass's own."""
        self._norms.pause()
        own = self._together.double().where(self._counts, 0.0)
        now = own.new_zeros(()) if self._now is None else self._now
        totals = self._norms.totals() if self._on else own.new_full((self._most,), math.nan)
        totals = self._nested if self._on and self.reduced else totals
        return torch.cat([torch.stack([own.sum(), own[self._which].sum(), now]), totals])

    def take(self, sums: torch.Tensor) -> None:
        """Take the sums over all ranks."""
        self._sums.copy_(sums)
        if self._now is not None:
            self._factor = self._sums[2] / self._sums[1]

    def finish(self) -> torch.Tensor | None:
        """End a step; return its numbers as :class:`GradientNoise` lists them, float32, in units of a micro-batch.

        None where it was not measured, has one backward pass or too many, or passes that reach different parameters:
        these are no micro-batches of one loss. :meth:`take` comes before.
        """
        self._adding = False
        if not self._on:
            return None
        self._on = False
        number = self._last = len(self._fired)
        if not 2 <= number <= self._most or any(group != self._fired[0] for group in self._fired):
            return None
        squares = self._sums[3:4].expand(number) if self.reduced else self._sums[3 : 3 + number]
        mean = self._sums[0] / number**2
        if self._factor is not None or not self._few:
            factor = 1.0 if self._factor is None else self._factor
            self.scale.update(*(item * factor for item in signal_and_noise(squares, mean)))
        of_step = gsnr(squares, mean), direction_consistency(squares, mean)
        of_step = tuple(item * math.nan for item in of_step) if self.reduced else of_step
        noise = (*of_step, self.scale.b_simple, *self.scale.interval())
        return torch.stack([item.float() for item in noise])

    @property
    def norm(self) -> torch.Tensor | None:
        """Norm of all gradients of the latest step as they were added up, before clipping; None: not measured."""
        return self._sums[0].sqrt().float() if self._added else None

    @property
    def loss_scale(self) -> torch.Tensor | None:
        """What a scaler multiplied gradients of the latest step by, a scalar; None: it had no update.

        Scalers take powers of 2. NaN where clipping came in between, which hides by how much.
        """
        if self._factor is None:
            return None
        power = -self._factor.log2() / 2
        return torch.where((power - power.round()).abs() < _SAME, power.round().exp2(), torch.nan).float()

    @property
    def finite(self) -> torch.Tensor:
        """Whether each pass's own gradient is finite, bool[most]; False where there was none."""
        return self._sums[3:].isfinite() if self.reduced else self._norms.totals().isfinite()

    @property
    def passes(self) -> int:
        """Backward passes of the latest step that was measured; 0: they were not told apart."""
        return len(self._fired) if len(self._fired) <= self._most else 0

    @property
    def why(self) -> str:
        """Why the latest step that was measured gave no noise; empty where it did."""
        if self._last == 1:
            return "a step has one backward pass: noise needs two micro-batches or more"
        if self._last > self._most:
            return f"a step has {self._last} backward passes: VitalsConfig(micro_batches={self._last}) makes room"
        if self._fired and any(group != self._fired[0] for group in self._fired):
            return "backward passes reach other parameters than each other: they are no micro-batches of one loss"
        return ""

    def close(self) -> None:
        """Take the hooks off."""
        self._norms.close()
        for handle in self._handles:
            handle.remove()

    def _spoilt(self, why: str) -> None:
        """Note that a hook failed."""
        self._on = False
        self._norms.pause()
        self._together.fill_(math.nan)
        self._failed(why)

    def _updates(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """Compare some gradients with what backward passes made: a scaler and clipping multiply all of them alike."""
        if not self._adding or self._now is not None:
            return
        with torch.no_grad():
            now = _squares(self._few.values()).double().where(self._counts[self._which], 0.0).sum()
            scale = getattr(optimizer, "grad_scale", None)  # fused ones unscale within their step
            self._now = now if scale is None else now / scale.to(now).square().reshape(())

    def _passes(self, index: int) -> Callable[[torch.Tensor], None]:
        def see(_: torch.Tensor) -> None:
            if not self._adding:
                return
            task = int(getattr(_ENGINE, _TASK)())
            if task != self._task:
                self._begin_pass(task)
            if self._on:
                self._fired[-1].add(index)

        return see

    def _begin_pass(self, task: int) -> None:
        """Begin a backward pass, at its first gradient, and have torch's engine say when it is over."""
        self._task = task
        engine = torch.autograd.Variable._execution_engine  # noqa: SLF001 - what DDP hears the end of a pass from
        engine.queue_callback(Hook(self._end_pass, self._spoilt))
        if self._on:
            self._fired.append(set())
            if len(self._fired) <= self._most:
                self._norms.begin(len(self._fired) - 1)
            else:
                self._norms.pause()

    def _end_pass(self) -> None:
        """Take norms of the pass's own gradients, and of what all passes have added up."""
        if self._adding:
            with torch.no_grad():
                self._norms.end()
                self._together.copy_(_squares(self._parameters))
                if self.reduced and 0 < len(self._fired) <= self._most:
                    self._nested[len(self._fired) - 1].copy_(self._together.double().where(self._counts, 0.0).sum())
            self._added = True


def _squares(parameters: Iterable[torch.nn.Parameter]) -> torch.Tensor:
    """Return the squared norm of the gradient of each parameter, float32[parameters]; 0 where there is none."""
    gradients = [gradient_of(parameter) for parameter in parameters]
    norms = iter(norms_of([item for item in gradients if item is not None]))
    none = torch.zeros((), device=next(iter(parameters)).device)
    return torch.stack([none if item is None else next(norms) for item in gradients]).square()


def _smallest(
    parameters: Sequence[torch.nn.Parameter], optimizer: torch.optim.Optimizer
) -> dict[int, torch.nn.Parameter]:
    """Return the smallest parameters of an optimizer, by their index."""
    own = {id(item) for group in optimizer.param_groups for item in group["params"]}
    numbered = [(index, parameter) for index, parameter in enumerate(parameters) if id(parameter) in own]
    return dict(sorted(numbered, key=lambda item: item[1].numel())[:_FEW])
