"""What wrong decoders and careless extractors left in texts, as people read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.encoding_faults.definition import COMPARED, METRIC
from dataaudit.metrics.shown import Part, ShardValues, Shown, floats
from dataaudit.render.blocks import Row, Section, Table, names, numbers
from dataaudit.render.line import Line, join, say, share

TITLES = {
    "mojibake": "mojibake",
    "replacement": "replacement characters",
    "control": "control characters",
    "invisible": "invisible characters",
    "escapes": "escapes left in",
    "entities": "entities left in",
    "tags": "tags left in",
    "base64": "base64",
}
"""Kinds in words."""
_ALWAYS_FAULTS = ("mojibake", "replacement", "control", "invisible")
"""Kinds that belong to no source."""
_LEAST_SD, _NAMED = 0.02, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of fault in the whole dataset."""

    kind: str
    documents: float | None
    """Share of documents that hold some."""
    bytes: float | None
    """Share of all bytes."""


@once
def encoding_faults(manifest: Manifest) -> list[Fault]:
    """Return the kinds of faults, as their shares stand in the manifest; none when they were not looked for."""
    held = {record.stat: record.value for record in manifest.metrics(METRIC) if record.scope == Scope()}
    return [
        Fault(kind=kind, documents=held.get(f"{kind}_documents"), bytes=held.get(f"{kind}_bytes"))
        for kind in TITLES
        if held
    ]


def _section(manifest: Manifest) -> Section:
    """Return the shares of documents and bytes by kind."""
    found, title = encoding_faults(manifest), "Encoding and markup"
    if not found:
        none = "Encoding faults were not counted in this build."
        return Section(id="encoding", title=title, lead=none, tone="quiet")
    most = sorted((one for one in found if one.documents), key=lambda one: -(one.documents or 0))[:_NAMED]
    parts = [say("{} in {}", TITLES[one.kind], share(one.documents)) for one in most]
    lead = say("Of the documents: {}.", join(", ", parts)) if parts else "No document holds a fault of encoding."

    def row(one: Fault) -> Row:
        return TITLES[one.kind], share(one.documents), share(one.bytes)

    table = Table(
        title="What wrong decoders and extractors left",
        columns=(*names("what"), *numbers("of documents", "of bytes")),
        rows=tuple(map(row, found)),
        noun="kind",
        note="markup and base64 may belong to a source: a shard is compared with the others of its source",
        folded=True,
    )
    return Section(id="encoding", title=title, lead=lead, blocks=(table,))


def _sentences(manifest: Manifest) -> Iterator[Line]:
    shown = [one for one in encoding_faults(manifest) if one.kind in _ALWAYS_FAULTS and one.documents is not None]
    if shown:
        parts = [say("{} in {}", TITLES[one.kind], share(one.documents)) for one in shown]
        yield say("Documents with damaged characters: {}.", join(", ", parts))


def _shard_values(manifest: Manifest) -> Iterator[ShardValues]:
    """Yield the shares of documents that shards are compared by."""
    table = manifest.table("shards", ["documents", *COMPARED])
    documents = floats(table["documents"])
    for column, text in COMPARED.items():
        values = np.divide(floats(table[column]), documents, out=np.full(len(documents), np.nan), where=documents > 0)
        yield ShardValues(
            column=column, text=text, values=values, least_sd=_LEAST_SD, documents=documents, only_above=True
        )


SHOWN = Shown(
    sentences=_sentences,
    parts=(Part(name="encoding", area="encoding", blocks=lambda manifest: [_section(manifest)]),),
    shard_values=_shard_values,
    facts={"encoding_faults": encoding_faults},
)
