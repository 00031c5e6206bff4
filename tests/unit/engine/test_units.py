"""Units of work: which of them run in a child process."""

from __future__ import annotations

import pytest

from dataaudit.engine.runner import PeekUnit, ProbeUnit
from dataaudit.manifest.formats import FORMATS, UNKNOWN
from dataaudit.scan.corpus.shards import Shard


@pytest.mark.parametrize("kind", [*FORMATS, UNKNOWN])
def test_what_native_code_parses_is_isolated(kind):
    """Parquet, Arrow and streamed datasets, which are files of such formats; lines and text are not."""
    shard = Shard(ordinal=0, split="s", uri="a", path="/a", format=kind, compression="none", skip=None, size=1)
    probe = ProbeUnit(path="/a", format=kind, compression="none", part_bytes=1, size=1)
    assert {PeekUnit(shard=shard).isolated, probe.isolated} == {kind in {"parquet", "arrow", "datasets"}}
