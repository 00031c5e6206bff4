"""Texts that are the worst for a regular expression, by construction: out of its own parts, again and again.

A search that backtracks is slow where much of a pattern fits and its end does not. So each repeat of a pattern is
written out at length behind the shortest text that leads to it, and then something stands that fits nothing.
"""

import importlib
import re

codes = importlib.import_module("re._constants")
parser = importlib.import_module("re._parser")
REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
LONG = 8
"""Copies from which a repeat is worth writing out."""
_RUN = re.compile(r"(.{1,6}?)\1{9,}", re.DOTALL)
ENDS = ("\n", "!", " ")
"""What may stand where a match breaks off."""
_CATEGORIES = {
    codes.CATEGORY_DIGIT: "7",
    codes.CATEGORY_NOT_DIGIT: "a",
    codes.CATEGORY_SPACE: " ",
    codes.CATEGORY_NOT_SPACE: "a",
    codes.CATEGORY_WORD: "a",
    codes.CATEGORY_NOT_WORD: "-",
}
_ANY = [chr(number) for number in (*range(0x61, 0x7B), *range(0x21, 0x7F))]


def grown(text, size):
    """Return texts of about ``size`` letters: the text again and again, and with a run of a tile made longer."""
    found = [(text * (size // len(text) + 1))[:size]]
    run = _RUN.search(text)
    if run:
        found.append(text[: run.start()] + run[1] * (size // len(run[1])) + text[run.end() :])
    return found


def pumps(regex, flags=0, *, longest=4000):
    """Return texts, each of which makes one of the regex's repeats run on, with and without what it ends on."""
    tree = parser.parse(regex, flags)
    found = [example(tree, 1), example(tree, longest)]
    for lead, body, most in _repeats(tree, ""):
        times = min(most, max(1, longest // max(1, len(body))))
        found += [lead + body * times + end for end in ("", *ENDS)]
        found += [lead + body * times + example(tree, 1)]
    return list(dict.fromkeys(text for text in found if text))


def example(tree, times):
    """Return a text that fits a parsed pattern, lookarounds aside, each repeat taken at most so many times."""
    return "".join(_one(code, value, times) for code, value in tree)


def _one(code, value, times):
    if code is codes.IN:
        return _member(value)
    if code is codes.BRANCH:
        return max((example(branch, times) for branch in value[1]), key=len) if times > 1 else example(value[1][0], 1)
    if code in {codes.SUBPATTERN, codes.ATOMIC_GROUP}:
        return example(value[-1] if code is codes.SUBPATTERN else value, times)
    if code in REPEATS:
        low, high, body = value
        text = example(body, min(times, 4))
        room = max(1, times // max(1, len(text)))
        return text * max(int(low), min(int(high), room) if times > 1 else 0)
    return _letter(code, value)


def _letter(code, value):
    if code is codes.LITERAL:
        return chr(value)
    if code is codes.NOT_LITERAL:
        return next(letter for letter in _ANY if letter != chr(value))
    return "a" if code is codes.ANY else ""


def _member(items):
    first = items[0]
    if first[0] is codes.NEGATE:
        refused = items[1:]
        return next((one for one in _ANY if not _holds(refused, one)), "\x01")
    code, value = first
    if code is codes.LITERAL:
        return chr(value)
    if code is codes.RANGE:
        return chr(value[0])
    return _CATEGORIES.get(value, "a")


def _holds(items, letter):
    for code, value in items:
        if code is codes.LITERAL and chr(value) == letter:
            return True
        if code is codes.RANGE and value[0] <= ord(letter) <= value[1]:
            return True
        if code is codes.CATEGORY and (
            (value is codes.CATEGORY_SPACE and letter.isspace())
            or (value is codes.CATEGORY_DIGIT and letter.isdigit())
            or (value is codes.CATEGORY_WORD and (letter.isalnum() or letter == "_"))
        ):
            return True
    return False


def _repeats(tree, lead):
    """Yield the long repeats of a pattern: what leads to each, what is repeated, how often at most."""
    for code, value in tree:
        if code in REPEATS:
            _, high, body = value
            if int(high) >= LONG:
                yield lead, example(body, 1) or example(body, 2), int(high)
                for part in _alternatives(body):
                    yield lead, part, int(high)
            yield from _repeats(body, lead)
        elif code is codes.SUBPATTERN:
            yield from _repeats(value[-1], lead)
        elif code is codes.ATOMIC_GROUP:
            yield from _repeats(value, lead)
        elif code is codes.BRANCH:
            for branch in value[1]:
                yield from _repeats(branch, lead)
        elif code in {codes.ASSERT, codes.ASSERT_NOT}:
            yield from _repeats(value[1], lead)
        lead += _one(code, value, 1)


def _alternatives(body):
    """Yield texts of the branches and members of what is repeated."""
    if len(body) == 1 and body[0][0] is codes.IN:
        for item in body[0][1][:6]:
            if item[0] is not codes.NEGATE and body[0][1][0][0] is not codes.NEGATE:
                yield _member([item])
        if body[0][1][0][0] is codes.NEGATE:
            yield from (letter for letter in ".:/=- a7" if not _holds(body[0][1][1:], letter))
    elif len(body) == 1 and body[0][0] is codes.SUBPATTERN:
        yield from _alternatives(body[0][1][-1])
    elif len(body) == 1 and body[0][0] is codes.BRANCH:
        yield from (example(branch, 2) for branch in body[0][1][1])
