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
from markupsafe import Markup

from dataaudit.manifest.load import Manifest
from dataaudit.report.html.charts import chart_item
from dataaudit.report.html.page import Page
from dataaudit.report.html.shard_data import packed_shards, shard_values
from dataaudit.report.html.shard_rows import shard_table

_SCRIPTS = ("theme.js", "charts.js", "shards.js")
_PACKAGE = "dataaudit.report.html"
_FOLDS = re.compile(r"(?<=[_/])(?=[^_/])|(?<=\w[.-])(?=[^\W\d])|(?<=[^\W\d][.-])(?=\w)")
"""Where a name may be folded: after a separator, but not within a number."""
_ENDLESS, _RUNS = re.compile(r"\S{25}"), re.compile(r"\s*\S{1,24}|\s+")
_ESCAPES = {ord(one): f"\\u{ord(one):04x}" for one in "<>&\u2028\u2029"}


def render(page: Page, manifest: Manifest) -> str:
    """Return the report of a page; ``manifest`` gives the rows of its shards."""
    environment = Environment(
        loader=PackageLoader(_PACKAGE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["broken"] = broken
    odd = page.odd.shards
    parts, values, left_out = packed_shards(shard_values(manifest, odd), odd)
    data = embedded_json(parts)
    body = environment.get_template("page.html.j2").render(
        page=page,
        titles={one.id: one.title for one in page.sections},
        kind_of=lambda block: type(block).__name__,
        shards=shard_table(values, left_out),
    )
    charts = embedded_json([chart_item(one) for one in page.charts])
    scripts = [_asset(name) for name in _SCRIPTS]
    library, library_hash = _bokeh() if page.charts else ("", "")
    nonce = _hash(body + charts + data)[:32]
    hashes = [f"'sha256-{_hash(script)}'" for script in scripts] + ([f"'sha256-{library_hash}'"] if library else [])
    return environment.get_template("document.html.j2").render(
        title=f"{page.dataset} {page.version}: data audit",
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
