"""Attestations: prove whose a manifest is, by a signature in its folder, ``attestation.json``.

Digests show damage and careless edits. Whoever can write the folder can compute digests and id anew, but not a
signature by another's key: ``dataaudit explain threat-model``.

Signed is an in-toto statement, version 1, with two subjects: the manifest, by its id, and the file ``manifest.json``,
which holds the digests of everything else. The envelope is DSSE by a local key, or a sigstore bundle by an identity
(:mod:`dataaudit.manifest.signing`). Its predicate has a type of its own, so a verdict never counts as an attestation,
nor the other way round. Whether a manifest is good is the verdict's to say (:mod:`.trust`).
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from dataaudit.base.errors import ConfigError, ManifestMismatch, SignatureRefused
from dataaudit.base.files import NotAFileError, open_regular, replacing, sync_file, sync_folder
from dataaudit.manifest.canonical import canonical_json
from dataaudit.manifest.core import PROGRAM, digest_of, manifest_uri
from dataaudit.manifest.files import table_file
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.replace import ATTESTATION, POINTER, alone_in
from dataaudit.manifest.s3 import place_of
from dataaudit.manifest.signing import Seal, lies_in
from dataaudit.manifest.tables import TABLES
from dataaudit.manifest.trust import STATEMENT, BadStatement, Signer, read_statement, signed_payload
from dataaudit.manifest.verify import check_bytes, verify

ATTESTATION_PREDICATE = f"{PROGRAM}:attestation:v1"
MOST_BYTES = 1 << 20
"""Most bytes of an attestation; this program writes some thousands."""
_SIGN = "Take it from where it was built; `dataaudit sign DIR --key FILE` signs it there."
_Loaded = TypeVar("_Loaded", bound=Manifest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attestation:
    """The required signer (``key 1a2b...``, or an identity with its issuer), and why the signature does not count."""

    signer: str
    problem: str = ""
    """Empty when it counts."""


def attestation(manifest: Manifest) -> bytes:
    """Return the statement about a manifest as canonical JSON."""
    dataset = manifest.core.dataset
    return canonical_json(
        {
            "_type": STATEMENT,
            "subject": [
                {
                    "name": dataset.label,
                    "uri": manifest_uri(manifest.id),
                    "digest": {"sha256": digest_of(manifest.id)},
                },
                {"name": POINTER, "digest": {"sha256": manifest.pointer_sha256}},
            ],
            "predicateType": ATTESTATION_PREDICATE,
            "predicate": {
                "dataset": {"name": dataset.name, "version": dataset.version},
                "schemaVersion": manifest.core.schema_.version,
            },
        }
    )


def sign_manifest(manifest: Manifest, seal: Seal) -> str:
    """Verify a manifest, sign it, and put the signature into its folder; return how it was signed."""
    if problems := verify(manifest):
        raise ManifestMismatch(
            f"the manifest {manifest.place} is not signed, as it is not what was published: {problems[0].text}",
            "`dataaudit verify` lists every problem; restore the folder or build again.",
        )
    data, how = seal.sign(attestation(manifest))
    folder = Path(os.path.realpath(manifest.folder))
    try:
        with alone_in(folder.parent):
            if hashlib.sha256((folder / POINTER).read_bytes()).hexdigest() != manifest.pointer_sha256:
                raise ManifestMismatch(
                    f"the manifest {manifest.place} was replaced while it was signed; the new one is not signed",
                    "Sign it again.",
                )
            with replacing(folder / ATTESTATION) as file:
                file.write(data)
                sync_file(file)
            sync_folder(folder)
    except OSError as error:
        raise ConfigError(
            f"{manifest.place}/{ATTESTATION} cannot be written: {error.strerror or type(error).__name__};"
            " the manifest is as it was, not signed",
            f"Mend that, then run `dataaudit sign {manifest.place}`: nothing is built again.",
        ) from None
    if place_of(manifest.folder) is not None:
        from dataaudit.manifest.remote import put_signature

        put_signature(manifest)
    return how


def check_attestation(manifest: Manifest, signer: Signer) -> Attestation:
    """Check the signature in a manifest's folder."""
    path = manifest.folder / ATTESTATION
    if signer.public_key is not None:
        _expect_outside(signer.public_key, manifest.folder)
    data, problem = _read(path)
    who, payload, refused = signed_payload(data, signer, path)
    if problem or payload is None:
        return Attestation(signer=who, problem=problem or _other_kind(data, signer) or refused)
    return Attestation(signer=who, problem=_about_manifest(payload, manifest))


def attested(manifest: _Loaded, signer: Signer) -> _Loaded:
    """Return a manifest with :attr:`Manifest.signed_by`, or refuse it; hashing its files takes about 1 s for a GB."""
    found = check_attestation(manifest, signer)
    if found.problem:
        raise SignatureRefused(f"the manifest {manifest.place} is not believed: {found.problem}", _SIGN)
    if problems := check_bytes(manifest, [table_file(name) for name in TABLES]):
        more = f", and {len(problems) - 1:,} more" if len(problems) > 1 else ""
        raise SignatureRefused(
            f"the manifest {manifest.place} is signed, its files are others: {problems[0].text}{more}",
            "Restore the files or build again; `dataaudit verify` lists all.",
        )
    return replace(manifest, signed_by=found.signer)


def load_attested(folder: Path, signer: Signer | None) -> Manifest:
    """Load a manifest, and check its signature when a signer is required."""
    manifest = load_manifest(folder)
    return manifest if signer is None else attested(manifest, signer)


def _read(path: Path) -> tuple[bytes, str]:
    """Return the bytes of an attestation, or the reason why there are none; never wait for a pipe."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return b"", f"it is not signed, there is no {ATTESTATION}"
    except (NotAFileError, IsADirectoryError):
        return b"", f"{ATTESTATION} is no file"
    except OSError as error:
        return b"", f"{ATTESTATION} cannot be read: {error.strerror or type(error).__name__}"
    if len(data) > MOST_BYTES:
        return b"", f"{ATTESTATION} is larger than any signature, {MOST_BYTES:,} bytes"
    return data, "" if data else f"{ATTESTATION} is empty"


def _expect_outside(key: Path, folder: Path) -> None:
    """Refuse a key in the manifest's folder: whoever forges a manifest can put a key beside it."""
    if lies_in(key, folder):
        raise ConfigError(
            f"the public key {key} lies in the folder that it is to vouch for; whoever can write there can put theirs",
            "Name one from a place of its own: a reviewed branch, a secret store.",
        )


def _other_kind(data: bytes, signer: Signer) -> str:
    """Return a message when a key was named for the signature of an identity, or the other way round."""
    try:
        fields = set(json.loads(data))
    except (ValueError, TypeError, RecursionError):
        return ""
    if signer.public_key is not None and "dsseEnvelope" in fields:
        return "an identity signed it with sigstore, and a key is expected: name it with --identity and --issuer"
    if signer.public_key is None and "payload" in fields:
        return "a key signed it, and an identity is expected: name the key with --public-key"
    return ""


def _about_manifest(payload: bytes, manifest: Manifest) -> str:
    """Return why a signed statement is not about exactly this manifest; empty when it is."""
    try:
        subjects = [
            (item["name"], item["digest"]) for item in read_statement(payload, ATTESTATION_PREDICATE)["subject"]
        ]
    except BadStatement as error:
        return str(error)
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
        return "what was signed is no in-toto statement"
    expected = [
        (manifest.core.dataset.label, {"sha256": digest_of(manifest.id)}),
        (POINTER, {"sha256": manifest.pointer_sha256}),
    ]
    if subjects == expected:
        return ""
    if len(subjects) != len(expected):
        return f"the signature is of {len(subjects)} subjects, expected the manifest and its {POINTER} alone"
    if subjects[0] != expected[0]:
        return f"the signature is of another manifest, this one is {manifest.id}"
    return (
        f"the signature is of this id, but of other bytes of {POINTER}: its part `run` was changed after it was signed"
    )
