"""``eval_artifact_hash``: all that a number of a probe depends on besides the weights.

Two numbers are compared where the hash is the same. Where it is not, the comparison is *invalid*, and what differs is
named: a swapped tokenizer moves a loss as much as a broken model does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dataaudit.manifest.canonical import digest_json

if TYPE_CHECKING:
    from dataaudit.probes.models import Model

HARNESS = "dataaudit-probes"
"""Name of this harness; each probe adds its own version, which rises when its numbers change."""
NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalArtifacts:
    """What a probe was made with; each field is a digest or a short name."""

    tokenizer: str
    """Digest of the tokenizer's file, or the encoder's name."""
    prompts: str
    """Digest of all tokens or texts that the model is given or scored on, in order."""
    templates: str = NONE
    """How a prompt is made of a text."""
    decoding: str = NONE
    """Sampling, lengths and seeds, as JSON."""
    harness: str
    """Name and version of the program that computes the number."""
    dtype: str
    """Of the model's weights."""

    @property
    def digest(self) -> str:
        """The ``eval_artifact_hash``: ``sha256:<hex>`` of the fields as canonical JSON."""
        return digest_json(asdict(self))

    def differing(self, other: EvalArtifacts) -> tuple[str, ...]:
        """Return the names of the fields that differ, in their order."""
        mine, others = asdict(self), asdict(other)
        return tuple(name for name in mine if mine[name] != others[name])


def artifacts_of(model: Model, harness: str, prompts: str, **more: str) -> EvalArtifacts:
    """Return the artifacts of a model: its tokenizer and dtype with what is given."""
    return EvalArtifacts(tokenizer=model.tokenizer.digest, dtype=model.dtype, harness=harness, prompts=prompts, **more)


def harness(probe: str, version: int | str) -> str:
    """Return the harness of a probe of ours."""
    return f"{HARNESS}/{probe} {version}"


def digest_rows(rows: Iterable[Any]) -> str:
    """Return ``sha256:<hex>`` of texts or of integer arrays, in order; where a row ends is part of it."""
    state = hashlib.sha256()
    for row in rows:
        data = row.encode("utf-8", "surrogatepass") if isinstance(row, str) else np.asarray(row, "<i8").tobytes()
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return f"sha256:{state.hexdigest()}"
