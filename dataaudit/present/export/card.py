"""``dataaudit export card``: a dataset card of the Hugging Face hub, or the section of a card that this program owns.

The section stands between two comments, each alone on its line. An update replaces what stands between them and leaves
every other byte of the card, its metadata among it. Names from the data are code spans
(:mod:`dataaudit.base.render.markdown`), so none of them is markup, and none can be a comment line.

The sentences are those of every catalogue. Small counts of personal data are left out, as in every report
(:mod:`dataaudit.metrics.disclosure`). Secrets are counted in tens: an exact number says how many are still to be found.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import yaml

from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError
from dataaudit.base.render.line import Line, Name, say, spell
from dataaudit.base.render.markdown import code, lines_of, markdown, table
from dataaudit.base.render.result import Written
from dataaudit.base.yamlfile import NAME_PATTERN, read_named
from dataaudit.manifest.load import Manifest
from dataaudit.metrics.language.definition import languages
from dataaudit.metrics.language.definition import section as language_section
from dataaudit.metrics.registry import all_shown
from dataaudit.metrics.relations import load_consistent
from dataaudit.metrics.shown import LONG
from dataaudit.metrics.volume.definition import Overview, mixture, overview, splits_table
from dataaudit.present.export.output import utc, write_file

Spell = Callable[[Line], str]
"""Writes a line in a format, with the names in it harmless there."""


def sentences(manifest: Manifest, *areas: str, write: Spell = spell) -> list[str]:
    """Return what the families of some areas of the report say, in their order."""
    chosen = (shown for area in areas for shown in all_shown() if shown.area == area)
    return [write(line) for shown in chosen if shown.sentences is not None for line in shown.sentences(manifest)]


def filters(manifest: Manifest, write: Spell = spell) -> list[str]:
    """Say which filters ran before, as declared, and that the audit removed nothing."""
    declared: list[Line] = [
        say(
            "Filter {}{}, as declared: {} in, {} out.",
            Name(record.name, LONG),
            say(" {}", Name(record.version, LONG)) if record.version else "",
            t.plural(record.documents_in, "document"),
            record.documents_out,
        )
        for record in manifest.core.upstream_filters
    ]
    declared = declared or ["No filter before the audit is declared."]
    return [*map(write, declared), "The audit itself removed and changed nothing."]


BEGIN = "<!-- dataaudit:begin -->"
END = "<!-- dataaudit:end -->"
_SIZES = "n<1K 1K<n<10K 10K<n<100K 100K<n<1M 1M<n<10M 10M<n<100M 100M<n<1B 1B<n<10B 10B<n<100B 100B<n<1T"
"""Of a thousand documents, and of each power of ten after it: the category of what is smaller."""
_LANGUAGE = re.compile(r"^[a-z]{2,3}$")
_LEAST_SHARE = 0.001
"""Part of the tokens from which on a language of the dataset is named."""
_ROWS = 20
"""Rows of a table of sources or languages at most."""


def export_card(folder: Path, out: Path | None, update: Path | None) -> Written:
    """Write or update a card; return it, and where it was written if a file is named."""
    if out is not None and update is not None:
        raise ConfigError("--out writes a whole card, --update changes one", "Give one of them.")
    manifest = load_consistent(folder)
    view = overview(manifest)
    inner = section(manifest, view)
    if update is not None:
        if update.is_symlink():
            raise ConfigError(f"--update: {update} is a link", f"Name the card itself: --update {os.readlink(update)}")
        old = read_named(update, "the card")
        new = replaced(old, inner, str(update))
        if new != old:
            write_file(update, new, folder, option="--update")
        facts = {"manifest": manifest.id, "changed": new != old}
        words = "the section is new" if new != old else "nothing has changed"
        return Written(file=update, data=new, words=words, facts=facts)
    name = manifest.core.dataset.name
    data = f"{metadata(manifest)}\n# {name if re.match(NAME_PATTERN, name) else code(name)}\n\n{inner}".encode()
    if out is not None:
        write_file(out, data, folder)
    words = f"a card with metadata and the section of {manifest.id}"
    return Written(file=out, data=data, words=words, facts={"manifest": manifest.id})


def replaced(card: bytes, inner: str, where: str) -> bytes:
    """Return a card with a new section; every byte outside of the markers is kept."""
    begins, ends = (_marks(card, marker) for marker in (BEGIN, END))
    if not begins and not ends:
        newline = b"\r\n" if b"\r\n" in card else b"\n"
        gap = b"" if not card else newline if card.endswith(b"\n") else newline * 2
        return card + gap + inner.encode().replace(b"\n", newline)
    if len(begins) != 1 or len(ends) != 1 or begins[0].start() > ends[0].start():
        raise ConfigError(
            f"{where}: expected one line {BEGIN} and one line {END} after it, found {len(begins)} and {len(ends)}",
            "Fix the markers, or remove them all and the section is added at the end.",
        )
    newline = b"\r\n" if card[begins[0].end() :].lstrip(b" \t").startswith(b"\r") else b"\n"
    fresh = inner.encode().replace(b"\n", newline).removesuffix(newline)
    return card[: begins[0].start()] + fresh + card[ends[0].end() :]


def metadata(manifest: Manifest) -> str:
    """Return the YAML block of a new card, with its fences."""
    documents = manifest.core.totals.documents
    data = {
        "language": [name for name in named_languages(manifest) if _LANGUAGE.match(name)],
        "size_categories": [
            next((name for power, name in enumerate(_SIZES.split(), 3) if documents < 10**power), "n>1T")
        ],
        "pretty_name": t.clean(manifest.core.dataset.name),
    }
    known = {key: value for key, value in data.items() if value}
    return f"---\n{yaml.safe_dump(known, sort_keys=False, allow_unicode=True)}---\n"


def named_languages(manifest: Manifest) -> list[str]:
    """Return the languages of at least a thousandth of the tokens, the largest first."""
    found = languages(manifest)
    parts = found.parts if found is not None else ()
    return [part["language"] for part in parts if part["language"] != "und" and (part["share"] or 0) >= _LEAST_SHARE]


def section(manifest: Manifest, view: Overview) -> str:
    """Return the section with its markers; every line is ended by a line feed."""
    spoken = {
        "### Duplicates": ("duplicates",),
        "### Leakage into training": ("leakage",),
        "### Damaged text": ("encoding",),
        "### Toxicity": ("toxicity",),
        "### Personal data and secrets": ("privacy", "secrets"),
    }
    found = languages(manifest)
    by_language = [] if found is None or not found.parts else language_section(found).blocks
    titled = {
        "### Sources": lines_of(mixture(view).blocks, _ROWS),
        "### Languages": lines_of(by_language, _ROWS),
        **{title: _sentences(manifest, *names) for title, names in spoken.items()},
    }
    blocks = [
        [BEGIN],
        ["## Audit"],
        _identity(view),
        ["### Splits"],
        table(splits_table(view), _ROWS),
        *(block for title, lines in titled.items() if lines for block in ([title], lines)),
        ["### Filters before the audit"],
        [f"- {filter_}" for filter_ in filters(manifest, markdown)],
        ["### Coverage"],
        _sentences(manifest, "coverage"),
        [END],
    ]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _identity(view: Overview) -> list[str]:
    tokenizer, day = view.tokenizer, utc(view.built, "the time")[:10]
    return [
        f"Version {code(view.version)} was audited by {code(view.tool)} on {day}; the audit's manifest is",
        f"`{view.id}`.",
        f"Tokens are those of {code(tokenizer['name'])} (sha256 `{tokenizer['sha256']}`).",
    ]


def _sentences(manifest: Manifest, *areas: str) -> list[str]:
    return [f"- {sentence}" for sentence in sentences(manifest, *areas, write=markdown)]


def _marks(card: bytes, marker: str) -> list[re.Match[bytes]]:
    """Return the lines that are a marker and nothing else, without their ends."""
    return list(re.finditer(rb"^" + re.escape(marker.encode()) + rb"(?=[ \t]*\r?$)", card, re.MULTILINE))
