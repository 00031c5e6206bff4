"""Entities and tags of HTML or XML in text, with their bytes."""

from __future__ import annotations

from functools import cache

import numpy as np

from dataaudit.scan.kernels.jit import Array, Int, cold, helper

_LIMIT = 1024
"""Bytes of the longest tag."""
_NAME = 32
"""Bytes of the longest name."""
ENTITIES = (
    "amp lt gt quot apos nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo shy macr plusmn acute para"
    " middot cedil ordm raquo frac12 frac14 frac34 iquest Agrave Aacute Acirc Atilde Auml Aring AElig Ccedil Egrave"
    " Eacute Ecirc Euml Igrave Iacute Icirc Iuml Ntilde Ograve Oacute Ocirc Otilde Ouml Oslash Ugrave Uacute Ucirc"
    " Uuml Yacute THORN szlig agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml igrave iacute"
    " icirc iuml ntilde ograve oacute ocirc otilde ouml oslash ugrave uacute ucirc uuml yacute thorn yuml OElig oelig"
    " Scaron scaron Yuml ensp emsp thinsp zwnj zwj ndash mdash lsquo rsquo sbquo ldquo rdquo bdquo hellip permil"
    " lsaquo rsaquo euro trade bull"
)
"""Names of entities; those that are names of variables too (``sum``, ``int``, ``lang``) are left out."""
_ACCENTS = ("acute", "grave", "circ", "uml", "tilde", "cedil", "ring", "slash")
OPEN_ENTITIES = " ".join(
    name for name in ENTITIES.split() if name in {"nbsp", "szlig", "aelig", "AElig"} or name[1:] in _ACCENTS
)
"""Those that count without a semicolon, whatever letter follows: no variable has such a name."""
OPEN_ESCAPES = "amp lt gt quot"
"""Those that count without a semicolon as a word of a sentence."""
BARE_TAGS = (
    "p br hr b i u em strong div span ul ol li dl dt dd td tr th tbody thead tfoot h1 h2 h3 h4 h5 h6 pre blockquote"
    " html sup sub tt strike ins wbr nobr figcaption noscript colgroup"
)
"""Elements whose opening tag counts without an attribute; ``<title>`` or ``<table>`` may stand for a value."""
GLUED_TAGS = "br wbr p sup sub"
"""Those of them that count behind a letter, where others may be a type: ``vector<b>``."""
PLAIN_ATTRIBUTES = (
    "a abbr area article aside audio base body button canvas caption center col colgroup dd div dl dt embed fieldset"
    " font form frame h1 h2 h3 h4 h5 h6 head header hr html iframe img input label legend li link main map meta nav"
    " object ol option p param pre script section select source span style svg table tbody td textarea tfoot th thead"
    " tr track ul video"
)
"""Elements whose attributes may stand without quotes; ``template<class T=int>`` is no tag."""


Tables = tuple[Array, Array, Array, Array, Array, Array]
_SEED, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


@cache
def name_tables() -> Tables:
    """Return uint64[k], sorted: digests of entities, open entities, escapes, bare, glued and plainly written tags."""
    lists = (ENTITIES, OPEN_ENTITIES, OPEN_ESCAPES, BARE_TAGS, GLUED_TAGS, PLAIN_ATTRIBUTES)
    made = [np.array(sorted(map(_digest, names.split())), dtype=np.uint64) for names in lists]
    entities, opened, escapes, bare, glued, plain = made
    return entities, opened, escapes, bare, glued, plain


def _digest(name: str) -> int:
    digest = int(_SEED)
    for byte in name.encode():
        digest = (digest ^ byte) * int(_PRIME) % 2**64
    return digest


@cold
def entity_end(data: Array, start: Int, pos: Int, end: Int, entities: Array, opened: Array, escapes: Array) -> Int:
    """Return the byte after the entity whose ``&`` stands at ``pos``, or ``pos`` where there is none.

    Without a semicolon it needs two to five digits, a name of ``opened`` before any letter, or a name of
    ``escapes`` before white space, behind a word or the space behind one; never before ``=``.
    """
    at = pos + 1
    if at < end and data[at] == 35:
        at += 1
        is_hex = at < end and data[at] | 32 == 120
        at += np.int64(is_hex)
        first = at
        while at < end and at - first < 7 and (is_digit(data[at]) or (is_hex and 97 <= data[at] | 32 <= 102)):
            at += 1
        if first < at < end and data[at] == 59:
            return at + 1
        return at if 2 <= at - first <= 5 and not (at < end and data[at] == 61) else pos
    digest, open_end = _SEED, pos
    while at < end and at - pos <= _NAME and (is_letter(data[at]) or is_digit(data[at])):
        digest = (digest ^ np.uint64(data[at])) * _PRIME
        at += 1
        if at - pos > 4 and open_end == pos and _holds(opened, digest):
            open_end = at
    if at < end and data[at] == 59 and _holds(entities, digest):
        return at + 1
    if at < end and data[at] == 61:
        return pos
    before = pos - 1 if pos > start and data[pos - 1] == 32 else pos
    is_behind = before > start and _ends_word(data[before - 1])
    if is_behind and (at == end or is_space(data[at])) and _holds(escapes, digest):
        return at
    return open_end


@helper
def _ends_word(byte: Int) -> bool:
    """Tell whether a byte is of a word, or a sign behind one: ``.``, ``!``, ``?``, ``)``."""
    return bool(is_letter(byte) or is_digit(byte) or byte >= 128 or byte in (33, 41, 46, 63))


@cold
def is_address(data: Array, line: Int, pos: Int, after: Int, end: Int) -> bool:
    """Tell whether an entity ends a statement with the address of a variable: ``p = &copy;``, ``return &para;``."""
    if data[pos + 1] == 35 or _begins(data, pos + 1, end, (b"amp;", b"lt;", b"gt;", b"quot;", b"apos;", b"nbsp;")):
        return False
    while pos > line and is_space(data[pos - 1]):
        pos -= 1
    is_operator = pos > line and (data[pos - 1] in (40, 61, 123, 124))  # ( = { |
    if not is_operator and not (pos - line >= 6 and _begins(data, pos - 6, end, (b"return",))):
        return False
    while after < end and data[after] != 10 and is_space(data[after]):
        after += 1
    return bool(after == end or data[after] in (10, 125) or _begins(data, after, end, (b"//", b"/*")))


@cold
def is_comment(data: Array, line: Int, end: Int) -> bool:
    """Tell whether a line is a comment of code, whose tags and entities document it (``///``, ``/**``, ``'''``)."""
    at = line
    while at < end and data[at] != 10 and is_space(data[at]):
        at += 1
    return bool((line < at < end and data[at] == 42) or _begins(data, at, end, (b"//", b"/*", b"'''")))


@cold
def begins_line(data: Array, pos: Int, after: Int, end: Int) -> bool:
    """Tell whether a tag at the head of a line is more than the name of an element: what follows belongs to it."""
    if not _is_bare(data, pos, after) or after == end:
        return True
    if data[after] in (41, 44, 45, 46, 47, 58, 59, 61, 124):  # ) , - . / : ; = |
        return False
    at = after
    while at < end and data[at] != 10 and is_space(data[at]):
        at += 1
    return bool(at in (after, end) or data[at] == 10)


@cold
def ends_line(data: Array, start: Int, pos: Int, after: Int) -> bool:
    """Tell whether a tag, if it ends a line, is more than the name of an element: it stands close to what is before."""
    if not _is_bare(data, pos, after):
        return True
    before = data[pos - 1] if pos > start else np.uint8(32)
    # . ! ? > ; : ) "
    return bool(is_letter(before) or is_digit(before) or before >= 128 or before in (46, 33, 63, 62, 59, 58, 41, 34))


@helper
def _is_bare(data: Array, pos: Int, after: Int) -> bool:
    """Tell whether a tag opens an element and has no attribute."""
    at = pos + 1
    while at < after and _in_name(data[at]):
        at += 1
    return bool(at == after - 1 and data[at] == 62)


@cold
def tag_end(data: Array, start: Int, pos: Int, end: Int, bare: Array, glued: Array, plain: Array) -> Int:
    """Return the byte after the tag, or the sign of a comment, with its ``<`` at ``pos``; ``pos`` without any."""
    at = pos + 1
    if at < end and (data[at] == 33 or data[at] == 63):
        return _declaration_end(data, pos, end)
    closes = at < end and data[at] == 47
    at += np.int64(closes)
    first, digest = at, _SEED
    while at < end and at - first < _NAME and _in_name(data[at]):
        byte = np.uint64(data[at])
        digest = (digest ^ (byte | np.uint64(32) if 65 <= byte <= 90 else byte)) * _PRIME
        at += 1
    name_end = at
    while at < end and at - name_end < _NAME and is_space(data[at]):
        at += 1
    if at in (first, end) or not is_letter(data[first]):
        return pos
    if data[at] == 62:
        is_glued = pos > start and (_in_name(data[pos - 1]) or data[pos - 1] == 95)
        is_known = closes or (at == name_end and _holds(glued if is_glued else bare, digest))
        return at + 1 if is_known and not (closes and _is_link(data, start, pos)) else pos
    if closes:
        return pos
    if data[at] == 47:
        return at + 2 if at + 1 < end and data[at + 1] == 62 else pos
    return _end_of_attributes(data, pos, at, end, _holds(plain, digest)) if at > name_end else pos


@helper
def _is_link(data: Array, start: Int, pos: Int) -> bool:
    """Tell whether ``</`` goes on from an ``L`` that stands alone: a link of Perl's documentation, ``L</new>``."""
    if pos == start or data[pos - 1] != 76:
        return False
    return bool(pos - 1 == start or not (is_letter(data[pos - 2]) or data[pos - 2] == 62))


@helper
def _end_of_attributes(data: Array, pos: Int, at: Int, end: Int, is_plain: bool) -> Int:
    """Return the byte after a tag from its first attribute on, or ``pos`` where that is none."""
    stop = min(end, pos + _LIMIT)
    first = at
    while at < stop and (_in_name(data[at]) or data[at] == 95 or data[at] == 64):
        at += 1
    if at == first or at + 1 >= stop or data[at] != 61:
        return pos
    if not (is_plain or data[at + 1] == 34 or data[at + 1] == 39):
        return pos
    while at < stop and data[at] != 62:
        at += 1
    return at + 1 if at < stop else pos


@helper
def _declaration_end(data: Array, pos: Int, end: Int) -> Int:
    """Return the byte after ``<!--``, ``<!doctype``, ``<![CDATA[`` or ``<?xml``, or ``pos``."""
    for sign in (b"<!--", b"<!doctype", b"<![cdata[", b"<?xml"):
        if _begins(data, pos, end, (sign,)):
            return pos + len(sign)
    return pos


@helper
def _begins(data: Array, pos: Int, end: Int, signs: tuple[bytes, ...]) -> bool:
    """Tell whether any of some texts of small letters stands at ``pos``, in capitals or not."""
    for sign in signs:
        same = end - pos >= len(sign)
        for index in range(len(sign) if same else 0):
            byte = data[pos + index]
            same &= (byte | 32 if 65 <= byte <= 90 else byte) == sign[index]
        if same:
            return True
    return False


@helper
def _holds(table: Array, digest: np.uint64) -> bool:
    """Tell whether a sorted table has a digest."""
    low, high = 0, len(table)
    while low < high:
        middle = (low + high) // 2
        if table[middle] < digest:
            low = middle + 1
        else:
            high = middle
    return bool(low < len(table) and table[low] == digest)


@helper
def is_letter(byte: Int) -> bool:
    """Tell whether a byte is A to Z or a to z."""
    return bool(97 <= byte | 32 <= 122)


@helper
def is_digit(byte: Int) -> bool:
    """Tell whether a byte is 0 to 9."""
    return bool(48 <= byte <= 57)


@helper
def is_space(byte: Int) -> bool:
    """Tell whether a byte is white space of ASCII."""
    return bool(byte == 32 or 9 <= byte <= 13)


@helper
def _in_name(byte: Int) -> bool:
    """Tell whether a byte is a letter, a digit, or in ``-.:``."""
    return bool(97 <= byte | 32 <= 122 or 45 <= byte <= 46 or 48 <= byte <= 58)
