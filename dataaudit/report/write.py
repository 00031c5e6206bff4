"""``dataaudit report``: write one HTML file of a manifest, and say so in a line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dataaudit import text as t
from dataaudit.extras import require
from dataaudit.gate.verdict import Verdict
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.metrics.relations import load_consistent
from dataaudit.outfiles import check_files, write_file
from dataaudit.render.line import PERCENT, spell

if TYPE_CHECKING:
    from dataaudit.manifest.trust import Signer


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a report is made with beside the manifest."""

    baseline: Path | None = None
    """An older manifest to compare with."""
    policy: Path | None = None
    """A policy to judge by."""
    verdict: Path | Verdict | None = None
    """A verdict, or a ``gate.json``, instead; without either, the one in the manifest's folder is shown."""
    quarantine: Path | None = None
    """A list of quarantined shards to mark."""
    signer: Signer | None = None
    """Who has to have signed manifest and baseline; a policy may ask for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written."""

    num_bytes: int
    """Of the file."""
    headline: str
    """The verdict, or what stands in its place."""
    findings: tuple[str, ...]
    """What stands out."""


def make_report(manifest: Manifest, out: Path, given: Given) -> Written:
    """Write the report of a loaded manifest.

    Args:
        manifest: The manifest.
        out: The file; an older one is replaced in one step, and so is a link.
        given: What else.

    Raises:
        ManifestError: A manifest is absent or damaged.
        ManifestMismatch: The verdict is of another manifest.
        SignatureRefused: A manifest is not signed by the signer.
        ConfigError: The policy or the list cannot be read, or ``out`` cannot be written.
    """
    require("report", "report")
    read = {"--policy": given.policy, "--quarantine": given.quarantine}
    read["--verdict"] = None if isinstance(given.verdict, Verdict) else given.verdict
    check_files({"--out": out}, read, (manifest.folder, given.baseline))
    if given.signer is not None:
        from dataaudit.manifest.attestation import attested

        manifest = attested(manifest, given.signer)
    from dataaudit.render.html.document import render
    from dataaudit.report.inputs import difference_of, quarantined_shards, verdict_of
    from dataaudit.report.page import page_of

    page = page_of(
        manifest,
        verdict=verdict_of(manifest, given.policy, given.baseline, given.verdict, given.signer),
        unchecked=given.policy is None and not isinstance(given.verdict, Verdict),
        difference=difference_of(manifest, given.baseline),
        baseline=None if given.baseline is None else load_manifest(given.baseline),
        quarantined=quarantined_shards(manifest, given.quarantine),
    )
    data = render(page).encode("utf-8")
    write_file(out, data)
    findings = tuple(spell(one.text, PERCENT).replace("\xa0", " ") for one in page.findings)
    return Written(num_bytes=len(data), headline=page.headline, findings=findings)


def write_report(folder: Path, out: Path, given: Given, *, as_json: bool) -> str:
    """Write the report and return what the command prints.

    Args:
        folder: The manifest.
        out: As of :func:`make_report`.
        given: What else.
        as_json: One JSON object instead of a line.

    Raises:
        DataAuditError: As of :func:`make_report`.
    """
    manifest = load_consistent(folder)
    written = make_report(manifest, out, given)
    if as_json:
        value = {
            "report": str(out),
            "bytes": written.num_bytes,
            "id": manifest.id,
            "headline": written.headline,
            "findings": list(written.findings),
        }
        return t.as_json(value)
    return f"{t.clean(str(out))}: {t.size(written.num_bytes)}, {written.headline}\n"
