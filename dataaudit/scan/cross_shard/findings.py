"""Collects the findings of patterns from all shards into the manifest's table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.locate import rows_of, shards_of
from dataaudit.manifest.tables import TABLES
from dataaudit.scan.cross_shard.joins import Joined
from dataaudit.scan.cross_shard.keyed import read_placed
from dataaudit.scan.cross_shard.step import LinkContext
from dataaudit.scan.stages.findings import ANY, FINDING_ROWS, TABLE, TIERS


def findings_table(context: LinkContext) -> pa.Table:
    """Return the findings of a stage, as the manifest's table."""
    stage = context.stage
    rows = _hits(context.survey.by_split[stage.name, "found"])
    findings = context.join(stage.name, gather_findings, context.files(TABLE), rows).table("findings", GATHERED)
    columns = {
        "detector": pa.repeat(pa.scalar(stage.detector, pa.string()), findings.num_rows),
        "class": findings["entity"],
        "tier": pa.array(TIERS, pa.string()).take(findings["tier"].combine_chunks()),
        **{name: findings[name] for name in ("shard", "row", "start", "end", "score", "reserved")},
        "hmac": _hex(findings["keyed"]),
    }
    return pa.table(columns).cast(TABLES["findings"].schema)


def _hex(keyed: pa.ChunkedArray) -> pa.Array:
    if keyed.null_count == len(keyed):  # without a key, which is usual: no objects for very many findings
        return pa.nulls(len(keyed), pa.string())
    return pa.array([None if value is None else value.hex() for value in keyed.to_pylist()], pa.string())


def _hits(table: pa.Table) -> int:
    whole = table.filter(pc.and_(pc.equal(table["entity"], ANY), pc.equal(table["tier"], ANY)))
    return int(pc.sum(pc.add(whole["hits"], whole["reserved"])).as_py() or 0)


GATHERED = pa.schema([("shard", pa.int32()), *[FINDING_ROWS.field(name) for name in FINDING_ROWS.names[1:]]])


def gather_findings(files: pa.Table, start: int, stop: int) -> Joined:
    """Return the findings of one partition with the shards and rows that they are in."""
    placed = read_placed(files, FINDING_ROWS, start, stop)
    order = np.lexsort((placed.table["end"].to_numpy(), placed.table["start"].to_numpy(), placed.places))
    table = placed.table.take(pa.array(order))
    places = placed.places[order]
    table = table.set_column(1, "row", pa.array(rows_of(places))).set_column(0, "shard", pa.array(shards_of(places)))
    return Joined(tables={"findings": table.select(GATHERED.names).cast(GATHERED)})
