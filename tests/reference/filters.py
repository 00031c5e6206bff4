"""Reference implementation of the kernels for quality rules: strings, regular expressions, counters.

Written from the definitions in docs/concepts/quality-rules.md; positions are characters, not bytes.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

_FRONT = "!\"#$%&'()*+,:;<=>?[]_`{}\u2013\u2014\u00b4"
_BACK = "!\"#&'()*,:;<>?[]_`{}\u2013\u2014\u00b4"
_QUOTES = "\"'`,\u00b4\u201a\u201e"
_TERMINALS = frozenset(
    "!.?\u0589\u061d\u061e\u061f\u06d4\u0700\u0701\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u104a\u104b"
    "\u1362\u1367\u1368\u166e\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944\u1945\u1aa8\u1aa9\u1aaa\u1aab\u1b5a\u1b5b"
    "\u1b5e\u1b5f\u1b7d\u1b7e\u1c3b\u1c3c\u1c7e\u1c7f\u203c\u203d\u2047\u2048\u2049\u2e2e\u2e3c\u2e53\u2e54\u3002"
    "\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d\uaa5e\uaa5f\uaaf0\uaaf1\uabeb"
    "\ufe52\ufe56\ufe57\uff01\uff0e\uff1f\uff61\U00010a56\U00010a57\U00010f55\U00010f56\U00010f57\U00010f58"
    "\U00010f59\U00010f86\U00010f87\U00010f88\U00010f89\U00011047\U00011048\U000110be\U000110bf\U000110c0"
    "\U000110c1\U00011141\U00011142\U00011143\U000111c5\U000111c6\U000111cd\U000111de\U000111df\U00011238"
    "\U00011239\U0001123b\U0001123c\U000112a9\U0001144b\U0001144c\U000115c2\U000115c3\U000115c9\U000115ca"
    "\U000115cb\U000115cc\U000115cd\U000115ce\U000115cf\U000115d0\U000115d1\U000115d2\U000115d3\U000115d4"
    "\U000115d5\U000115d6\U000115d7\U00011641\U00011642\U0001173c\U0001173d\U0001173e\U00011944\U00011946"
    "\U00011a42\U00011a43\U00011a9b\U00011a9c\U00011c41\U00011c42\U00011ef7\U00011ef8\U00011f43\U00011f44"
    "\U00016a6e\U00016a6f\U00016af5\U00016b37\U00016b38\U00016b44\U00016e98\U0001bc9f\U0001da88"
)
_STOPS = ("the", "be", "to", "of", "and", "that", "have", "with")
_SUFFIX = re.compile(r"['\u2019](?:[sS])\Z|(?<=.)['\u2019](?:ll|re|ve|d|m)\Z", re.DOTALL)
_NEGATION = re.compile(r"n['\u2019]t\Z")
_CITATION = re.compile(r"\[(?:[0-9]*|edit|citation needed)\]")
_CITED = re.compile(r"(?:\[(?:[0-9]*|edit)\])+\Z")
_POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
_ASCII_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def _category(character: str, *categories: str) -> bool:
    return not character.isascii() and unicodedata.category(character) in categories


def _front(character: str) -> bool:
    return character in _FRONT or _category(character, "Ps", "Pe", "Pi", "Pf", "Po", "So", "Sc")


def _back(character: str) -> bool:
    return character in _BACK or _category(character, "Ps", "Pe", "Pi", "Pf", "Po", "So")


def _quote(character: str) -> bool:
    return character in _QUOTES or _category(character, "Pi", "Pf")


def _digit(character: str) -> bool:
    return character in "0123456789"


def _not_upper(character: str) -> bool:
    return character.isalpha() and not character.isupper()


def _not_lower(character: str) -> bool:
    return character.isalpha() and not character.islower()


def words_of(text: str) -> list[str]:
    """Return the words of a text, marks included."""
    return [word for piece in text.split() for word in _words_of_piece(piece)]


def _words_of_piece(piece: str) -> list[str]:
    front: list[str] = []
    while piece:
        size = len(piece) - len(piece.lstrip("."))
        if piece[0] != ".":
            size = int(_front(piece[0]) and not re.match(r"\+[0-9]", piece))
        elif size == 1:
            break
        if size == 0:
            break
        front.append(piece[:size])
        piece = piece[size:]
    back: list[str] = []
    while piece and (size := _size_at_back(piece)):
        back.insert(0, piece[-size:])
        piece = piece[:-size]
    middle = [piece] if piece and is_address(piece) else _words_inside(piece)
    return front + middle + back


def _size_at_back(piece: str) -> int:
    dots = len(piece) - len(piece.rstrip("."))
    if dots:
        return dots if dots > 1 else int(_stop_is_cut(piece[:-1]))
    if _back(piece[-1]):
        return 1
    if len(piece) > 1 and piece[-1] in "$%+":
        return int(_digit(piece[-2]))
    found = _SUFFIX.search(piece)
    negated = _NEGATION.search(piece) and len(piece) > 3 and piece[-4].isalpha()
    return len(found.group()) if found else 3 * int(bool(negated))


def _stop_is_cut(before: str) -> bool:
    if not before:
        return False
    last = before[-1]
    if last.isascii() and last.isalpha() and before[-2:-1] in ("", "."):
        return False
    if _digit(last) or _back(last) or _not_upper(last) or last in "%+-\u00b2":
        return True
    return len(before) > 1 and _not_lower(last) and _not_lower(before[-2])


def is_address(piece: str) -> bool:
    """Tell whether a piece is a web or mail address."""
    rest = piece.split("://", 1)[1] if "://" in piece else piece
    candidates = [rest]
    if "@" in rest[1:]:
        candidates.append(rest.rsplit("@", 1)[1])
    return any(_is_host(candidate) for candidate in candidates)


def _is_host(rest: str) -> bool:
    host = ""
    for character in rest:
        if not (character.isalpha() or _digit(character) or character in "._-"):
            break
        host += character
    labels = host.split(".")
    if len(labels) < 2 or "" in labels or len(labels[-1]) < 2 or not all(map(_not_upper, labels[-1])):
        return False
    return re.fullmatch(r"(?::[0-9]{2,5})?(?:[/?#].*)?", rest[len(host) :], re.DOTALL) is not None


def _words_inside(piece: str) -> list[str]:
    words, word, place = [], "", 0
    while place < len(piece):
        size = _size_inside(piece, place)
        if size:
            words += [word] if word else []
            words.append(piece[place : place + size])
            word = ""
        else:
            word += piece[place]
        place += size or 1
    return words + ([word] if word else [])


def _size_inside(piece: str, place: int) -> int:
    mark, rest = piece[place], piece[place:]
    if mark == "\u2026" or _category(mark, "So"):
        return 1
    run = re.match(r"\.{2,}|-{1,3}|\u2014{1,2}", rest)
    size = len(run.group()) if run else 1
    if mark == "." and size > 1:
        return size
    left, right = piece[place - 1 : place], rest[size : size + 1]
    if not left or not right:
        return 0
    return size * int(_parts(mark, size, left, right))


def _parts(mark: str, size: int, left: str, right: str) -> bool:
    """Tell whether a sign stands between two words."""
    if mark in "+-*^" and size == 1 and _digit(left) and (_digit(right) or right == "-"):
        return True
    if mark == ".":
        return (_not_upper(left) or _quote(left)) and (_not_lower(right) or _quote(right))
    if mark == ",":
        return left.isalpha() and right.isalpha()
    return mark in "-\u2013\u2014~:<>=/" and (left.isalpha() or _digit(left)) and right.isalpha()


def sentences_of(line: str) -> int:
    """Count the sentences of a line that is not blank."""
    count, ended = 1, False
    for piece in line.split():
        for word in _words_of_piece(piece):
            if word in _TERMINALS:
                ended = True
            elif ended and not all(unicodedata.category(character).startswith("P") for character in word):
                count, ended = count + 1, False
        cited = _CITED.search(piece)
        if cited and piece[: cited.start()].endswith((".", "?", "!")):
            ended = True
    return count


def _ends_with_mark(line: str) -> bool:
    """Tell whether C4 keeps a stripped line for its end: citations off, a mark, no ellipsis."""
    while line.endswith("]"):
        found = [match for match in _CITATION.finditer(line) if match.end() == len(line)]
        if not found:
            break
        line = line[: found[0].start()]
    return line.endswith((".", "?", "!", '"', "'")) and not line.endswith("...")


def filter_counts(text: str, *, short_line_chars: int, least_words: int, most_word_chars: int) -> dict[str, int]:
    """Return every count by name."""
    counts = _line_counts(text, short_line_chars)
    counts |= _c4_counts(text, least_words, most_word_chars)
    words = words_of(text)
    plain = [
        word
        for word in words
        if not all(unicodedata.category(c)[0] in "PS" or unicodedata.category(c) == "Cc" for c in word)
    ]
    counts |= {
        "chars": len(text),
        "words": len(words),
        "plain_words": len(plain),
        "plain_chars": sum(map(len, plain)),
        "letter_words": sum(any(character.isalpha() for character in word) for word in words),
        "stop_words": len(set(words) & set(_STOPS)),
        "hashes": text.count("#"),
        "ellipses": text.count("...") + text.count("\u2026"),
    }
    for size in (2, 3, 4):
        grams = [tuple(words[start : start + size]) for start in range(len(words) - size + 1)]
        top = Counter(grams).most_common(1)
        counts[f"top_{size}_gram_chars"] = len(" ".join(top[0][0])) * top[0][1] if top else 0
    for size in range(5, 11):
        counts[f"duplicate_{size}_gram_chars"] = _duplicate_gram_chars(words, size)
    return counts


def _duplicate_gram_chars(words: Sequence[str], size: int) -> int:
    seen: set[tuple[str, ...]] = set()
    chars = place = 0
    while place + size <= len(words):
        gram = tuple(words[place : place + size])
        if gram in seen:
            chars += sum(map(len, gram))
            place += size
        else:
            seen.add(gram)
            place += 1
    return chars


def _line_counts(text: str, short_line_chars: int) -> dict[str, int]:
    lines, whole = text.splitlines(), text.splitlines(keepends=True)
    gaps = [len(full) - len(line) for line, full in zip(lines, whole, strict=True)]
    content = [line for line in lines if line.strip()]
    paragraphs: list[list[str]] = [[]]
    sizes = [0]
    for line, gap in zip(lines, gaps, strict=True):
        if line.strip():
            paragraphs[-1].append(line)
            sizes[-1] += len(line) + gap
            last_gap = gap
        elif paragraphs[-1]:
            sizes[-1] -= last_gap
            paragraphs.append([])
            sizes.append(0)
    if paragraphs[-1]:
        sizes[-1] -= last_gap
    kept = [(tuple(lines_), size) for lines_, size in zip(paragraphs, sizes, strict=True) if lines_]
    repeated = _repeats([(line, len(line)) for line in content])
    blocks = _repeats(kept)
    return {
        "break_chars": sum(gaps),
        "breaks": sum(gap > 0 for gap in gaps),
        "lines": len(lines),
        "bullet_lines": sum(line.lstrip().startswith(("-", "\u2022")) for line in lines),
        "ellipsis_lines": sum(line.rstrip().endswith(("...", "\u2026")) for line in lines),
        "content_lines": len(content),
        "terminal_lines": sum(line[-1] in _TERMINALS for line in content),
        "short_lines": sum(len(line) <= short_line_chars for line in content),
        "duplicate_lines": repeated[0],
        "duplicate_line_chars": repeated[1],
        "paragraphs": len(kept),
        "duplicate_paragraphs": blocks[0],
        "duplicate_paragraph_chars": blocks[1],
    }


def _repeats(items: Sequence[tuple[object, int]]) -> tuple[int, int]:
    seen: set[object] = set()
    found = chars = 0
    for item, size in items:
        if item in seen:
            found, chars = found + 1, chars + size
        seen.add(item)
    return found, chars


def _c4_counts(text: str, least_words: int, most_word_chars: int) -> dict[str, int]:
    lowered = text.translate(_ASCII_LOWER)
    names = ("terminal", "long_enough", "short_words", "no_javascript", "no_policy", "left")
    counts = {f"sentences_{name}": 0 for name in names} | {"sentences": 0}
    for raw in text.splitlines():
        line = raw.strip()
        if not line:
            continue
        low, pieces, sentences = line.translate(_ASCII_LOWER), line.split(), sentences_of(line)
        keeps = {
            "terminal": _ends_with_mark(line),
            "long_enough": len(pieces) >= least_words,
            "short_words": max(map(len, pieces)) <= most_word_chars,
            "no_javascript": "javascript" not in low,
            "no_policy": not any(phrase in low for phrase in _POLICIES),
        }
        counts["sentences"] += sentences
        for name, kept in (*keeps.items(), ("left", all(keeps.values()))):
            counts[f"sentences_{name}"] += sentences * kept
    return counts | {"lorem_ipsum": lowered.count("lorem ipsum"), "curly_brackets": text.count("{")}


def has_periodic_run(ids: Sequence[int], *, most_period: int, times: int) -> bool:
    """Tell whether some ``times`` copies of one to ``most_period`` ids follow each other."""
    for period in range(1, most_period + 1):
        for start in range(len(ids) - period * times + 1):
            unit = list(ids[start : start + period])
            if list(ids[start : start + period * times]) == unit * times:
                return True
    return False


def rejecting_rules(counts: dict[str, int]) -> set[str]:
    """Return the rules that reject a document of these counts, at the published thresholds."""

    def share(part: str, whole: int) -> Fraction | None:
        return Fraction(counts[part], whole) if whole else None

    chars, words, lines = counts["chars"], counts["words"], counts["lines"]
    content = counts["content_lines"]
    mean = share("plain_chars", counts["plain_words"])
    rules = {
        "gopher_quality.word_count": not 50 <= counts["plain_words"] <= 100_000,
        "gopher_quality.mean_word_length": mean is not None and not 3 <= mean <= 10,
        "gopher_quality.symbol_ratio": any(
            (ratio := share(name, words)) is not None and ratio > Fraction("0.1") for name in ("hashes", "ellipses")
        ),
        "gopher_quality.stop_words": counts["stop_words"] < 2,
        "c4.lorem_ipsum": counts["lorem_ipsum"] > 0,
        "c4.curly_bracket": counts["curly_brackets"] > 0,
        "c4.sentences": counts["sentences_left"] < 3,
    }
    above = {
        "gopher_quality.bullet_lines": ("bullet_lines", lines, "0.9"),
        "gopher_quality.ellipsis_lines": ("ellipsis_lines", lines, "0.3"),
        "gopher_repetition.duplicate_lines": ("duplicate_lines", content, "0.3"),
        "gopher_repetition.duplicate_paragraphs": ("duplicate_paragraphs", counts["paragraphs"], "0.3"),
        "gopher_repetition.duplicate_line_chars": ("duplicate_line_chars", chars, "0.2"),
        "gopher_repetition.duplicate_paragraph_chars": ("duplicate_paragraph_chars", chars, "0.2"),
        "fineweb.new_lines": ("breaks", words, "0.3"),
    }
    for size, limit in ((2, "0.20"), (3, "0.18"), (4, "0.16")):
        above[f"gopher_repetition.top_{size}_gram_chars"] = (f"top_{size}_gram_chars", chars, limit)
    for size, limit in ((5, "0.15"), (6, "0.14"), (7, "0.13"), (8, "0.12"), (9, "0.11"), (10, "0.10")):
        above[f"gopher_repetition.duplicate_{size}_gram_chars"] = (f"duplicate_{size}_gram_chars", chars, limit)
    for name, (part, whole, limit) in above.items():
        ratio = share(part, whole)
        rules[name] = ratio is not None and ratio > Fraction(limit)
    letters, ends, short = share("letter_words", words), share("terminal_lines", content), share("short_lines", content)
    repeated = share("duplicate_line_chars", chars - counts["break_chars"])
    rules["gopher_quality.alphabetic_words"] = letters is not None and letters < Fraction("0.8")
    rules["fineweb.line_punctuation"] = ends is not None and ends <= Fraction("0.12")
    rules["fineweb.short_lines"] = short is not None and short >= Fraction("0.67")
    rules["fineweb.duplicate_line_chars"] = repeated is not None and repeated >= Fraction("0.1")
    for rule, kept in (
        ("terminal_punctuation", "terminal"),
        ("words_per_line", "long_enough"),
        ("long_words", "short_words"),
        ("javascript", "no_javascript"),
        ("policy", "no_policy"),
    ):
        rules[f"c4.{rule}"] = counts["sentences"] >= 3 > counts[f"sentences_{kept}"]
    return {name for name, rejects in rules.items() if rejects}
