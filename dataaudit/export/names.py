"""URIs that exports share: of a dataset, of a manifest, of this program. None of them names a place on a network."""

from __future__ import annotations

from urllib.parse import quote

from dataaudit import __version__
from dataaudit.manifest.load import Manifest

PROGRAM = "urn:dataaudit"
"""What this program's own URIs begin with."""
PRODUCER = f"{PROGRAM}:release:{__version__}"


def manifest_uri(identity: str) -> str:
    """Return ``urn:dataaudit:manifest:sha256:...`` of a manifest's id."""
    return f"{PROGRAM}:manifest:{identity}"


def dataset_uri(name: str, version: str) -> str:
    """Return the package URL of a dataset's version: ``pkg:generic/web@1.0.0``."""
    return f"pkg:generic/{quote(name, safe='')}@{quote(version, safe='')}"


def digest_of(identity: str) -> str:
    """Return the hex digits of ``sha256:...``."""
    return identity.removeprefix("sha256:")


def dataset_name(manifest: Manifest) -> str:
    """Return ``name@version``."""
    return f"{manifest.core.dataset.name}@{manifest.core.dataset.version}"
