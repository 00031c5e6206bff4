"""The check at load: on which text do the two encoders differ for this vocabulary?

The order is from the common to the odd: plain text, the spelling of special tokens, every code point,
compositions, random mixes. What differs is turned into a class (:class:`Risks`) and the mixes are repeated
until two rounds find nothing new; a model for which that does not happen goes to the reference as a whole.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from dataaudit.corpus.tokens import probes
from dataaudit.corpus.tokens.fast import FastEncoder, UnsupportedModelError
from dataaudit.corpus.tokens.literals import added_literals, has_normalizer
from dataaudit.corpus.tokens.reference import ReferenceEncoder, load_reference
from dataaudit.corpus.tokens.risks import Risks
from dataaudit.corpus.tokens.routing import risky_documents
from dataaudit.corpus.tokens.spec import TokenizerFile, write_atomically

_VERSION = 1
"""Of this check; part of the cache key."""

_CHUNK_TEXTS = 8_192
_MIXES_A_ROUND = 5_000
_MAX_ROUNDS = 8
_CLEAN_ROUNDS = 2
_MAX_EXPLAINED_A_ROUND = 200


def inspect_risks(file: TokenizerFile, *, cache_dir: Path) -> Risks:
    """Find what must go to the reference encoder, or read what an earlier call found.

    The answer depends on the tokenizer, the versions of the two encoders and the version of Unicode that
    Python knows; it is stored under these.
    """
    key = "/".join((
        f"guard-{_VERSION}", file.sha256, file.format, f"gigatoken-{version('gigatoken')}",
        f"tokenizers-{version('tokenizers')}", f"sentencepiece-{version('sentencepiece')}",
        f"unicode-{unicodedata.unidata_version}",
    ))  # fmt: skip
    path = cache_dir / f"risks-{sha256(key.encode()).hexdigest()}.json"
    try:
        known = Risks.from_json(path.read_text())
    except (OSError, ValueError, KeyError, TypeError):
        known = None
    if known is not None and known.key == key:
        return known
    risks = replace(_inspect(file), key=key)
    write_atomically(path, risks.to_json().encode())
    return risks


def _inspect(file: TokenizerFile) -> Risks:
    """Run the whole check."""
    try:
        fast = FastEncoder(file)
    except UnsupportedModelError:
        return Risks(supported=False, reason="unsupported_model")
    pair = _Pair(fast, load_reference(file))
    literals, normalizes = added_literals(file), has_normalizer(file)
    risks = Risks(supported=True, reason="ok", patterns=_risky_literals(pair, literals))
    if pair.differing(risks, probes.plain_texts()):
        return Risks(supported=False, reason="differs_on_ascii")
    numbers = _risky_code_points(pair, risks, normalizes=normalizes)
    if normalizes:
        # Tables of composition differ for sequences of code points newer than Python's tables, which no
        # test of single ones shows; whoever writes them is rare.
        numbers.update(number for number in range(0x110000) if unicodedata.category(chr(number)) == "Cn")
    if any(0x20 <= number < 0x7F or number in {9, 10} for number in numbers):
        return Risks(supported=False, reason="differs_on_ascii")
    risks = replace(risks, code_points=_ranges(numbers))
    if normalizes:
        texts = probes.composition_probes()
        risks = _widen(pair, risks, (texts[place] for place in pair.differing(risks, texts)), literals)
    return _until_clean(pair, risks, literals)


class _Pair:
    """Both encoders, asked for the texts on which they differ."""

    def __init__(self, fast: FastEncoder, reference: ReferenceEncoder) -> None:
        self._fast = fast
        self._reference = reference

    def differing(self, risks: Risks, texts: Iterable[str]) -> list[int]:
        """Number the texts that the risks let through and on which the two differ."""
        found: list[int] = []
        left, start = iter(texts), 0
        while chunk := list(islice(left, _CHUNK_TEXTS)):
            array = pa.array(chunk, pa.large_string())
            offsets, ids = self._fast.encode(array)
            answers = self._reference.encode(chunk)
            same_counts = np.array_equal(np.diff(offsets), [len(answer) for answer in answers])
            if not (same_counts and np.array_equal(ids, np.concatenate(answers))):
                routed = risky_documents(array, risks)
                found += [
                    start + row
                    for row, answer in enumerate(answers)
                    if not routed[row] and not np.array_equal(ids[offsets[row] : offsets[row + 1]], answer)
                ]
            start += len(chunk)
        return found

    def differs(self, risks: Risks, text: str) -> bool:
        """Tell whether one text shows a difference."""
        return bool(self.differing(risks, [text]))


def _risky_literals(pair: _Pair, literals: tuple[str, ...]) -> tuple[str, ...]:
    """Write a pattern for each added token whose spelling in text the two treat differently."""
    trust = Risks(supported=True, reason="ok")
    texts = [f"a{literal}b {literal} {literal}{literal}\n{literal}1" for literal in literals]
    return tuple(sorted(re.escape(literals[place]) for place in pair.differing(trust, texts)))


def _risky_code_points(pair: _Pair, risks: Risks, *, normalizes: bool) -> set[int]:
    """Test every code point among its neighbours."""
    numbers = [number for number, _ in probes.code_point_probes(normalizes=normalizes)]
    texts = (text for _, text in probes.code_point_probes(normalizes=normalizes))
    risky = {numbers[place] for place in pair.differing(risks, texts)}
    for low, high in probes.UNTESTED:
        risky.update(range(low, high + 1))
    return risky


def _until_clean(pair: _Pair, risks: Risks, literals: tuple[str, ...]) -> Risks:
    """Repeat the random mixes, widening the risks, until rounds in a row find nothing."""
    clean = 0
    for seed in range(_MAX_ROUNDS):
        texts = probes.mixes(literals, seed=seed, num_texts=_MIXES_A_ROUND)
        places = pair.differing(risks, texts)
        if len(places) > _MAX_EXPLAINED_A_ROUND:
            break
        clean = 0 if places else clean + 1
        if clean == _CLEAN_ROUNDS:
            return risks
        risks = _widen(pair, risks, (texts[place] for place in places), literals)
        if not risks.supported:
            return risks
    return Risks(supported=False, reason="differs_on_mixes")


def _widen(pair: _Pair, risks: Risks, texts: Iterable[str], literals: tuple[str, ...]) -> Risks:
    """Add the class that each differing text belongs to."""
    for text in texts:
        if not risks.supported or not pair.differs(risks, text):
            continue
        small = _shrink(pair, risks, text)
        form = next((form for form in ("NFC", "NFKC") if not _is_normal(form, small)), None)
        literal = next((literal for literal in literals if literal in small), None)
        odd = {ord(char) for char in small if ord(char) >= 0x80}
        if form and form not in risks.normal_forms:
            risks = replace(risks, normal_forms=(*risks.normal_forms, form))
        elif literal:
            risks = replace(risks, patterns=tuple(sorted({*risks.patterns, re.escape(literal)})))
        elif odd:
            known = {number for low, high in risks.code_points for number in range(low, high + 1)}
            risks = replace(risks, code_points=_ranges(known | odd))
        else:
            return Risks(supported=False, reason="differs_on_ascii")
    return risks


def _is_normal(form: str, text: str) -> bool:
    """Tell whether the text is in a normal form."""
    return unicodedata.normalize("NFC" if form == "NFC" else "NFKC", text) == text


def _shrink(pair: _Pair, risks: Risks, text: str) -> str:
    """Leave out characters one at a time while the two still differ."""
    place = 0
    while place < len(text):
        shorter = text[:place] + text[place + 1 :]
        if shorter and pair.differs(risks, shorter):
            text, place = shorter, 0
        else:
            place += 1
    return text


def _ranges(numbers: set[int]) -> tuple[tuple[int, int], ...]:
    """Join code points to inclusive ranges, surrogates left out: no text holds them."""
    ordered = np.array(sorted(number for number in numbers if not 0xD800 <= number <= 0xDFFF), dtype=np.int64)
    if len(ordered) == 0:
        return ()
    breaks = np.flatnonzero(np.diff(ordered) > 1)
    lows = ordered[np.concatenate(([0], breaks + 1))]
    highs = ordered[np.concatenate((breaks, [len(ordered) - 1]))]
    return tuple(zip(lows.tolist(), highs.tolist(), strict=True))
