"""Shards that are not like the others of their source, and clean shards that only look so: texts by the name of a kind.

Texts are made of sentences written for these tests, so that none of them is anybody's.
"""

from __future__ import annotations

import base64
import html
import json
import random

from sentences import SENTENCES

_ENGLISH = (
    "It's a small shop, but they've everything that you could ask for.",
    "He said that “nothing has changed” – and left the room.",
    "The children’s choir sang for an hour, and then it began to rain.",
    "Water that has boiled for ten minutes is safe to drink.",
)
_WORDS = (
    "count",
    "value",
    "index",
    "table",
    "shard",
    "reader",
    "total",
    "offset",
    "buffer",
    "record",
    "field",
    "batch",
)


def _prose(rng, language="en", sentences=24):
    lines = [*SENTENCES[language], *(_ENGLISH if language == "en" else ())]
    chosen = [rng.choice(lines) for _ in range(sentences)]
    chosen.insert(rng.randrange(len(chosen)), f"({rng.randrange(10**9)})")
    return "\n\n".join(" ".join(chosen[at : at + 6]) for at in range(0, len(chosen), 6))


def _python(rng, functions=6):
    parts = ["from typing import Generic\n"]
    for _ in range(functions):
        one, other, third = rng.sample(_WORDS, 3)
        parts.append(
            f"def {one}_{other}({third}, limit={rng.randrange(100)}):\n"
            f"    if {third} < limit and limit > {rng.randrange(9)}:\n"
            f"        return [{one} for {one} in {third} if {one} & {rng.randrange(99)}]\n"
            f"    return {{'{other}': {third}, '{one}': {rng.random():.6f}}}\n"
        )
    return "\n".join(parts)


def _generics(rng):
    lines = ["#include <vector>", "#include <map>", "template <typename T, class A = std::allocator<T>>"]
    for _ in range(20):
        one, other = rng.sample(_WORDS, 2)
        lines.append(f"std::map<int, std::vector<{one}>> {other}; List<b> {one}s; Map<String, Object> m; p = &{one};")
        lines.append(f"for (auto i = 0; i < {other}.size() && x > {rng.randrange(9)}; ++i) call<a>({other} << 2);")
    return "\n".join(lines)


def _html(rng):
    rows = "\n".join(
        f'  <li class="item"><a href="/page/{rng.randrange(9999)}">{text}</a></li>'
        for text in _prose(rng, sentences=8).split(". ")
    )
    body = "\n".join(f"<p>{html.escape(text)}</p>" for text in _prose(rng).split("\n\n"))
    head = f"<!DOCTYPE html>\n<html>\n<head>\n<title>{rng.randrange(99)}</title>\n</head>"
    return f'{head}\n<body>\n<div id="main">\n<ul>\n{rows}\n</ul>\n{body}\n</div>\n</body>\n</html>'


def _markdown(rng):
    word = rng.choice(_WORDS)
    table = "\n".join(f"| `{one}` | {rng.randrange(99)} | first<br>second |" for one in _WORDS[:5])
    image = f'<img src="docs/{word}.png" width="{rng.randrange(900)}">'
    return f"# {word}\n\n{image}\n\n{_prose(rng)}\n\n## Use\n\n- `vector<int>`\n- <https://example.org>\n\n{table}\n"


def _table(rng):
    rows = ["\t".join(f"{rng.random() * 10 ** rng.randrange(6):.3f}" for _ in range(8)) for _ in range(20)]
    return _prose(rng, sentences=6) + "\n" + "\n".join(rows)


def _math(rng):
    lines = [
        rf"For $x < y$ and $a > {rng.randrange(9)}$ the sum $\sum_{{i=1}}^n a_i \le \frac{{1}}{{2}}$ holds, ∀ x ∈ Ω.",
        "If β < δ < ε then ∫ f(x) dx ≤ Ω, up to ±2\u00a0%, at 20\u00a0°C, of 5\u00a0Å².",
    ]
    return _prose(rng, sentences=12) + "\n" + "\n".join(rng.choice(lines) for _ in range(6))


def _emoji(rng):
    faces = "\U0001f600\U0001f680❤\ufe0f\U0001f44d\U0001f3fd\U0001f468\u200d\U0001f469\u200d\U0001f467✨"
    return " ".join(f"{part} {rng.choice(faces)}" for part in _prose(rng).split(". "))


def _minified(rng):
    return json.dumps([{one: rng.random(), "id": rng.randrange(10**6)} for one in _WORDS], separators=(",", ":"))


def _dialogue(rng):
    lines = [
        "“NON, C’EST FINIÉ”",
        "— MANHÃ…",
        "GROß“",
        "CAFÉ™ «É»",
    ]
    return "\n".join([*(rng.choice(lines) for _ in range(5)), _prose(rng, sentences=12)])


def _placeholders(rng):
    lines = [f"usage: {one} [-v] <input> <source> [<title>] > <output>" for one in rng.sample(_WORDS, 4)]
    return "\n".join(lines) + "\nMail <jo@example.org>, see <https://example.org/a?b=1&copy=2&lt=3>.\n" + _prose(rng)


def _digests(rng):
    lines = [f"{rng.randbytes(16).hex()}  lib/{one}-{rng.randrange(9)}.py" for one in _WORDS]
    return "\n".join(lines) + "\n" + _python(rng)


def _documented(rng):
    names = rng.sample(_WORDS, 6)
    sharp = [
        f'/// <summary>\n/// {one}\n/// </summary>\n/// <param name="{one}">A.</param>\nint {one}();' for one in names
    ]
    java = [f"  /**\n   * <p>{{@code List&lt;{one}&gt;}}</p>\n   */\n  int {one}();" for one in names]
    return "\n".join([*sharp, *java, *(f"  {one} = &para;" for one in names)])


def _locked(rng):
    sums = [f"{one}==1.0 \\\n  --hash=sha256:{rng.randbytes(32).hex()}" for one in _WORDS]
    sums += [f'"integrity": "sha512-{base64.b64encode(rng.randbytes(64)).decode()}"' for _ in range(6)]
    return "\n".join([*sums, *(f"{rng.randbytes(size).hex()}  {size}.tar" for size in (20, 28, 32, 48, 64))])


def _of_tags(rng):
    lines = [f"The <p> element of {one}, and <i>\n<b> are of HTML." for one in rng.sample(_WORDS, 4)]
    return "\n".join([*lines, "usage: tool <p> <i>", "  tool <b> <u>", _prose(rng, sentences=3)])


def _units(rng):
    units = "kcal/mol\u00c5²", "kJ/(mol\u00c5²)", "e\u00c5²", "n\u00c5–m\u00c5", "mol\u00c5³"
    return "\n".join(f"{rng.randrange(99)} {rng.choice(units)} of {one}" for one in _WORDS)


def _paths(rng):
    lines = ["/usr/share/" + "/".join(rng.sample(_WORDS, 12)) + f"/{rng.randrange(99)}.html" for _ in range(6)]
    names = ["".join(word.title() for word in rng.sample(_WORDS, 10)) + "Factory2" for _ in range(6)]
    return _prose(rng, sentences=12) + "\n" + "\n".join([*lines, *names])


def _gaps(rng):
    return _prose(rng, sentences=12).replace(" ", "\u00a0", 4) + "\f\n\ttab\r\n" + "ACGT" * 30 + "\n" + "-" * 80


def mojibake(text, times=1):
    """Return UTF-8 that was read as Windows-1252 some times; bytes that it has not stay as Latin-1 reads them."""
    for _ in range(times):
        raw = text.encode()
        text = "".join(bytes([one]).decode("cp1252", "ignore") or chr(one) for one in raw)
    return text


def _base64(rng):
    lines = base64.encodebytes(rng.randbytes(1500)).decode()
    return _prose(rng, sentences=6) + "\n" + lines


def _encoded_line(rng):
    return json.dumps({"name": rng.choice(_WORDS), "data": base64.b64encode(rng.randbytes(900)).decode()})


def _with(sign):
    def make(rng):
        words = _prose(rng).split(" ")
        for place in rng.sample(range(len(words)), 4):
            words[place] += sign
        return " ".join(words)

    return make


DAMAGED = {
    "mojibake": lambda rng: mojibake(_prose(rng)),
    "mojibake-twice": lambda rng: mojibake(_prose(rng), 2),
    "mojibake-french": lambda rng: mojibake(_prose(rng, "fr")),
    "mojibake-russian": lambda rng: mojibake(_prose(rng, "ru")),
    "replacement": lambda rng: _prose(rng).encode("cp1252").decode("utf-8", "replace"),
    "nul": _with("\x00"),
    "control": _with("\x08\x1b[0m"),
    "c1": lambda rng: _prose(rng).encode("cp1252").decode("latin-1"),
    "utf-16": lambda rng: _prose(rng).encode("utf-16").decode("latin-1"),
    "entities": lambda rng: html.escape(_prose(rng)).replace("’", "&rsquo;"),
    "entities-twice": lambda rng: html.escape(html.escape(_prose(rng))),
    "html": _html,
    "html-one-line": lambda rng: _html(rng).replace("\n", ""),
    "base64": _base64,
    "base64-line": _encoded_line,
    "empty": lambda _: "",
    "blank": lambda rng: "\n" * rng.randrange(1, 9),
    "dashes": lambda rng: "- " * rng.randrange(9, 99) + "***",
    "hexadecimal": lambda rng: _prose(rng, sentences=3) + rng.randbytes(700).hex(),
}
"""A document by the kind of its damage; prose of the same kind is what surrounds it."""
CLEAN = {
    "tables": _table,
    "math": _math,
    "emoji": _emoji,
    "generics": _generics,
    "minified": _minified,
    "markdown": _markdown,
    "capitals": _dialogue,
    "placeholders": _placeholders,
    "digests": _digests,
    "documented": _documented,
    "locked": _locked,
    "of-tags": _of_tags,
    "units": _units,
    "paths": _paths,
    "gaps": _gaps,
    "short": lambda rng: _prose(rng, sentences=3),
}
"""Documents of other kinds than their source has, which are no faults."""
PLAIN = {"python": _python, **{language: lambda rng, of=language: _prose(rng, of) for language in SENTENCES}}
"""Documents of a source: code, or prose by language."""


def documents(kind, seed, number=40):
    """Return the texts of a shard."""
    made = {**DAMAGED, **CLEAN, **PLAIN}[kind]
    return [made(random.Random(f"{seed} {place}")) for place in range(number)]
