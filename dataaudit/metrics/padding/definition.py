"""Padding: the share of a batch that is no token of a document, by context length and way of batching."""

from __future__ import annotations

from typing import Any

from dataaudit.base.render.blocks import Section, column, empty_section, table_of
from dataaudit.base.render.line import Name, say, share
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.family import SOURCES, Family, declare, statistics
from dataaudit.metrics.shown import Part, Shown

METRIC = "pad_fraction"
CONTEXTS = (2048, 4096, 8192)
_WAYS = {"padded": SOURCES, "padded_batch": "all, split", "packed": "all, split", "concatenated": SOURCES}

FAMILY = Family(
    name="padding",
    metrics=(
        declare(
            METRIC,
            *(
                statistics(" ".join(f"{way}_{length}" for length in CONTEXTS), "ratio", shapes, over_tokens=True)
                for way, shapes in _WAYS.items()
            ),
            area="tokens",
            numbered=True,
        ),
    ),
    stage="dataaudit.metrics.padding.stage:Padding",
    stage_name="padding",
    harmless=frozenset({"contexts"}),
)

_COLUMNS = {
    "padded": "padded to the context",
    "padded_batch": "padded to the batch",
    "packed": "packed",
    "concatenated": "concatenated",
}


def padding(manifest: Manifest) -> dict[str, float | None]:
    """Return the share of padding of the training data by way and context length, ``packed_2048``."""
    return {record.stat: record.value for record in manifest.metrics(METRIC, None, _training(manifest))}


def section(manifest: Manifest) -> Section:
    """Return the padding of the training data: a row a context length, a column a way to batch."""
    rows: dict[int, dict[str, Any]] = {}
    for stat, value in padding(manifest).items():
        way, _, context = stat.rpartition("_")
        if context.isdecimal():
            rows.setdefault(int(context), dict.fromkeys(_COLUMNS) | {"context": int(context)})[way] = value
    if not rows:
        return empty_section("padding", "Padding", "Padding was not computed.")
    split = _training(manifest).split
    table = table_of(
        say("Padding of {}", Name(split) if split else "all splits together"),
        [rows[context] for context in sorted(rows)],
        column("context, tokens", "context"),
        *(column(head, way, share) for way, head in _COLUMNS.items()),
        most=None,
        note="Share of the fed tokens that would be padding, by context length and way of batching.",
    )
    return Section(id="padding", title="Padding", blocks=(table,))


def _training(manifest: Manifest) -> Scope:
    """Return the scope of the training split; everything when there are several, or none."""
    names = [split.name for split in manifest.core.splits if not split.held_out]
    return Scope(split=names[0]) if len(names) == 1 else Scope()


SHOWN = Shown(
    parts=(Part(name="padding", area="tokens", blocks=lambda manifest: [section(manifest)]),),
    facts={"padding": padding},
)
