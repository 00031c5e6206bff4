"""Whether a record of ``dataaudit map`` proves that token files hold what a manifest audited; a policy may ask it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from dataaudit.errors import ManifestMismatch
from dataaudit.gate.verdict import ListSeen
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.token_proof import Faults, Kind, TokenProof, read_proof
from dataaudit.text import clean, plural


def check_proof(
    path: Path, manifest: Manifest, lists: Sequence[ListSeen], refuses: Collection[Kind] | None = None
) -> None:
    """Refuse a record that does not prove it of this manifest, all that it trains on, and the lists of today.

    Args:
        path: The record.
        manifest: What is judged.
        lists: Quarantine lists that it was held against.
        refuses: Kinds of difference that refuse it besides held-out documents; None: all.

    Raises:
        ManifestError: There is no such record.
        ManifestMismatch: It proves nothing of this.
    """
    proof = read_proof(path)
    problem = _problem(proof, manifest, lists, refuses)
    if problem:
        raise ManifestMismatch(
            f"the record of token files {clean(str(path))} {problem}",
            f"Run `dataaudit map FILE... --manifest {clean(manifest.place)}` again, with the list in force.",
        )


def _problem(proof: TokenProof, manifest: Manifest, lists: Sequence[ListSeen], refuses: Collection[Kind] | None) -> str:
    """Return why a record does not count; nothing when it does."""
    if proof.manifest != manifest.id:
        return f"is of the manifest {proof.manifest}, judged is {manifest.id}"
    if proof.tokenizer != f"sha256:{manifest.core.tokenizer.sha256}":
        return "is of another tokenizer"
    trained = {split.name for split in manifest.core.splits if not split.held_out}
    if absent := sorted(trained - set(proof.splits)):
        return f"says nothing of the split {clean(absent[0])}"
    if lists and proof.quarantine not in {one.digest for one in lists}:
        return f"was made with another quarantine list: {proof.quarantine or 'none'}"
    return "" if proof.proves else _differences(proof, refuses)


def _differences(proof: TokenProof, refuses: Collection[Kind] | None) -> str:
    """Return which differences refuse a record; nothing when none of them does."""
    told = [
        f"{plural(found, 'document')} {name.replace('_', ' ')}"
        for name in Faults.model_fields
        if (found := getattr(proof.faults, name).documents)
        and (refuses is None or name == "held_out" or name in refuses)
    ]
    if refuses is not None and proof.matched and not told:
        unread = proof.unread_splits if proof.faults.extra.documents else ()
        return f"does not say whether documents of {clean(unread[0])} are in the files" if unread else ""
    return f"says that the files are not what was audited: {', '.join(told) or 'nothing was compared'}"
