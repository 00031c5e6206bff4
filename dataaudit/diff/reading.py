"""Loading the two manifests of a comparison."""

from __future__ import annotations

from pathlib import Path

from dataaudit.diff.compare import compare
from dataaudit.diff.difference import Difference
from dataaudit.diff.metrics import Hidden
from dataaudit.errors import ManifestError, ManifestMismatch
from dataaudit.manifest.load import Manifest, load_manifest


def load_pair(old: Path | Manifest, new: Path | Manifest, *, hidden: Hidden) -> Difference:
    """Load two manifests, as far as they are not loaded yet, and compare them.

    Args:
        old: The older one, or its folder.
        new: The newer one, or its folder.
        hidden: As in :func:`dataaudit.diff.compare.compare`.

    Raises:
        ManifestError: One is absent, damaged, or not what it was published as. Never a mismatch, whose exit code would
            read as a difference.
    """
    try:
        sides = [load_manifest(one) if isinstance(one, Path) else one for one in (old, new)]
        return compare(sides[0], sides[1], hidden=hidden)
    except ManifestMismatch as error:
        raise ManifestError(error.message, error.hint) from None
