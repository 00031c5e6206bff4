"""Finds, at load, the texts on which the two encoders differ for a vocabulary.

The order is from the common to the odd: plain text, the spelling of special tokens, every code point, compositions,
random mixes. Differences become classes of text (:class:`Risks`), and the mixes are repeated until rounds in a row find
nothing new. A model for which that does not happen goes to the reference as a whole.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataaudit.base.files import read_sealed, write_sealed
from dataaudit.scan.corpus.tokens import probes
from dataaudit.scan.corpus.tokens.encoder import Risks, risky_documents
from dataaudit.scan.corpus.tokens.libraries import FastEncoder, ReferenceEncoder, UnsupportedModelError, load_reference
from dataaudit.scan.corpus.tokens.probes import added_literals, has_normalizer
from dataaudit.scan.corpus.tokens.spec import TokenizerFile

_VERSION = 1
"""Of this check; part of the cache key."""

_NUM_CODE_POINTS = 0x110000
_CHUNK_TEXTS = 8_192
_MIXES_A_ROUND = 5_000
_MAX_ROUNDS = 12
_PATIENCE_ROUNDS = 6

Mask = npt.NDArray[np.bool_]
_Form = Literal["NFC", "NFKC"]
_FORMS: tuple[_Form, ...] = ("NFC", "NFKC")
_MAX_EXPLAINED = 200


def inspect_risks(file: TokenizerFile, *, cache_dir: Path) -> Risks:
    """Return the risks of a tokenizer, stored by its digest and the versions of libraries and Unicode."""
    key = "/".join(
        (
            f"guard-{_VERSION}",
            file.sha256,
            file.format,
            f"gigatoken-{version('gigatoken')}",
            f"tokenizers-{version('tokenizers')}",
            f"sentencepiece-{version('sentencepiece')}",
            f"unicode-{unicodedata.unidata_version}",
        )
    )
    path = cache_dir / f"risks-{sha256(key.encode()).hexdigest()}.json"
    try:
        known = Risks.from_json((read_sealed(path) or b"").decode())
    except (ValueError, KeyError, TypeError):
        known = None
    if known is not None and known.key == key:
        return known
    risks = replace(_inspect(file), key=key)
    write_sealed(path, risks.to_json().encode())
    return risks


def _inspect(file: TokenizerFile) -> Risks:
    """Run the whole check."""
    try:
        fast = FastEncoder(file)
    except UnsupportedModelError:
        return Risks(supported=False, reason="unsupported_model")
    literals, normalizes = added_literals(file), has_normalizer(file)
    if normalizes and file.format == "sentencepiece":
        # SentencePiece rewrites the longest match of its table, gigatoken grapheme by grapheme: they differ
        # on every rewritten character that a mark follows.
        return Risks(supported=False, reason="rewrites_characters")
    pair = _Pair(fast, load_reference(file))
    risks = Risks(supported=True, reason="ok", patterns=_risky_literals(pair, literals))
    if pair.differing(risks, probes.plain_texts()):
        return Risks(supported=False, reason="differs_on_ascii")
    risky = _risky_code_points(pair, risks, normalizes=normalizes)
    if normalizes:
        # Tables of composition differ for sequences of code points newer than Python's tables, which no
        # test of single ones shows; whoever writes them is rare.
        risky |= np.array([unicodedata.category(chr(number)) == "Cn" for number in range(_NUM_CODE_POINTS)])
    if risky[0x20:0x7F].any() or risky[[9, 10]].any():
        return Risks(supported=False, reason="differs_on_ascii")
    risks = replace(risks, code_points=_ranges(risky))
    if normalizes:
        sequences = probes.compositions()
        rows = pair.differing(risks, map(probes.adjoining, sequences))
        patterns = {*risks.patterns, *(re.escape(sequences[row]) for row in rows)}
        risks = replace(risks, patterns=tuple(sorted(patterns)))
        texts = [probes.interrupted(sequence) for sequence in sequences]
        rows = pair.differing(risks, texts)
        risks = _widen(pair, risks, (texts[row] for row in rows), literals, forms=())
    return _until_clean(pair, risks, literals, clean_rounds=4 if normalizes else 2)


class _Pair:
    """Both encoders, which are compared on texts."""

    def __init__(self, fast: FastEncoder, reference: ReferenceEncoder) -> None:
        self._fast = fast
        self._reference = reference

    def differing(self, risks: Risks, texts: Iterable[str]) -> list[int]:
        """Return the numbers of texts on which the two differ, and which the risks do not cover."""
        different: list[int] = []
        left, start = iter(texts), 0
        while chunk := list(islice(left, _CHUNK_TEXTS)):
            array = pa.array(chunk, pa.large_string())
            offsets, ids = self._fast.encode(array)
            answers = self._reference.encode(chunk)
            same_counts = np.array_equal(np.diff(offsets), [len(answer) for answer in answers])
            if not (same_counts and np.array_equal(ids, np.concatenate(answers))):
                routed = risky_documents(array, risks)
                different += [
                    start + row
                    for row, answer in enumerate(answers)
                    if not routed[row] and not np.array_equal(ids[offsets[row] : offsets[row + 1]], answer)
                ]
            start += len(chunk)
        return different


def _risky_literals(pair: _Pair, literals: tuple[str, ...]) -> tuple[str, ...]:
    """Return a pattern for each added token whose spelling in text the two treat differently."""
    trust = Risks(supported=True, reason="ok")
    texts = [f"a{literal}b {literal} {literal}{literal}\n{literal}1" for literal in literals]
    return tuple(sorted(re.escape(literals[row]) for row in pair.differing(trust, texts)))


def _risky_code_points(pair: _Pair, risks: Risks, *, normalizes: bool) -> Mask:
    """Return risky[0x110000], with every code point tested among neighbours."""
    risky = _mask(probes.UNTESTED)
    numbers: list[int] = []

    def texts() -> Iterator[str]:
        for number, text in probes.code_point_probes(normalizes=normalizes):
            numbers.append(number)
            yield text

    rows = pair.differing(risks, texts())
    risky[[numbers[row] for row in rows]] = True
    return risky


def _until_clean(pair: _Pair, risks: Risks, literals: tuple[str, ...], *, clean_rounds: int) -> Risks:
    """Repeat the random mixes, widening the risks, until rounds in a row find nothing."""
    clean = 0
    for seed in range(_MAX_ROUNDS):
        texts = probes.mixes(literals, seed=seed, num_texts=_MIXES_A_ROUND)
        rows = pair.differing(risks, texts)
        clean = 0 if rows else clean + 1
        if clean == clean_rounds:
            return risks
        forms = _FORMS if seed >= _PATIENCE_ROUNDS else ()
        risks = _widen(pair, risks, (texts[row] for row in rows), literals, forms=forms)
        if not risks.supported:
            return risks
    return Risks(supported=False, reason="differs_on_mixes")


def _widen(
    pair: _Pair, risks: Risks, texts: Iterable[str], literals: tuple[str, ...], *, forms: tuple[_Form, ...]
) -> Risks:
    """Add the narrowest classes that cover the differing texts.

    Each text is cut down to the fewest characters that still differ. The spelling of an added token comes first, then
    a normal form if ``forms`` allows it (it sends every pointed Arabic or Hebrew text to the reference), then the code
    points that most of these texts have in common.
    """
    left = list(texts)
    while rows := pair.differing(risks, left):
        left = [left[row] for row in rows]
        small = {_shrink(pair, risks, text) for text in left[:_MAX_EXPLAINED]}
        spelled = {literal for literal in literals if any(literal in text for text in small)}
        broken = [form for form in forms if not all(unicodedata.is_normalized(form, text) for text in small)]
        odd = [set(re.sub(r"[\x00-\x7f]", "", text)) for text in small]
        if spelled:
            risks = replace(risks, patterns=tuple(sorted({*risks.patterns, *map(re.escape, spelled)})))
        elif broken and broken[0] not in risks.normal_forms:
            risks = replace(risks, normal_forms=(*risks.normal_forms, broken[0]))
        elif all(odd):
            risky = _mask(risks.code_points)
            risky[_cover(odd)] = True
            risks = replace(risks, code_points=_ranges(risky))
        else:
            return Risks(supported=False, reason="differs_on_ascii")
    return risks


def _cover(texts: list[set[str]]) -> list[int]:
    """Return few code points that cover all texts: always the code point that most remaining texts have.

    Of equals a combining mark goes first, then the highest, which are the rarest as a rule.
    """
    chosen: list[int] = []
    while texts:
        counts = Counter(char for text in texts for char in text)
        best = max(counts, key=lambda char: (counts[char], unicodedata.combining(char) > 0, char))
        chosen.append(ord(best))
        texts = [text for text in texts if best not in text]
    return chosen


def _shrink(pair: _Pair, risks: Risks, text: str) -> str:
    """Leave out single characters while the two still differ."""
    position = 0
    while position < len(text):
        shorter = text[:position] + text[position + 1 :]
        if shorter and pair.differing(risks, [shorter]):
            text, position = shorter, 0
        else:
            position += 1
    return text


def _mask(ranges: Iterable[tuple[int, int]]) -> Mask:
    """Return mask[0x110000] of inclusive ranges."""
    mask = np.zeros(_NUM_CODE_POINTS, dtype=np.bool_)
    for low, high in ranges:
        mask[low : high + 1] = True
    return mask


def _ranges(mask: Mask) -> tuple[tuple[int, int], ...]:
    """Return inclusive ranges of marked code points, without surrogates, which no text has."""
    mask = mask.copy()
    mask[0xD800:0xE000] = False
    steps = np.diff(np.concatenate(([False], mask, [False])).astype(np.int8))
    lows, highs = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1) - 1
    return tuple(zip(lows.tolist(), highs.tolist(), strict=True))
