"""From a page to one HTML file: templates, data, scripts, and a policy that lets in nothing else.

The Content-Security-Policy names every script by its hash, and styles by a nonce that is the digest of what the page
shows: whoever chooses a name in the data cannot choose the nonce. Nothing may be fetched, framed or sent.

The table of all shards is packed for the script; its first rows are text for readers without JavaScript.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from dataaudit.base import text as t
from dataaudit.base.render.blocks import (
    MOST_ROWS,
    Bars,
    Cell,
    Figure,
    Page,
    Shards,
    first,
    left_out,
    names,
    numbers,
    words,
)
from dataaudit.base.render.charts import chart_item, label
from dataaudit.base.render.line import PERCENT, Line, Style, per_million, percent, spell

BUDGET = 4_200_000
"""Characters that the compressed table may take; beyond it, columns and then rows are left out."""
_LEVEL = 6
ROWS = 50


def shard_table(value: Mapping[str, Any], left_out: Sequence[str]) -> dict[str, Any]:
    """Return columns, first rows (tone and cells) and notes: what stands in the page before any script runs."""
    columns = value["columns"]
    heads = (
        *numbers("shard"),
        *names("split/uri"),
        *words("status"),
        *numbers(*(column["head"] for column in columns)),
        *words("why it stands out"),
    )
    rows = []
    for index in range(min(ROWS, value["number"])):
        shard = value["shard"][index] if value["shard"] else index
        tone, why = value["odd"].get(str(shard), ("", ""))
        cells = [_format(column["values"][index], column["kind"], value["hidden"]) for column in columns]
        uri = f"{value['splits'][value['split'][index]]}/{value['uri'][index]}"
        rows.append((tone, (t.count(shard), uri, value["statuses"][value["status"][index]], *cells, why)))
    more = ""
    if value["number"] < value["all"]:
        more = f"The file holds {value['number']:,} of {value['all']:,} shards: what stands out, then the first ones. "
    if left_out:
        more += f"Left out for size: {', '.join(left_out)}. "
    more += '"dataaudit show DIR --json" and the table "shards" of the manifest have everything.'
    note = "Heads sort. Marked rows stand out."
    if value["rounded"]:
        note += " Numbers are rounded to four digits."
    return {"columns": heads, "rows": rows, "more": more, "note": note}


def packed_shards(
    whole: Mapping[str, Any], budget: int = BUDGET
) -> tuple[dict[str, str], dict[str, Any], tuple[str, ...]]:
    """Return the parts of the table as base64 of deflated JSON, its values, and the heads of columns left out."""
    value, left_out = dict(whole), []
    parts = _parts(value)
    for spare in [column for column in value["columns"] if column["spare"]]:
        if _size(parts) > budget:
            left_out.append(spare["head"])
            value["columns"] = [column for column in value["columns"] if column is not spare]
            del parts[spare["key"]]
    while _size(parts) > budget and value["number"] > 1:
        value = _kept(value, max(1, int(value["number"] * budget / _size(parts) * 0.95)))
        parts = _parts(value)
    columns = [{name: item for name, item in column.items() if name != "values"} for column in value["columns"]]
    head = {name: value[name] for name in ("number", "all", "hidden", "splits", "statuses")} | {"columns": columns}
    return {"head": _packed(head), **parts}, value, tuple(left_out)


def _format(value: float | None, kind: str, hidden: Sequence[str]) -> str:
    """Return a value as the script shows it."""
    if value is None:
        return t.NOTHING
    if kind == "few":
        return hidden[int(-1 - value)] if value < 0 else per_million(value)
    if kind == "size":
        return t.size(int(value))
    if kind == "share":
        return percent(value)
    if kind == "count":
        return t.count(int(value)) if value == int(value) else f"{value:,.1f}"
    return f"{value:.3f}" if value == 0 or abs(value) >= 0.001 else f"{value:.1e}"


def _kept(value: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return only some rows: those that stand out, gravest first, then the first rows."""
    ordinals = value["shard"] or range(value["number"])
    ranks = {int(shard): rank for rank, shard in enumerate(value["odd"])}
    order = sorted(range(value["number"]), key=lambda row: (ranks.get(ordinals[row], len(ranks)), row))
    chosen = sorted(order[:number])
    shards = [ordinals[row] for row in chosen]
    own = set(shards)
    return {
        **value,
        **{key: [value[key][row] for row in chosen] for key in ("split", "status", "uri")},
        "columns": [column | {"values": [column["values"][row] for row in chosen]} for column in value["columns"]],
        "shard": shards,
        "number": len(shards),
        "odd": {shard: why for shard, why in value["odd"].items() if int(shard) in own},
    }


def _parts(value: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns, each packed by itself: so the size of each is known."""
    plain = {name: value[name] for name in ("uri", "split", "status", "shard", "odd")}
    return {name: _packed(item) for name, item in (plain | {c["key"]: c["values"] for c in value["columns"]}).items()}


def _size(parts: Mapping[str, str]) -> int:
    return sum(len(part) for part in parts.values())


def _packed(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode("utf-8"), _LEVEL)).decode("ascii")


_SCRIPTS = ("theme.js", "charts.js", "shards.js")
_PACKAGE = "dataaudit.base.render"
_SPOKEN = 5
"""Bars of a chart that its sentence names."""
_FOLDS = re.compile(r"(?<=[_/])(?=[^_/])|(?<=\w[.-])(?=[^\W\d])|(?<=[^\W\d][.-])(?=\w)")
"""Where a name may be folded: after a separator, but not within a number."""
_ENDLESS, _RUNS = re.compile(r"\S{25}"), re.compile(r"\s*\S{1,24}|\s+")
_COMPARED = re.compile(r"([<>=]) (?=[-0-9])")
"""A comparator stays with its number."""
_ESCAPES = {ord(name): f"\\u{ord(name):04x}" for name in "<>&\u2028\u2029"}


def html(line: Line) -> str:
    """Return a line as markup: words escaped; names escaped, apart from what is around them, and folded."""
    return spell(line, _HTML)


def render(page: Page, *, live: str = "", drawn: Drawn | None = None) -> str:
    """Return the file of a page.

    ``live`` is the address of the events of a page that a server brings up to date, and that it may open; ``drawn`` are
    charts that were made before, as of :func:`fragments`.
    """
    packed, shards = _shards(page)
    environment = _environment()
    body = environment.get_template("page.html.j2").render(_names(page, shards), live=live)
    data = embedded_json(packed)
    known = {} if drawn is None else drawn
    charts = embedded_json([_drawn(figure, known) for figure in page.charts])
    scripts = [_asset(name) for name in (*_SCRIPTS, *(["live.js"] if live else []))]
    library, library_hash = _bokeh() if page.charts or live else ("", "")
    nonce = _hash(body + charts + data)[:32]
    hashes = [f"'sha256-{_hash(script)}'" for script in scripts] + ([f"'sha256-{library_hash}'"] if library else [])
    return environment.get_template("document.html.j2").render(
        title=f"{spell(page.title)} {spell(page.version)}: data audit",
        nonce=nonce,
        policy=_policy(hashes, nonce) + ("; connect-src 'self'" if live else ""),
        style=_asset("page.css"),
        body=body,
        charts=charts,
        shard_data=data,
        library=library,
        scripts=scripts,
    )


Fragment = tuple[str, str, list[dict[str, Any]]]
"""A section of an open page: its id, its markup, its charts."""


Drawn = dict[str, tuple[Figure, dict[str, Any]]]
"""Charts that were made, with the figures that they are of, by id."""


def fragments(page: Page, drawn: Drawn) -> tuple[str, list[Fragment]]:
    """Return a page in parts, for a page that is open: what stands first, and each section with its charts.

    Charts that are the same are taken from ``drawn``, others put into it.
    """
    environment, values = _environment(), _names(page, None)
    top = environment.get_template("top.html.j2").render(values)
    template, found = environment.get_template("section.html.j2"), []
    for section in page.sections:
        charts = [_drawn(block, drawn) for block in section.blocks if isinstance(block, Figure)]
        found.append((section.id, template.render(values, one=section), charts))
    return top, found


def _drawn(figure: Figure, drawn: Drawn) -> dict[str, Any]:
    known = drawn.get(figure.id)
    if known is None or known[0].chart != figure.chart:
        known = drawn[figure.id] = figure, chart_item(figure)
    return known[1]


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(_PACKAGE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "html": html,
        "plain": lambda line: spell(line, PERCENT),
        "left_out": left_out,
        "listed": lambda table: first(table.rows, MOST_ROWS),
    }
    return environment


def _names(page: Page, shards: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "page": page,
        "titles": {section.id: section.title for section in page.sections},
        "kind_of": lambda block: type(block).__name__,
        "is_cell": lambda item: isinstance(item, Cell),
        "says": says,
        "shards": shards,
    }


def broken(text: str) -> Markup:
    """Return a text, escaped, that may be folded after ``_ / . -``, and anywhere within 25 letters without these."""
    pieces: list[str] = []
    for piece in _FOLDS.split(text):
        pieces += _RUNS.findall(piece) if _ENDLESS.search(piece) else [piece]
    return Markup("<wbr>").join(pieces)


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
    return "; ".join(f"{label(bar.label)} {spell(bar.shown, PERCENT)}" for bar in figure.chart.bars[:_SPOKEN])


def _shards(page: Page) -> tuple[dict[str, str], dict[str, Any] | None]:
    """Return the table of all shards, packed for the script, and its first rows; nothing where there is none."""
    tables = (block for section in page.sections for block in section.blocks if isinstance(block, Shards))
    if (shards := next(tables, None)) is None:
        return {}, None
    parts, values, left_out = packed_shards(shards.values)
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
