"""The API as a typed program uses it: mypy checks the types, a test runs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, assert_type

import dataaudit
from dataaudit.api import Build, Difference, Manifest, QuarantineList, Verdict
from dataaudit.base.errors import DataAuditError, ExitCode

if TYPE_CHECKING:
    import polars as pl


def read(folder: Path, policy: dict[str, object]) -> ExitCode:
    """Load, judge and compare a manifest; return the exit code of the verdict."""
    manifest = dataaudit.load(folder)
    assert_type(manifest, Manifest)
    verdict = dataaudit.gate(manifest, policy, baseline=folder, fail_on="warn", on="2026-11-22")
    assert_type(verdict, Verdict)
    assert_type(verdict.passed, bool)
    difference = dataaudit.diff(folder, manifest)
    assert_type(difference, Difference)
    frame = manifest.polars("shards", ["uri"])
    if TYPE_CHECKING:
        assert_type(frame, pl.DataFrame)
    assert_type([record.value for record in manifest.metrics("documents")], list[float | None])
    return verdict.exit_code


def hold_back(file: Path, manifest: Manifest) -> list[str]:
    """Add a shard to a list; return the reasons that are on it."""
    held_back = dataaudit.quarantine(file)
    assert_type(held_back, QuarantineList)
    held_back.add(["0", "1:3"], manifest=manifest, reason="drift", until="2999-12-31", who="maria@example.com")
    return [record.entry.reason for record in held_back.entries()]


def attest(folder: Path, private: Path) -> str:
    """Sign a manifest by a key; return the name of the file that holds the signature."""
    signed = dataaudit.sign(folder, key=private)
    assert_type(signed, Path)
    return signed.name


def build(config: dict[str, object], target: Path) -> Build | str:
    """Build in this process; return what went wrong, if anything did."""
    try:
        built = dataaudit.build(config, target, workers=0, progress=lambda line: None)
    except DataAuditError as error:
        return error.message
    assert_type(built, Build)
    assert_type(built.manifest, Manifest)
    return built
