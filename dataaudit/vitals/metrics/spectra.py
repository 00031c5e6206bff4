"""Singular values of weights, matrix by matrix in turn: the largest, how many matter, and the tail of their squares."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dataaudit.base.statistics import Floats
from dataaudit.vitals.measurement import Arrived, Measurement, Sources
from dataaudit.vitals.metric import Column, Metric

if TYPE_CHECKING:
    import torch

    from dataaudit.vitals.host_work import HostWork, Job

SHARE = 1 / 32
"""Of all elements, that power iteration reads in a step that is measured."""
GRAM_FLOPS = 32
"""Operations per element of all matrices, that Grams and their eigenvalues take in a step that is measured."""
MOST = 1_024
"""Matrices that are measured; of more every second, third, ... is."""
_BY_POWER = 3
"""Numbers that power iteration gives."""
_BY_GRAM = ("singular_entropy", "ht_sr_alpha", "ht_sr_distance")
_WHOLE: Final = {"spectral_norm": "largest", "stable_rank": "least", "singular_entropy": "least", "ht_sr_alpha": "least"}
"""Statistics of a layer, which the page draws: from the newest number of each of its matrices."""


def _metric(name: str, judged: str, title: str, flops: str) -> Metric:
    stat = _WHOLE[name]
    return Metric(name, judged, estimates=frozenset({stat}), chart=(stat, title), flops=flops)


class Spectra(Measurement):
    """Takes two turns: matrices of a 32nd of all elements by power iteration, and a Gram when the last is solved."""

    FAMILY = "spectra"
    METRICS = (
        _metric("spectral_norm", "log", "Largest singular value of a layer's matrices", "12 m n a matrix at its turn"),
        Metric("spectral_norm_bound", "it is the bound of an estimate"),
        _metric("stable_rank", "log", "Least stable rank of a layer's matrices", ""),
        _metric("singular_entropy", "log", "Least entropy of singular values / log n", "2 m n² + 10 n³ at its turn"),
        _metric("ht_sr_alpha", "log", "Least exponent of a layer's spectra", "50 n a tail at its turn"),
        Metric("ht_sr_distance", "it says how well a power law fits"),
        Metric("spectra_part", "it is a number of a matrix in its tensor", listed=False),
    )

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        from dataaudit.vitals.cadence import rotation
        from dataaudit.vitals.spectra import LARGEST_SIDE, first_vectors, matrices_of

        every, self._left_out = matrices_of(sources.structure, sources.model)
        step = math.ceil(len(every) / MOST) or 1
        if step > 1:
            self._left_out[f"there are {len(every):,} matrices: every {step}th is measured"] = []
        own = self._matrices = every[::step]
        self._tensors = [at for at, item in enumerate(own) if item.parts]
        self._small = [at for at, item in enumerate(own) if item.sides[1] <= LARGEST_SIDE]
        elements = [math.prod(item.sides) for item in own]
        self._slots = rotation(elements, SHARE) if own else ((),)
        self._budget = GRAM_FLOPS * sum(elements)
        self._layers = [layer.index for layer in sources.structure.layers]
        self._vectors: list[torch.Tensor] = [first_vectors(item) for item in own]
        """float32[places, small side] of each matrix, from turn to turn."""
        shape = len(self.METRICS[:-1]) * len(own) + len(self._tensors) + len(_WHOLE) * len(self._layers)
        self._row = sources.hooks.activations.new_full((shape,), math.nan)
        self._turns, self._grams, self._rest = 0, 0, 0
        """Turns so far, Grams so far, and steps until the next Gram."""
        self._newest = np.full((len(self.METRICS) - 1, len(own)), np.nan)
        self._work: HostWork | None = None
        self._job: Job | None = None
        self._solves = (0, 0)
        """Matrix and part of the job."""
        self._host: Any = None
        """float32[small side]: where a job writes the first singular vector; pinned beside a GPU."""
        self._failed, self._reported = "", False

    def columns(self) -> list[Column]:
        """Return a column for each number and matrix; which of its matrices a tensor showed; and those of layers."""
        own = self._matrices
        return [
            *(Column(metric.name, item.layer, -1, item.name) for metric in self.METRICS[:-1] for item in own),
            *(Column("spectra_part", own[at].layer, -1, own[at].name) for at in self._tensors),
            *(Column(metric, layer, -1, stat) for metric, stat in _WHOLE.items() for layer in self._layers),
        ]

    def values(self) -> list[torch.Tensor]:
        """Return numbers of the matrices that have their turn, and those of a Gram that the host has solved."""
        self._row.fill_(math.nan)
        if self.sources.measured and self.FAMILY in self.sources.config.measure and self._matrices:
            import torch

            with torch.autocast(self._row.device.type, enabled=False):
                self._iterate()
                self._rest -= 1
                if self._job is None and self._rest <= 0 and self._small:
                    self._begin_gram()
                self._take()
        return [self._row]

    def _iterate(self) -> None:
        """Improve the vectors of the matrices that have their turn, and write their numbers."""
        from dataaudit.vitals.spectra import power_iteration

        rounds, slot = divmod(self._turns, len(self._slots))
        self._turns += 1
        for at in self._slots[slot]:
            matrix = self._matrices[at]
            part = rounds % matrix.places
            numbers = power_iteration(matrix.tall(part), self._vectors[at][part])
            self._of(at)[:_BY_POWER].copy_(numbers)
            self._write_part(at, part)

    def _begin_gram(self) -> None:
        """Make the Gram of the matrix whose turn it is, and send it to the host."""
        import torch

        from dataaudit.vitals.host_work import HostWork
        from dataaudit.vitals.spectra import gram, solved

        rounds, turn = divmod(self._grams, len(self._small))
        at = self._small[turn]
        matrix = self._matrices[at]
        part, (longer, side) = rounds % matrix.places, matrix.sides
        device = self._row.device
        if self._work is None:
            most = max(self._matrices[own].sides[1] for own in self._small)
            self._work = HostWork(device)
            self._host = torch.zeros(most, device="cpu", pin_memory=device.type == "cuda")
        self._grams += 1
        self._rest = math.ceil((2 * longer * side**2 + 10 * side**3) / self._budget)
        self._solves, vector = (at, part), self._host[:side].numpy()
        self._job = self._work.submit([gram(matrix.tall(part))], lambda made: solved(made, longer, vector))

    def _take(self) -> None:
        """Write the numbers of a job that is done; its vector is where power iteration goes on from."""
        if self._job is None or not self._job.done:
            return
        (at, part), self._failed = self._solves, self._job.why
        if self._job.result is not None:
            for slot, number in zip(self._of(at), self._job.result, strict=True):
                slot.fill_(number)
            self._write_part(at, part)
            vector = self._vectors[at][part]
            vector.copy_(self._host[: len(vector)], non_blocking=True)
        self._job = None

    def _of(self, at: int) -> torch.Tensor:
        """Return where the numbers of a matrix stand, float32[numbers]."""
        count = len(self._matrices)
        return self._row[at : at + count * (len(self.METRICS) - 1) : count]

    def _write_part(self, at: int, part: int) -> None:
        if at in self._tensors:
            self._row[(len(self.METRICS) - 1) * len(self._matrices) + self._tensors.index(at)].fill_(part)

    def arrived(self, values: Floats, context: Arrived) -> None:
        """Write the numbers of layers, and report once what has none."""
        new = values[: self._newest.size].reshape(self._newest.shape)
        self._newest = np.where(np.isnan(new), self._newest, new)
        layers = np.array([item.layer for item in self._matrices])
        whole = values[len(values) - len(_WHOLE) * len(self._layers) :].reshape(len(_WHOLE), -1)
        names = [metric.name for metric in self.METRICS]
        for row, (metric, stat) in zip(whole, _WHOLE.items(), strict=True):
            at = names.index(metric)
            for place, layer in enumerate(self._layers):
                own = layers == layer
                if np.isfinite(new[at, own]).any():
                    row[place] = (np.nanmax if stat == "largest" else np.nanmin)(self._newest[at, own])
        if not self._reported and self.FAMILY in self.sources.config.measure:
            self._reported = True
            for what, layers_of, why in self._without():
                context.event("not_seen", {"what": what, "layers": layers_of, "why": why})

    def _without(self) -> list[tuple[str, list[int], str]]:
        """Return which metrics have no number of which layers' matrices, and why."""
        from dataaudit.vitals.power_law import LEAST
        from dataaudit.vitals.spectra import LARGEST_SIDE

        found = [("spectra", sorted(set(layers)), why) for why, layers in self._left_out.items()]
        large = [item for at, item in enumerate(self._matrices) if at not in self._small]
        few = [item for item in self._matrices if item.sides[1] < LEAST]
        for what, own, why in (
            (", ".join(_BY_GRAM), large, f"their small side is above {LARGEST_SIDE:,}"),
            (", ".join(_BY_GRAM[1:]), few, f"they have fewer than {LEAST} singular values"),
        ):
            if own:
                names = ", ".join(sorted({item.name for item in own}))
                found.append((what, sorted({item.layer for item in own}), f"{names}: {why}"))
        return found

    def why_not(self) -> str | None:
        """Return why no matrix can be measured."""
        if self._row.device.type == "mps":
            return "the device has no float64"
        return None if self._matrices else "; ".join(self._left_out) or "no weight is a matrix"

    def gaps(self) -> dict[str, str]:
        """Return why Grams give no numbers: the last one's failure, or what holds for all matrices."""
        reasons = {what: why for what, _, why in self._without()} if not self._small else {}
        every = next((why for what, why in reasons.items() if what.startswith(_BY_GRAM[0])), self._failed)
        return dict.fromkeys(_BY_GRAM, every) if every and self._matrices else {}

    def state(self) -> dict[str, Any]:
        """Return turns, the vectors as text, and the newest numbers."""
        vectors = [base64.b64encode(item.cpu().numpy().tobytes()).decode() for item in self._vectors]
        newest = [[None if np.isnan(item) else float(item) for item in row] for row in self._newest]
        turns = [self._turns, self._grams, self._rest]
        return {"spectra": {"turns": turns, "vectors": vectors, "newest": newest}}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        import torch

        own = state["spectra"]
        self._turns, self._grams, self._rest = map(int, own["turns"])
        for vector, text in zip(self._vectors, own["vectors"], strict=True):
            made = np.frombuffer(base64.b64decode(text), np.float32).reshape(vector.shape)
            vector.copy_(torch.from_numpy(made.copy()))
        newest = np.array([[np.nan if item is None else item for item in row] for row in own["newest"]], np.float64)
        self._newest = newest.reshape(self._newest.shape)

    def close(self) -> None:
        """End the thread."""
        if self._work is not None:
            self._work.close()
