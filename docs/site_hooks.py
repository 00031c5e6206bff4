"""What `make docs` holds beyond mkdocs' own strictness: a page fetches nothing from a network."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError

_FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=["']?(?:https?:)?//[^>]*>"""
    r"""|<link\b(?![^>]*\brel=["']?canonical)[^>]*\bhref=["']?(?:https?:)?//[^>]*>"""
    r"""|(?:@import|url\()\s*["']?(?:https?:)?//[^)"']*""",
    re.IGNORECASE,
)


def on_post_build(*, config: MkDocsConfig) -> None:
    """End the build with an error when a page or a style sheet would fetch something.

    Raises:
        PluginError: Names the files and what they would fetch.
    """
    site = Path(config.site_dir)
    found = [
        f"{path.relative_to(site)}: {match.group()[:120]}"
        for path in sorted(site.rglob("*"))
        if path.suffix in {".html", ".css"}
        for match in _FETCHED.finditer(path.read_text(encoding="utf-8"))
    ]
    if found:
        raise PluginError("pages must fetch nothing:\n" + "\n".join(found))
