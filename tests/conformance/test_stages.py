"""The laws that every registered stage obeys, one test a law."""

from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import DOCUMENTS, make_batch

from dataaudit.engine.store import PartialStore
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.manifest.metric_rows import metrics_table
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.lengths.stage import Lengths
from dataaudit.metrics.padding.stage import Padding
from dataaudit.metrics.stages import STAGES, make_stages, stage_schema
from dataaudit.scan.stages.base import Context, Stage, merge, nothing, parameters

INSTANCES = [*make_stages({}), Lengths(max_distinct=256), Padding(contexts=(16, 300), batch=3)]
EVERY = pytest.mark.parametrize("stage", INSTANCES, ids=lambda stage: f"{stage.name}{parameters(stage) or ''}")
CONTEXT = Context(scope=Scope(split="train"), mixture={"web": 2.0, "absent": 1.0})


def partial_of(stage, documents):
    """Return the partial of some documents."""
    return merge(stage, [stage.map(make_batch(documents))])


def same(left, right):
    """Tell whether two partials have the same tables, byte for byte."""
    return left.keys() == right.keys() and all(left[name].equals(right[name]) for name in left)


@EVERY
def test_follows_the_protocol(stage):
    """A stage is a frozen dataclass with a name, a version and parameters that are plain JSON."""
    assert isinstance(stage, Stage)
    assert stage.name
    assert stage.version
    assert set(parameters(stage)) == set(stage_schema(type(stage))["properties"] if parameters(stage) else {})
    with pytest.raises((AttributeError, TypeError)):
        stage.name = "other"


def test_names_are_unique():
    assert len({kind.name for kind in STAGES}) == len(STAGES)


@pytest.mark.tables
@EVERY
@given(a=DOCUMENTS, b=DOCUMENTS, c=DOCUMENTS)
def test_merge_is_associative_and_commutative(stage, a, b, c):
    x, y, z = (partial_of(stage, documents) for documents in (a, b, c))
    left = merge(stage, [merge(stage, [x, y]), z])
    right = merge(stage, [z, merge(stage, [y, x])])
    assert same(left, right)
    assert same(left, merge(stage, [y, z, x]))


@EVERY
@given(documents=DOCUMENTS)
def test_nothing_is_the_identity(stage, documents):
    partial = partial_of(stage, documents)
    assert same(merge(stage, [partial, nothing(stage)]), partial)
    assert same(merge(stage, [stage.map(make_batch([])), partial]), partial)
    assert same(merge(stage, [partial]), partial)


@EVERY
@given(documents=DOCUMENTS, cuts=st.lists(st.integers(0, 12), max_size=4))
def test_any_cut_gives_the_same_partial(stage, documents, cuts):
    """One batch or many, one part or many: the merged partial and the metrics are the same."""
    bounds = sorted({0, len(documents), *(min(cut, len(documents)) for cut in cuts)})
    pieces = [documents[start:stop] for start, stop in pairwise(bounds)]
    merged = merge(stage, [nothing(stage), *(partial_of(stage, piece) for piece in pieces)])
    assert same(_without_sample(merged), _without_sample(partial_of(stage, documents)))


def _without_sample(partial):
    """The fixture draws its sample per batch; a real encoder draws it per document."""
    return {
        name: table.drop_columns(["sampled"]) if "sampled" in table.column_names else table
        for name, table in partial.items()
    }


@EVERY
@given(documents=DOCUMENTS)
def test_partials_survive_the_store(stage, documents, tmp_path_factory):
    partial = partial_of(stage, documents)
    store = PartialStore(tmp_path_factory.getbasetemp() / "store")
    store.write(stage.name, "ab" * 32, {"n": len(documents)}, partial)
    entry = store.read(stage.name, "ab" * 32)
    assert entry.meta == {"n": len(documents)}
    assert same(entry.tables, partial)
    assert {name: table.schema for name, table in entry.tables.items()} == {
        name: shape.schema() for name, shape in stage.shapes().items()
    }


@EVERY
@given(documents=DOCUMENTS)
def test_partials_hold_only_integers_beside_keys(stage, documents):
    """Sums and maxima are int64 without nulls, so no merge can depend on rounding."""
    for name, table in partial_of(stage, documents).items():
        shape = stage.shapes()[name]
        assert table.column_names == shape.schema().names
        for column in (*shape.sums, *shape.maxima):
            assert table.schema.field(column).type == pa.int64()
            assert table[column].null_count == 0


@pytest.mark.tables
@EVERY
@given(documents=DOCUMENTS)
def test_metrics_are_records_of_the_manifest(stage, documents):
    """Every metric fits the table, is unique, stays in its scope, and an empty scope gives no number but counts."""
    records = stage.finalize(partial_of(stage, documents), CONTEXT)
    assert metrics_table(records).num_rows == len(records) > 0
    assert all(isinstance(record, Metric) and record.scope.split == "train" for record in records)
    if not documents:
        counts = ("documents", "bytes", "tokens", "hotspots", "occurrences", "hits")
        ratios = [record for record in records if record.unit not in counts and record.stat != "declared"]
        assert all(record.status == "not_evaluated" or record.reason == "no_reference" for record in ratios)


@pytest.mark.tables
@EVERY
@given(documents=DOCUMENTS)
def test_a_source_has_the_numbers_of_its_documents_alone(stage, documents):
    """What is said of a source among others is what is said of all when there is no other source."""

    def key(record):
        return (record.metric, record.stat, replace(record.scope, source=None))

    records = [*stage.finalize(partial_of(stage, documents), CONTEXT)]
    for source in {name for _, name in documents}:
        own = [document for document in documents if document[1] == source]
        alone = {key(one): one for one in stage.finalize(partial_of(stage, own), CONTEXT) if one.scope.source is None}
        for record in records:
            if record.scope.source == source and key(record) in alone:
                assert replace(record, scope=replace(record.scope, source=None)) == alone[key(record)]


@EVERY
@given(documents=DOCUMENTS)
def test_shard_columns_are_columns_of_the_manifest(stage, documents):
    """What a stage fills per shard are columns of the table of shards, of their type."""
    for name, value in stage.shard_columns(partial_of(stage, documents)).items():
        kind = TABLES["shards"].schema.field(name)
        assert value is not None or kind.nullable
        pa.array([value], kind.type)


@EVERY
@given(documents=DOCUMENTS)
def test_emitted_rows_match_the_documents(stage, documents):
    """A stage emits what it says: keyed rows of the schemas it states, of documents of the batch."""
    emitted = stage.emit(make_batch(documents, first_row=5))
    assert emitted.keys() == stage.emits.keys()
    for name, schema in stage.emits.items():
        assert schema.names[1] == "row"
        assert pa.types.is_fixed_size_binary(schema.field(0).type)
        rows = emitted[name].select(schema.names).cast(schema)["row"].to_pylist()
        assert set(rows) <= set(range(5, 5 + len(documents)))


@EVERY
@given(documents=DOCUMENTS)
def test_map_is_a_function(stage, documents):
    assert same(stage.map(make_batch(documents)), replace(stage).map(make_batch(documents, first_row=99)))


@pytest.mark.parametrize("stage", INSTANCES, ids=lambda stage: stage.name)
def test_a_stage_looks_at_what_it_says_that_it_needs(stage):
    batch = make_batch([("some words of a text", "a"), ("", "b")])
    needed = {annotation.name for annotation in stage.needs} | ({"findings"} if stage.detector else set())
    only = replace(batch, annotations={name: one for name, one in batch.annotations.items() if name in needed})
    assert stage.map(only) is not None
    assert set(stage.emit(only)) <= set(stage.emits)
