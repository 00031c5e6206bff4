"""The family of pattern findings: gathered from all shards into the manifest's table."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.engine.families import Found, Linking
from dataaudit.engine.joins import Join
from dataaudit.engine.revisit import Visit, Visited
from dataaudit.link.found import GATHERED, gather_findings
from dataaudit.manifest.tables import TABLES
from dataaudit.stages.found import ANY, FINDINGS, TIERS


def secret_findings(linking: Linking) -> Generator[Sequence[Visit], list[Visited], Found]:
    """Gather the findings; nothing has to be read again."""
    table = findings_table(linking)
    yield from ()
    return Found(tables={"findings": table})


def findings_table(linking: Linking) -> pa.Table:
    """Return the findings of a stage, as the manifest's table.

    Raises:
        ClusterError: The join cannot be done on these workers.
        DamagedEntryError: Stored rows are absent or damaged.
    """
    stage = linking.stage
    tables = [shard.partials[stage.name]["found"] for shard in linking.read()]
    rows = sum(_hits(table) for table in tables)
    join = Join(
        kind=f"link-{stage.name}",
        function=gather_findings,
        identity=stage.version,
        files=linking.files(FINDINGS),
        rows=rows,
    )
    found = linking.join(join).table("findings", GATHERED)
    tiers = pa.array(TIERS, pa.string()).take(found["tier"].combine_chunks())
    columns = {
        "detector": pa.repeat(pa.scalar(stage.detector, pa.string()), found.num_rows),
        "class": found["entity"],
        "tier": tiers,
        "shard": found["shard"],
        "row": found["row"],
        "start": found["start"],
        "end": found["end"],
        "score": found["score"],
        "reserved": found["reserved"],
        "hmac": _hex(found["keyed"]),
    }
    return pa.table(columns).cast(TABLES["findings"].schema)


def _hex(keyed: pa.ChunkedArray) -> pa.Array:
    if keyed.null_count == len(keyed):  # without a key, which is the usual: no object for each of very many
        return pa.nulls(len(keyed), pa.string())
    return pa.array([None if value is None else value.hex() for value in keyed.to_pylist()], pa.string())


def _hits(table: pa.Table) -> int:
    whole = table.filter(pc.and_(pc.equal(table["entity"], ANY), pc.equal(table["tier"], ANY)))
    return int(pc.sum(pc.add(whole["hits"], whole["reserved"])).as_py() or 0)
