"""Checks of values that hold for any corpus: proves that a build could have written a table, and its Parquet footer.

A digest proves that a table is the published one, not that a build made it. Readers index by the shards, rows and
counts that tables name, so a table with impossible values is refused before anybody does. Other programs believe the
footer: they skip row groups by their least and largest values, and may answer counts from it alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataaudit.manifest.formats import FORMATS, UNKNOWN
from dataaudit.manifest.locate import ROW_BITS
from dataaudit.manifest.metric import METHODS, NO_INTERVAL, STATUSES

_LEAST = {("ledger", "records"): -1, ("judged", "level"): -1}
"""Columns in which -1 stands for: not known, not screened."""
_SHARDS = frozenset({"shard", "left_shard", "right_shard"})
_ROWS = frozenset({"row", "left_row", "right_row"})
_NEVER_EMPTY = frozenset({("hotspots", "shards"), ("hotspots", "sources")})
_HEX = {
    ("shards", "sha256"): "^([0-9a-f]{64})?$",
    ("shards", "rows_digest"): "^[0-9a-f]{64}$",
    ("shards", "schema_fingerprint"): "^[0-9a-f]{64}$",
}
_SHARES = {
    "overlap": ("score", "score_without_common"),
    "pairs": ("jaccard",),
    "findings": ("score",),
    "shards": (
        *("exact_dup_rate", "near_dup_rate", "repeat_token_share"),
        *("filter_reject_rate", "unusual_language_share", "toxicity_screen"),
    ),
}
_SIGNED = frozenset({"kl", "js", "token_kl_drift", "token_js_drift", "token_kl_bias", "value", "low", "high"})
"""Numbers that may be below 0, if only by rounding."""
_BOUNDS = ("low", "high", "confidence")
_KNOWN = {
    ("metrics", "method"): METHODS,
    ("metrics", "status"): STATUSES,
    ("shards", "status"): ("ok", "partial", "quarantined", "skipped"),
    ("shards", "format"): (*FORMATS, UNKNOWN),
    ("shards", "compression"): ("none", "gzip", "zstd", "bzip2", "xz"),
    ("clusters", "kind"): ("exact", "near"),
    ("overlap", "tier"): ("verbatim", "similar"),
    ("overlap", "part"): ("question", "answer", "both", "document"),
    ("findings", "tier"): ("validated", "contextual", "pattern", "judged"),
}


def check_column(table: str, field: pa.Field, values: pa.ChunkedArray, num_shards: int) -> None:
    """Refuse values that a column of this kind cannot have."""
    kind = field.type
    if (table, field.name) in _NEVER_EMPTY and pc.any(pc.equal(pc.list_value_length(values), 0)).as_py():
        raise ValueError(f"column {field.name}: expected items in every row, found a row with none")
    if pa.types.is_list(kind):
        inner = kind.value_type
        pieces = [chunk.flatten() for chunk in values.chunks]
        check_column(table, pa.field(f"{field.name}[]", inner), pa.chunked_array(pieces, inner), num_shards)
    elif pa.types.is_struct(kind):
        opened = [chunk.flatten() for chunk in values.chunks]
        for index, part in enumerate(kind):
            child = pa.chunked_array([pieces[index] for pieces in opened], part.type)
            check_column(table, pa.field(f"{field.name}.{part.name}", part.type), child, num_shards)
    elif pa.types.is_integer(kind):
        _check_numbers(table, field.name, values, num_shards)
    elif pa.types.is_floating(kind) and field.name not in _SIGNED:
        found, most = pc.min_max(values).as_py(), 1.0 if field.name in _SHARES.get(table, ()) else None
        if found["min"] is not None and (found["min"] < 0 or (most is not None and found["max"] > most)):
            raise ValueError(f"column {field.name}: expected 0 {'to 1' if most else 'or more'}, found another number")
    elif (form := _HEX.get((table, field.name))) and pc.all(pc.match_substring_regex(values, form)).as_py() is False:
        raise ValueError(f"column {field.name}: expected a digest in hex, found another word")
    elif (known := _KNOWN.get((table, field.name))) and pc.all(pc.is_in(values, pa.array(known))).as_py() is False:
        raise ValueError(f"column {field.name}: expected one of {', '.join(known)}, found another word")


def check_records(table: pa.Table) -> None:
    """Refuse metric records that :class:`dataaudit.manifest.metric.Metric` would refuse for several fields together."""
    is_ok = pc.equal(table["status"], "ok")
    inexact = pc.and_(is_ok, pc.not_equal(table["method"], "exact"))
    without = pc.is_in(table["reason"], pa.array(sorted(NO_INTERVAL)))
    bounded, sure = pc.and_(inexact, pc.invert(without)), table["confidence"]
    broken = [
        ("a value without the status ok, or that without a value", pc.xor(is_ok, table["value"].is_valid())),
        ("no value and no reason", pc.and_(pc.invert(is_ok), pc.equal(table["reason"], ""))),
        ("a reason that inexact values alone have", pc.and_(without, pc.invert(inexact))),
        *(("bounds that its method does not have", pc.xor(bounded, table[name].is_valid())) for name in _BOUNDS),
        ("a value outside its bounds", pc.less(table["value"], table["low"])),
        ("a value outside its bounds", pc.greater(table["value"], table["high"])),
        ("a confidence that is no probability", pc.or_(pc.less_equal(sure, 0.0), pc.greater(sure, 1.0))),
    ]
    for words, found in broken:
        if pc.any(found).as_py():
            raise ValueError(f"a record has {words}")


def _check_numbers(table: str, name: str, values: pa.ChunkedArray, num_shards: int) -> None:
    bounds = pc.min_max(values).as_py()
    if bounds["min"] is None or (table, name) == ("shards", "shard"):  # its numbering has a check of its own
        return
    last = name.rpartition(".")[2]
    least, most = _LEAST.get((table, name), 0), 2**53 - 1
    if last in _SHARDS:
        most = num_shards - 1
    elif last in _ROWS:
        most = 2**ROW_BITS - 1
    for found in (bounds["min"], bounds["max"]):
        if not least <= found <= most:
            raise ValueError(f"column {name}: expected {least} to {most}, found {found}")


def wrong_statistics(name: str, file: pq.ParquetFile) -> Iterator[str]:
    """Yield where the statistics of a column and row group differ from its values.

    Bounds of strings may be wider than the values, as some writers cut them.
    """
    for group in range(file.num_row_groups):
        for index in range(file.metadata.row_group(group).num_columns):
            chunk = file.metadata.row_group(group).column(index)
            for problem in _wrong_in_chunk(file, group, chunk):
                yield f"{name}: row group {group}, column {chunk.path_in_schema}: {problem}"


def _wrong_in_chunk(file: pq.ParquetFile, group: int, chunk: pq.ColumnChunkMetaData) -> Iterator[str]:
    if chunk.has_column_index:
        yield "it has a page index, which no build writes"
    stated = chunk.statistics
    if stated is None:
        return
    values, is_nested = _leaf(file.read_row_group(group, columns=[chunk.path_in_schema]))
    if stated.has_null_count and not is_nested and stated.null_count != values.null_count:
        yield f"the statistics say {stated.null_count} nulls, there are {values.null_count}"
    least, most = pc.min_max(values).as_py().values()
    if not stated.has_min_max or least is None:
        return
    is_right = (stated.min, stated.max) == (least, most)
    if pa.types.is_string(values.type):
        is_right = stated.min <= least and stated.max >= most
    if not is_right:
        yield "the statistics say another least or largest value than it has"


def _leaf(table: pa.Table) -> tuple[pa.ChunkedArray, bool]:
    """Return the only leaf column of a table, and whether it lies in a list."""
    values, is_nested = table.column(0), False
    while pa.types.is_list(values.type) or pa.types.is_struct(values.type):
        is_list = pa.types.is_list(values.type)
        pieces = [chunk.flatten() if is_list else chunk.flatten()[0] for chunk in values.chunks]
        inner = values.type.value_type if is_list else values.type[0].type
        values, is_nested = pa.chunked_array(pieces, inner), is_nested or is_list
    return values, is_nested
