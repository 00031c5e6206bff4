"""Encoding faults: text in the wrong characters, and markup or encoded data that an extractor left in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.render.blocks import Section, column, empty_section, table_of
from dataaudit.base.render.line import Line, join, say, share
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.family import SOURCES, Broken, Counted, Family, ShardStatistic, Tables, declare, statistics
from dataaudit.metrics.overlap.evidence import shards_with
from dataaudit.metrics.recomputed import Condition, Follows, Number, given
from dataaudit.metrics.shown import Part, ShardValues, Shown, floats

METRIC = "encoding_faults"
NO_WORDS = "no_words"
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
FAULTS = {
    "markup_lines": "text_lines",
    "markup_documents": "documents",
    "encoded_documents": "documents",
    "wordless_documents": "documents",
    **{f"{kind}_{unit}": unit for kind in TITLES for unit in ("documents", "bytes")},
}
"""Statistics of encoding faults, which are columns of ``shards``, and the column that each is a share of."""
COMPARED = {
    "mojibake_documents": "documents with mojibake",
    "replacement_documents": "documents with replacement characters",
    "control_documents": "documents with control characters",
    "invisible_documents": "documents with invisible characters",
    "escapes_documents": "documents with escapes left in",
    "entities_documents": "documents with entities left in",
    "markup_documents": "documents of markup",
    "encoded_documents": "documents of base64",
    "wordless_documents": "documents without words",
}
"""Columns that the shards of a source are compared by, as shares of their documents, in words."""


def _counted(case: Broken, tables: Tables) -> tuple[str, dict[int, int]]:
    """Return what a statistic counts, and how much of it each shard has."""
    shards = tables.shards
    kept = pc.fill_null(pc.greater(shards[case.stat], 0), pa.scalar(value=False)).to_numpy()
    if case.scope.split is not None:
        kept &= pc.equal(shards["split"], case.scope.split).to_numpy()
    if case.scope.source is not None:
        kept &= shards_with(shards, case.scope.source)
    kind, _, unit = case.stat.rpartition("_")
    values = shards[case.stat].to_pylist()
    return COMPARED.get(case.stat, f"{unit} of {kind}"), {shard: values[shard] for shard in kept.nonzero()[0].tolist()}


def _share(stat: str, of: str) -> Follows:
    """A split without a line of text has no share but that of documents without words."""
    searched = Condition(lambda: pc.field("text_lines").is_valid())
    value, whole, lines = (Number("shards", name, searched) for name in (stat, of, "text_lines"))
    return Follows(METRIC, stat, value, whole if stat == "wordless_documents" else given(whole, lines))


FAMILY = Family(
    name="encoding_faults",
    metrics=(
        declare(
            METRIC,
            *(
                statistics(stat, "ratio", SOURCES, draws="documents" if of == "documents" else "")
                for stat, of in FAULTS.items()
            ),
            reading=8,
            evidence=Counted(count=_counted, columns=tuple(FAULTS)),
            area="encoding",
            columns=tuple(
                ShardStatistic(stat, stat, per_document=True, noun=noun, absent=NO_WORDS)
                for stat, noun in COMPARED.items()
            ),
        ),
    ),
    stage="dataaudit.metrics.encoding_faults.stage:EncodingFaults",
    stage_name="encoding_faults",
    kernels=("fault_decoders", "fault_escapes", "fault_markup", "faults"),
    checked_with=("shards",),
    checks=tuple(_share(*names) for names in FAULTS.items()),
    looked_for=True,
)

_ALWAYS_FAULTS = ("mojibake", "replacement", "control", "invisible")
"""Kinds that belong to no source."""
_LEAST_SD, _NAMED = 0.02, 3


@once
def encoding_faults(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the kinds of faults with their shares of documents and bytes; none when they were not looked for."""
    values = {record.stat: record.value for record in manifest.metrics(METRIC) if record.scope == Scope()}
    units = ("documents", "bytes")
    return [{"kind": kind, **{unit: values.get(f"{kind}_{unit}") for unit in units}} for kind in TITLES if values]


def _section(manifest: Manifest) -> Section:
    """Return the shares of documents and bytes by kind."""
    faults, title = encoding_faults(manifest), "Encoding and markup"
    if not faults:
        return empty_section("encoding", title, "Encoding faults were not counted in this build.")
    most = sorted((fault for fault in faults if fault["documents"]), key=lambda fault: -fault["documents"])[:_NAMED]
    lead = say("Of the documents: {}.", _in_documents(most)) if most else "No document holds a fault of encoding."
    table = table_of(
        "What wrong decoders and extractors left",
        faults,
        column("what", "kind", TITLES.__getitem__, kind="name"),
        column("of documents", "documents", share),
        column("of bytes", "bytes", share),
        noun="kind",
        note="markup and base64 may belong to a source: a shard is compared with the others of its source",
        folded=True,
    )
    return Section(id="encoding", title=title, lead=lead, blocks=(table,))


def _in_documents(faults: Sequence[dict[str, Any]]) -> Line:
    return join(", ", (say("{} in {}", TITLES[fault["kind"]], share(fault["documents"])) for fault in faults))


def _sentences(manifest: Manifest) -> Iterator[Line]:
    faults = [fault for fault in encoding_faults(manifest) if fault["kind"] in _ALWAYS_FAULTS]
    if known := [fault for fault in faults if fault["documents"] is not None]:
        yield say("Documents with damaged characters: {}.", _in_documents(known))


def _shard_values(manifest: Manifest) -> Iterator[ShardValues]:
    """Yield the shares of documents that shards are compared by."""
    table = manifest.table("shards", ["documents", *COMPARED])
    documents = floats(table["documents"])
    for name, text in COMPARED.items():
        values = np.divide(floats(table[name]), documents, out=np.full(len(documents), np.nan), where=documents > 0)
        yield ShardValues(
            column=name, text=text, values=values, least_sd=_LEAST_SD, documents=documents, only_above=True
        )


SHOWN = Shown(
    sentences=_sentences,
    parts=(Part(name="encoding", area="encoding", blocks=lambda manifest: [_section(manifest)]),),
    shard_values=_shard_values,
    facts={"encoding_faults": encoding_faults},
)
