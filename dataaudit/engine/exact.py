"""The family of exact duplicates: documents of equal normal form, of whatever shards."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.engine.families import Found, Linking
from dataaudit.engine.joins import Join
from dataaudit.engine.revisit import Visit, Visited
from dataaudit.link.exact import COUNTS, MEMBERS, link_exact
from dataaudit.manifest.tables import TABLES
from dataaudit.stages.exact_dup import KEYS

_KIND = "link-exact"


def exact_duplicates(linking: Linking) -> Generator[Sequence[Visit], list[Visited], Found]:
    """Join the keys of all shards that were read; nothing has to be read again."""
    documents = sum(
        sum(shard.partials[linking.stage.name]["exact_dup"]["documents"].to_pylist()) for shard in linking.read()
    )
    join = Join(
        kind=_KIND, function=link_exact, identity=linking.stage.version, files=linking.files(KEYS), rows=documents
    )
    joined = linking.join(join)
    yield from ()
    clusters = clusters_table(joined.table("members", MEMBERS))
    return Found(tables={"clusters": clusters}, extra={"exact_dup": joined.table("counts", COUNTS)})


def clusters_table(members: pa.Table) -> pa.Table:
    """Number the groups by their first member and mark the one to keep."""
    schema = TABLES["clusters"].schema
    if members.num_rows == 0:
        return schema.empty_table()
    order = [(name, "ascending") for name in ("first_shard", "first_row", "shard", "row")]
    ordered = members.take(pc.sort_indices(members, sort_keys=order))
    kept = pc.and_(pc.equal(ordered["shard"], ordered["first_shard"]), pc.equal(ordered["row"], ordered["first_row"]))
    numbers = pc.subtract(pc.cumulative_sum(pc.cast(kept, pa.int64())), 1)
    kind = pa.array(["exact"] * ordered.num_rows)
    columns = {"kind": kind, "cluster": numbers, "shard": ordered["shard"], "row": ordered["row"], "kept": kept}
    return pa.table(columns).cast(schema)
