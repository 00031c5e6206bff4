"""Names of markup, and the words that are written anew: markup inside a word, and letters that look like others.

Plain Python, for the few words that :mod:`dataaudit.scan.kernels.markup` marks.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from html import unescape
from html.entities import html5

import numpy as np

from dataaudit.scan.kernels.jit import Array
from dataaudit.scan.kernels.normal import normalized
from dataaudit.scan.kernels.words import WordBatch, split_words

TAG, INLINE, ENTITY, ENTITY_IN_WORD, TEX, TEX_NAMED, TEX_LETTER = 1, 2, 4, 8, 16, 32, 64
"""Kinds of names, as bits."""


def _named(names: str) -> frozenset[str]:
    return frozenset(names.split())


TAGS = _named(
    "a abbr address article aside b bdi bdo big blockquote body br button caption center cite code col colgroup dd del"
    " details dfn div dl dt em figcaption figure font footer form h1 h2 h3 h4 h5 h6 head header hr html i iframe img"
    " input ins kbd label legend li link main mark math meta mfrac mi mn mo mrow msqrt msub msup nav nobr ol option p"
    " pre q rp rt ruby s samp script section select small span strike strong style sub summary sup table tbody td"
    " textarea tfoot th thead title tr tt u ul var video wbr"
)
"""Names of HTML, without which text in angle brackets is no tag."""
INLINE_TAGS = _named(
    "a abbr b bdi bdo big code del em font i ins kbd mark nobr s samp small span strike strong sub sup tt u var wbr"
)
"""Those that end no word."""
TEX_COMMANDS = _named(
    "frac dfrac tfrac sqrt text textbf textit textrm textsf texttt textsc emph underline overline mathrm mathbf mathit"
    " mathbb mathcal mathsf mathfrak operatorname left right big bigg bigl bigr cdot cdots times div pm mp leq geq le"
    " ge neq ne approx equiv sim to rightarrow leftarrow longrightarrow implies iff infty quad qquad ldots dots dotsc"
    " displaystyle textstyle limits boxed hat bar vec tilde dot ddot widehat degree circ prime item noindent newline"
    " hspace vspace hfill centering small large footnotesize tiny scriptsize normalsize bfseries itshape rm bf it tt"
    " section subsection subsubsection paragraph chapter mid ast star colon lbrace rbrace langle rangle lfloor rfloor"
    " lceil rceil sum prod int lim partial nabla forall exists in notin subset cup cap setminus mod bmod pmod"
    " href url textcolor color"
)
"""Commands of TeX that are no words of the text; their arguments are."""
TEX_ARGUMENTS = _named("begin end label ref eqref cite citep citet usepackage documentclass input bibitem")
"""Those whose first argument is none either."""
GREEK = {
    name: unicodedata.lookup(f"GREEK SMALL LETTER {name.upper().replace('LAMBDA', 'LAMDA')}")
    for name in _named(
        "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi"
        " omega"
    )
}
"""Commands of TeX that are a letter."""
_LOOKALIKES = dict(
    zip(
        # Cyrillic, then Greek, Armenian and letters of the phonetic alphabet
        "\u0430\u0441\u0435\u04bb\u0456\u0458\u043e\u0440\u051b\u0455\u051d\u0445\u0443\u0501\u04cf\u043a\u043c\u0442\u0432\u043d\u04af\u0457\u0451"
        "\u03b1\u03b5\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u03b7\u03bc\u03b6\u03b2\u03b3"
        "\u0585\u0578\u057d\u0570\u0561\u0566\u0581\u0563"
        "\u0251\u0261\u026a\u0262\u0274\u028f\u029f\u0280\u0299\u029c",
        "acehijopqswxyd" + "lkmtbhyie" + "aeiknoptuxnuzby" + "onuhwqgq" + "agignylrbh",
        strict=True,
    )
)
"""Letters that look like a Latin letter, folded, and that letter."""
_ALONE = frozenset(
    "\u0430\u0441\u0435\u04bb\u0456\u0458\u043e\u0440\u051b\u0455\u051d\u0445\u0443\u0501\u04cf\u043a\u043c\u0442\u043d\u0432\u03bf\u03bd\u03c1\u03b9\u03ba\u03c4\u03c5\u03c7"
)
"""Those of them that a whole word may be made of."""
_KEPT_BYTES = 128
"""Bytes of the longest segment whose form is kept for the next time."""
_INLINE_TAG = re.compile(rf"</?(?:{'|'.join(sorted(INLINE_TAGS, key=len, reverse=True))})\b[^<>]*>", re.IGNORECASE)
_ESCAPE = re.compile(
    r"\\u(?P<code>[0-9a-fA-F]{4})"
    rf"|\\(?P<greek>{'|'.join(sorted(GREEK, key=len, reverse=True))})(?![a-zA-Z])"
    r"|\\(?:[dt]?frac|sqrt)(?P<digits>\d+)"
    r"|\\[ntr]"
    r"|\\(?P<quote>')"
    r"|(?<=\d)(?P<comma>\{,\}|\\,)(?=\d{3}(?!\d))",
    re.IGNORECASE,
)
_LONG_NUMBER = re.compile(r"&#(?P<digits>[0-9]{9,});?")


def rewritten(segment: bytes) -> bytes:
    """Return a segment of UTF-8 as it is read: entities and escapes resolved, inline tags gone, letters of one script.

    HTML that was escaped twice is resolved twice. Letters that look like Latin letters become these in a word that has
    Latin letters, too, or is made of lookalikes alone.
    """
    return _cached(segment) if len(segment) <= _KEPT_BYTES else _rewritten(segment)


@lru_cache(maxsize=1 << 16)
def _cached(segment: bytes) -> bytes:
    return _rewritten(segment)


def _rewritten(segment: bytes) -> bytes:
    text = _INLINE_TAG.sub("", _unescape(_unescape(segment.decode())))
    text = _ESCAPE.sub(_unescaped, text)
    return " ".join(_latin(part) for part in text.split()).encode("utf-8", "replace")


def _unescape(text: str) -> str:
    """Resolve entities. Python refuses to read thousands of digits; eight are more than any character has."""
    return unescape(_LONG_NUMBER.sub(lambda match: f"&#{match['digits'].lstrip('0')[:8] or '0'};", text))


def _unescaped(match: re.Match[str]) -> str:
    if match["code"]:
        return chr(int(match["code"], 16))
    if match["greek"]:
        return GREEK[match["greek"].lower()]
    if match["digits"]:
        return " ".join(match["digits"])
    if match["quote"]:
        return "'"
    return "," if match["comma"] else " "


def _latin(word: str) -> str:
    folded = normalized("NFKC", word).casefold()
    letters = [char for char in folded if char.isalpha()]
    is_mixed = any("a" <= char <= "z" for char in letters)
    if is_mixed or all(char in _ALONE for char in letters):
        return "".join(_LOOKALIKES.get(char, char) for char in folded)
    return word


@cache
def known_names() -> tuple[Array, Array]:
    """Return uint64[k] hashes of known names, ascending, and uint32[k] what each is known as."""
    known: dict[str, int] = {}
    for kind, names in (
        (TAG, TAGS),
        (INLINE, INLINE_TAGS),
        (TEX, TEX_COMMANDS),
        (TEX_NAMED, TEX_ARGUMENTS),
        (TEX_LETTER, GREEK),
    ):
        for name in names:
            known[name] = known.get(name, 0) | kind
    for name, value in html5.items():
        kind = ENTITY if all(map(_separates, value)) else ENTITY_IN_WORD
        plain = name.removesuffix(";").lower()
        known[plain] = known.get(plain, 0) | kind
    encoded = [name.encode() for name in known]
    bounds = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
    batch = split_words(np.frombuffer(b"".join(encoded), dtype=np.uint8), bounds)
    assert len(batch.hashes) == len(encoded)
    order = np.argsort(batch.hashes)
    return batch.hashes[order], np.fromiter(known.values(), dtype=np.uint32)[order]


def _separates(char: str) -> bool:
    """Tell whether no word goes on over a character, whatever stands around it."""
    return unicodedata.category(char)[0] not in "LMN" and unicodedata.category(char) != "Cf" and char not in "'.,\u2019"


def rewritten_runs(
    words: WordBatch, values: Array, offsets: Array, anew: Array, glued: Array
) -> tuple[Array, list[bytes]]:
    """Return int64[r, 2], first word and word after the last of runs around some words, and each run written anew."""
    runs = _runs(anew, glued)
    begun = offsets[np.searchsorted(words.offsets, runs[:, 0], side="right") - 1]
    starts, ends = begun + words.starts[runs[:, 0]], begun + words.ends[runs[:, 1] - 1]
    pieces = []
    for low, start, end in zip(begun.tolist(), starts.tolist(), ends.tolist(), strict=True):
        before = values[max(low, start - 6) : start].tobytes()
        mark = next((mark for mark in (b"&amp;#", b"&amp;", b"&#", b"&", b"\\") if before.endswith(mark)), b"")
        after = b";" if values[end : end + 1].tobytes() == b";" else b""
        pieces.append(rewritten(mark + values[start:end].tobytes() + after))
    return runs, pieces


def _runs(anew: Array, glued: Array) -> Array:
    """Return int64[r, 2] the runs of glued words that some words are in, ascending, each once."""
    runs: list[tuple[int, int]] = []
    for word in anew.tolist():
        if runs and word < runs[-1][1]:
            continue
        first, stop = word, word + 1
        while glued[first]:
            first -= 1
        while stop < len(glued) and glued[stop]:
            stop += 1
        runs.append((first, stop))
    return np.array(runs, dtype=np.int64).reshape(-1, 2)
