"""Routers of mixtures of experts: where they are in a model, and an operator that counts what they choose.

A router is found by its structure. Experts are parameters of three dimensions, [E, ., .], or E modules of one type in a
list. Their router is a neighbour that holds a matrix [E, d], where experts take vectors of d numbers. It returns a
number for each expert, and what it chose; where it returns no choice, the k largest of these numbers are counted.

Numbers of a step are sums over all tokens that routers are given, padding too, of all its micro-batches. Only forward
passes count, not what checkpointing runs again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dataaudit.base.errors import ConfigError
from dataaudit.vitals.norms import PIECE
from dataaudit.vitals.recorder import Recorder, Site, see_failure
from dataaudit.vitals.recorder import _operator as operator
from dataaudit.vitals.structure import Mapping, Structure, names_used

_TOP_K = (
    *("top_k", "topk", "num_experts_per_tok", "num_experts_per_token", "moe_k", "n_activated_experts"),
    *("moe_top_k", "moe_topk", "experts_per_token", "num_selected_experts", "num_active_experts", "k"),
)
"""What the number of experts a token is sent to is called, in a module or in its config."""
_CAPACITY = ("expert_capacity", "capacity")
_FACTORS = ("capacity_factor", "expert_capacity_factor", "moe_expert_capacity_factor")
SUMS = ("entropy", "tokens", "sent", "dropped")
"""Sums of a router beside those of each expert."""
SOFTMAX, SIGMOID = "softmax over all experts", "sigmoids of all experts over their sum"
NO_ROUTER = "no router of experts found"
NO_CHOICES = "how many experts a token is sent to is not known: Mapping(..., top_k=...)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """A router, and what it chooses from."""

    layer: int
    module: nn.Module
    weight: nn.Parameter
    """[experts, d]."""
    experts: int
    top_k: int
    """Experts that a token is sent to; 0: what the router returns says it."""
    sigmoid: bool
    """Whether its scores are sigmoids, which are normalised here; else a softmax over all experts."""
    capacity: int = 0
    """Choices that an expert takes of a forward pass; 0: all, or as the factor says."""
    factor: float = 0.0
    """Times an expert's even share of the choices that it takes; 0: there is none."""
    least: int = 0
    """Choices that it takes whatever the factor."""
    rounds_up: bool = True

    @property
    def drops(self) -> bool:
        """Whether experts have a capacity."""
        return bool(self.capacity or self.factor)

    def room(self, choices: int) -> int:
        """Return how many of a pass's choices an expert takes; all where it has no capacity."""
        if self.capacity or not self.factor:
            return self.capacity or choices
        share = self.factor * choices / self.experts
        return max(self.least, math.ceil(share) if self.rounds_up else int(share))


@dataclass(slots=True, kw_only=True, eq=False)
class RouterSite(Site):
    """Where the operator counts."""

    router: Router
    sources: SourceCounts


class SourceCounts:
    """Counts of (source, expert) by layer, while sources of tokens are handed over."""

    def __init__(self, routers: int, experts: int, device: torch.device) -> None:
        self.ids: torch.Tensor | None = None
        """int64[rows] or [rows, tokens]: sources of the batch that comes next."""
        self.table: torch.Tensor | None = None
        """int64[routers, sources + 1, experts + 1] of a window; the last of each: out of range."""
        self.why = ""
        """Why a batch was not counted by source."""
        self._shape, self._device = (routers, experts + 1), device

    def use(self, ids: torch.Tensor, sources: int) -> None:
        """Take the sources of a batch; another number of sources begins the table anew."""
        if self.table is None or self.table.shape[1] != sources + 1:
            routers, experts = self._shape
            self.table = torch.zeros(routers, sources + 1, experts, dtype=torch.int64, device=self._device)
        self.ids = ids.long().where((ids >= 0) & (ids < sources), sources)

    def add(self, row: int, chosen: torch.Tensor) -> None:
        """Count experts that were chosen, int64[tokens, k], of a layer."""
        if self.ids is None or self.table is None:
            return
        tokens, ids = len(chosen), self.ids.reshape(-1)
        if tokens % max(1, len(ids)):
            self.why = f"a router was given {tokens} tokens where {len(ids)} sources were handed over"
            return
        each = ids[:, None].expand(-1, tokens // len(ids)).reshape(-1, 1) * self._shape[1] + chosen
        own = self.table[row].view(-1)
        own.scatter_add_(0, each.flatten(), torch.ones_like(each).flatten())


class Routers:
    """Sites of routers, and the buffer that the operator writes to."""

    def __init__(self, routers: Sequence[Router], device: torch.device) -> None:
        self.found = tuple(routers)
        self.widest = max((item.experts for item in self.found), default=0)
        self.sums = torch.zeros(len(self.found), 2 * self.widest + len(SUMS), device=device)
        """Float32[routers, ...]: of each expert choices, then probabilities; then :data:`SUMS`."""
        self.own = torch.zeros(len(self.found), self.widest, dtype=torch.bool, device=device)
        """bool[routers, experts]: which a router has."""
        for row, item in enumerate(self.found):
            self.own[row, : item.experts] = True
        self.sources = SourceCounts(len(self.found), self.widest, device)
        self.unchosen = any(type(item.module) is nn.Linear and not item.top_k for item in self.found)
        """Whether a router returns logits alone, and how many of them are chosen is not known."""

    @property
    def estimator(self) -> str:
        """Which shares entropies are of, in words."""
        kinds = {SIGMOID if item.sigmoid else SOFTMAX for item in self.found}
        return "; ".join(sorted(kinds)) or "none"

    def why_none(self) -> str | None:
        """Return that there is no router; None where there is."""
        return None if self.found else NO_ROUTER

    def in_words(self, layers: int) -> str:
        """Return how many layers have a router, and of how many experts."""
        sizes = sorted({f"{item.experts} experts, {item.top_k or 'some'} a token" for item in self.found})
        return f"{len(self.found)} of {layers} layers" + "".join(f", {item}" for item in sizes)

    def clear(self) -> None:
        """Begin a step."""
        self.sums.zero_()
        self.sources.ids = None

    def site(self, row: int, recorder: Recorder, number: int) -> RouterSite:
        """Return the site of a router."""
        own = self.found[row]
        named: dict[str, Any] = {"layer": own.layer, "part": "router", "router": own, "sources": self.sources}
        return RouterSite(recorder=recorder, number=number, index=row, **named)

    def see(self, site: RouterSite, output: object) -> None:
        """Hand what a router returns to the operator."""
        logits, chosen = _read(output, site.router.experts)
        if logits is None:
            see_failure(self.sums, site.id, f"it returns no number for each of {site.router.experts} experts")
        else:
            self.unchosen |= chosen is None and not site.router.top_k
            see_router(logits.detach(), chosen, self.sums, site.id)

    def read(self) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        """Return a step's choices and probabilities, [routers, experts], and :data:`SUMS`, [routers]."""
        counts, probabilities, rest = self.sums.split((self.widest, self.widest, len(SUMS)), 1)
        return counts, probabilities, dict(zip(SUMS, rest.unbind(1), strict=True))


def find_routers(structure: Structure, mapping: Mapping | None) -> list[Router]:
    """Find the router of each layer that has one."""
    routers = []
    for layer in structure.layers:
        named = None if mapping is None else mapping.router
        if named is not None and _child(layer.module, named) is None:
            continue  # a layer without experts
        found = next(iter(_candidates(layer.module, named)), None)
        if found is not None:
            routers.append(_router(layer.index, *found, mapping))
    if mapping is not None and mapping.router is not None and not routers:
        raise ConfigError(f"vitals: the mapping's router, {mapping.router}, is no module with a matrix in any layer")
    return routers


def _child(module: nn.Module, name: str) -> nn.Module | None:
    """Return a module of a name; None where there is none."""
    return dict(module.named_modules()).get(name)


def _candidates(layer: nn.Module, named: str | None) -> Iterator[tuple[nn.Module, nn.Module, nn.Parameter]]:
    """Yield blocks, routers within, and the routers' matrices; a name says which router it is."""
    if named is not None:
        router, block = _child(layer, named), _child(layer, named.rpartition(".")[0])
        matrices = [item for item in ([] if router is None else router.parameters()) if item.dim() == 2]
        if router is not None and block is not None and matrices:
            yield block, router, matrices[-1]
        return
    parents = {id(child): module for module in layer.modules() for child in module.children()}
    for holder in layer.modules():
        experts, widths = _experts(holder)
        above: nn.Module | None = parents.get(id(holder)) if _is_list(holder) else holder
        while experts > 1 and above is not None:
            for child in above.children():
                total = sum(item.numel() for item in child.parameters())
                for weight in child.parameters():
                    of_experts = weight.dim() == 2 and weight.shape[0] == experts and weight.shape[1] in widths
                    if of_experts and total < 2 * weight.numel():
                        yield above, child, weight
            above = parents.get(id(above))


def _is_list(module: nn.Module) -> bool:
    return isinstance(module, nn.ModuleList | nn.ModuleDict)


def _experts(module: nn.Module) -> tuple[int, set[int]]:
    """Return how many experts a module holds, 0 for none, and the lengths of what their matrices take or return."""
    own = [item for item in module.parameters(recurse=False) if item.dim() == 3]
    if own and not isinstance(module, nn.Conv1d | nn.ConvTranspose1d):
        return own[0].shape[0], {size for item in own for size in item.shape[1:]}
    children = list(module.children())
    if _is_list(module) and len({type(item) for item in children}) == 1:
        return len(children), {size for item in children[0].parameters() if item.dim() == 2 for size in item.shape}
    return 0, set()


def _router(layer: int, block: nn.Module, router: nn.Module, weight: nn.Parameter, mapping: Mapping | None) -> Router:
    used = [names_used(type(item)) for item in (router, block) if not type(item).__module__.startswith("torch.nn.")]
    kind = next((own for item in used if (own := item & {"softmax", "sigmoid"})), {"softmax"})
    names = set().union(*used)
    owners: list[Any] = [router, block]
    owners += [getattr(item, "config", None) for item in owners]

    def number(names: Sequence[str], of: Any = int, most: float = math.inf) -> Any:
        named = (getattr(owner, name, None) for owner in owners for name in names)
        return next((item for item in named if isinstance(item, of) and 0 < item <= most), 0)

    drops = all(getattr(item, "drop_tokens", True) for item in owners)
    return Router(
        layer=layer,
        module=router,
        weight=weight,
        experts=weight.shape[0],
        top_k=(0 if mapping is None else mapping.top_k) or number(_TOP_K, most=weight.shape[0]),
        sigmoid="softmax" not in kind,
        capacity=number(_CAPACITY),
        factor=float(number(_FACTORS, int | float)) if drops else 0.0,
        least=number(("min_capacity",)),
        rounds_up="ceil" in names or not names & {"int", "floor"},
    )


def _read(output: object, experts: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return the number of each expert, and what was chosen, of what a router returns; None where there is none."""
    items = list(output.values()) if isinstance(output, dict) else output
    items = list(items) if isinstance(items, tuple | list) else [items]
    tensors = [item for item in items if isinstance(item, torch.Tensor) and item.dim() > 1]
    wide = [item for item in tensors if item.is_floating_point() and item.shape[-1] == experts]
    if not wide:
        return None, None
    whole = [item for item in tensors if not item.is_floating_point() and item.shape[:-1] == wide[0].shape[:-1]]
    return (wide[0], whole[0]) if whole else (wide[-1], None)  # scores may stand before logits


def _routed(logits: torch.Tensor, chosen: torch.Tensor | None, sums: torch.Tensor, site: RouterSite) -> None:
    router, own = site.router, sums[site.index]
    experts, widest = router.experts, (sums.shape[1] - len(SUMS)) // 2
    logits = logits.flatten(0, -2)
    if not (tokens := len(logits)):
        return
    site.next_row()
    counts, probabilities, rest = own[:experts], own[widest : widest + experts], own[2 * widest :]
    with torch.autocast(logits.device.type, enabled=False):
        if chosen is None:
            chosen = logits.topk(router.top_k).indices  # none where that is not known
        chosen = chosen.flatten(0, -2)
        masked = chosen.shape[-1] == experts != router.top_k
        sent = tokens * ((router.top_k or 1) if masked else chosen.shape[-1])
        if masked:  # it lacks what was dropped
            chosen = torch.arange(experts, device=chosen.device).where(chosen > 0, experts)
        chosen = chosen.where((chosen >= 0) & (chosen < experts), experts).long()
        flat = chosen.flatten()
        new = torch.zeros(experts + 1, device=flat.device)
        new.scatter_add_(0, flat, torch.ones_like(flat, dtype=torch.float32))
        kept = new[:experts].clamp_max(router.room(sent)) if router.drops and not masked else new[:experts]
        counts.add_(new[:experts])
        rest[1].add_(tokens)
        rest[2].add_(sent)
        rest[3].add_(sent - kept.sum())
        site.count(sent)
        for part in logits.split(max(1, PIECE // experts)):
            shares = _shares(part.float(), sigmoid=router.sigmoid)
            probabilities.add_(shares.sum(0))
            rest[0].add_(torch.special.entr(shares).sum())
        site.sources.add(site.index, chosen if experts == widest else chosen.where(chosen < experts, widest))


def numbers_of_rows(weight: torch.Tensor) -> torch.Tensor:
    """Return the mean cosine and the conditioning of the rows of a matrix [E, d], float32[2]."""
    rows, experts = weight.float(), len(weight)
    units = rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    mean = rows.mean(0)
    far = torch.linalg.vector_norm(rows - mean, dim=1).amax()
    cosine = (experts * units.mean(0).square().sum() - 1) / (experts - 1)
    return torch.stack([cosine, far / torch.linalg.vector_norm(mean)])


def _shares(scores: torch.Tensor, *, sigmoid: bool) -> torch.Tensor:
    """Return the share of each expert, float32[tokens, experts], of logits, or of what sums to 1 already."""
    shares = scores.sigmoid() if sigmoid else scores.softmax(-1)
    if sigmoid:
        shares = shares / shares.sum(-1, keepdim=True)
    simplex = (scores >= 0).all() & ((scores.sum(-1) - 1).abs() < 1e-2).all()
    return torch.where(simplex, scores, shares)


see_router = operator("router", _routed, "(Tensor logits, Tensor? chosen, Tensor(a!) slots, int site) -> ()")
"""Add choices, probabilities and entropies of a router's tokens to the site's row of :attr:`Routers.sums`."""
