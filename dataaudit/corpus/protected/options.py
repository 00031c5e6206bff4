"""Questions without their options: what of a multiple-choice item stands wherever the item does.

Options are reordered, relabelled and left out; the question before them is not. It is looked for alone where it tells
enough by itself, and with its options, in their order, where it does not ("Which of these is true?").
"""

from __future__ import annotations

import re

_LABEL = r"(?:\((?P<open>[A-Ha-h1-8])\)|(?P<plain>[A-Ha-h1-8])[.):\]])"
_LINE_LABEL = re.compile(rf"^[ \t>*_-]*{_LABEL}[*_]*(?:[ \t]+|$)", re.MULTILINE)
_INLINE_LABEL = re.compile(r"(?:(?<=\s)|^)\((?P<open>[A-Ha-h1-8])\)(?=\s*\S)|(?<=\s)(?P<plain>[A-H])[).:](?=\s)")
_HEAD = re.compile(r"\n[ \t*_#]*(?:answer )?(?:options|choices)[ \t*_]*+:?[ \t*_]*+\n", re.IGNORECASE)
_MOST_LINES, _MOST_LINE_WORDS = 10, 20
_CODE = re.compile(r">>>|[={}]|\"\"\"|\w\(|;$", re.MULTILINE)


def without_options(text: str) -> str:
    """Return a question without the options that follow it; the text itself when none are known.

    Options are labelled in order from A or 1, two at least, each at the beginning of a line or all in one; or they are
    the short lines, two at least, behind a line that ends with a question mark.
    """
    cuts = [cut for cut in (_at_labels(text), _at_lines(text)) if cut]
    stem = text[: min(cuts)].rstrip() if cuts else text
    head = _HEAD.search(stem + "\n")
    stem = stem[: head.start()] if head else stem
    return stem if stem.strip() else text


def _at_labels(text: str) -> int:
    """Return where the first of some labels in order stands; 0 without any."""
    for pattern in (_LINE_LABEL, _INLINE_LABEL):
        found = [(match.start(), match["open"] or match["plain"]) for match in pattern.finditer(text)]
        for index, (start, label) in enumerate(found[:-1]):
            following = found[index + 1][1]
            if label in "Aa1" and ord(following) == ord(label) + 1 and start and text[:start].strip():
                return start
    return 0


def _at_lines(text: str) -> int:
    """Return where the line after a question ends, when all lines behind it are short; 0 otherwise."""
    lines = text.rstrip().split("\n")
    for index, line in enumerate(lines):
        if not line.rstrip().endswith("?"):
            continue
        behind = [one for one in lines[index + 1 :] if one.strip()]
        is_list = 2 <= len(behind) <= _MOST_LINES and all(len(one.split()) <= _MOST_LINE_WORDS for one in behind)
        if is_list and not _CODE.search("\n".join(behind)) and not any(one.rstrip().endswith("?") for one in behind):
            return len("\n".join(lines[: index + 1]))
        return 0
    return 0
