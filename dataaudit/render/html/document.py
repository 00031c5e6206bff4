"""From a page to one HTML file: templates, data, scripts, and a policy that lets in nothing else.

The Content-Security-Policy names every script by its hash, and styles by a nonce that is the digest of what the page
shows: whoever chooses a name in the data cannot choose the nonce. Nothing may be fetched, framed or sent.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from dataaudit.render.blocks import MOST_ROWS, Bars, Cell, Figure, Page, Shards, first, left_out
from dataaudit.render.html.charts import chart_item, label
from dataaudit.render.html.shards import ShardTable, packed_shards, shard_table
from dataaudit.render.line import PERCENT, Line, Style, percent, spell

_SCRIPTS = ("theme.js", "charts.js", "shards.js")
_PACKAGE = "dataaudit.render.html"
_SAID = 5
"""Bars of a chart that its sentence names."""
_FOLDS = re.compile(r"(?<=[_/])(?=[^_/])|(?<=\w[.-])(?=[^\W\d])|(?<=[^\W\d][.-])(?=\w)")
"""Where a name may be folded: after a separator, but not within a number."""
_ENDLESS, _RUNS = re.compile(r"\S{25}"), re.compile(r"\s*\S{1,24}|\s+")
_COMPARED = re.compile(r"([<>=]) (?=[-0-9])")
"""A comparator stays with its number."""
_ESCAPES = {ord(one): f"\\u{ord(one):04x}" for one in "<>&\u2028\u2029"}


def html(line: Line) -> str:
    """Return a line as markup: words escaped; names escaped, apart from what is around them, and folded."""
    return spell(line, _HTML)


def render(page: Page) -> str:
    """Return the file of a page."""
    environment = Environment(
        loader=PackageLoader(_PACKAGE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "html": html,
        "plain": lambda line: spell(line, PERCENT),
        "left_out": left_out,
        "listed": lambda table: first(table.rows, MOST_ROWS),
    }
    packed, shards = _shards(page)
    body = environment.get_template("page.html.j2").render(
        page=page,
        titles={one.id: one.title for one in page.sections},
        kind_of=lambda block: type(block).__name__,
        is_cell=lambda one: isinstance(one, Cell),
        says=says,
        shards=shards,
    )
    data = embedded_json(packed)
    charts = embedded_json([chart_item(one) for one in page.charts])
    scripts = [_asset(name) for name in _SCRIPTS]
    library, library_hash = _bokeh() if page.charts else ("", "")
    nonce = _hash(body + charts + data)[:32]
    hashes = [f"'sha256-{_hash(script)}'" for script in scripts] + ([f"'sha256-{library_hash}'"] if library else [])
    return environment.get_template("document.html.j2").render(
        title=f"{spell(page.title)} {spell(page.version)}: data audit",
        nonce=nonce,
        policy=_policy(hashes, nonce),
        style=_asset("page.css"),
        body=body,
        charts=charts,
        shard_data=data,
        library=library,
        scripts=scripts,
    )


def broken(text: str) -> Markup:
    """Return a text, escaped, that may be folded after ``_ / . -``, and anywhere within 25 letters without one."""
    found: list[str] = []
    for piece in _FOLDS.split(text):
        found += _RUNS.findall(piece) if _ENDLESS.search(piece) else [piece]
    return Markup("<wbr>").join(found)


def _words(text: str) -> Markup:
    """Return words of ours, escaped; what stands between backticks, as code."""
    pieces = _COMPARED.sub("\\1\xa0", text).split("`")
    if len(pieces) % 2 == 0:
        return escape(text)
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(piece) if at % 2 else piece for at, piece in enumerate(pieces))


_HTML = Style(
    name=lambda text: Markup("<bdi>{}</bdi>").format(broken(text)),
    share=percent,
    words=_words,
    joined=Markup("").join,
)


def says(figure: Figure) -> str:
    """Return a chart in words."""
    if figure.says or not isinstance(figure.chart, Bars):
        return spell(figure.says, PERCENT)
    return "; ".join(f"{label(one.label)} {spell(one.shown, PERCENT)}" for one in figure.chart.bars[:_SAID])


def _shards(page: Page) -> tuple[dict[str, str], ShardTable | None]:
    """Return the table of all shards, packed for the script, and its first rows; nothing without one."""
    found = (one for section in page.sections for one in section.blocks if isinstance(one, Shards))
    if (block := next(found, None)) is None:
        return {}, None
    parts, values, left_out = packed_shards(block.values)
    return parts, shard_table(values, left_out)


def embedded_json(value: Any) -> str:
    """Return JSON that ends no script element and no line of JavaScript."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False).translate(_ESCAPES)


def _policy(hashes: list[str], nonce: str) -> str:
    return (
        f"default-src 'none'; script-src {' '.join(hashes)}; style-src 'nonce-{nonce}'; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _asset(name: str) -> str:
    return resources.files(_PACKAGE).joinpath("assets", name).read_text("utf-8")


@cache
def _bokeh() -> tuple[str, str]:
    """Return Bokeh's script as base64 of its deflated text, and the hash that the page lets in."""
    script = resources.files("bokeh").joinpath("server", "static", "js", "bokeh.min.js").read_text("utf-8")
    return base64.b64encode(zlib.compress(script.encode("utf-8"), 9)).decode("ascii"), _hash(script)
