"""Singular values of weights, matrix by matrix in turn: the largest, how many matter, and the tail of their squares."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dataaudit.base.statistics import Floats
from dataaudit.vitals.measurement import Arrived, Measurement, Sources
from dataaudit.vitals.metric import ALL, Column, Metric, Rule, Threshold

if TYPE_CHECKING:
    import torch

    from dataaudit.vitals.host_work import HostWork, Job

SHARE = 1 / 32
"""Of all elements, that power iteration reads in a step that is measured."""
GRAM_FLOPS = 32
"""Operations per element of all matrices, that a Gram and its eigenvalues take in a step that is measured."""
MOST = 1_024
"""Matrices that are measured; of more, as many at even distances."""
_SLOW = 6
"""n³ operations of a matrix product that take as long as eigenvalues and a vector, by measurement."""
_NONE = -1.0
"""No number yet, in a checkpoint."""
ERRORS = 2.5
"""Standard errors to the upper end of an exponent: 96 to 99 % of laws that were drawn lie within so many of it."""
FITS = 0.9
"""Kolmogorov distance, times the root of the tail, above which no power law fits: 98 % of true ones lie below."""
_TRENDS = "it moves with training: a fixed rule compares it with what it lately was"
_HEAVY = "below 2 a tail is very heavy: Martin, Mahoney, arXiv 1810.01075"
_UPPER = frozenset({"upper"})
_WHOLE = (
    ("spectral_norm", "largest", np.nanmax),
    ("stable_rank", "least", np.nanmin),
    ("singular_entropy", "least", np.nanmin),
    ("ht_sr_alpha", "least", np.nanmin),
)
"""Statistics of a layer, which the page draws: from the newest number of each of its matrices."""


def _metric(name: str, stat: str, fold: float, title: str, flops: str) -> Metric:
    rules: dict[Rule, frozenset[str]] = {"fold": ALL}
    return Metric(name, _TRENDS, estimates=frozenset({stat}), rules=rules, fold=fold, chart=(stat, title), flops=flops)


class Spectra(Measurement):
    """Takes two turns: matrices of a 32nd of all elements by power iteration, and a Gram when the last is solved.

    ``upper`` of ``ht_sr_alpha`` is the least upper end of the exponents of a layer's matrices whose law fits.
    """

    FAMILY = "spectra"
    METRICS = (
        _metric("spectral_norm", "largest", 2.0, "Largest singular value of a layer's matrices", "12 m n at a turn"),
        Metric("spectral_norm_bound", "it is the bound of an estimate"),
        _metric("stable_rank", "least", 2.0, "Least stable rank of a layer's matrices", ""),
        _metric(
            "singular_entropy", "least", 1.1, "Least entropy of singular values / log n", "2 m n² + 2 n³ at a turn"
        ),
        Metric(
            "ht_sr_alpha",
            "it jumps where the fit takes another tail",
            estimates=_UPPER,
            thresholds=(Threshold(2.0, _HEAVY, stats=_UPPER, above=False),),
            chart=("least", "Least exponent of a layer's spectra"),
            flops="400 n for a matrix at its turn",
        ),
        Metric("ht_sr_distance", "it says how well a power law fits"),
        Metric("ht_sr_error", "it is the standard error of an exponent"),
        Metric("spectra_part", "it says which matrix of a tensor had the turn", listed=False),
    )
    NAMES = tuple(metric.name for metric in METRICS[:-1])

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        from dataaudit.vitals.cadence import rotation
        from dataaudit.vitals.spectra import LARGEST_SIDE, first_vectors, matrices_of

        every, self._left_out = matrices_of(sources.structure, sources.model)
        most = min(MOST, len(every))
        own = self._matrices = [every[at * len(every) // most] for at in range(most)]
        if len(own) < len(every):
            self._left_out[f"there are {len(every):,} matrices, of which {most:,} are measured"] = []
        self._layers = [layer.index for layer in sources.structure.layers]
        self._small = [at for at, item in enumerate(own) if item.sides[1] <= LARGEST_SIDE]
        self._tensors = [at for at, item in enumerate(own) if item.parts]
        elements = [math.prod(item.sides) for item in own]
        self._slots, self._budget = rotation(elements or [1], SHARE), GRAM_FLOPS * sum(elements)
        self._vectors = [first_vectors(item) for item in own]
        """float32[places, small side] of each matrix, from turn to turn."""
        self._numbers, self._parts = sources.empty(len(self.NAMES), len(own)), sources.empty(len(own))
        self._whole = sources.empty((len(_WHOLE) + 1) * len(self._layers))
        self._turns = self._grams = self._rest = 0
        """Turns so far, Grams so far, and steps until the next Gram."""
        self._newest = np.full((len(self.NAMES), len(own)), np.nan)
        self._reported = False
        self._work: HostWork | None = None
        self._job: tuple[Job, int, int] | None = None
        """What the host solves: of which matrix, and part."""
        self._host: Any = None
        """float32[largest small side]: where it writes the first singular vector; pinned beside a GPU."""
        self._failed = ""

    def columns(self) -> list[Column]:
        own, whole = self._matrices, [*(item[:2] for item in _WHOLE), ("ht_sr_alpha", "upper")]
        return [
            *(Column(name, item.layer, -1, item.name) for name in self.NAMES for item in own),
            *(Column("spectra_part", own[at].layer, -1, own[at].name) for at in self._tensors),
            *(Column(name, layer, -1, stat) for name, stat in whole for layer in self._layers),
        ]

    def values(self) -> list[torch.Tensor]:
        """Return numbers of the matrices that have their turn, and those of a Gram that the host has solved."""
        import torch

        self._numbers.fill_(math.nan)
        self._parts.fill_(math.nan)
        if self.asked and self.why_not() is None:
            with torch.autocast(self._numbers.device.type, enabled=False):
                self._iterate()
                self._rest -= 1
                if self._job is None and self._rest <= 0 and self._small:
                    self._begin_gram()
                self._take()
        parts = [self._parts[at : at + 1] for at in self._tensors]
        return [self._numbers.flatten(), *parts, self._whole]

    def _iterate(self) -> None:
        """Improve the vectors of the matrices that have their turn, and write their numbers."""
        from dataaudit.vitals.spectra import power_iteration

        rounds, slot = divmod(self._turns, len(self._slots))
        self._turns += 1
        for at in self._slots[slot]:
            part = rounds % len(self._vectors[at])
            numbers = power_iteration(self._matrices[at].tall(part), self._vectors[at][part])
            self._numbers[: len(numbers), at].copy_(numbers)
            self._parts[at].fill_(part)

    def _begin_gram(self) -> None:
        """Make the Gram of the matrix whose turn it is, and send it to the host."""
        import torch

        from dataaudit.vitals.host_work import HostWork
        from dataaudit.vitals.spectra import gram, solved

        device = self._numbers.device
        if self._work is None:
            self._work = HostWork(device)
            most = max(self._matrices[at].sides[1] for at in self._small)
            self._host = torch.zeros(most, device="cpu", pin_memory=device.type == "cuda")
        rounds, turn = divmod(self._grams, len(self._small))
        self._grams += 1
        at = self._small[turn]
        part, (longer, side) = rounds % len(self._vectors[at]), self._matrices[at].sides
        self._rest = math.ceil((2 * longer + _SLOW * side) * side**2 / self._budget)
        vector = self._host[:side].numpy()
        job = self._work.submit([gram(self._matrices[at].tall(part))], lambda made: solved(made, longer, vector))
        self._job = job, at, part

    def _take(self) -> None:
        """Write the numbers of a job that is done; power iteration goes on from its vector."""
        if self._job is None or not self._job[0].done:
            return
        job, at, part = self._job
        self._job, self._failed = None, job.why
        if job.result is not None and math.isnan(job.result[0]):
            self._failed = "the matrix that had its turn is not finite"
        elif job.result is not None:
            for slot, number in zip(self._numbers[:, at], job.result, strict=True):
                slot.fill_(number)
            self._parts[at].fill_(part)
            vector = self._vectors[at][part]
            vector.copy_(self._host[: len(vector)], non_blocking=True)

    def arrived(self, values: Floats, context: Arrived) -> None:
        """Write the numbers of layers, and report once what has none."""
        new = values[: self._newest.size].reshape(self._newest.shape)
        newest = self._newest = np.where(np.isnan(new), self._newest, new)
        alpha, distance, error = newest[self.NAMES.index("ht_sr_alpha") :]
        with np.errstate(divide="ignore", invalid="ignore"):
            fits = distance * (alpha - 1) / error <= FITS  # the root of the tail is (alpha - 1) / error
        layers = np.array([item.layer for item in self._matrices])
        whole = values[len(values) - len(self._whole) :].reshape(len(_WHOLE) + 1, -1)
        for row, (name, _, least) in zip(whole, _WHOLE, strict=False):
            at = self.NAMES.index(name)
            for layer in set(layers[np.isfinite(new[at])].tolist()) - {-1}:
                own = layers == layer
                row[self._layers.index(layer)] = least(newest[at, own])
                if name == "ht_sr_alpha" and (own & fits).any():
                    whole[-1, self._layers.index(layer)] = (alpha + ERRORS * error)[own & fits].min()
        if not self._reported and self.FAMILY in self.sources.config.measure:
            self._reported = True
            for what, of, why in self._without():
                context.event("no_value", {"what": what, "layers": of, "why": why})

    def _without(self) -> list[tuple[str, list[int], str]]:
        """Return which metrics have no number of which layers' matrices, and why."""
        from dataaudit.vitals.spectra import LARGEST_SIDE, LEAST

        found = [(self.FAMILY, sorted(set(layers)), why) for why, layers in self._left_out.items()]
        large = [item for item in self._matrices if item.sides[1] > LARGEST_SIDE]
        few = [item for item in self._matrices if item.sides[1] < LEAST]
        for first, own, why in (
            (3, large, f"their small side is above {LARGEST_SIDE:,}"),
            (4, few, f"they have fewer than {LEAST} singular values"),
        ):
            if own:
                names = ", ".join(sorted({item.name for item in own}))
                found.append((", ".join(self.NAMES[first:]), sorted({item.layer for item in own}), f"{names}: {why}"))
        return found

    def why_not(self) -> str | None:
        if self._numbers.device.type == "mps":
            return "the device has no float64"
        return None if self._matrices else "; ".join(self._left_out) or "no weight is a matrix"

    def gaps(self) -> dict[str, str]:
        """Return why Grams give no numbers: the last one's failure, or that all matrices are too large."""
        why = self._failed if self._small else "; ".join(why for *_, why in self._without())
        return dict.fromkeys(self.NAMES[3:], why) if why and self._matrices else {}

    def state(self) -> dict[str, Any]:
        from dataaudit.vitals.spectra import as_text

        newest = np.nan_to_num(self._newest, nan=_NONE).tolist()
        turns = [self._turns, self._grams, self._rest, self._reported]
        return {"spectra": {"turns": turns, "vectors": as_text(self._vectors), "newest": newest}}

    def load(self, state: Mapping[str, Any]) -> None:
        from dataaudit.vitals.spectra import from_text

        own = state["spectra"]
        self._turns, self._grams, self._rest, self._reported = own["turns"]
        from_text(self._vectors, own["vectors"])
        newest = np.array(own["newest"], np.float64).reshape(self._newest.shape)
        self._newest = np.where(newest == _NONE, np.nan, newest)

    def close(self) -> None:
        if self._work is not None:
            self._work.close()
