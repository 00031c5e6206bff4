"""Proposals for a quarantine list, from what ``attribution.json`` of a run proposes: ``quarantine propose``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import orjson
from pydantic import ValidationError

from dataaudit.base.errors import RunLogError
from dataaudit.base.files import read_safely
from dataaudit.base.render.line import spell
from dataaudit.decide.quarantine.changes import AddRequest, Author, Change, propose, target_of
from dataaudit.decide.quarantine.entry import Comparator, Evidence
from dataaudit.decide.quarantine.selection import COLUMNS
from dataaudit.manifest.load import Manifest
from dataaudit.runlog.format import ATTRIBUTION_FILE
from dataaudit.training.attribution.findings import Attribution
from dataaudit.training.attribution.run_findings import Proposal
from dataaudit.training.pages.evidence_blocks import proposed

_COMPARATORS: dict[str, Comparator] = {"outlier_data": ">", "data_intrinsic": "<=", "follows": ">"}
"""How p should have stood to its limit, or the rise to the band."""
_UNITS = {"outlier_data": "nats/token", "data_intrinsic": "bands", "follows": "episodes"}


def propose_run(path: Path, log: Path, manifest: Manifest, author: Author) -> Change:
    """Append what a run proposes to a list: a shard, or each document of a block."""
    file = log / ATTRIBUTION_FILE
    try:
        data = read_safely(file)
        found = Attribution.model_validate(orjson.loads(data))
    except OSError as error:
        raise RunLogError(
            f"{file} cannot be read: {error.strerror or error}", "`dataaudit attribute` writes it."
        ) from None
    except (ValidationError, ValueError):
        raise RunLogError(f"{file} is damaged, or of another version", "Run `dataaudit attribute` again.") from None
    if found.manifest != manifest.id:
        raise RunLogError(f"{file} is of the manifest {found.manifest}, {manifest.folder} is {manifest.id}")
    if not found.proposals:
        return Change(added=(), notes=(spell(proposed(found)),))
    rows = manifest.table("shards", COLUMNS).to_pylist()
    evidence = {
        "manifest": manifest.id,
        "run": log.resolve().name,
        "digest": f"sha256:{hashlib.sha256(data).hexdigest()}",
    }
    requests = [request for proposal in found.proposals for request in _requests(proposal, rows, evidence)]
    return propose(path, requests, author)


def _requests(proposal: Proposal, rows: list[dict[str, object]], about: dict[str, str]) -> Iterator[AddRequest]:
    evidence = Evidence(
        metric=proposal.metric,
        unit=_UNITS[proposal.because],
        value=proposal.value,
        judged=proposal.judged,
        comparator=_COMPARATORS[proposal.because],
        limit=proposal.limit,
        rule=proposal.because,
        manifest=about["manifest"],
        run=about["run"],
        attribution=about["digest"],
        words=proposal.note,
    )
    records = (
        [None]
        if proposal.first_row is None or proposal.last_row is None
        else range(proposal.first_row, proposal.last_row + 1)
    )
    for record in records:
        yield AddRequest(target=target_of(rows[proposal.shard], record), reason=proposal.because, evidence=evidence)
