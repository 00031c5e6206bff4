"""The golden manifest, as parts and as a folder that a test may damage."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pyarrow as pa
import pytest

from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.core import Core, Run
from dataaudit.manifest.publish import prepare_tables, table_records

GOLDEN = Path(__file__).parents[2] / "golden"
Parts = tuple[Core, Run, dict[str, pa.Table]]


def _load_script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def golden_parts() -> Parts:
    """Core, run and tables of the golden manifest, made from its hand-written source."""
    return _load_script(GOLDEN / "make_golden.py").golden()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the golden manifest."""
    return Path(shutil.copytree(GOLDEN / "manifest", tmp_path / "manifest"))


@pytest.fixture
def variant(golden_parts: Parts) -> Callable[..., Parts]:
    """A function that returns a consistent manifest with other tables or other fields of the core."""

    def make(tables: dict[str, pa.Table] | None = None, **fields: Any) -> Parts:
        core, run, old = golden_parts
        prepared = prepare_tables({**old, **(tables or {})})
        records = {name: record.model_dump() for name, record in table_records(prepared).items()}
        dumped = core.model_dump(by_alias=True) | {"tables": records} | fields
        return Core.model_validate(dumped), run, prepared

    return make


@pytest.fixture
def edit(folder: Path) -> Callable[..., Path]:
    """A function that changes the pointer of the copy; the id is made anew unless it is to stay."""

    def change(how: Callable[[dict[str, Any]], object], *, keep_id: bool = False) -> Path:
        path = folder / "manifest.json"
        document = orjson.loads(path.read_bytes())
        how(document)
        if not keep_id:
            document["id"] = digest_json(document["core"])
        path.write_bytes(orjson.dumps(document))
        return folder

    return change
