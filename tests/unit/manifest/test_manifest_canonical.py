"""The canonical form against a slow twin, which shares no code with it, and its laws."""

from __future__ import annotations

import hashlib
import io
import json
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rfc8785
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.manifest.canonical import canonical_json, digest_json, digest_table, is_sorted, sorted_table
from dataaudit.manifest.tables import TABLES, TableSpec

Row = dict[str, Any]
NAMES = {"int32": "<i", "int64": "<q", "double": "<d", "bool": "<?"}
FEW = settings(max_examples=examples(15), deadline=None)


# The slow twin: plain Python over lists of dictionaries.


def slow_leaves(kind: pa.DataType, name: str, values: list[Any]) -> Iterator[tuple[str, pa.DataType, list[Any]]]:
    """Yield (dotted name, type, values) of a column, structs opened."""
    if not pa.types.is_struct(kind):
        yield name, kind, values
        return
    for field in kind:
        inner = [None if value is None else value[field.name] for value in values]
        yield from slow_leaves(field.type, f"{name}.{field.name}", inner)


def slow_type(kind: pa.DataType) -> str:
    """Return the name of a type as the format page spells it."""
    if pa.types.is_list(kind):
        return f"list<item: {slow_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        fields = (f"{f.name}: {slow_type(f.type)}{'' if f.nullable else ' not null'}" for f in kind)
        return f"struct<{', '.join(fields)}>"
    if pa.types.is_fixed_size_binary(kind):
        return f"fixed_size_binary[{kind.byte_width}]"
    return {
        pa.int32(): "int32",
        pa.int64(): "int64",
        pa.float64(): "double",
        pa.string(): "string",
        pa.bool_(): "bool",
    }[kind]


def slow_bytes(kind: pa.DataType, values: list[Any]) -> bytes:
    """Return the bytes of one leaf column."""
    out = bytes(value is not None for value in values)
    if pa.types.is_list(kind):
        out += b"".join(struct.pack("<q", len(value or [])) for value in values)
        items = [item for value in values for item in value or []]
        leaves = slow_leaves(kind.value_type, "item", items)
        return out + b"".join(slow_bytes(inner, column) for _, inner, column in leaves)
    if pa.types.is_string(kind):
        texts = [(value or "").encode() for value in values]
    if pa.types.is_fixed_size_binary(kind):
        texts = [value or b"" for value in values]
    if pa.types.is_string(kind) or pa.types.is_fixed_size_binary(kind):
        return out + b"".join(struct.pack("<q", len(text)) for text in texts) + b"".join(texts)
    return out + b"".join(struct.pack(NAMES[slow_type(kind)], value or 0) for value in values)


def slow_sorted(rows: list[Row], spec: TableSpec) -> list[Row]:
    """Return the rows in canonical order."""
    leaves = [
        (name, column)
        for field in spec.schema
        for name, kind, column in slow_leaves(field.type, field.name, [row[field.name] for row in rows])
        if not pa.types.is_list(kind)
    ]
    rank = {name: index for index, name in enumerate(spec.key)}
    leaves.sort(key=lambda leaf: rank.get(leaf[0], len(rank)))  # stable: others keep their order

    def key(index: int) -> tuple[Any, ...]:
        values = (column[index] for _, column in leaves)
        return tuple((value is None, value.encode() if isinstance(value, str) else value or 0) for value in values)

    return [rows[index] for index in sorted(range(len(rows)), key=key)]


def slow_digest(rows: list[Row], spec: TableSpec) -> str:
    """Return the digest of sorted rows."""
    leaves = [
        leaf for field in spec.schema for leaf in slow_leaves(field.type, field.name, [row[field.name] for row in rows])
    ]
    header = [[[name, slow_type(kind)] for name, kind, _ in leaves], len(rows)]
    body = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    body += b"".join(slow_bytes(kind, column) for _, kind, column in leaves)
    return "sha256:" + hashlib.sha256(body).hexdigest()


# Random rows of every table.

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4) | st.sampled_from(["", "a", "ab", "é", "😀"])


def values_of(field: pa.Field) -> st.SearchStrategy[Any]:
    """Return values of a field, null among them where it may be."""
    kind = field.type
    if pa.types.is_struct(kind):
        made = st.fixed_dictionaries({inner.name: values_of(inner) for inner in kind})
    elif pa.types.is_list(kind):
        made = st.lists(values_of(pa.field("item", kind.value_type, nullable=False)), max_size=3)
    elif pa.types.is_string(kind):
        made = TEXT
    elif pa.types.is_fixed_size_binary(kind):
        made = st.binary(min_size=kind.byte_width, max_size=kind.byte_width)
    elif pa.types.is_boolean(kind):
        made = st.booleans()
    elif pa.types.is_floating(kind):
        made = st.sampled_from([0.0, -0.0, 0.5, -1.0, 5e-324, 1e300]) | st.floats(allow_nan=False, allow_infinity=False)
    else:
        bits = kind.bit_width - 1
        made = st.integers(-2, 2) | st.integers(-(2**bits), 2**bits - 1)
    return st.none() | made if field.nullable else made


def rows_of(spec: TableSpec, min_size: int = 0) -> st.SearchStrategy[list[Row]]:
    """Return rows of a table; with a list column the keys differ, since a list orders nothing."""
    row = st.fixed_dictionaries({field.name: values_of(field) for field in spec.schema})
    if any(pa.types.is_list(field.type) for field in spec.schema):
        return st.lists(row, min_size=min_size, max_size=6, unique_by=lambda one: one[spec.key[0]])
    return st.lists(row, min_size=min_size, max_size=6)


def digest(table: pa.Table, spec: TableSpec) -> str:
    """Return the digest of a table in any order."""
    return digest_table(sorted_table(table, spec))


def table_of(rows: list[Row], spec: TableSpec) -> pa.Table:
    """Return rows as a table."""
    return pa.Table.from_pylist(rows, schema=spec.schema)


every_table = pytest.mark.parametrize("spec", TABLES.values(), ids=list(TABLES))


@every_table
class TestDigest:
    @FEW
    @given(data=st.data())
    def test_order_and_digest_are_those_of_the_slow_twin(self, spec, data):
        """The order of the rows and the digest are what the format page says, bit for bit."""
        rows = data.draw(rows_of(spec))
        ordered = sorted_table(table_of(rows, spec), spec)
        expected = slow_sorted(rows, spec)
        assert ordered.to_pylist() == expected
        assert digest_table(ordered) == slow_digest(ordered.to_pylist(), spec)

    @pytest.mark.tables
    @FEW
    @given(data=st.data())
    def test_whether_rows_are_in_order_is_what_sorting_says(self, spec, data):
        """Column by column, for as many columns as rows have in common."""
        few = [data.draw(values_of(field)) for field in spec.schema]
        rows = [
            {
                field.name: data.draw(values_of(field) | st.just(same))
                for field, same in zip(spec.schema, few, strict=True)
            }
            for _ in range(data.draw(st.integers(0, 4)))
        ]
        names = [name for name in spec.schema.names if not pa.types.is_list(spec.schema.field(name).type)]
        table = table_of(rows, spec)
        expected = table.select(names).to_pylist() == table_of(slow_sorted(rows, spec), spec).select(names).to_pylist()
        assert is_sorted(spec, table.column) == expected
        assert is_sorted(spec, sorted_table(table, spec).column)

    @pytest.mark.tables
    @FEW
    @given(data=st.data())
    def test_no_way_of_storing_changes_it(self, spec, data):
        rows = data.draw(rows_of(spec))
        expected = digest(table_of(rows, spec), spec)
        shuffled = table_of(data.draw(st.permutations(rows)), spec)
        cut = data.draw(st.integers(0, len(rows)))
        chunked = pa.concat_tables([shuffled.slice(0, cut), shuffled.slice(cut)])
        assert digest(chunked, spec) == expected
        sink = io.BytesIO()
        codec = data.draw(st.sampled_from(["none", "snappy", "gzip", "zstd", "lz4"]))
        pq.write_table(
            chunked,
            sink,
            compression=codec,
            row_group_size=data.draw(st.integers(1, 4)),
            use_dictionary=data.draw(st.booleans()),
            store_schema=data.draw(st.booleans()),
        )
        assert digest(pq.read_table(sink), spec) == expected

    @FEW
    @given(data=st.data())
    def test_any_changed_cell_changes_it(self, spec, data):
        rows = data.draw(rows_of(spec, min_size=1))
        index = data.draw(st.integers(0, len(rows) - 1))
        field = data.draw(st.sampled_from(list(spec.schema)))
        value = data.draw(values_of(field))
        assume(value != rows[index][field.name])
        changed = [dict(row) for row in rows]
        changed[index][field.name] = value
        assert digest(table_of(changed, spec), spec) != digest(table_of(rows, spec), spec)

    @FEW
    @given(data=st.data())
    def test_a_dropped_or_added_row_changes_it(self, spec, data):
        rows = data.draw(rows_of(spec, min_size=1))
        index = data.draw(st.integers(0, len(rows) - 1))
        digests = {
            digest(table_of(some, spec), spec)
            for some in (rows, rows[:index] + rows[index + 1 :], [*rows, rows[index]])
        }
        assert len(digests) == 3

    def test_null_where_none_may_be_is_refused(self, spec):
        loose = pa.schema([field.with_nullable(True) for field in spec.schema])
        table = pa.Table.from_pylist([dict.fromkeys(spec.schema.names)], schema=loose)
        first = next(field.name for field in spec.schema if not field.nullable)
        with pytest.raises(ValueError, match=rf"table {spec.name}: .*{first}.* null"):
            sorted_table(table, spec)

    def test_missing_column_is_refused(self, spec):
        last = spec.schema.names[-1]
        table = spec.schema.empty_table().drop_columns([last])
        with pytest.raises(ValueError, match=rf"table {spec.name}: .*'{last}'"):
            sorted_table(table, spec)


class TestOrderAndValues:
    def test_strings_are_ordered_by_bytes_and_nulls_come_last(self):
        """Capitals before small letters before letters beyond ASCII, as in UTF-8, and null after all."""
        scopes = ["é", None, "a", "Z", "", "😀", "\uffff"]
        empty = dict.fromkeys(["split", "source", "language", "shard", "set", "entity", "rule"])
        row = {
            "metric": "m",
            "stat": "s",
            "unit": "",
            "n": 0,
            "denominator": 0,
            "method": "exact",
            "status": "ok",
            "reason": "",
            "version": "1",
        }
        rows = [{**row, "scope": {**empty, "split": split}} for split in scopes]
        spec = TABLES["metrics"]
        ordered = sorted_table(pa.Table.from_pylist(rows, schema=spec.schema), spec).to_pylist()
        assert [one["scope"]["split"] for one in ordered] == ["", "Z", "a", "é", "\uffff", "😀", None]

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
    def test_a_float_that_is_no_number_is_refused(self, value):
        spec = TABLES["pairs"]
        row = {"left_shard": 0, "left_row": 0, "right_shard": 0, "right_row": 1, "verified": True}
        with pytest.raises(ValueError, match="table pairs: NaN or an infinity in column jaccard"):
            sorted_table(table_of([{**row, "jaccard": value}], spec), spec)

    def test_zero_has_one_sign(self):
        spec = TABLES["pairs"]
        row = {"left_shard": 0, "left_row": 0, "right_shard": 0, "right_row": 1, "verified": True}
        zeros = [table_of([{**row, "jaccard": zero}], spec) for zero in (0.0, -0.0)]
        assert digest(zeros[0], spec) == digest(zeros[1], spec)

    def test_digest_of_no_rows_depends_on_the_columns(self):
        digests = {digest_table(spec.schema.empty_table()) for spec in TABLES.values()}
        schemas = {str(spec.schema.remove_metadata()) for spec in TABLES.values()}
        assert len(digests) == len(schemas)

    def test_null_and_empty_are_told_apart(self):
        spec = TABLES["shards"]
        row = dict.fromkeys(spec.schema.names, "") | dict.fromkeys(
            (field.name for field in spec.schema if pa.types.is_integer(field.type)), 0
        )
        row |= {"sources": [], "exact_dup_rate": 0.0} | dict.fromkeys(
            (field.name for field in spec.schema if pa.types.is_floating(field.type)), 0.0
        )
        others = [row | {"rows_digest": None}, row | {"seq_len_max": None}, row | {"exact_dup_rate": None}]
        assert len({digest(table_of([one], spec), spec) for one in [row, *others]}) == 4


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | TEXT
    | st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


class TestJson:
    @FEW
    @given(value=JSON)
    def test_reading_it_back_gives_the_same_bytes(self, value):
        data = canonical_json(value)
        assert rfc8785.dumps(json.loads(data)) == data

    @FEW
    @given(value=st.dictionaries(TEXT, JSON, min_size=1, max_size=5), seed=st.randoms(use_true_random=False))
    def test_order_of_keys_never_counts(self, value, seed):
        keys = list(value)
        seed.shuffle(keys)
        assert digest_json({key: value[key] for key in keys}) == digest_json(value)

    @pytest.mark.parametrize("value", [2**53, -(2**53), float("nan"), float("inf"), "\ud800"])
    def test_what_has_no_canonical_form_is_refused(self, value):
        with pytest.raises(ValueError, match=r".+"):
            canonical_json({"key": value})

    def test_known_digest(self):
        """The digest of a small value is the sha256 of bytes written here by hand."""
        expected = hashlib.sha256(b'{"a":[1,0.5,"\xc3\xa9"],"b":null}').hexdigest()
        assert digest_json({"b": None, "a": [1, 0.5, "é"]}) == f"sha256:{expected}"
