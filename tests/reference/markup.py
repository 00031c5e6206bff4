"""Reference implementation of :mod:`dataaudit.scan.kernels.markup`: regular expressions over text.

It knows the forms that its test writes: text in which markup stands between words, or inside them.
"""

from __future__ import annotations

import html
import re

_TAGS = "b|i|p|br|sub|div|span|td"
_INLINE = "b|i|sub|span"
_GREEK = {"\\alpha": "\u03b1", "\\pi": "\u03c0"}
_CYRILLIC = str.maketrans("\u0430\u0435\u043e\u0440\u0441\u0445", "aeopcx")


def without_markup(text: str) -> str:
    """Return a text of which the words in normal form can be cut; see :func:`normal_word`."""
    text = re.sub(rf"(?<=\w)(?:</?(?:{_INLINE})\b[^<>]*>)+(?=\w)", "", text)
    text = re.sub(rf"</?(?:{_TAGS})\b[^<>]*>", " \n ", text)
    text = html.unescape(html.unescape(text))
    text = re.sub(r"\]\((?:https?://|#)[^\s()]*\)", "] ", text)
    text = re.sub(r"\\(?:begin|end)\{[^}]*\}", " ", text)
    text = re.sub(r"\\(alpha|pi)\b", lambda found: _GREEK[found[0]], text)
    text = re.sub(r"\\(?:textbf|frac|cdot|item)(?![a-z])", " ", text)
    text = re.sub(r"\\[nt]", " ", text).replace("\\'", "'")
    text = re.sub(r"(?<=\d)\{,\}(?=\d{3})", ",", text)
    return re.sub(r"\S*[a-z]\S*", lambda found: found[0].translate(_CYRILLIC), text)


def normal_word(written: str, folded: str) -> str:
    """Return a word, as it is written and folded, in normal form; numbers keep their points, not their commas."""
    if not re.search(r"\d[.,]\d", written):
        return folded
    if re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?", written):
        written = written.replace(",", "")
    return written.casefold() if re.search(r"[.,]", written) else folded
