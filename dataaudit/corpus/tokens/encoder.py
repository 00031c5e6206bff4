"""Documents to token ids: route, encode, check a sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataaudit.corpus.tokens.fast import FastEncoder
from dataaudit.corpus.tokens.reference import ReferenceEncoder, load_reference
from dataaudit.corpus.tokens.risks import Risks
from dataaudit.corpus.tokens.routing import risky_documents
from dataaudit.corpus.tokens.spec import TokenizerFile


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """The ids of one batch of documents."""

    offsets: npt.NDArray[np.int64]
    """offsets[n + 1]: document i has ids[offsets[i]:offsets[i + 1]]."""

    ids: npt.NDArray[np.uint32]
    """ids[offsets[n]]."""

    by_reference: npt.NDArray[np.bool_]
    """by_reference[n]: routed there for its text, or forced."""

    sampled: int
    """Documents of the fast path that both encoders did."""

    differing: int
    """Sampled documents whose ids differed; the ids here are the reference's."""


class Encoder:
    """One tokenizer, ready to encode on the calling thread."""

    def __init__(
        self,
        *,
        fast: FastEncoder | None,
        reference: ReferenceEncoder,
        risks: Risks,
        sample_one_in: int,
        seed: int,
    ) -> None:
        self._fast = fast
        self._reference = reference
        self._risks = risks
        self._sample_one_in = sample_one_in
        self._seed = seed

    def encode(self, texts: pa.LargeStringArray, keys: npt.NDArray[np.uint64]) -> TokenBatch:
        """Encode each document by itself.

        Args:
            texts: large_string, without nulls.
            keys: keys[n], a hash of each document's identity; decides, with the seed, who is sampled.
        """
        num_texts = len(texts)
        if self._fast is None:
            by_reference = np.ones(num_texts, dtype=np.bool_)
        else:
            by_reference = risky_documents(texts, self._risks)
        replaced = dict(self._by_reference(texts, np.flatnonzero(by_reference)))
        sampled = differing = 0
        counts = np.zeros(num_texts, dtype=np.int64)
        offsets, ids = np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint32)
        if self._fast is not None:
            kept = texts if not by_reference.any() else texts.filter(pa.array(~by_reference))
            offsets, ids = self._fast.encode(kept)
            counts[~by_reference] = np.diff(offsets)
            chosen = sample_mask(keys, one_in=self._sample_one_in, seed=self._seed) & ~by_reference
            place = np.cumsum(~by_reference) - 1
            for row, answer in self._by_reference(texts, np.flatnonzero(chosen)):
                sampled += 1
                at = place[row]
                if not np.array_equal(answer, ids[offsets[at] : offsets[at + 1]]):
                    differing += 1
                    replaced[row] = answer
        return _assemble(counts, ids, offsets, by_reference, replaced, sampled, differing)

    def _by_reference(
        self, texts: pa.LargeStringArray, rows: npt.NDArray[np.intp]
    ) -> list[tuple[int, npt.NDArray[np.uint32]]]:
        """Encode some rows by the reference."""
        if len(rows) == 0:
            return []
        answers = self._reference.encode(texts.take(pa.array(rows)).to_pylist())
        return list(zip(rows.tolist(), answers, strict=True))


def _assemble(
    counts: npt.NDArray[np.int64],
    ids: npt.NDArray[np.uint32],
    offsets: npt.NDArray[np.int64],
    by_reference: npt.NDArray[np.bool_],
    replaced: dict[int, npt.NDArray[np.uint32]],
    sampled: int,
    differing: int,
) -> TokenBatch:
    """Put the reference's answers between those of the fast path."""
    if replaced:
        place = np.concatenate(([0], np.cumsum(~by_reference)))
        pieces, row = [], 0
        for at in sorted(replaced):
            pieces += [ids[offsets[place[row]] : offsets[place[at]]], replaced[at]]
            counts[at] = len(replaced[at])
            row = at + 1
        pieces.append(ids[offsets[place[row]] :])
        ids = np.concatenate(pieces)
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    return TokenBatch(
        offsets=starts, ids=ids, by_reference=by_reference, sampled=sampled, differing=differing
    )


def sample_mask(keys: npt.NDArray[np.uint64], *, one_in: int, seed: int) -> npt.NDArray[np.bool_]:
    """Choose about one key in `one_in`, by key and seed alone (splitmix64)."""
    if one_in <= 0:
        return np.zeros(len(keys), dtype=np.bool_)
    mixed = keys.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray(mixed % np.uint64(one_in) == 0)


def load_encoder(
    file: TokenizerFile, risks: Risks, *, force_reference: bool, sample_one_in: int, seed: int
) -> Encoder:
    """Load both encoders, or the reference alone where it is forced or the model is unsupported.

    Args:
        file: What `resolve_tokenizer` gave.
        risks: What `inspect_risks` found for it.
        force_reference: Every document goes to the reference.
        sample_one_in: About one document in so many is encoded by both; 0 turns the sample off.
        seed: Of the sample.
    """
    fast = None if force_reference or not risks.supported else FastEncoder(file)
    return Encoder(
        fast=fast, reference=load_reference(file), risks=risks, sample_one_in=sample_one_in, seed=seed
    )
