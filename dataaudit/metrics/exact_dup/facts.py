"""Documents whose text was seen before: how many there are, and the shards with the most of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.shown import MANY, Kind, Oddity, OddShard, Part, Shown, Standout, above
from dataaudit.render.blocks import Table, names, numbers
from dataaudit.render.line import Line, Name, say, share
from dataaudit.text import plural

METRIC = "exact_dup_rate"
TOP = 5
REPEATED = 0.5
_SHARED = "half and more of the documents repeat earlier ones word for word"
"""Exact-duplicate rate from which a shard stands out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicated:
    """A shard with duplicates."""

    shard: int
    split: str
    uri: str
    documents: int
    exact_dup_rate: float


@once
def repeated_share(manifest: Manifest) -> float | None:
    """Return the share of all documents that repeat the text of an earlier one; None without any document."""
    return next((record.value for record in manifest.metrics(METRIC, "rate", Scope())), None)


@once
def most_duplicated(manifest: Manifest) -> list[Duplicated]:
    """Return the shards with the highest exact-duplicate rate, those without any left out."""
    table = manifest.table("shards", ["shard", "split", "uri", "documents", METRIC])
    table = table.filter(pc.fill_null(pc.greater(table[METRIC], 0), pa.scalar(value=False)))
    order = [(METRIC, "descending"), ("shard", "ascending")]
    return [Duplicated(**row) for row in table.sort_by(order).slice(0, TOP).to_pylist()]


def _table(manifest: Manifest) -> list[Table]:
    """Return the shards with the highest rate."""
    found = most_duplicated(manifest)
    table = Table(
        title="Shards with the highest exact-duplicate rate",
        columns=(*numbers("shard"), *names("split/uri"), *numbers("documents", "dups overall")),
        rows=tuple(
            (one.shard, Name(f"{one.split}/{one.uri}"), one.documents, share(one.exact_dup_rate)) for one in found
        ),
        noun="shard",
    )
    return [table] if found else []


def _standouts(manifest: Manifest) -> Iterator[Standout]:
    rate, most = repeated_share(manifest), next(iter(most_duplicated(manifest)), None)
    if rate is not None and most is not None and (rate > MANY or most.exact_dup_rate > REPEATED):
        yield Standout(
            kind=Kind.EXACT_DUPLICATES,
            part="shards",
            size=rate,
            shard=most.shard,
            place=f"{most.split}/{most.uri}",
            text=say("{} of all documents repeat an earlier one", share(rate)),
            link=say(", {} of", share(most.exact_dup_rate)),
        )


def _odd_shards(manifest: Manifest) -> Iterator[OddShard]:
    table = manifest.table("shards", ["documents", METRIC])
    for shard, rate in above(table[METRIC], REPEATED):
        documents = plural(table["documents"][shard].as_py(), "document")
        text = say("{} of its {} repeat earlier ones word for word", share(rate), documents)
        yield OddShard(shard=shard, kind=Oddity.COPIES, size=rate, text=text, shared=_SHARED)


def _sentences(manifest: Manifest) -> Iterator[Line]:
    if (rate := repeated_share(manifest)) is not None:
        yield say("{} of the documents are exact duplicates of an earlier one, white space aside.", share(rate))


SHOWN = Shown(
    parts=(Part(name="shards", area="duplicates", blocks=_table),),
    sentences=_sentences,
    standouts=_standouts,
    odd_shards=_odd_shards,
    long_facts={"most_duplicated": most_duplicated},
)
