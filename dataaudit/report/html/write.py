"""``dataaudit report``: write one HTML file of a manifest, and say so in a line."""

from __future__ import annotations

from pathlib import Path

from dataaudit import text as t
from dataaudit.errors import ConfigError
from dataaudit.gate.writers.files import write_file
from dataaudit.manifest.load import load_manifest


def write_report(
    folder: Path, out: Path, *, baseline: Path | None, policy: Path | None, quarantine: Path | None, as_json: bool
) -> str:
    """Write the report and return what the command prints.

    Args:
        folder: The manifest.
        out: The file; an older one is replaced in one step.
        baseline: An older manifest to compare with.
        policy: A policy to judge by; without one a ``gate.json`` in the folder is shown.
        quarantine: A list of quarantined shards to mark.
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
        manifest, verdict=verdict_of(manifest, policy, baseline), difference=difference_of(manifest, baseline),
        quarantined=quarantined_shards(manifest, quarantine),
    )  # fmt: skip
    data = render(page, manifest).encode("utf-8")
    write_file(out, data)
    if as_json:
        value = {"report": str(out), "bytes": len(data), "id": manifest.id, "headline": page.headline,
                 "findings": [one.text.replace("\xa0", " ") for one in page.findings]}  # fmt: skip
        return t.as_json(value)
    return f"{t.clean(str(out))}: {t.size(len(data))}, {page.headline}\n"
