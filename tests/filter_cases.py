"""For every quality rule, texts that it passes and texts that it rejects, the nearest to the threshold first."""


def _gram(size, chars):
    """Return ``size`` distinct words that have ``chars`` letters together."""
    letters = "abcdefghij"
    words = list(letters[: size - 1])
    return [*words, letters[size - 1] * (chars - size + 1)]


def _filled(text, length):
    """Return the text with one long word at its end, ``length`` characters in all."""
    return text + "z" * (length - len(text))


def _twice(size, chars, length):
    gram = " ".join(_gram(size, chars))
    return _filled(f"{gram} {gram} ", length)


def _lines(*counted):
    """Return lines: (times, format) pairs, ``{}`` is replaced by a running number."""
    numbers = iter(range(10**6))
    return "\n".join(line.format(next(numbers)) for times, line in counted for _ in range(times))


LONG = "Five words are in here."
CASES = {
    "gopher_quality.word_count": (["word " * 50, "word , " * 100_000], ["word " * 49 + ", ", "word " * 100_001, ""]),
    "gopher_quality.mean_word_length": (["ab abcd", "a" * 10, "..."], ["ab abc", "a" * 10 + " " + "a" * 11]),
    "gopher_quality.symbol_ratio": (["# " + "w " * 9, "w " * 9 + "..."], ["# " + "w " * 8, "w " * 8 + "\u2026"]),
    "gopher_quality.bullet_lines": ([_lines((9, "- {}"), (1, "x"))], [_lines((19, " \u2022 {}"), (2, "x"))]),
    "gopher_quality.ellipsis_lines": ([_lines((3, "x... "), (7, "x"))], [_lines((4, "x\u2026"), (6, "x"))]),
    "gopher_quality.alphabetic_words": (["a " * 8 + "1 , "], ["a " * 7 + "1 2 ,"]),
    "gopher_quality.stop_words": (["the of"], ["the The the", "der und"]),
    "gopher_repetition.duplicate_lines": (
        [_lines((4, "same"), (6, "{}")), _lines((4, "same"), (20, " "), (6, "{}"))],
        [_lines((5, "same"), (6, "{}"), (1, ""))],
    ),
    "gopher_repetition.duplicate_paragraphs": (
        [_lines((4, "same\nlines\n"), (6, "{}\n"))],
        [_lines((5, "same\r\nlines\r\n\r\n"), (6, "{}\n"))],
    ),
    "gopher_repetition.duplicate_line_chars": ([_filled("aaaa\naaaa\n", 20)], [_filled("aaaa\naaaa\n", 19)]),
    "gopher_repetition.duplicate_paragraph_chars": (
        [_filled("aaaa\n\naaaa\n\n", 20)],
        [_filled("aaaa\n\naaaa\n\n", 19)],
    ),
    "gopher_repetition.top_2_gram_chars": ([_filled("a b a b ", 30)], [_filled("a b a b ", 29)]),
    "gopher_repetition.top_3_gram_chars": (
        [_filled("abc def g abc def g ", 100)],
        [_filled("abc def g abc def g ", 99)],
    ),
    "gopher_repetition.top_4_gram_chars": ([_filled("a b c dd a b c dd ", 100)], [_filled("a b c dd a b c dd ", 99)]),
    **{
        f"gopher_repetition.duplicate_{size}_gram_chars": ([_twice(size, chars, 100)], [_twice(size, chars, 99)])
        for size, chars in ((5, 15), (6, 14), (7, 13), (8, 12), (9, 11), (10, 10))
    },
    "c4.lorem_ipsum": (["lorem  ipsum"], ["Lorem IPSUM"]),
    "c4.curly_bracket": (["(}"], ["a{b"]),
    "c4.sentences": (
        [_lines((3, LONG)), f"{LONG} {LONG} {LONG}", "Five words are in here.[1][citation needed]\n" * 3],
        [_lines((2, LONG)), _lines((2, LONG), (5, "Only four of them."), (5, "No mark ends this long line")), ""],
    ),
    "c4.terminal_punctuation": (
        [_lines((3, LONG), (9, "no mark")), "x"],
        [_lines((2, LONG), (1, "Ends in an ellipsis...")), _lines((2, LONG), (1, "no mark"))],
    ),
    "c4.words_per_line": ([_lines((3, "a b c d e"))], [_lines((2, "a b c d e"), (1, "a b c d"))]),
    "c4.long_words": ([_lines((3, "a" * 1000))], [_lines((2, "a"), (1, "a" * 1001))]),
    "c4.javascript": ([_lines((3, "Java script."))], [_lines((2, "a."), (1, "xJavaScripty"))]),
    "c4.policy": ([_lines((3, "Use of the cookie."))], [_lines((2, "a."), (1, "Our Privacy Policy"))]),
    "fineweb.line_punctuation": (
        [_lines((13, "x."), (87, "x"))],
        [_lines((12, "x\u3002"), (88, "x")), _lines((100, "x. "))],
    ),
    "fineweb.duplicate_line_chars": ([_filled("aaaa\naaaa\n", 43)], [_filled("aaaa\naaaa\n", 42)]),
    "fineweb.short_lines": (
        [_lines((66, "a" * 30), (34, "a" * 31)), _lines((100, "\u4e2d" * 31))],
        [_lines((67, "a" * 30), (33, "a" * 31)), _lines((100, "\u4e2d" * 30))],
    ),
    "fineweb.new_lines": (["a b c d e f g\nh\ni\nj"], ["a b c d e f\ng\nh\ni\nj"]),
}
"""{rule: (texts that pass it, texts that it rejects)}"""
