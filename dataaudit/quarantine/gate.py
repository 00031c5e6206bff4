"""``gate --quarantine``: the shards that a verdict fails, put on a list for somebody to decide about."""

from __future__ import annotations

from pathlib import Path

from dataaudit.errors import ManifestError
from dataaudit.gate.verdict import Verdict
from dataaudit.manifest.load import load_manifest
from dataaudit.quarantine.author import author
from dataaudit.quarantine.proposals import TWIN, write_proposals
from dataaudit.text import plural


def propose_shards(path: Path, verdict: Verdict, folder: Path) -> str:
    """Append proposals to a list and return what was done, for people.

    Args:
        path: The list.
        verdict: Of the manifest.
        folder: The manifest's.

    Raises:
        QuarantineError: The list cannot be written.
        ManifestError: The manifest cannot be read, or is another one by now.
    """
    manifest = load_manifest(folder)
    if manifest.id != verdict.subject.id:
        raise ManifestError(f"the manifest {folder} was replaced while it was judged", "Run the gate again.")
    change, found = write_proposals(path, verdict, manifest, author(None, None))
    lines = [f"quarantine: {plural(len(change.added), 'proposal')} added to {path}"]
    if change.known:
        lines[0] += f", {len(change.known):,} on the list already"
    if change.added:
        lines.append(f"  nothing is held back yet: dataaudit quarantine accept {path} ...")
    twins = sorted({one.name for one in found.passed_over if one.why == TWIN})
    if twins:
        lines.append(f"  not proposed, as another shard has the same bytes: {', '.join(twins[:5])}")
    if change.bad:
        lines.append(
            f"  {plural(len(change.bad), 'line')} of the list cannot be read: dataaudit quarantine list {path}"
        )
    return "\n".join(lines)
