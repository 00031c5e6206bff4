"""Encodes documents to token ids: by the fast encoder, by the reference where it is not trusted, with a checked sample.

:class:`Risks` are the classes of text on which the fast encoder is not trusted with a vocabulary.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache, lru_cache, partial
from hashlib import sha256
from typing import Any, Literal, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.errors import CatchErrors, ClusterError
from dataaudit.scan.corpus.segments import Offsets, bounds_of, text_buffers
from dataaudit.scan.corpus.tokens.libraries import FastEncoder, FastEncoderFailed, Ids, ReferenceEncoder, load_reference
from dataaudit.scan.corpus.tokens.spec import TokenizerFile
from dataaudit.scan.kernels.characters import code_point_bits, documents_with

_Loaded = TypeVar("_Loaded", FastEncoder, ReferenceEncoder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Risks:
    """Which documents go to the reference encoder; plain data, safe to pickle and to store as JSON."""

    supported: bool
    """False: the fast encoder cannot load this model, every document goes to the reference."""
    reason: str
    """``ok``, ``unsupported_model``, ``rewrites_characters``, ``differs_on_ascii`` or ``differs_on_mixes``."""
    code_points: tuple[tuple[int, int], ...] = ()
    """Inclusive ranges, ascending and disjoint, of code points in such documents."""
    normal_forms: tuple[str, ...] = ()
    """Forms that such documents are not all in."""
    patterns: tuple[str, ...] = ()
    """RE2 expressions that match such documents."""
    key: str = ""
    """The inputs of the check: tokenizer digest and library versions."""

    def __post_init__(self) -> None:
        """Check that ranges are ascending and disjoint."""
        last = -1
        for low, high in self.code_points:
            if not last < low <= high <= 0x10FFFF:
                raise ValueError(f"code point ranges must ascend, found {low:#x}-{high:#x} after {last:#x}")
            last = high

    @property
    def digest(self) -> str:
        """sha256 of the canonical JSON: equal for builds that route alike."""
        return sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Write every field as JSON with sorted keys."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the JSON of ``to_json``; raises ValueError, KeyError or TypeError on anything else."""
        fields: dict[str, Any] = json.loads(text)
        fields["code_points"] = tuple((int(low), int(high)) for low, high in fields["code_points"])
        fields["normal_forms"] = tuple(fields["normal_forms"])
        fields["patterns"] = tuple(fields["patterns"])
        return cls(**fields)


_Form = Literal["NFC", "NFD", "NFKC", "NFKD"]


def risky_documents(texts: pa.LargeStringArray, risks: Risks) -> npt.NDArray[np.bool_]:
    """Mark the documents that go to the reference: risky[n]."""
    risky = np.zeros(len(texts), dtype=np.bool_)
    if len(texts) == 0:
        return risky
    if risks.patterns:
        matches = pc.match_substring_regex(texts, "|".join(risks.patterns))
        risky |= np.asarray(matches.to_numpy(zero_copy_only=False), dtype=np.bool_)
    if risks.code_points:
        risky |= documents_with(*text_buffers(texts), _bits(risks.code_points))
    if risks.normal_forms:
        ascii_only = pc.string_is_ascii(texts).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(~risky & ~ascii_only).tolist():
            text = texts[row].as_py()
            risky[row] = not all(unicodedata.is_normalized(cast(_Form, f), text) for f in risks.normal_forms)
    return risky


@lru_cache(maxsize=4)
def _bits(ranges: tuple[tuple[int, int], ...]) -> npt.NDArray[np.uint8]:
    return code_point_bits(ranges)


Mask = npt.NDArray[np.bool_]

_REFERENCE_ROWS = 1_024
_WEYL = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """The ids of a batch of documents, from the reference encoder where that was asked."""

    offsets: Offsets
    """offsets[n + 1]: document i has ids[offsets[i]:offsets[i + 1]]."""
    ids: Ids
    """ids[offsets[n]]."""
    by_reference: Mask
    """by_reference[n]: routed to the reference for its text, or because that is forced."""
    sampled: int
    """Documents of the fast path that both encoders did."""
    differing: int
    """Sampled documents whose ids differed. Above 0 the fast path is not to be trusted with this corpus."""
    checked: Mask | None = None
    """checked[n]: sampled documents, where they are known."""

    def part(self, start: int, stop: int) -> TokenBatch | None:
        """Return the ids of some consecutive documents; None where any differed, or the sample is unknown."""
        if self.checked is None or self.differing:
            return None
        offsets, checked = self.offsets[start : stop + 1], self.checked[start:stop]
        return TokenBatch(
            offsets=offsets - offsets[0],
            ids=self.ids[offsets[0] : offsets[-1]],
            by_reference=self.by_reference[start:stop],
            sampled=int(checked.sum()),
            differing=0,
            checked=checked,
        )


class Encoder:
    """A tokenizer, ready to encode on the calling thread."""

    def __init__(
        self,
        *,
        fast: FastEncoder | None,
        reference: Callable[[TokenizerFile], ReferenceEncoder],
        file: TokenizerFile,
        risks: Risks,
        sample_one_in: int,
        seed: int,
    ) -> None:
        self._fast = fast
        self._reference = reference
        self.file = file
        """Where the reference is read at its first document; the copy of an earlier build may be gone."""
        self._risks = risks
        self._sample_one_in = sample_one_in
        self._seed = seed

    def encode(self, texts: pa.LargeStringArray, keys: npt.NDArray[np.uint64]) -> TokenBatch:
        """Encode each document by itself; ``keys``, hashes of identities, decide with the seed which are sampled."""
        if self._fast is None:
            return self._all_by_reference(texts, sampled=0)
        risky = risky_documents(texts, self._risks)
        trusted = texts.filter(pa.array(~risky)) if risky.any() else texts
        try:
            offsets, ids = self._fast.encode(trusted)
        except FastEncoderFailed:
            return self._all_by_reference(texts, sampled=1)
        number = np.cumsum(~risky) - 1
        replaced = dict(self._by_reference(texts, np.flatnonzero(risky)))
        checked = sample_mask(keys, one_in=self._sample_one_in, seed=self._seed) & ~risky
        chosen = np.flatnonzero(checked)
        differing = 0
        for row, answer in self._by_reference(texts, chosen):
            if not np.array_equal(answer, ids[offsets[number[row]] : offsets[number[row] + 1]]):
                replaced[row] = answer
                differing += 1
        offsets, ids = _merge(offsets, ids, trusted_rows=np.flatnonzero(~risky), replaced=replaced)
        return TokenBatch(
            offsets=offsets, ids=ids, by_reference=risky, sampled=len(chosen), differing=differing, checked=checked
        )

    def _all_by_reference(self, texts: pa.LargeStringArray, *, sampled: int) -> TokenBatch:
        """Encode a whole batch by the reference; a fast encoder that gave up counts as one that differed."""
        answers = [answer for _, answer in self._by_reference(texts, np.arange(len(texts)))]
        return TokenBatch(
            offsets=bounds_of([len(answer) for answer in answers]),
            ids=np.concatenate([np.zeros(0, dtype=np.uint32), *answers]),
            by_reference=np.ones(len(texts), dtype=np.bool_),
            sampled=sampled,
            differing=sampled,
            checked=np.zeros(len(texts), dtype=np.bool_),
        )

    def _by_reference(self, texts: pa.LargeStringArray, rows: npt.NDArray[np.intp]) -> Iterator[tuple[int, Ids]]:
        """Encode some rows by the reference, a few at a time."""
        for start in range(0, len(rows), _REFERENCE_ROWS):
            part = rows[start : start + _REFERENCE_ROWS]
            answers = self._reference(self.file).encode(texts.take(pa.array(part)).to_pylist())
            yield from zip(part.tolist(), answers, strict=True)


def load_encoder(file: TokenizerFile, risks: Risks, *, force_reference: bool, sample_one_in: int, seed: int) -> Encoder:
    """Load the fast encoder; the reference, which takes as long, for the first document that is encoded by it.

    A file that is gone, or a library that fails, is a ``ClusterError``, of ``encode`` too.
    """
    fast = None if force_reference or not risks.supported else _loaded(FastEncoder, file)
    reference = cache(partial(_loaded, load_reference))
    return Encoder(fast=fast, reference=reference, file=file, risks=risks, sample_one_in=sample_one_in, seed=seed)


def _loaded(load: Callable[[TokenizerFile], _Loaded], file: TokenizerFile) -> _Loaded:
    with CatchErrors(MemoryError) as call:
        return load(file)
    raise ClusterError(
        f"a worker cannot load the tokenizer {file.name} ({call.origin})",
        "Check that every worker can read the state folder, then run again.",
    )


def sample_mask(keys: npt.NDArray[np.uint64], *, one_in: int, seed: int) -> Mask:
    """Return mask[n]: about a key in ``one_in``, by key and seed alone (splitmix64)."""
    if one_in <= 0:
        return np.zeros(len(keys), dtype=np.bool_)
    mixed = keys.astype(np.uint64) + np.uint64((seed + 1) * _WEYL % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray(mixed % np.uint64(one_in) == 0, dtype=np.bool_)


def _merge(
    offsets: Offsets, ids: Ids, *, trusted_rows: npt.NDArray[np.intp], replaced: dict[int, Ids]
) -> tuple[Offsets, Ids]:
    """Put the reference's answers among those of the fast path, or in place of them."""
    if not replaced:
        return offsets, ids
    counts = np.zeros(len(set(trusted_rows.tolist()) | replaced.keys()), dtype=np.int64)
    counts[trusted_rows] = np.diff(offsets)
    pieces: list[Ids] = []
    done = 0
    for row in sorted(replaced):
        until = int(np.searchsorted(trusted_rows, row))
        pieces += [ids[offsets[done] : offsets[until]], replaced[row]]
        counts[row] = len(replaced[row])
        done = until + int(until < len(trusted_rows) and trusted_rows[until] == row)
    pieces.append(ids[offsets[done] :])
    return bounds_of(counts), np.concatenate(pieces)
