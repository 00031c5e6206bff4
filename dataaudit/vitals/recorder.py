"""Operators that measure tensors of a forward pass, and the recorder that says which of them measure now.

A compiler sees a call that writes to a buffer, and cannot look inside. Whether anything is measured is decided on the
host, in a :class:`Recorder` that the operator reads when it runs: measuring moves from layer to layer without compiling
again. Hooks are set before a model is compiled.

An operator that runs inside a backward pass does nothing: checkpointing runs a forward pass again there, and its first
run has been measured.
"""

from __future__ import annotations

import importlib
import itertools
import re
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from dataaudit.base.errors import CatchErrors
from dataaudit.vitals.attention import ROW_STATS, Scores, attention_rows, head_statistics, rows_of_logits, sample_rows
from dataaudit.vitals.attention_pass import PASS_STATS, attention_pass, by_kernel, pass_statistics, why_no_pass
from dataaudit.vitals.norms import norm

OUTLIER_SIGMA = 6.0
"""A value is an outlier that lies more standard deviations than this from the mean."""
ACTIVATION_STATS = ("mean_abs", "mean", "variance", "outliers", "fourth", "largest", "channel")
HEAD_STATS = (*ROW_STATS, *PASS_STATS)
ROTATION = 8
"""Of this many layers one has all its rows measured in a step."""
_CHUNK_ROWS = 128
"""Rows of a layer's units whose absolute values are made at once on a CPU: what its cache holds."""
_CHUNK, _MOST = 1 << 16, 1 << 24
"""Elements that are centred at once on a CPU, and on another device: 64 MiB in float32."""
MOST_FAILURES = 8
"""Failures of a site, after which it is left alone."""
_TASK = "_current_graph_task_id"
"""Of torch's engine: -1 outside of a backward pass."""
_ENGINE = importlib.import_module("torch._C")
_IDS = itertools.count()
_SITES: weakref.WeakValueDictionary[int, Site] = weakref.WeakValueDictionary()


class UnfitError(ValueError):
    """Attention is given other tensors than its module promised."""


class Recorder:
    """Says which sites are measured now; it lives on the host, where operators read it."""

    def __init__(self, sites: int, micro_batches: int) -> None:
        self.micro_batches = micro_batches
        self.on = bytearray(sites)
        """Whether a site is measured."""
        self.seen = [0] * sites
        """Forward passes of this step that were measured there."""
        self.all_rows = bytearray(sites)
        """Whether all rows of attention are measured there, not sampled rows alone."""
        self.open = False
        """Whether a step is open; hooks do nothing where none is."""
        self.failures: dict[int, int] = {}
        """By site, in how many steps something of ours failed there."""
        self.why: dict[int, str] = {}
        """By site, why it could not be measured in this step."""
        self.failed: set[int] = set()
        """Sites that are left alone: unfit, or failed :data:`MOST_FAILURES` times."""
        self.own_logits: set[int] = set()
        """Sites whose model makes logits itself: queries and keys are not seen there."""
        self.refused: set[int] = set()
        """Sites where all rows and sampled ones did not agree: only sampled ones are measured from then on."""
        self.tokens = 0
        """Tokens that the first site was given in this step."""
        self.counted = [0] * sites
        """Elements or rows of this step that shares of a site are of."""
        self.batch_row = 0
        """Row of the batch whose attention and outliers are measured."""

    def start(self, sites: list[int], *, turn: int, closely: bool = False) -> None:
        """Begin a step in which some sites are measured."""
        self.stop()
        self.open = True
        self.all_rows[:] = bytes(len(self.on))
        self.why.clear()
        for site in sites:
            self.on[site] = site not in self.failed
            self.all_rows[site] = (closely or (site - turn) % ROTATION == 0) and site not in self.refused
        self.seen, self.counted = [0] * len(self.on), [0] * len(self.on)
        self.tokens = 0

    def stop(self) -> None:
        """Measure nothing until the next step."""
        self.open = False
        self.on[:] = bytes(len(self.on))

    def fail(self, site: int, why: str, *, unfit: bool = False) -> None:
        """Note that a site could not be measured: it costs the step's number."""
        self.failures[site] = self.failures.get(site, 0) + 1
        self.why[site] = why
        self.on[site] = self.seen[site] = 0
        if unfit or self.failures[site] >= MOST_FAILURES:
            self.failed.add(site)


@dataclass(slots=True, kw_only=True, eq=False, weakref_slot=True)
class Site:
    """Where an operator measures: a part of a layer, and the row of a buffer that it writes to."""

    recorder: Recorder
    number: int
    """Among the recorder's sites."""
    index: int
    """Row of the buffer."""
    layer: int
    """-1: the whole model."""
    part: str
    """attention, mlp, block, embedding or final_norm: activations; ``units``; ``heads``."""
    heads: int = 0
    first_head: int = 0
    """Number in the whole model of the first of these heads: tensor parallelism has some on each rank."""
    rows: int = 0
    """Rows of attention that are sampled."""
    id: int = field(default_factory=lambda: next(_IDS))
    """What operators are given."""

    def __post_init__(self) -> None:
        _SITES[self.id] = self

    @property
    def what(self) -> str:
        """What is measured there, for messages."""
        return "attention" if self.part == "heads" else self.part

    @property
    def measures(self) -> bool:
        """Whether a forward pass that runs now is measured."""
        return bool(self.recorder.on[self.number]) and getattr(_ENGINE, _TASK)() == -1

    def next_row(self) -> int:
        """Count a forward pass and return the micro-batch's row that it writes to."""
        row = self.recorder.seen[self.number]
        self.recorder.seen[self.number] = row + 1
        return row % self.recorder.micro_batches

    def count(self, number: int) -> None:
        """Add elements or rows that shares of this site are of."""
        self.recorder.counted[self.number] += number


def _activations(values: torch.Tensor, slots: torch.Tensor, site: Site) -> None:
    """Write the statistics of activations; on a device by 14 kernels of a block, and by 2 of other modules."""
    if not values.numel():
        return
    row = site.next_row()
    with torch.autocast(values.device.type, enabled=False):
        count, values = values.numel(), values.detach()
        if site.number == 0:
            site.recorder.tokens += count // values.shape[-1]
        own, size = slots[site.index, row], norm(values, 1)
        if site.part != "block":
            torch.div(size, count, out=own[0])
            return
        mean, rows = values.mean(dtype=torch.float32).reshape(1), values.flatten(0, -2)
        total, root, squares = _moments(rows, mean)
        mean_abs, variance, fourth = torch._foreach_div((size, total, root), (count, count, count**0.5))  # noqa: SLF001
        variance, chosen = variance.float(), site.recorder.batch_row % len(values)
        some = (values[chosen] - mean).square_() if squares is None else squares.view(values.shape)[chosen]
        site.count(some.numel())
        outliers = some.gt_(OUTLIER_SIGMA**2 * variance).mean(dtype=torch.float32)
        torch.stack([mean_abs, mean[0], variance, outliers, fourth.float(), *_largest(rows)], out=own)


def _moments(rows: torch.Tensor, mean: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return sums of (x - mean)^2 and the root of that of (x - mean)^4, and all squares where they were made at once.

    ``mean``, float32[1], has a dimension, so that differences are of float32 where values are below.
    """
    on_cpu, sums, roots = rows.device.type == "cpu", [], []
    for some in rows.split(max(1, (_CHUNK if on_cpu else _MOST) // rows.shape[1])):
        squares = (some - mean).square_()
        sums.append(squares.sum())
        roots.append(torch.linalg.vector_norm(squares, dim=1 if on_cpu else None))  # a CPU adds up one by one
    if len(sums) > 1:
        return torch.stack(sums).sum(), torch.linalg.vector_norm(torch.hstack(roots)), None
    return sums[0], torch.linalg.vector_norm(roots[0]) if on_cpu else roots[0], squares


def _largest(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest |x| and the number of its channel, the last dimension, float32 scalars."""
    if rows.device.type == "cpu":  # a norm is 25 times slower there
        channels = torch.maximum(rows.amax(0), -rows.amin(0))
    else:
        channels = torch.linalg.vector_norm(
            rows, torch.inf, dim=0, dtype=torch.promote_types(rows.dtype, torch.float32)
        )
    largest, channel = channels.max(0)
    return largest.float(), channel.float()


def _units(values: torch.Tensor, slots: torch.Tensor, site: Site) -> None:
    if not values.numel():
        return
    row = site.next_row()
    with torch.autocast(values.device.type, enabled=False):
        values = values.detach().flatten(0, -2)
        own = slots[site.index, row, : values.shape[-1]]
        if values.device.type == "cpu":
            total = own.zero_()
            for part in values.split(_CHUNK_ROWS):
                total.add_(part.abs().sum(0, dtype=torch.float32))
        else:
            total = torch.linalg.vector_norm(values, 1, dim=0, dtype=torch.float32)
        torch.div(total, max(1, values.shape[0]), out=own)


def _heads(
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor | None,
    sinks: torch.Tensor | None,
    slots: torch.Tensor,
    site: Site,
    scale: float,
    causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
) -> None:
    """Write the statistics of sampled rows of one row of the batch, head by head; in its turn those of all rows."""
    if not query.numel() or not key.numel():
        return
    row = site.next_row()
    if query.dim() != 4:
        raise UnfitError(f"queries of {query.dim()} dimensions, expected [batch, heads, rows, width]")
    if query.shape[1] != site.heads:
        raise UnfitError(f"queries of {query.shape[1]} heads, expected {site.heads}")
    chosen = site.recorder.batch_row % query.shape[0]
    item = slice(chosen, chosen + 1)
    if mask is not None:
        mask = mask[:, None] == mask if mask.dim() == 1 else mask  # of each row its document
        mask = mask[(None,) * (4 - mask.dim())]
        mask = mask if mask.is_floating_point() else mask.bool()
        mask = mask[item] if mask.shape[0] > 1 else mask
    if sinks is not None:
        sinks = (sinks[item] if sinks.dim() > 1 and len(sinks) > 1 else sinks).detach()
    own = slots[site.index, row, : query.shape[1]]
    query, key = query[item].detach(), key[item].detach()
    scores = Scores(scale, causal, window, softcap, mask, sinks)
    closely = site.recorder.all_rows[site.number] and why_no_pass(query.device, scores.softcap) is None
    site.count(min(query.shape[2], site.rows))
    if not closely and by_kernel(query, scores):
        from dataaudit.vitals.attention_triton import write_sampled

        write_sampled(own[:, : len(ROW_STATS)], query, key, scores, min(query.shape[2], site.rows))
        return
    rows = sample_rows(query.shape[2], site.rows, query.device)
    sampled = attention_rows(query, key, scores, rows)
    own[:, : len(ROW_STATS)].copy_(head_statistics(sampled))
    if closely:
        own[:, len(ROW_STATS) :].copy_(pass_statistics(attention_pass(query, key, scores), sampled, rows))


def _logits(logits: torch.Tensor, slots: torch.Tensor, site: Site) -> None:
    """Write the statistics of sampled rows of logits that a model made."""
    if not logits.numel():
        return
    row = site.next_row()
    site.recorder.own_logits.add(site.number)
    if logits.dim() == 3:  # batch and heads in one
        logits = logits.unflatten(0, (-1, site.heads))
    if logits.dim() != 4 or logits.shape[1] != site.heads:
        raise UnfitError(f"logits of {[*logits.shape]}, expected [batch, {site.heads} heads, rows, keys]")
    chosen = site.recorder.batch_row % logits.shape[0]
    rows = sample_rows(logits.shape[2], site.rows, logits.device)
    with torch.autocast(logits.device.type, enabled=False):
        site.count(len(rows))
        sampled = rows_of_logits(logits[chosen : chosen + 1, :, rows].detach())
        found = head_statistics(sampled)
        slots[site.index, row, : site.heads, : found.shape[1]].copy_(found)


def _projected_heads(
    query: torch.Tensor,
    key: torch.Tensor,
    query_weight: torch.Tensor,
    key_weight: torch.Tensor,
    query_bias: torch.Tensor | None,
    key_bias: torch.Tensor | None,
    mask: torch.Tensor | None,
    slots: torch.Tensor,
    site: Site,
) -> None:
    """Project the inputs of one row of the batch, [B, L, E], as ``nn.MultiheadAttention`` does, then as above."""
    if not query.numel():
        return
    chosen = site.recorder.batch_row % query.shape[0]
    item = slice(chosen, chosen + 1)
    with torch.no_grad(), torch.autocast(query.device.type, enabled=False):
        linear = torch.nn.functional.linear
        queries = linear(query[item].to(query_weight.dtype), query_weight, query_bias)
        keys = linear(key[item].to(key_weight.dtype), key_weight, key_bias)
        queries, keys = (each.unflatten(-1, (site.heads, -1)).transpose(1, 2) for each in (queries, keys))
        if mask is not None and mask.shape[0] > 1:
            mask = mask[item]
        _heads(queries, keys, mask, None, slots, site, queries.shape[-1] ** -0.5)


def _failed(slots: torch.Tensor, site: Site, why: str) -> None:
    """Note that a hook failed before it could hand over what it saw."""
    site.recorder.fail(site.number, why)
    slots[site.index].fill_(torch.nan)


def _operator(name: str, body: Callable[..., None], schema: str) -> Any:
    """Return an operator that calls a function with the site of an id, while that is measured."""
    names = re.findall(r"(\w+)(?=[,)])", schema)
    slots, at = names.index("slots"), names.index("site")

    def run(*args: Any) -> None:
        """Measure; a failure here does not end a run, and is reported."""
        site = _SITES.get(args[at])
        if site is None or not (site.recorder.on[site.number] if body is _failed else site.measures):
            return
        with CatchErrors() as call:
            body(*args[:at], site, *args[at + 1 :])
        if call.error is not None:
            unfit = isinstance(call.error, UnfitError)
            site.recorder.fail(site.number, str(call.error) if unfit else call.origin, unfit=unfit)
            with CatchErrors():
                args[slots][site.index].fill_(torch.nan)

    made = torch.library.custom_op(
        f"dataaudit::{name}", run, mutates_args=("slots",), schema=schema, tags=(torch.Tag.cudagraph_unsafe,)
    )
    made.register_fake(lambda *_: None)
    return made


see_activations = _operator("activations", _activations, "(Tensor values, Tensor(a!) slots, int site) -> ()")
"""Write mean |x| to the site's row, float32[..., 7]; of blocks the other :data:`ACTIVATION_STATS`, too."""
see_units = _operator("units", _units, "(Tensor values, Tensor(a!) slots, int site) -> ()")
"""Write mean |h| of every unit, the last dimension, to the site's row, float32[..., units]."""
see_heads = _operator(
    "heads",
    _heads,
    "(Tensor query, Tensor key, Tensor? mask, Tensor? sinks, Tensor(a!) slots, int site,"
    " float scale, bool causal, int? window, float? softcap) -> ()",
)
"""Write :data:`HEAD_STATS` of one row of the batch to the site's row, float32[..., heads, 12]."""
see_projected_heads = _operator(
    "projected_heads",
    _projected_heads,
    "(Tensor query, Tensor key, Tensor query_weight, Tensor key_weight, Tensor? query_bias, Tensor? key_bias,"
    " Tensor? mask, Tensor(a!) slots, int site) -> ()",
)
"""The same, for queries and keys that are not projected yet."""
see_logits = _operator("logits", _logits, "(Tensor logits, Tensor(a!) slots, int site) -> ()")
"""The same but for all rows, from logits of a matrix that the model makes itself."""
see_failure = _operator("failure", _failed, "(Tensor(a!) slots, int site, str why) -> ()")
"""Note that a hook failed: the step has no number of its site."""
