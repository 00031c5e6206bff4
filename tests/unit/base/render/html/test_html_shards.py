"""The table of shards as data: complete while it fits, and what is left out is said."""

import base64
import json
import zlib

import pytest
from made_manifest import make, shard

from dataaudit.base.render.html import packed_shards, shard_table
from dataaudit.manifest.load import load_manifest
from dataaudit.present.report.highlights import Odd
from dataaudit.present.report.shards import shard_values


def unpacked(text):
    """Return what the browser unpacks."""
    return json.loads(zlib.decompress(base64.b64decode(text)))


def odd(number, tone="bad"):
    """Return a shard that stands out."""
    return Odd(shard=number, name="n", tone=tone, reasons=("why",))


@pytest.fixture
def manifest(tmp_path):
    """A manifest of 40 shards with names that do not compress."""
    import hashlib

    rows = [
        shard(
            hashlib.sha256(bytes([number])).hexdigest(),
            documents=10 + number,
            tokens=1000 + number,
            near_dup_rate=number / 1000,
        )
        for number in range(40)
    ]
    make(tmp_path / "m", rows)
    return load_manifest(tmp_path / "m")


def test_what_is_packed_is_what_the_manifest_holds(manifest):
    """Columns come back as they are; those without a number are left out."""
    parts, value, left_out = packed_shards(shard_values(manifest, []))
    head = unpacked(parts["head"])
    assert (head["number"], head["all"], left_out) == (40, 40, ())
    assert unpacked(parts["uri"]) == manifest.table("shards")["uri"].to_pylist()
    assert unpacked(parts["tokens"]) == manifest.table("shards")["tokens"].to_pylist()
    assert "toxicity_screen" not in {column["key"] for column in head["columns"]}
    assert value["number"] == 40


def test_columns_go_before_rows_and_what_stands_out_stays(manifest):
    """With a smaller budget columns are left out, then rows; shards that stand out are the last to go."""
    whole = shard_values(manifest, [odd(33), odd(7)])
    parts, value, left_out = packed_shards(whole, budget=1200)
    assert left_out
    assert 2 <= value["number"] < 40
    assert {7, 33} <= set(unpacked(parts["shard"]))
    assert sum(len(part) for name, part in parts.items() if name != "head") <= 1200
    table = shard_table(value, left_out)
    assert f"The file holds {value['number']} of 40 shards" in table["more"]
    assert "Left out for size: " in table["more"]
    assert [cells[0] for tone, cells in table["rows"] if tone] == ["7", "33"]


def test_numbers_without_a_value_stay_apart_from_zero(tmp_path):
    """A quarantined shard has a dash where others have a number."""
    make(tmp_path / "m", [shard("a"), shard("b", status="quarantined")], odd=True)
    table = shard_table(shard_values(load_manifest(tmp_path / "m"), []), ())
    column = [one.head for one in table["columns"]].index("bytes per token")
    assert [cells[column] for _, cells in table["rows"]] == ["4.000", "-"]
