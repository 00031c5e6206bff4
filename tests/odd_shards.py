"""Shards that are not like the others of their source, and clean shards that only look so: texts by the name of a kind.

Texts are made of sentences written for these tests, so that none of them is anybody's.
"""

import base64
import html
import json
import quopri
import random
from urllib.parse import quote

from sentences import SENTENCES

_ENGLISH = (
    "It's a small shop, but they've everything that you could ask for.",
    "He said that “nothing has changed” – and left the room.",
    "The children’s choir sang for an hour, and then it began to rain.",
    "Water that has boiled for ten minutes is safe to drink.",
)
_WORDS = (
    "count", "value", "index", "table", "shard", "reader", "total", "offset", "buffer", "record", "field", "batch",
)  # fmt: skip


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
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    faces = ["\U0001f600", "\U0001f680", "❤\ufe0f", "\U0001f44d\U0001f3fd", family, "✨"]
    return " ".join(f"{part} {rng.choice(faces)}" for part in _prose(rng).split(". "))


def _minified(rng):
    return json.dumps([{one: rng.random(), "id": rng.randrange(10**6)} for one in _WORDS], separators=(",", ":"))


def _dialogue(rng):
    lines = ["“NON, C’EST FINIÉ”", "— MANHÃ…", "GROß“", "CAFÉ™ «É»"]
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


def _written(rng):
    """What code, logs, TeX, addresses and scripts with joiners have by right."""
    lines = [
        r"""print("End.\nNext", 'caf\xc3\xa9', b"\xd0\xbf", u'Fran\xe7aise')  # don't split r'[\r\n]+'""",
        r"""const re = /[a-zA-Z\u00c0-\u017f]+|[\x00-\x1f]\n/; x = `A.\nB`; s/foo\nbar/baz/; echo "a\tB" """,
        r"$\nu \neq \tau$, \textbf{Not} $a\times b$, C:\new\Temp\readme.txt, Schr\"odinger, \Rightarrow \Theta",
        "https://example.org/a%20b?q=caf%C3%A9&x=%E9t [doc](my%20file.md) 100%25 %20s %-20d i%20==0 50%20",
        "timeout=20\nbase=E9\nmode=3D\n--show=D1mr a+b-c x+y-1 C++ +49-89-1234 1+1=2 git diff +added-line",
        f"2026-01-01T00:00:0{rng.randrange(9)} INFO key=value path=/var/log/a%20b GET /x?a=%C3%A9 200 user=a=b",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 PDF\u200c\u0647\u0627 \u200f(1)\u200e",
        "\u0915\u094d\u200d\u0937 \u0e01\u200b\u0e02",
        "\U0001f3f4\U000e0067\U000e0062\U000e007f \u2764\ufe0f 1\ufe0f\u20e3 \U0001f468\u200d\U0001f469",
        "\u845b\U000e0100 Dampf\u00adschiff",
        "\u251c\u2500\u2500 a \u2502 \u2514\u2500 b \u2554\u2550\u2557\u2551 \u250c\u2500\u2510",
        "\u221a2 \u2248 \u00b11 5 m\u00b3 m\u00b2",
        "\u00e0\u00e1\u00e2\u00e3\u00e4\u00e5 \u00c5\u00c4\u00d6 \u00e5\u00e4\u00f6",
    ]
    return "\n".join([*rng.sample(lines, len(lines)), _prose(rng, sentences=6)])


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


def misread(text, written, read):
    """Return text that was written in an encoding and read in another; bytes that this has not are left out."""
    return text.encode(written, "ignore").decode(read, "ignore")


def _misread(language, written, read):
    return lambda rng: misread(_prose(rng, language, 12), written, read)


def _hidden(sign):
    return lambda rng: "".join(f"{word[:2]}{sign}{word[2:]} " for word in _prose(rng, sentences=12).split(" "))


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
    "entities-open": lambda rng: html.escape(_prose(rng)).replace("\u2019", "&nbsp").replace(";", ""),
    "lines-escaped": lambda rng: json.dumps(_prose(rng), ensure_ascii=False)[1:-1],
    "escaped-twice": lambda rng: json.dumps(json.dumps(_prose(rng, "fr")))[1:-1],
    "bytes": lambda rng: repr(_prose(rng, "ru").encode()),
    "quoted-printable": lambda rng: quopri.encodestring(_prose(rng, "de").encode()).decode(),
    "percent": lambda rng: quote(_prose(rng), safe=""),
    "utf-7": _misread("ru", "utf-7", "ascii"),
    "zero-width": _hidden("\u200b"),
    "joiners": _hidden("\u200d"),
    "soft-hyphens": _hidden("\u00ad"),
    "bidi": _hidden("\u202e"),
    "bom": _hidden("\ufeff"),
    "hidden-tags": _hidden("\U000e0041\U000e0042"),
    "selectors": _hidden("\ufe0f"),
    **{
        f"utf-8-as-{page}": _misread("fr", "utf-8", page)
        for page in ("cp1250", "cp1251", "cp437", "cp850", "mac-roman")
    },
    **{f"{page}-as-latin-1": _misread("ru", page, "latin-1") for page in ("cp1251", "koi8-r")},
    "gbk-as-latin-1": _misread("zh", "gbk", "latin-1"),
    "euc-jp-as-latin-1": _misread("ja", "euc-jp", "latin-1"),
    "shift-jis-as-cp1252": _misread("ja", "shift-jis", "cp1252"),
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
    "written": _written,
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
