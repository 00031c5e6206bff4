"""Taps: hooks that read tensors that a forward pass makes anyway, through opaque operators.

A compiler sees a call that writes to a buffer, and cannot look inside. Whether anything is measured is decided on the
host, in a :class:`Watch` that the operator reads when it runs: measuring moves from layer to layer without compiling
again. Taps are set before a model is compiled.

An operator that runs inside a backward pass does nothing: it belongs to a pass that checkpointing makes a second time,
and whose first has been measured.
"""

from __future__ import annotations

import importlib
import itertools
import re
import weakref
from collections.abc import Callable
from typing import Any

import torch

from dataaudit.base.errors import Guarded
from dataaudit.vitals.attention import attention_rows, head_statistics, rows_of_logits, sample_rows
from dataaudit.vitals.attention_pass import PASS_STATS, attention_pass, pass_statistics, why_no_pass
from dataaudit.vitals.norms import norm

OUTLIER_SIGMA = 6.0
"""A value is an outlier that lies more standard deviations than this from the mean."""
ACTIVATION_STATS = ("mean_abs", "rms", "outliers")
ROW_STATS = ("max", "entropy", "normalised", "dead")
HEAD_STATS = (*ROW_STATS, *PASS_STATS)
ROTATION = 8
"""Of this many layers one has all its rows looked at in a step."""
_CHUNK_ROWS = 128
"""Rows of a layer's units whose absolute values are held at once on a CPU: what its cache holds."""
MOST_FAILURES = 8
"""Failures of a place, after which it is left alone."""
_TASK = "_current_graph_task_id"
"""Of torch's engine: -1 outside of a backward pass."""
_ENGINE = importlib.import_module("torch._C")
_NUMBERS = itertools.count()
_WATCHES: weakref.WeakValueDictionary[int, Watch] = weakref.WeakValueDictionary()


class UnfitError(ValueError):
    """What attention is given is not what was found in the model."""


class Watch:
    """What is measured now, place by place; kept on the host, where operators read it.

    Args:
        places: Number of places.
        micro_batches: Batches of a step that have a row each; a later one takes the row of the first again.
    """

    def __init__(self, places: int, micro_batches: int) -> None:
        self.number = next(_NUMBERS)
        self.micro_batches = micro_batches
        self.on = bytearray(places)
        """Whether a place is measured."""
        self.seen = [0] * places
        """Forward passes of this step that were measured there."""
        self.all_rows = bytearray(places)
        """Whether all rows of attention are looked at there, not sampled ones alone."""
        self.heads: dict[int, int] = {}
        """Heads of attention, by place."""
        self.open = False
        """Whether a step is open; hooks do nothing where none is."""
        self.failures: dict[int, int] = {}
        """By place, in how many steps something of ours failed there."""
        self.why: dict[int, str] = {}
        """By place, why it could not be measured in this step."""
        self.failed: set[int] = set()
        """Places that are left alone: they are not as they were found, or failed :data:`MOST_FAILURES` times."""
        self.refused: set[int] = set()
        """Places where all rows and sampled ones did not agree: sampled ones alone are looked at from then on."""
        self.tokens = 0
        """Tokens that the first place was given in this step."""
        self.counted = [0] * places
        """Elements or rows of this step that shares of a place are of."""
        self.batch_row = 0
        """Row of the batch whose attention and outliers are measured."""
        _WATCHES[self.number] = self

    def start(self, places: list[int], *, turn: int, closely: bool = False) -> None:
        """Begin a step in which some places are measured."""
        self.open = True
        self.on[:] = bytes(len(self.on))
        self.all_rows[:] = bytes(len(self.on))
        self.why.clear()
        for place in places:
            self.on[place] = place not in self.failed
            self.all_rows[place] = (closely or (place - turn) % ROTATION == 0) and place not in self.refused
        self.seen, self.counted = [0] * len(self.on), [0] * len(self.on)
        self.tokens = 0

    def stop(self) -> None:
        """Measure nothing until the next step."""
        self.open = False
        self.on[:] = bytes(len(self.on))

    def fail(self, place: int, why: str, *, unfit: bool = False) -> None:
        """Take that a place could not be measured: it costs the step's number."""
        self.failures[place] = self.failures.get(place, 0) + 1
        self.why[place] = why
        self.on[place] = self.seen[place] = 0
        if unfit or self.failures[place] >= MOST_FAILURES:
            self.failed.add(place)


def _in_backward() -> bool:
    return bool(getattr(_ENGINE, _TASK)() != -1)


def _row(watch: int, place: int) -> int | None:
    """Return the row of the place's buffer that a pass writes to; None: it is not measured."""
    held = _WATCHES.get(watch)
    if held is None or not held.on[place] or _in_backward():
        return None
    row = held.seen[place]
    held.seen[place] = row + 1
    return row % held.micro_batches


def _activations(values: torch.Tensor, slots: torch.Tensor, watch: int, place: int, spread: bool) -> None:
    if not values.numel() or (row := _row(watch, place)) is None:
        return
    with torch.autocast(values.device.type, enabled=False):
        count, held = values.numel(), values.detach()
        if place == 0:
            _WATCHES[watch].tokens += count // values.shape[-1]
        slots[place, row, 0].copy_(norm(held, 1) / count)
        if spread:
            mean = held.sum(dtype=torch.float32) / count
            square = norm(held).square() / count
            far = OUTLIER_SIGMA * (square - mean.square()).clamp_min(0.0).sqrt()
            some = held[_WATCHES[watch].batch_row % len(held)]
            _WATCHES[watch].counted[place] += some.numel()
            outliers = torch.count_nonzero((some.float() - mean).abs_() > far)
            slots[place, row, 1].copy_(square.sqrt())
            slots[place, row, 2].copy_(outliers / some.numel() + 0 * square)  # of what is not finite there is no share


def _units(values: torch.Tensor, slots: torch.Tensor, watch: int, place: int, index: int) -> None:
    if not values.numel() or (row := _row(watch, place)) is None:
        return
    with torch.autocast(values.device.type, enabled=False):
        held = values.detach().flatten(0, -2)
        total = slots[index, row, : held.shape[-1]].zero_()
        if held.device.type == "cpu":
            for part in held.split(_CHUNK_ROWS):
                total.add_(part.abs().sum(0, dtype=torch.float32))
        else:
            total.copy_(torch.linalg.vector_norm(held, 1, dim=0, dtype=torch.float32))
        total.div_(max(1, held.shape[0]))


def _heads(
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor | None,
    sinks: torch.Tensor | None,
    slots: torch.Tensor,
    watch: int,
    place: int,
    index: int,
    rows: int,
    scale: float,
    causal: bool,
    window: int | None,
    softcap: float | None,
) -> None:
    """Write the statistics of sampled rows of one row of the batch, head by head; in its turn those of all rows."""
    if not query.numel() or not key.numel() or (row := _row(watch, place)) is None:
        return
    if query.dim() != 4:
        raise UnfitError(f"queries of {query.dim()} dimensions, expected [batch, heads, rows, width]")
    if query.shape[1] != (expected := _WATCHES[watch].heads.get(place, query.shape[1])):
        raise UnfitError(f"queries of {query.shape[1]} heads, expected {expected}")
    chosen = _WATCHES[watch].batch_row % query.shape[0]
    item = slice(chosen, chosen + 1)
    if mask is not None:
        mask = mask[(None,) * (4 - mask.dim())]
        mask = mask if mask.is_floating_point() else mask.bool()
        mask = mask[item] if mask.shape[0] > 1 else mask
    own = slots[index, row, : query.shape[1]]
    query, key = query[item].detach(), key[item].detach()
    named: dict[str, Any] = {
        "scale": scale,
        "mask": mask,
        "causal": causal,
        "window": window,
        "softcap": softcap,
        "sinks": None if sinks is None else (sinks[item] if sinks.dim() > 1 and len(sinks) > 1 else sinks).detach(),
    }
    chosen_rows = sample_rows(query.shape[2], rows, query.device)
    some = attention_rows(query, key, rows=chosen_rows, **named)
    _WATCHES[watch].counted[place] += len(chosen_rows)
    own[:, : len(ROW_STATS)].copy_(head_statistics(some))
    if _WATCHES[watch].all_rows[place] and why_no_pass(query.device, softcap) is None:
        own[:, len(ROW_STATS) :].copy_(pass_statistics(attention_pass(query, key, **named), some, chosen_rows))


def _logits(logits: torch.Tensor, slots: torch.Tensor, watch: int, place: int, index: int, rows: int) -> None:
    """Write the statistics of sampled rows of logits that a model made."""
    if not logits.numel() or (row := _row(watch, place)) is None:
        return
    held = _WATCHES[watch]
    heads = held.heads.get(place, 1)
    if logits.dim() == 3:  # batch and heads in one
        logits = logits.unflatten(0, (-1, heads))
    if logits.dim() != 4 or logits.shape[1] != heads:
        raise UnfitError(f"logits of {[*logits.shape]}, expected [batch, {heads} heads, rows, keys]")
    chosen = held.batch_row % logits.shape[0]
    chosen_rows = sample_rows(logits.shape[2], rows, logits.device)
    with torch.autocast(logits.device.type, enabled=False):
        held.counted[place] += len(chosen_rows)
        found = rows_of_logits(logits[chosen : chosen + 1, :, chosen_rows].detach())
        slots[index, row, :heads, : len(ROW_STATS)].copy_(head_statistics(found))


def _projected_heads(
    query: torch.Tensor,
    key: torch.Tensor,
    query_weight: torch.Tensor,
    key_weight: torch.Tensor,
    query_bias: torch.Tensor | None,
    key_bias: torch.Tensor | None,
    mask: torch.Tensor | None,
    slots: torch.Tensor,
    watch: int,
    place: int,
    index: int,
    rows: int,
    heads: int,
    causal: bool,
) -> None:
    """Project the inputs of one row of the batch, [B, L, E], as ``nn.MultiheadAttention`` does, then as above."""
    held = _WATCHES.get(watch)
    if held is None or not held.on[place] or _in_backward() or not query.numel():
        return
    chosen = held.batch_row % query.shape[0]
    item = slice(chosen, chosen + 1)
    with torch.no_grad(), torch.autocast(query.device.type, enabled=False):
        linear = torch.nn.functional.linear
        queries = linear(query[item].to(query_weight.dtype), query_weight, query_bias)
        keys = linear(key[item].to(key_weight.dtype), key_weight, key_bias)
        queries, keys = (found.unflatten(-1, (heads, -1)).transpose(1, 2) for found in (queries, keys))
        if mask is not None and mask.shape[0] > 1:
            mask = mask[item]
        scale = queries.shape[-1] ** -0.5
        _heads(queries, keys, mask, None, slots, watch, place, index, rows, scale, causal, None, None)


def _failed(slots: torch.Tensor, watch: int, place: int, index: int, why: str) -> None:
    """Take that a hook failed before it could hand over what it saw."""
    if (held := _WATCHES.get(watch)) is not None and held.on[place]:
        held.fail(place, why)
        slots[index].fill_(torch.nan)


def _operator(name: str, body: Callable[..., None], schema: str) -> Any:
    names = re.findall(r"(\w+)(?=[,)])", schema)
    slots, watch, place = (names.index(item) for item in ("slots", "watch", "place"))
    index = names.index("index") if "index" in names else place

    def run(*args: Any) -> None:
        """Measure; what fails here is no reason to end a run, and is said."""
        with Guarded() as call:
            body(*args)
        if call.error is not None and (held := _WATCHES.get(args[watch])) is not None:
            unfit = isinstance(call.error, UnfitError)
            held.fail(args[place], str(call.error) if unfit else call.origin, unfit=unfit)
            with Guarded():
                args[slots][args[index]].fill_(torch.nan)

    made = torch.library.custom_op(
        f"dataaudit::{name}",
        run,
        mutates_args=("slots",),
        schema=schema,
        tags=(torch.Tag.cudagraph_unsafe,),
    )
    made.register_fake(lambda *_: None)
    return made


see_activations = _operator(
    "activations", _activations, "(Tensor values, Tensor(a!) slots, int watch, int place, bool spread) -> ()"
)
"""Write mean |x| to ``slots[place, micro-batch]``, float32[..., 3]; with ``spread`` root mean square and outliers."""
see_units = _operator("units", _units, "(Tensor values, Tensor(a!) slots, int watch, int place, int index) -> ()")
"""Write mean |h| of every unit, the last dimension, to ``slots[index, micro-batch]``, float32[..., units]."""
see_heads = _operator(
    "heads",
    _heads,
    "(Tensor query, Tensor key, Tensor? mask, Tensor? sinks, Tensor(a!) slots, int watch, int place, int index,"
    " int rows, float scale, bool causal, int? window, float? softcap) -> ()",
)
"""Write :data:`HEAD_STATS`, of one row of the batch, to ``slots[index, micro-batch]``, float32[..., heads, 9]."""
see_projected_heads = _operator(
    "projected_heads",
    _projected_heads,
    "(Tensor query, Tensor key, Tensor query_weight, Tensor key_weight, Tensor? query_bias, Tensor? key_bias,"
    " Tensor? mask, Tensor(a!) slots, int watch, int place, int index, int rows, int heads, bool causal) -> ()",
)
"""The same, for queries and keys that are not projected yet."""
see_logits = _operator(
    "logits",
    _logits,
    "(Tensor logits, Tensor(a!) slots, int watch, int place, int index, int rows) -> ()",
)
"""The same but for all rows, from logits of a matrix that the model makes itself."""
see_failure = _operator("failure", _failed, "(Tensor(a!) slots, int watch, int place, int index, str why) -> ()")
"""Take that a hook failed: the step has no number of its place."""


def first_tensor(output: object) -> torch.Tensor | None:
    """Return what a module returns, or the first of it; None where that is no tensor."""
    if isinstance(output, dict):
        output = next(iter(output.values()), None)
    found = output[0] if isinstance(output, tuple | list) and output else output
    return found if isinstance(found, torch.Tensor) else None
