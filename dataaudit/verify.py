"""``dataaudit verify``: a manifest against its own digests and, on request, against the shards."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError, ExitCode, ManifestMismatch
from dataaudit.base.extras import require
from dataaudit.base.render.blocks import Block, Facts, Point, Points
from dataaudit.base.render.terminal import render
from dataaudit.decide.quarantine.released import check_pinned
from dataaudit.engine.progress import Progress
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.locate import STREAMED
from dataaudit.manifest.s3 import shown
from dataaudit.manifest.trust import CODES, Attestation, SignedVerdict, Signer, Trust, check_attestation, check_trust
from dataaudit.manifest.verify import Problem, verify
from dataaudit.metrics.relations import contradictions
from dataaudit.scan.corpus.storage.address import RemotePath, scheme_of
from dataaudit.scan.corpus.storage.files import file_of
from dataaudit.scan.corpus.storage.remote import stat_remote

_LISTED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCheck:
    """What hashing the shards again showed."""

    problems: tuple[Problem, ...]
    """Shards that are gone or changed."""
    shards: int
    """Shards that are as the manifest says."""
    bytes: int
    """Stored bytes of them."""
    not_checkable: tuple[str, ...]
    """``split/uri`` of shards of whose bytes the build has no digest: unread ones, and those of streamed datasets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    folder: Path
    manifest: Manifest | None
    """None when its own id is wrong."""
    problems: tuple[Problem, ...]
    data: DataCheck | None = None
    """None when the shards were not asked for."""
    signed: SignedVerdict | None = None
    """None when no signed verdict was asked for."""
    attested: Attestation | None = None
    """None when no signature of the manifest was asked for."""
    listed: int | None = None
    """Entries of the quarantine list; None when it was not looked at."""


def verify_folder(
    folder: Path,
    *,
    data: bool,
    root: str | Path | None,
    as_json: bool,
    quiet: bool = False,
    trust: Trust | None = None,
    signer: Signer | None = None,
    quarantine: Path | None = None,
) -> tuple[str, ExitCode]:
    """Check a manifest; return what to print and the exit code."""
    if root is not None and not data:
        raise ConfigError("--root says where the shards lie, but without --data they are not read", "Add --data.")
    if data:
        require("verify --data", "build")
    verdict = _check(folder, data=data, root=root, quiet=quiet, trust=trust, signer=signer)
    if quarantine is not None and verdict.manifest is not None and not verdict.problems:
        signed = verdict.signed
        listed = check_pinned(quarantine, verdict.manifest, None if signed is None else signed.summary)
        verdict = replace(verdict, listed=len(listed.entries))
    code = ExitCode.BUDGET_EXCEEDED if verdict.problems else ExitCode.PASS
    return (_json if as_json else _text)(verdict, code), code


def _check(
    folder: Path, *, data: bool, root: str | Path | None, quiet: bool, trust: Trust | None, signer: Signer | None
) -> _Verdict:
    try:
        manifest = load_manifest(folder)
    except ManifestMismatch as error:
        problem = Problem("id", error.message)
        return _Verdict(folder=folder, manifest=None, problems=(problem,))
    problems = verify(manifest)
    problems += contradictions(manifest) if not problems else []
    signed, of_data, attested = None, None, None
    if signer is not None:
        attested = check_attestation(manifest, signer)
        problems += [Problem("attestation", attested.problem)] if attested.problem else []
    if trust is not None:
        signed, more = check_trust(manifest, trust)
        problems += more
    if data and not any(problem.code.startswith(("table", "file_bytes", "file_list")) for problem in problems):
        of_data = _check_data(manifest, root, quiet=quiet)
        problems += of_data.problems
    return _Verdict(
        folder=folder, manifest=manifest, problems=tuple(problems), data=of_data, signed=signed, attested=attested
    )


def _check_data(manifest: Manifest, root: str | Path | None, *, quiet: bool) -> DataCheck:
    """Hash every shard again; a file that is listed more than once is hashed once."""
    given = None if root is None else os.fspath(root)
    roots = {split.name: given or manifest.run.roots.get(split.name, "") for split in manifest.core.splits}
    for split, folder in roots.items():
        if not scheme_of(folder) and not folder.startswith(STREAMED) and not os.path.isdir(folder):
            raise ConfigError(
                f"expected the shards of split {split} below {folder}, but there is no such folder",
                "Name the folder that holds them now with --root.",
            )
    problems: list[Problem] = []
    not_checkable: list[str] = []
    digests: dict[str, str] = {}
    shards = num_bytes = 0
    planned = manifest.core.ledger
    with Progress(quiet=quiet) as progress:
        progress.begin("hash", planned.shards.planned, planned.bytes.planned)
        for row in manifest.table("shards", ["uri", "split", "format", "size", "sha256"]).to_pylist():
            name = f"{row['split']}/{row['uri']}"
            path = None if row["format"] == "datasets" else file_of(roots[row["split"]], row["uri"])
            if row["format"] == "datasets" or (path is not None and not row["sha256"]):
                not_checkable.append(name)
            elif path is None:
                pass  # its URI leads out of the root: a problem of the manifest, listed already
            elif problem := _check_file(path, row, f"shard {name}", digests):
                problems.append(problem)
            else:
                shards, num_bytes = shards + 1, num_bytes + row["size"]
            progress.advance(row["size"])
        progress.end()
    return DataCheck(problems=tuple(problems), shards=shards, bytes=num_bytes, not_checkable=tuple(not_checkable))


def _check_file(path: str, row: dict[str, Any], name: str, digests: dict[str, str]) -> Problem | None:
    """Hold a file against its size and digest in the table of shards; what it hashes is kept in ``digests``."""
    from dataaudit.engine.scan import hash_file

    try:
        size = _size_of(path)
        if size is None:
            return Problem("shard_kind", f"{name}: expected a file, found something else ({path})")
        if size != row["size"]:
            return Problem("shard_size", f"{name}: {row['size']} bytes expected, {size} found")
        if path not in digests:
            digests[path] = hash_file(path)
    except OSError as error:
        return Problem("shard_gone", f"{name}: {error.strerror} ({path})")
    if digests[path] != row["sha256"]:
        return Problem("shard_digest", f"{name}: the bytes have changed since the build")
    return None


def _size_of(path: str) -> int | None:
    """Return the bytes of a file; None of what is no file."""
    if isinstance(path, RemotePath):
        return stat_remote(path).size
    status = os.stat(path)
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _json(verdict: _Verdict, code: ExitCode) -> str:
    manifest, data = verdict.manifest, None
    tables = manifest.core.tables.values() if manifest else ()
    if verdict.data is not None:
        data = {
            "shards_checked": verdict.data.shards,
            "bytes_checked": verdict.data.bytes,
            "not_checkable": list(verdict.data.not_checkable),
        }
    return t.as_json(
        {
            "manifest": shown(verdict.folder),
            "id": manifest and manifest.id,
            "well": not verdict.problems,
            "exit_code": int(code),
            "problems": [{"code": problem.code, "text": problem.text} for problem in verdict.problems],
            "tables": len(tables),
            "rows": sum(table.rows for table in tables),
            "files_held": len(manifest.run.files) if manifest else 0,
            "data": data,
            "signed_by": None if verdict.attested is None or verdict.attested.problem else verdict.attested.signer,
            "list_entries": verdict.listed,
            "signed_verdict": None if verdict.signed is None else _verdict_json(verdict.signed),
        }
    )


def _text(verdict: _Verdict, code: ExitCode) -> str:
    state = "all is well" if code == ExitCode.PASS else t.plural(len(verdict.problems), "problem")
    pairs = [("id", verdict.manifest.id if verdict.manifest else "does not match the contents")]
    if verdict.manifest:
        tables, files = verdict.manifest.core.tables.values(), len(verdict.manifest.run.files)
        checked = f"{t.plural(len(tables), 'table')}, {t.plural(sum(table.rows for table in tables), 'row')}"
        pairs.append(("tables", f"{checked}: schema, digests and ledger checked, numbers computed again"))
        pairs.append(("bytes", f"{t.plural(files, 'file')}: size and sha256 checked"))
    if verdict.attested is not None:
        who = t.clean(verdict.attested.signer, 200)
        pairs.append(("signed by", f"not by {who}" if verdict.attested.problem else who))
    if verdict.listed is not None:
        who = "the build" if verdict.signed is None else "the build and the verdict"
        pairs.append(("list", f"{t.plural(verdict.listed, 'line')}; none is lost that {who} saw"))
    data = verdict.data
    if data is not None:
        size = f"{t.plural(data.shards, 'shard')} as the manifest says, {t.count(data.bytes)} bytes"
        pairs.append(("shards", size))
    elif any(problem.code not in CODES for problem in verdict.problems):
        pairs.append(("shards", "not read: the manifest has to be well first"))
    else:
        pairs.append(("shards", "not read; --data hashes them again"))
    if verdict.problems:
        pairs.append(("what to do", f"dataaudit explain {verdict.problems[0].code}"))
    blocks: list[Block] = [
        Facts(pairs=tuple(pairs)),
        Facts(title="Signed verdict", pairs=() if verdict.signed is None else _verdict_pairs(verdict.signed)),
        Facts(title="Problems", pairs=tuple((problem.code, t.clean(problem.text)) for problem in verdict.problems)),
        _not_checkable(() if data is None else data.not_checkable),
    ]
    return render(f"{t.clean(shown(verdict.folder))}: {state}", blocks)


def _not_checkable(names: Sequence[str]) -> Points:
    """Name the shards that have no digest: no problem of the manifest, but not proven either."""
    lines = [t.clean(name) for name in names[:_LISTED]]
    lines += [f"and {len(names) - _LISTED:,} more; --json lists all"] if len(names) > _LISTED else []
    title = "Not checkable: unread, or streamed from a dataset, so there is no digest of their bytes"
    return Points(title=title, items=tuple(Point(text=line) for line in lines))


def _verdict_json(found: SignedVerdict) -> dict[str, Any]:
    """Return a signed verdict as plain JSON values."""
    said = found.summary
    if said is None:
        return {"signer": found.signer, "holds": False}
    return {
        "signer": found.signer,
        "holds": True,
        "result": said.result,
        "verified_at": said.time,
        "verifier": {"id": said.verifier, "versions": said.versions},
        "subject": [{"name": name, "sha256": digest} for name, digest in said.subjects],
        "resource": said.resource,
        "policy": {"uri": said.policy, "sha256": said.policy_digest},
        "facts": said.facts,
    }


def _verdict_pairs(found: SignedVerdict) -> tuple[tuple[str, str], ...]:
    """Return a signed verdict as lines for a terminal: name and value."""
    said = found.summary
    if said is None:
        return (("signed by", f"not by {t.clean(found.signer, 200)}"),)
    versions = ", ".join(f"{name} {version}" for name, version in sorted(said.versions.items()))
    digest = f" (sha256:{said.policy_digest})" if said.policy_digest else ""
    pairs = (
        ("verdict", said.result),
        ("signed by", found.signer),
        ("verified at", said.time or "not said"),
        ("by", f"{said.verifier} ({versions})" if versions else said.verifier),
        ("of", ", ".join(name for name, _ in said.subjects)),
        ("policy", f"{said.policy}{digest}"),
    )
    return tuple((name, t.clean(value, 300)) for name, value in pairs)
