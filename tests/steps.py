"""How many steps a search that backtracks takes, counted: what `re` does, without a clock.

A step is a letter that is compared or a way that is tried. Of `re`'s ways to be faster, for example to skip to a first
letter, none is known here, so the count is a bound from above. Case is ignored throughout, classes are those of ASCII.
"""

import importlib
import re
import sys
from contextlib import contextmanager

codes = importlib.import_module("re._constants")
parser = importlib.import_module("re._parser")
_ONE = (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN)
_GREEDY = (codes.MAX_REPEAT, codes.POSSESSIVE_REPEAT)


class TooManyError(Exception):
    """The count went beyond its limit."""


def steps_of(pattern, text, *, at_start=False, limit=10_000_000):
    """Return how many steps it takes to find all matches of a pattern, or one at the start; at most a limit."""
    return _run(pattern, text, at_start, limit)[0]


def spans_of(pattern, text):
    """Return where the matches are that the counted steps find: those of `re`, or the count would tell nothing."""
    return _run(pattern, text, at_start=False, limit=10_000_000)[1]


def _run(pattern, text, at_start, limit):
    if isinstance(pattern.pattern, bytes):
        tree = parser.parse(pattern.pattern, pattern.flags)
    else:
        tree = parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)
    counted = _Matcher(text, limit, bool(pattern.flags & re.MULTILINE))
    with _deep():
        try:
            counted.find(tree, at_start)
        except TooManyError:
            return limit, counted.spans
    return counted.steps, counted.spans


@contextmanager
def _deep():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


class _Matcher:
    def __init__(self, text, limit, lines):
        self.text, self.limit, self.lines = text.lower(), limit, lines
        self.steps, self.end = 0, 0
        self.groups, self.spans = {}, []

    def find(self, tree, at_start):
        run = self._sequence(tree, self._note)
        start = 0
        while start <= (0 if at_start else len(self.text)):
            self._count(1)
            found = run(start)
            if found:
                self.spans.append((start, self.end))
            start = self.end if found and self.end > start else start + 1

    def _note(self, place):
        self.end = place
        return True

    def _count(self, number):
        self.steps += number
        if self.steps > self.limit:
            raise TooManyError

    def _sequence(self, tree, after):
        for code, value in reversed(list(tree)):
            after = self._item(code, value, after)
        return after

    def _item(self, code, value, after):
        if code in _ONE:
            return self._letter(code, value, after)
        if code is codes.BRANCH:
            return self._branch([self._sequence(branch, after) for branch in value[1]])
        if code in {codes.MAX_REPEAT, codes.MIN_REPEAT}:
            return self._repeat(code, value, after)
        if code in {codes.POSSESSIVE_REPEAT, codes.ATOMIC_GROUP}:
            repeats = code is codes.POSSESSIVE_REPEAT
            alone = self._repeat(codes.MAX_REPEAT, value, self._note) if repeats else self._sequence(value, self._note)
            return self._atomic(alone, after)
        if code is codes.SUBPATTERN:
            return self._group(value, after)
        return self._seen(code, value, after)

    def _seen(self, code, value, after):
        """Return what looks at a place and takes nothing, or what was taken before."""
        if code in {codes.ASSERT, codes.ASSERT_NOT}:
            return self._look(value, after, wanted=code is codes.ASSERT)
        if code is codes.AT:
            return lambda place: self._at(value, place) and after(place)
        assert code is codes.GROUPREF, code
        return self._reference(value, after)

    def _letter(self, code, value, after):
        holds = _letters(code, value)

        def run(place):
            self._count(1)
            return place < len(self.text) and holds(self.text[place]) and after(place + 1)

        return run

    def _branch(self, branches):
        def run(place):
            for branch in branches:
                self._count(1)
                if branch(place):
                    return True
            return False

        return run

    def _repeat(self, code, value, after):
        low, high, body = int(value[0]), int(value[1]), value[2]
        if len(body) == 1 and body[0][0] in _ONE:
            return self._run_of_letters(code, low, high, _letters(*body[0]), after)
        return self._repeat_all(code, low, high, body, after)

    def _run_of_letters(self, code, low, high, holds, after):
        def run(place):
            most, room = 0, min(high, len(self.text) - place)
            while most < room and holds(self.text[place + most]):
                most += 1
            self._count(most + 1)
            for size in range(most, low - 1, -1) if code in _GREEDY else range(low, most + 1):
                self._count(1)
                if after(place + size):
                    return True
            return False

        return run

    def _repeat_all(self, code, low, high, body, after):
        counts = []

        def again(place):
            number, begun = counts[-1]
            if place == begun and number >= low:
                return False
            counts.append((number + 1, place))
            found = more(place)
            counts.pop()
            return found

        once = self._sequence(body, again)

        def more(place):
            self._count(1)
            number = counts[-1][0]
            first_body = code in _GREEDY
            for take_body in (first_body, not first_body):
                if take_body and number < high and once(place):
                    return True
                if not take_body and number >= low and leave(place):
                    return True
            return False

        def leave(place):
            held = counts.pop()
            found = after(place)
            counts.append(held)
            return found

        def run(place):
            counts.append((0, -1))
            found = more(place)
            counts.pop()
            return found

        return run

    def _atomic(self, alone, after):
        return lambda place: alone(place) and after(self.end)

    def _group(self, value, after):
        number, body = value[0], value[-1]
        starts = []

        def close(place):
            before = self.groups.get(number)
            self.groups[number] = self.text[starts[-1] : place]
            held = starts.pop()
            found = after(place)
            starts.append(held)
            if not found:
                self.groups[number] = before
            return found

        inner = self._sequence(body, close)

        def run(place):
            starts.append(place)
            found = inner(place)
            starts.pop()
            return found

        return run

    def _look(self, value, after, *, wanted):
        direction, body = value
        width = body.getwidth()[0] if direction < 0 else 0
        inner = self._sequence(body, self._note)

        def run(place):
            found = place >= width and bool(inner(place - width))
            return found is wanted and after(place)

        return run

    def _reference(self, value, after):
        def run(place):
            held = self.groups.get(value)
            self._count(1)
            return held is not None and self.text.startswith(held, place) and after(place + len(held))

        return run

    def _at(self, value, place):
        size, text = len(self.text), self.text
        if value in {codes.AT_BEGINNING, codes.AT_BEGINNING_STRING, codes.AT_BEGINNING_LINE}:
            return place == 0 or (self.lines and value is codes.AT_BEGINNING and text[place - 1] == "\n")
        if value is codes.AT_END_STRING:
            return place == size
        if value in {codes.AT_END, codes.AT_END_LINE}:
            return place == size or (text[place] == "\n" and (self.lines or place == size - 1))
        left = place > 0 and _is_word(text[place - 1])
        right = place < size and _is_word(text[place])
        return (left != right) is (value is codes.AT_BOUNDARY)


def _is_word(letter):
    return letter == "_" or (letter.isalnum() and letter.isascii())


_CATEGORIES = {
    codes.CATEGORY_DIGIT: str.isdigit,
    codes.CATEGORY_SPACE: str.isspace,
    codes.CATEGORY_WORD: _is_word,
    codes.CATEGORY_NOT_DIGIT: lambda letter: not letter.isdigit(),
    codes.CATEGORY_NOT_SPACE: lambda letter: not letter.isspace(),
    codes.CATEGORY_NOT_WORD: lambda letter: not _is_word(letter),
}


def _letters(code, value):
    """Return a function that tells whether an item of one letter takes a small letter; answers are kept."""
    known = {}

    all_but = code is codes.NOT_LITERAL or (code is codes.IN and value[0][0] is codes.NEGATE)

    def holds(letter):
        if letter not in known:
            small, capital = _takes(code, value, letter), _takes(code, value, letter.upper()[:1])
            known[letter] = (small and capital) if all_but else (small or capital)
        return known[letter]

    return holds


def _takes(code, value, letter):
    if code is codes.ANY:
        return letter != "\n"
    if code is codes.LITERAL:
        return letter == chr(value)
    if code is codes.NOT_LITERAL:
        return letter != chr(value)
    negated = value[0][0] is codes.NEGATE
    return negated is not any(_in(item, letter) for item in value[negated:])


def _in(item, letter):
    code, value = item
    if code is codes.RANGE:
        return value[0] <= ord(letter) <= value[1]
    return _CATEGORIES[value](letter) if code is codes.CATEGORY else letter == chr(value)
