"""Loading the two manifests of a comparison."""

from __future__ import annotations

from pathlib import Path

from dataaudit.diff.compare import compare
from dataaudit.diff.difference import Difference
from dataaudit.diff.metrics import Hidden
from dataaudit.errors import ManifestError, ManifestMismatch
from dataaudit.manifest.load import load_manifest


def load_pair(old: Path, new: Path, *, hidden: Hidden) -> Difference:
    """Load two manifests and compare them.

    Args:
        old: Folder of the older one.
        new: Folder of the newer one.
        hidden: As in :func:`dataaudit.diff.compare.compare`.

    Raises:
        ManifestError: One is absent, damaged, or not what it was published as. Never a mismatch, whose exit code would
            read as a difference.
    """
    try:
        return compare(load_manifest(old), load_manifest(new), hidden=hidden)
    except ManifestMismatch as error:
        raise ManifestError(error.message, error.hint) from None
