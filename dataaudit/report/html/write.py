"""``dataaudit report``: write one HTML file of a manifest, and say so in a line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dataaudit import text as t
from dataaudit.errors import ConfigError
from dataaudit.gate.writers.files import write_file
from dataaudit.manifest.load import load_manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a report is made with beside the manifest."""

    baseline: Path | None = None
    """An older manifest to compare with."""
    policy: Path | None = None
    """A policy to judge by."""
    verdict: Path | None = None
    """A ``gate.json`` instead; without either, the one in the manifest's folder is shown."""
    quarantine: Path | None = None
    """A list of quarantined shards to mark."""


def write_report(folder: Path, out: Path, given: Given, *, as_json: bool) -> str:
    """Write the report and return what the command prints.

    Args:
        folder: The manifest.
        out: The file; an older one is replaced in one step.
        given: What else.
        as_json: One JSON object instead of a line.

    Raises:
        ManifestError: A manifest is absent or damaged.
        ConfigError: The policy or the list cannot be read, or ``out`` cannot be written.
    """
    from dataaudit.report.html.document import render
    from dataaudit.report.html.inputs import difference_of, quarantined_shards, verdict_of
    from dataaudit.report.html.page import page_of

    if out.is_dir():
        raise ConfigError(f"{out} is a folder", "Name a file: --out report.html")
    manifest = load_manifest(folder)
    page = page_of(
        manifest, verdict=verdict_of(manifest, given.policy, given.baseline, given.verdict),
        difference=difference_of(manifest, given.baseline),
        quarantined=quarantined_shards(manifest, given.quarantine),
    )  # fmt: skip
    data = render(page, manifest).encode("utf-8")
    write_file(out, data)
    if as_json:
        value = {"report": str(out), "bytes": len(data), "id": manifest.id, "headline": page.headline,
                 "findings": [one.text.replace("\xa0", " ") for one in page.findings]}  # fmt: skip
        return t.as_json(value)
    return f"{t.clean(str(out))}: {t.size(len(data))}, {page.headline}\n"
