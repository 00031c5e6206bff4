"""Reference implementation of the kernels for encoding faults: strings and regular expressions.

Written from definitions in words, of which docs/reference/metrics.md has the outline. Positions are characters, sizes
are bytes of UTF-8.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

from reference.fault_decoders import kana_end, letters, page_chain, splits_word
from reference.fault_escapes import escape_end, hidden_kind, in_string

_SPACES = " \t\n\v\f\r"
_NAME = r"[A-Za-z][-A-Za-z0-9:.]{0,31}"
_SPACE = r"[ \t\n\v\f\r]"
_DECLARATION = re.compile(r"<!--|<!doctype|<!\[cdata\[|<\?xml", re.IGNORECASE | re.ASCII)
_CLOSING = re.compile(rf"</{_NAME}{_SPACE}{{0,32}}>")
_BARE = re.compile(rf"<({_NAME})>")
_LINK = re.compile(r"(?:^|[^A-Za-z>])L\Z")
_EMPTY = re.compile(rf"<{_NAME}{_SPACE}{{0,32}}/>")
_OPENING = re.compile(rf"<({_NAME}){_SPACE}{{1,32}}[-A-Za-z0-9:._@]+=([\"']?)[^>]*>")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,7}|([A-Za-z0-9]+));")
_OPEN_NUMBER = re.compile("&#(?:[0-9]{2,5}(?![0-9])|[xX][0-9a-fA-F]{2,5}(?![0-9a-fA-F]))(?![;=])")
_RUN = re.compile(r"[A-Za-z0-9+/]{64,}")
_BEFORE_GLUED = re.compile(r"[-A-Za-z0-9:._]")
_QUOTES = {
    *"\u201a\u201e\u2026\u2039\u2018\u2019\u201c\u201d\u2022\u2013\u2014\u2122\u203a\u00a0\u00ab\u00b7\u00bb\u00bf"
}
_NEVER_BEHIND_UNIT = {*"\u2026\u2019\u201d\u2022\u2013\u2014\u00a0\u00b7"}
_COMMENT = re.compile(r"[ \t\v\f\r]+\*|[ \t\v\f\r]*(?://|/\*|''')")
_BEFORE_ADDRESS = re.compile(r"(?:[(={|]|return)[ \t\v\f\r]*\Z", re.IGNORECASE | re.ASCII)
_AFTER_ADDRESS = re.compile(r"[ \t\v\f\r]*(?:$|\n|\}|//|/\*)")
_ESCAPES = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;", "&nbsp;"}
_NAMED_DIGEST = re.compile(r"[sS][hH][aA][0-9]{3}[-:=]\Z")
_MARKS = {*"\u00a9\u00aa\u00ae\u00b0\u00b1\u00b2\u00b3\u00b9\u00ba"}
_NONCHARACTERS = {*range(0xFDD0, 0xFDF0)} | {plane << 16 | low for plane in range(17) for low in (0xFFFE, 0xFFFF)}


def fault_counts(text: str, names: dict[str, set[str]]) -> Counter[str]:
    """Return the bytes of each kind of fault, the lines that are not blank, and those that are markup.

    Args:
        text: The document.
        names: What counts by name: ``entities``, tags that are ``bare``, ``glued``, or have ``plain`` attributes.
    """
    counts, tags, at, done, checked = Counter(), [], 0, 0, 0
    while at < len(text):
        kind, first, end = _fault_at(text, at, done, names)
        if kind in {"", "soft"} and end == at + 1 and at >= checked:
            checked, is_fault = letters(text, at)
            if is_fault and not in_string(text, at):
                counts["mojibake"] += sum(2 for sign in text[at:checked] if sign > "\x7f")
                at = done = checked
                continue
        counts[kind] += _size(text[first:end])
        if kind == "tags":
            tags.append((at, end))
        if kind == "mojibake":
            done = end
        at = end
    counts["invisible"] += counts["soft"] * (counts["soft"] >= 10 and 256 * counts["soft"] >= 2 * _size(text))
    counts["invisible"] += counts["marks"] * (re.search("[\u0580-\u07ff]", text) is None)
    counts["base64"] = sum(
        len(run.group()) for run in _RUN.finditer(text) if _is_random(run.group(), text[: run.start()])
    )
    lines = _lines(text)
    counts["lines"] = len(lines)
    counts["markup_lines"] = sum(_is_markup(text, first, last, tags) for first, last in lines)
    return counts


def _size(text: str) -> int:
    return len(text.encode())


def _fault_at(text: str, at: int, done: int, names: dict[str, set[str]]) -> tuple[str, int, int]:
    """Return what stands here, where it begins, and where it ends."""
    sign = text[at]
    if sign == "<" and (end := _tag_end(text, at, names)):
        return "tags", at, end
    if sign == "&" and (end := _entity_end(text, at, names)):
        head = text[text.rfind("\n", 0, at) + 1 : at]
        is_address = (
            re.match("&[A-Za-z]", text[at:])
            and text[at:end].lower() not in _ESCAPES
            and _BEFORE_ADDRESS.search(head)
            and _AFTER_ADDRESS.match(text, end)
        )
        return "" if is_address or _COMMENT.match(head) else "entities", at, end
    if end := escape_end(text, at):
        return "escapes", at, end
    if chain := _decoded(text, at, done):
        return "mojibake", *chain
    if sign == "\ufffd":
        return "replacement", at, at + 1
    is_control = (sign < " " and sign not in "\t\n\f\r") or "\x7f" <= sign < "\xa0" or ord(sign) in _NONCHARACTERS
    return "control" if is_control else hidden_kind(text, at) or "", at, at + 1


def _decoded(text: str, at: int, done: int) -> tuple[int, int] | None:
    """Return where characters that a wrong decoder made begin and end."""
    if end := _mojibake_end(text, at):
        return at, end
    if chain := page_chain(text, done, at):
        return chain
    end = kana_end(text, at) or splits_word(text, at) * (at + 1)
    return (at, end) if end else None


def _entity_end(text: str, at: int, names: dict[str, set[str]]) -> int | None:
    found = _ENTITY.match(text, at)
    if found and (not found[1] or found[1] in names["entities"]):
        return found.end()
    if found := _OPEN_NUMBER.match(text, at):
        return found.end()
    name = re.match("[A-Za-z0-9]{0,32}", text[at + 1 :])[0]
    behind = text[at + 1 + len(name) : at + 2 + len(name)]
    if behind == "=":
        return None
    if (
        name in names["escapes"]
        and behind in {"", *_SPACES}
        and re.search(r"[A-Za-z0-9\x80-\U0010ffff!).?] ?\Z", text[:at])
    ):
        return at + 1 + len(name)
    sizes = [size for size in range(4, len(name) + 1) if name[:size] in names["open"]]
    return at + 1 + sizes[0] if sizes else None


def _tag_end(text: str, at: int, names: dict[str, set[str]]) -> int | None:
    if _LINK.search(text[max(0, at - 2) : at]) and text.startswith("</", at):
        return None
    for pattern in (_DECLARATION, _CLOSING, _EMPTY):
        if found := pattern.match(text, at):
            return found.end()
    if found := _BARE.match(text, at):
        glued = at > 0 and _BEFORE_GLUED.match(text[at - 1])
        return found.end() if found[1].lower() in names["glued" if glued else "bare"] else None
    found = _OPENING.match(text, at)
    if found and (found[2] or found[1].lower() in names["plain"]) and _size(found.group()) <= 1024:
        return found.end()
    return None


def _byte(sign: str) -> int:
    """Return the byte of Windows-1252, or of Latin-1; 0 where it is neither."""
    try:
        return sign.encode("cp1252")[0]
    except UnicodeEncodeError:
        return ord(sign) if 0x80 <= ord(sign) < 0x100 else 0


def _sequence_end(text: str, at: int) -> int | None:
    if at == len(text) or not "\xc2" <= text[at] <= "\xf4":
        return None
    size = 2 if text[at] < "\xe0" else 3 if text[at] < "\xf0" else 4
    taken = text[at : at + size]
    try:
        return at + size if len(bytes(map(_byte, taken)).decode()) == 1 and len(taken) == size else None
    except UnicodeDecodeError:
        return None


def _mojibake_end(text: str, at: int) -> int | None:
    end, number = at, 0
    while after := _sequence_end(text, end):
        end, number = after, number + 1
    return end if number > 1 or (number == 1 and _stands_alone(text, at, end)) else None


def _stands_alone(text: str, at: int, end: int) -> bool:
    lead, second = text[at], text[at + 1]
    before = text[at - 1] if at else " "
    into_word = re.match("[a-z]", text[end : end + 1]) is not None
    if lead == "\xe1" and second == "\xbb":
        return into_word or _byte(text[at + 2]) not in {_byte(quote) for quote in _QUOTES}
    if lead in "\xc2\xc3":
        is_capital = re.match("[A-Z\xc0-\xde]", before) is not None
        return into_word or not is_capital or second not in _QUOTES
    if lead in "\xc4\xc5":
        if lead == "\xc5" and re.match("[a-z]", before):
            return second not in _NEVER_BEHIND_UNIT and (into_word or second not in _MARKS | {"\u201c"})
        return re.match("[a-z]", before) is not None or (into_word and second not in _QUOTES | _MARKS)
    behind = {
        "\xe2": b"\x80\x82\x84\x86\x88\x89\x9c",
        "\xe1": b"\xba",
        "\xe3": b"\x80",
        "\xef": b"\xbb\xbc\xbf",
        "\xf0": b"\x9f",
    }
    return _byte(second) in behind.get(lead, b"")


def _kind(sign: str) -> str:
    return "digit" if sign.isdigit() else "upper" if sign.isupper() else "lower" if sign.islower() else "sign"


def _is_random(run: str, before: str) -> bool:
    if run[:2] in {"0x", "0X"}:
        run, before = run[2:], before + run[:2]
    if len(run) in {64, 86} and _NAMED_DIGEST.search(before[-7:]):
        return False
    kinds = [_kind(sign) for sign in run]
    changes = sum(run != other for run, other in pairwise(kinds))
    if re.fullmatch("[0-9a-fA-F]+", run):
        return (
            "digit" in kinds
            and len({*kinds} - {"digit"}) > 0
            and changes >= len(run) / 8
            and len(run) not in {64, 96, 128}
        )
    if run.count("/") > len(run) / 16:
        return False
    return {"digit", "upper", "lower"} <= {*kinds} and changes / len(run) >= 0.45


def _lines(text: str) -> list[tuple[int, int]]:
    """Return first and last of what is seen of each line that is not blank: where it begins, and where it ends."""
    found, start = [], 0
    for line in text.split("\n"):
        inner = line.strip(_SPACES)
        if inner:
            first = start + len(line) - len(line.lstrip(_SPACES))
            found.append((first, first + len(inner)))
        start += len(line) + 1
    return found


def _is_markup(text: str, first: int, last: int, tags: list[tuple[int, int]]) -> bool:
    """Tell whether a line begins, or ends, within a tag, and is no comment and no prose about tags."""
    line = text[text.rfind("\n", 0, first) + 1 : last]
    if _COMMENT.match(line):
        return False
    return any(
        (start < first < end)
        or (start == first and _begins_line(text, start, end))
        or (start < last < end)
        or (end == last and _ends_line(text, start, end))
        for start, end in tags
    )


def _is_bare(text: str, start: int, end: int) -> bool:
    return re.fullmatch("<[-A-Za-z0-9:.]+>", text[start:end]) is not None


def _begins_line(text: str, start: int, end: int) -> bool:
    if not _is_bare(text, start, end):
        return True
    rest = text[end:].split("\n", 1)[0]
    return not rest.strip(_SPACES) or rest[0] not in "),-./:;=|" + _SPACES


def _ends_line(text: str, start: int, end: int) -> bool:
    return (
        not _is_bare(text, start, end)
        or re.match(r"[A-Za-z0-9\x80-\U0010ffff.!?>;:)\"]", text[:start][-1:]) is not None
    )
