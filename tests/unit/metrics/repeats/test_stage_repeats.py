"""What the stage of repeated spans emits, refuses, and makes of what the link step adds."""

import pyarrow as pa
import pytest
from strategies import make_batch

from dataaudit.base.errors import ConfigError
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.repeats.stage import FINGERPRINTS, Repeats
from dataaudit.metrics.stages import make_stages
from dataaudit.scan.stages.base import Context, merge


def found(partial, **scope):
    """Return the value of each stat in a scope."""
    records = Repeats().finalize(partial, Context(scope=Scope(split="train"), mixture={}))
    return {record.stat: record.value for record in records if record.scope == Scope(split="train", **scope)}


def with_hotspots(batch, repeats, hotspots):
    """Return the partial of a batch with what was found in it."""
    stage = Repeats()
    shapes = stage.shapes()
    extra = {
        "repeats": pa.Table.from_pylist(repeats, schema=shapes["repeats"].schema()),
        "hotspots": pa.Table.from_pylist(hotspots, schema=shapes["hotspots"].schema()),
    }
    return merge(stage, [stage.map(batch), extra])


def test_a_hotspot_of_two_sources_is_one_in_the_scope_and_one_in_each():
    batch = make_batch([("abc" * 30, "web"), ("abc" * 20, "web"), ("abc" * 50, "code")])
    zero = {"documents": 0, "tokens": 0}
    partial = with_hotspots(
        batch,
        [
            {"source": "web", **zero, "repeated_documents": 2, "repeated_tokens": 10},
            {"source": "code", **zero, "repeated_documents": 1, "repeated_tokens": 15},
        ],
        [
            {"source": "web", "hotspot": 1, "documents": 1, "occurrences": 4},
            {"source": "web", "hotspot": 2, "documents": 2, "occurrences": 2},
            {"source": "code", "hotspot": 1, "documents": 1, "occurrences": 1},
            {"source": "code", "hotspot": 3, "documents": 1, "occurrences": 1},
        ],
    )
    assert found(partial) == {
        "hotspots": 3,
        "documents": 3,
        "occurrences": 8,
        "tokens": 25,
        "largest": 2,
        "token_share": 0.25,
        "largest_share": pytest.approx(2 / 3),
    }
    assert found(partial, source="web") == {
        "hotspots": 2,
        "documents": 2,
        "occurrences": 6,
        "tokens": 10,
        "largest": 2,
        "token_share": 0.2,
        "largest_share": 1,
    }
    assert found(partial, source="code")["hotspots"] == 2


def test_documents_without_repeats_give_zeros():
    values = found(Repeats().map(make_batch([("a b c", "web")])))
    assert values["hotspots"] == values["token_share"] == values["largest_share"] == 0


def test_fingerprints_name_their_document_and_lie_within_it():
    texts = ["short", " ".join(f"w{number}" for number in range(300)), " ".join(f"v{number}" for number in range(50))]
    batch = make_batch([(text, "web") for text in texts], first_row=7)
    rows = Repeats().emit(batch)[FINGERPRINTS].to_pylist()
    assert {row["row"] for row in rows} == {8, 9}
    for row in rows:
        size = 300 if row["row"] == 8 else 50
        assert row["position"] + row["windows"] - 1 + 50 <= size
        assert row["position"] + row["offset"] + 13 <= size
    assert sum(row["windows"] for row in rows) == 251 + 1


@pytest.mark.parametrize(("name", "value"), [("min_documents", 1), ("max_memory_bytes", 999), ("index", 1)])
def test_parameters_out_of_their_range(name, value):
    with pytest.raises(ConfigError, match=f"stages.repeats.*{name}"):
        make_stages({"repeats": {name: value}})
