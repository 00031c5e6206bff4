"""``gate --quarantine``: the shards that a verdict fails, put on a list for somebody to decide about."""

from __future__ import annotations

from pathlib import Path

from dataaudit.errors import ManifestError
from dataaudit.gate.verdict import Verdict
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.quarantine.author import author
from dataaudit.quarantine.changes import Author, Change
from dataaudit.quarantine.proposals import HELD_OUT, TWIN, UNREAD, Proposed, write_proposals
from dataaudit.text import plural

_NAMED = 5
_PASSED_OVER = {
    TWIN: "as another shard has the same rows, and would be held back too",
    HELD_OUT: "as held-out data keeps its duplicates and training data loses them",
    UNREAD: "as it was not read, so that lists leave it out anyway",
}


def propose_verdict(path: Path, verdict: Verdict, manifest: Manifest, by: Author) -> tuple[Change, Proposed]:
    """Append proposals to a list; arguments and answer as of :func:`write_proposals`.

    Raises:
        QuarantineError: The list cannot be written.
        ManifestError: The manifest cannot be read, or is not the one that was judged.
    """
    if manifest.id != verdict.subject.id:
        raise ManifestError(
            f"the manifest {manifest.folder} was replaced while it was judged, or is another one: the verdict is of"
            f" {verdict.subject.id}, this is {manifest.id}",
            "Run the gate again.",
        )
    return write_proposals(path, verdict, manifest, by)


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
    change, found = propose_verdict(path, verdict, load_manifest(folder), author(None, None))
    lines = [f"quarantine: {plural(len(change.added), 'proposal')} added to {path}"]
    if change.known:
        lines[0] += f", {len(change.known):,} on the list already"
    if not found.wishes and not found.passed_over:
        lines.append("  no rule about single shards (`scope: {per: shard}`) fails")
    if change.added:
        lines.append(f"  nothing is held back yet: dataaudit quarantine accept {path} ...")
    for why, words in _PASSED_OVER.items():
        names = sorted({one.name for one in found.passed_over if one.why == why})
        if names:
            more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
            lines.append(f"  not proposed, {words}: {', '.join(names[:_NAMED])}{more}")
    if change.bad:
        lines.append(
            f"  {plural(len(change.bad), 'line')} of the list cannot be read: dataaudit quarantine list {path}"
        )
    return "\n".join(lines)
