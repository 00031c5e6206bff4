"""Tokens of every document, with the tokenizer of the build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dataaudit.annotators.base import LoadedLast
from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.corpus.tokens import Encoder, Risks, TokenBatch, TokenizerFile, load_encoder
from dataaudit.errors import ClusterError
from dataaudit.guarded import Guarded

TOKENS: Annotation[TokenBatch] = Annotation("tokens")
SAMPLE_ONE_IN = 1024
"""About one document in so many is encoded by both encoders."""


def num_tokens(batch: DocBatch) -> np.ndarray:
    """Return int64[n] tokens of each document."""
    return np.diff(batch.get(TOKENS).offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokenizer, and what its fast encoder is not to be trusted with."""

    annotation: ClassVar[Annotation[Any]] = TOKENS
    needs: ClassVar[tuple[Annotation[Any], ...]] = ()
    tokenizer: TokenizerFile
    risks: Risks
    force_reference: bool
    """Whether the reference encoder counts everything."""
    seed: int

    def decisive(self) -> dict[str, Any]:
        """Return what decides token ids and which encoder counts them."""
        return {
            "format": self.tokenizer.format,
            "sha256": self.tokenizer.sha256,
            "risks": self.risks.digest,
            "force_reference": self.force_reference,
            "sample_one_in": SAMPLE_ONE_IN,
            "seed": self.seed,
        }

    def load(self) -> TokenAnnotator:
        """Return the encoders, loaded once in a thread.

        Raises:
            ClusterError: They cannot be loaded, which is no shard's fault.
        """
        with Guarded(MemoryError) as call:
            return TokenAnnotator(load_once(self.tokenizer, self.risks, self.force_reference, self.seed))
        raise ClusterError(
            f"a worker cannot load the tokenizer {self.tokenizer.name} ({call.origin})",
            "Check that every worker can read the state folder, then run again.",
        )


@dataclass(frozen=True, slots=True)
class TokenAnnotator:
    """Encodes documents, and parts of them."""

    encoder: Encoder

    def annotate(self, batch: DocBatch) -> TokenBatch:
        """Return the token ids of every document."""
        return self.encoder.encode(batch.texts, batch.identities())


@LoadedLast
def load_once(tokenizer: TokenizerFile, risks: Risks, force_reference: bool, seed: int) -> Encoder:
    """Load the encoders once a thread."""
    return load_encoder(tokenizer, risks, force_reference=force_reference, sample_one_in=SAMPLE_ONE_IN, seed=seed)
