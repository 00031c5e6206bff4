"""The hand-made golden manifest, and every released format: they load, verify and keep their ids."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataaudit.manifest.core import Core, ManifestFile, Run, core_json, manifest_id
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.publish import publish
from dataaudit.manifest.tables import TABLES
from dataaudit.manifest.verify import verify

TESTS = Path(__file__).parents[2]
GOLDEN = TESTS / "golden" / "manifest"
GOLDEN_ID = "sha256:6cae1b2036df7736aeef730b1e03d01c3a99cd86e8d4d4611e64e56738b42fea"
MAX_BYTES = 100_000


def _without_bytes(run: Run) -> Run:
    """Return a run without the bytes of its files: another version of pyarrow writes the same rows otherwise."""
    return run.model_copy(update={"files": {}})


class TestGolden:
    def test_it_verifies(self):
        assert verify(load_manifest(GOLDEN)) == []

    def test_its_id_never_changes(self, golden_parts):
        """The id is written here: whoever changes the canonical form, a schema or a rounding rule notices."""
        assert load_manifest(GOLDEN).id == GOLDEN_ID
        assert manifest_id(golden_parts[0]) == GOLDEN_ID

    def test_every_table_has_a_row(self):
        manifest = load_manifest(GOLDEN)
        assert {name for name in TABLES if manifest.table(name).num_rows == 0} == set()
        assert set(manifest.core.tables) == set(TABLES)

    def test_source_and_folder_agree(self, golden_parts, tmp_path):
        """The folder is what the script writes; `python tests/golden/make_golden.py --update-golden` renews it."""
        identity = publish(tmp_path / "made", *golden_parts)
        stored, made = load_manifest(GOLDEN), load_manifest(tmp_path / "made")
        assert identity == stored.id
        assert set(made.run.files) == set(stored.run.files)
        assert (made.core, _without_bytes(made.run)) == (stored.core, _without_bytes(stored.run))
        for name in TABLES:
            assert made.table(name).equals(stored.table(name)), name
        of_this_pyarrow = pq.read_metadata(GOLDEN / "shards.parquet").created_by.endswith(pa.__version__)
        made_bytes, stored_bytes = ((one.folder / "manifest.json").read_bytes() for one in (made, stored))
        assert (made_bytes == stored_bytes) == of_this_pyarrow

    def test_it_holds_the_bytes_of_every_file(self):
        recorded = {name: (record.size, record.sha256) for name, record in load_manifest(GOLDEN).run.files.items()}
        assert recorded == {
            path.name: (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
            for path in GOLDEN.glob("*.parquet")
        }

    def test_order_of_rows_in_the_source_does_not_count(self, golden_parts, variant):
        tables = golden_parts[2]
        turned = {name: table.take(list(range(table.num_rows))[::-1]) for name, table in tables.items()}
        assert manifest_id(variant(turned)[0]) == GOLDEN_ID

    def test_it_is_small(self):
        assert sum(path.stat().st_size for path in GOLDEN.iterdir()) < MAX_BYTES


class TestCore:
    def test_core_survives_json(self, golden_parts):
        core = golden_parts[0]
        again = Core.model_validate(core_json(core))
        assert again == core
        assert manifest_id(again) == manifest_id(core)

    def test_json_schema_accepts_the_golden_manifest(self):
        jsonschema = pytest.importorskip("jsonschema")
        import orjson

        schema = ManifestFile.model_json_schema(by_alias=True)
        document = orjson.loads((GOLDEN / "manifest.json").read_bytes())
        jsonschema.validate(document, schema)
        document["core"]["novel"] = 1
        with pytest.raises(jsonschema.ValidationError, match="novel"):
            jsonschema.validate(document, schema)
