"""White space collapsed in a whole batch at once, and the documents told apart that may not be in NFC.

The kernel under the normal form ``nfc_space`` (see ``corpus/normal.py``). White space is what ``str.split``
splits at. Whether a text is in NFC is decided by code points first (Unicode Standard Annex 15, section 9,
"Detecting Normalization Forms"): one without any code point that is or may be changed by NFC, and without any of
non-zero combining class, is in NFC; the others are left to the caller.

Unicode's normal forms of one text, in time that does not grow with the square of a run of marks.

What markup inside a word, and letters that look like others, become: the few words that are written anew.

Plain Python, for what :mod:`dataaudit.scan.kernels.markup` points out; the same stretch is written anew once.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from html import unescape
from pathlib import Path
from typing import Literal
from unicodedata import combining, normalize

import numpy as np
import numpy.typing as npt

from dataaudit.base.cache import kept
from dataaudit.scan.kernels.jit import READ_BYTES, READ_OFFSETS, compiled

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_PLANES_WITH_MARKS = 0x30000
"""No code point from here on decomposes or has a combining class; a test holds that for all of them."""
_HANGUL_VOWELS_AND_FINALS = range(0x1161, 0x11C3)


def collapse_spaces(offsets: Offsets, data: Bytes) -> tuple[Offsets, Bytes, Mask]:
    """Collapse every run of white space to one space and strip both ends, document by document.

    Args:
        offsets: int64[n + 1], ascending from 0.
        data: uint8[offsets[n]], valid UTF-8.

    Returns:
        offsets int64[n + 1] and bytes uint8[...] of the collapsed documents, and bool[n]: documents with a code
        point that may keep them from being in NFC.
    """
    out = np.empty(len(data), dtype=np.uint8)
    out_offsets = np.zeros(len(offsets), dtype=np.int64)
    suspect = np.zeros(len(offsets) - 1, dtype=np.bool_)
    _collapse(offsets, data, _suspects(), out_offsets, out, suspect)
    return out_offsets, out[: out_offsets[-1]], suspect


@cache
def _suspects() -> Bytes:
    """uint8[0x110000 / 8], a bit for each code point that NFC changes, may change or may move."""
    inputs = [Path(__file__).read_bytes(), unicodedata.unidata_version.encode()]
    return kept("normal", inputs, lambda: build_suspects().tobytes(), _read)


def _read(held: bytes) -> Bytes:
    return np.frombuffer(held, dtype=np.uint8)


def build_suspects() -> Bytes:
    """Return the same, made of ``unicodedata``."""
    marked = np.zeros(0x110000, dtype=np.uint8)
    for number in range(0x80, _PLANES_WITH_MARKS):
        char = chr(number)
        if unicodedata.combining(char):
            marked[number] = 1
        decomposed = unicodedata.decomposition(char)
        if decomposed and not decomposed.startswith("<"):
            parts = decomposed.split()
            if len(parts) == 2:
                marked[int(parts[1], 16)] = 1  # may compose with what stands before it
            if not unicodedata.is_normalized("NFC", char):
                marked[number] = 1
    marked[_HANGUL_VOWELS_AND_FINALS.start : _HANGUL_VOWELS_AND_FINALS.stop] = 1
    marked[:0x80] = 0
    return np.packbits(marked, bitorder="little")


@compiled(f"void({READ_OFFSETS}, {READ_BYTES}, {READ_BYTES}, int64[::1], uint8[::1], boolean[::1])")
def _collapse(offsets: Offsets, data: Bytes, suspects: Bytes, out_offsets: Offsets, out: Bytes, suspect: Mask) -> None:
    written = np.uintp(0)
    item, two, three, four = np.uintp(1), np.uintp(2), np.uintp(3), np.uintp(4)  # unsigned: no index wraps around
    for document in range(len(offsets) - 1):
        begun = written
        place, stop = np.uintp(offsets[document]), np.uintp(offsets[document + 1])
        gap = False
        found = False
        while place < stop:
            first = data[place]
            if first <= 0x20 and (first == 0x20 or 0x09 <= first <= 0x0D or 0x1C <= first <= 0x1F):
                gap = True
                place += item
                continue
            size = item
            if first >= 0x80:
                if first < 0xE0:
                    size, code = two, np.uint32(first & 0x1F)
                elif first < 0xF0:
                    size, code = three, np.uint32(first & 0x0F)
                else:
                    size, code = four, np.uint32(first & 0x07)
                for step in range(item, size):
                    code = np.uint32(code << 6) | np.uint32(data[place + step] & 0x3F)
                if (
                    0x2000 <= code <= 0x200A
                    or code in (0x85, 0xA0, 0x1680)
                    or code in (0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
                ):
                    gap = True
                    place += size
                    continue
                found |= (suspects[np.uintp(code >> 3)] >> np.uint8(code & 7)) & 1 != 0
            if gap and written > begun:
                out[written] = 0x20
                written += item
            gap = False
            for _ in range(size):
                out[written] = data[place]
                written += item
                place += item
            while place < stop and 0x20 < data[place] < 0x80:
                out[written] = data[place]
                written += item
                place += item
        suspect[document] = found
        out_offsets[document + 1] = written


Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
LONG_RUN = 64
"""Marks in a row from which on they are put in order here."""
_BEYOND_MARKS = 0x20000
"""No code point from here on has a combining class, or decomposes to one that has; a test holds that."""


def normalized(form: Form, text: str) -> str:
    """Return a normal form of a text, in time that grows like n log n.

    ``unicodedata`` puts marks in order by insertion, which takes n^2 steps for n marks in a row. So those of a long
    run are put in canonical order first, by a stable sort. That gives a canonically equivalent text, whose normal
    form is the same (Unicode Standard, section 3.11, D108 to D109).
    """
    if len(text) < LONG_RUN:
        return normalize(form, text)
    run, decomposed = _marks("NFKD" if "K" in form else "NFD")
    return normalize(form, run.sub(lambda found: _in_order(found[0].translate(decomposed)), text))


def _in_order(marks: str) -> str:
    return "".join(sorted(marks, key=combining))


@cache
def _marks(form: Form) -> tuple[re.Pattern[str], dict[int, str]]:
    """Return what matches a long run of marks, and the decompositions of those that have one, by code point.

    Compatibility has marks of its own: U+FF9E, a voiced sound mark of half width, has no combining class, but what
    it decomposes to has one.
    """
    forms = {number: normalize(form, chr(number)) for number in range(0x300, _BEYOND_MARKS)}
    marks = {number: parts for number, parts in forms.items() if combining(parts[0])}
    listed = "".join(map(chr, marks))
    return re.compile(f"[{listed}]{{{LONG_RUN},}}"), {at: parts for at, parts in marks.items() if parts != chr(at)}


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
TEX_NAMED = _named("begin end label ref eqref cite citep citet usepackage documentclass input bibitem")
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
"""Letters that look like a Latin one, folded, and that one."""
_ALONE = frozenset(
    "\u0430\u0441\u0435\u04bb\u0456\u0458\u043e\u0440\u051b\u0455\u051d\u0445\u0443\u0501\u04cf\u043a\u043c\u0442\u043d\u0432\u03bf\u03bd\u03c1\u03b9\u03ba\u03c4\u03c5\u03c7"
)
"""Those of them that a whole word may be made of."""
_KEPT_BYTES = 128
"""Bytes of the longest stretch whose form is kept for the next time."""
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


def rewritten(stretch: bytes) -> bytes:
    """Return a stretch of UTF-8 as it is read: entities and escapes resolved, inline tags gone, letters of one script.

    HTML that was escaped twice is resolved twice. Letters that look like Latin ones become these in a word that has
    Latin ones, too, or is made of lookalikes alone.
    """
    return _kept(stretch) if len(stretch) <= _KEPT_BYTES else _rewritten(stretch)


@lru_cache(maxsize=1 << 16)
def _kept(stretch: bytes) -> bytes:
    return _rewritten(stretch)


def _rewritten(stretch: bytes) -> bytes:
    text = _INLINE_TAG.sub("", _unescape(_unescape(stretch.decode())))
    text = _ESCAPE.sub(_unescaped, text)
    return " ".join(_latin(part) for part in text.split()).encode("utf-8", "replace")


def _unescape(text: str) -> str:
    """Resolve entities. Python refuses to read thousands of digits; eight are more than any character has."""
    return unescape(_LONG_NUMBER.sub(lambda found: f"&#{found['digits'].lstrip('0')[:8] or '0'};", text))


def _unescaped(found: re.Match[str]) -> str:
    if found["code"]:
        return chr(int(found["code"], 16))
    if found["greek"]:
        return GREEK[found["greek"].lower()]
    if found["digits"]:
        return " ".join(found["digits"])
    if found["quote"]:
        return "'"
    return "," if found["comma"] else " "


def _latin(word: str) -> str:
    folded = normalized("NFKC", word).casefold()
    letters = [char for char in folded if char.isalpha()]
    is_mixed = any("a" <= char <= "z" for char in letters)
    if is_mixed or all(char in _ALONE for char in letters):
        return "".join(_LOOKALIKES.get(char, char) for char in folded)
    return word
