"""Reference implementation of the kernels for escapes and invisible characters: regular expressions and codecs."""

from __future__ import annotations

import base64
import re

_WORD = r"[A-Za-z0-9\x80-\U0010ffff]"
_APOSTROPHE = rf"(?:(?<={_WORD})(?<![bfruBFRU])|(?<={_WORD}[bfruBFRU]))'"
_OUTSIDE = re.compile(
    rf"""(?:[^"'`\\]|\\(?:.|\Z)|{_APOSTROPHE}|(?!{_APOSTROPHE})'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`)*"""
)
_HEX = "[0-9a-fA-F]"
_BREAKS = re.compile(r"(?:\\+[nrt])+")
_BYTE = re.compile(rf"\\+x({_HEX}{{2}})")
_POINT = re.compile(rf"\\+(?:u({_HEX}{{4}})|U({_HEX}{{8}}))")
_BEHIND_POINT = re.compile(rf"\\[uU](?:{_HEX}{{4}}|{_HEX}{{8}})\Z")
_OF_PATTERNS = {*"()-/[]^|"}
_QUOTED = re.compile("=([0-9A-F]{2})")
_PERCENT = re.compile(f"%({_HEX}{{2}})")
_PROSE = {"\n", "\r", *" !\"'(),:;?"}
_TOKEN = re.compile(r"[^ \t\n\v\f\r\"'()<>\[\]`{|}]+")
_UTF7 = re.compile(r"\+([A-Za-z0-9+/]{3,})(-?)")
_NEAR = (range(0xA0, 0x250), range(0x370, 0xE80), range(0x2010, 0x203B))
_FAR = (range(0x3040, 0x3100), range(0x4E00, 0xA000), range(0xAC00, 0xD7A4))
_MARKS = {0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}


def in_string(text: str, at: int) -> bool:
    """Tell whether a quote is open at a place of its line."""
    line = text.rfind("\n", 0, at) + 1
    head = text[line:at]
    first = re.match("b?[\"']", head) if line == 0 else None
    return _OUTSIDE.fullmatch(head, first.end() if first else 0) is None


def escape_end(text: str, at: int) -> int | None:
    """Return where what was written out in ASCII ends."""
    before = text[at - 1] if at else "\n"
    made = {"\\": _backslash_end, "=": _quoted_end, "%": _percent_end, "+": _utf7_end}.get(text[at])
    end = made(text, at, before) if made else None
    return end if end and not in_string(text, at) else None


def _small(sign: str) -> bool:
    return "a" <= sign <= "z"


def _wordy(sign: str) -> bool:
    return bool(re.match(r"[A-Za-z\xc0-\u1fff\u3000-\U0010ffff]", sign))


def _backslash_end(text: str, at: int, before: str) -> int | None:
    if before == "\\":
        return None
    if found := _BREAKS.match(text, at):
        return found.end() if _is_break(text, at, found) else None
    if found := _BYTE.match(text, at):
        next_, other = text[found.end() : found.end() + 1], _BYTE.match(text, found.end())
        is_pair = other and _is_lead(found[1]) and re.match("[89abAB]", other[1])
        if {before, next_} & _OF_PATTERNS or not (is_pair or _is_single(found[1], before, next_)):
            return None
        return other.end() if is_pair else found.end()
    return _points_end(text, at, before)


def _is_break(text: str, at: int, found: re.Match[str]) -> bool:
    """Tell whether ends of lines stand behind a word or sentence, and before one."""
    behind, next_ = text[at - 2 : at - 1] if at > 1 else "", text[found.end() : found.end() + 1]
    if behind == "\\" or not re.search(rf"{_WORD}[!\"),.:?]?\Z", text[max(0, at - 2) : at]) or not _wordy(next_):
        return False
    return len(re.findall(r"\\+", found[0])) > 1 or not _small(next_)


def _points_end(text: str, at: int, before: str) -> int | None:
    if _BEHIND_POINT.search(text[max(0, at - 10) : at]):
        return None
    number, end = 0, at
    first = _POINT.match(text, at)
    if not first or before in _OF_PATTERNS or text[first.end() : first.end() + 1] in _OF_PATTERNS:
        return None
    while (found := _POINT.match(text, end)) and 0xA0 <= int(found[1] or found[2], 16) <= 0x10FFFF:
        number, end = number + 1, found.end()
    next_ = text[end : end + 1]
    touches = re.fullmatch(r"[A-Za-z\x80-\U0010ffff]", before) or _wordy(next_)
    if next_ in _OF_PATTERNS or not number:
        return None
    return end if touches or (number > 2 and before in " \t\n\v\f\r") else None


def _is_lead(digits: str) -> bool:
    return 0xC2 <= int(digits, 16) <= 0xF4


def _is_single(digits: str, before: str, next_: str) -> bool:
    return bool(re.fullmatch("[eEfF][0-9]", digits)) and _small(before) and _small(next_)


def _quoted_end(text: str, at: int, before: str) -> int | None:
    head = text[text.rfind("\n", 0, at) + 1 : at]
    if re.match("=\r?\n", text[at : at + 3]):
        is_soft = 70 <= len(head.encode()) <= 75 and " " in head and re.fullmatch("[a-z!,.:;?]", before)
        return at + 1 if is_soft else None
    found = _QUOTED.match(text, at)
    if not found:
        return None
    end, next_ = found.end(), text[found.end() : found.end() + 1]
    if found[1] in {"09", "20"}:
        return end if next_ in {"", "\n", "\r"} and re.fullmatch("[!,.:;?]", before) else None
    if found[1] == "3D":
        return end if next_ == '"' and re.match("[A-Za-z]", before) else None
    if _is_lead(found[1]) and re.match("=[89AB][0-9A-F]", text[end : end + 3]):
        return end + 3
    return end if _is_single(found[1], before, next_) else None


def _percent_end(text: str, at: int, before: str) -> int | None:
    found = _PERCENT.match(text, at)
    if not found:
        return None
    end, next_ = found.end(), text[found.end() : found.end() + 1]
    if _is_lead(found[1]) and re.match(f"%[89abAB]{_HEX}", text[end : end + 3]):
        end += 3
    elif chr(int(found[1], 16)) in _PROSE:
        if not re.fullmatch(rf"{_WORD}|[!,.:;?]", before) or not (_wordy(next_) or next_ == "%"):
            return None
    elif not _is_single(found[1], before, next_):
        return None
    token = next(match for match in _TOKEN.finditer(text) if match.start() <= at < match.end())
    is_bound = token.start() and text[token.start() - 1] not in " \t\n\v\f\r"
    is_address = re.search(rf"[#$&*/=?@\\_]|\.{_WORD}", token[0])
    return None if is_bound or is_address else end


def _utf7_end(text: str, at: int, _: str) -> int | None:
    found = _UTF7.match(text, at)
    if not found or len(found[1]) > 254 or found.end(1) == len(text):
        return None
    run = found[1]
    bits = "".join(f"{_value(sign):06b}" for sign in run)
    whole = len(bits) // 16 * 16
    points = [int(bits[place : place + 16], 2) for place in range(0, whole, 16)]
    far = [any(point in some for some in _FAR) for point in points]
    near = [any(point in some for some in _NEAR) for point in points]
    if len(bits) - whole >= 6 or "1" in bits[whole:] or not all(map(max, zip(far, near, strict=True))):
        return None
    is_mixed = len(run) > 7 and all(re.search(some, run) for some in ("[a-z]", "[A-Z]", "[0-9]"))
    return found.end() if is_mixed or (found[2] and not any(far)) else None


def _value(sign: str) -> int:
    return int.from_bytes(base64.b64decode(f"AAA{sign}"))


def hidden_kind(text: str, at: int) -> str | None:
    """Return "invisible" for a character that is not seen, "marks" or "soft" where the whole document decides."""
    point = ord(text[at])
    before, behind = ord(text[at - 1]) if at else 0, ord(text[at + 1]) if at + 1 < len(text) else 0
    if point in _MARKS:
        return "marks"
    if point == 0xAD:
        return "soft"
    is_selector = 0xFE00 <= before <= 0xFE0F or before >= 0xE0000
    if point == 0x200B:
        found = before not in range(0x900, 0x1D00) and behind not in range(0x900, 0x1D00)
    elif point in (0x200C, 0x200D):
        found = not (
            before in range(0x590, 0x1D00)
            or behind in range(0x590, 0x1D00)
            or before in range(0xFB50, 0xFE00)
            or (point == 0x200D and before >= 0x2010)
        )
    elif 0xFE00 <= point <= 0xFE0F:
        is_base = chr(before) in "#*\xa9\xae0123456789" or before in range(0x1000, 0x10A0) or before >= 0x2010
        found = is_selector or not is_base
    elif 0xE0100 <= point <= 0xE01EF:
        found = is_selector or before < 0x2E80
    elif 0xE0000 <= point <= 0xE007F:
        found = point < 0xE0020 or not re.search("\U0001f3f4[\U000e0020-\U000e007f]*\\Z", text[:at])
    else:
        found = point in (*range(0x2060, 0x2066), *range(0x206A, 0x2070), *range(0xFFF9, 0xFFFC)) or (
            point == 0xFEFF and at > 0
        )
    return "invisible" if found else None
