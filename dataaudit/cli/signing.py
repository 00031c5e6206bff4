"""The command that signs a manifest; options of commands that sign, or that ask whose signature there is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dataaudit.base.errors import ConfigError
from dataaudit.cli.shell import FOLDER, JSON, MANIFEST, ending, print_text

if TYPE_CHECKING:
    from dataaudit.base.render.result import Written
    from dataaudit.manifest.load import Manifest
    from dataaudit.manifest.signing import Signing
    from dataaudit.manifest.trust import Signer

_Command = TypeVar("_Command", bound=Callable[..., Any])
KEY = click.option("--key", type=FOLDER, metavar="FILE", help="Private key, ed25519 or ECDSA, PEM.")
IDENTITY = click.option("--identity", is_flag=True, help="Sign as this CI job, or as who logs in, with sigstore.")
REQUIRE_SIGNATURE = click.option(
    "--require-signature",
    is_flag=True,
    help="The manifest has to be signed, by attestation.json in its folder; say by whom.",
)


def signer_options(command: _Command) -> _Command:
    """Add the options that say who has to have signed something."""
    for option in (
        click.option("--issuer", metavar="URL", help="Who has to vouch for that identity."),
        click.option("--identity", metavar="WHO", help="Or: who has to have signed it with sigstore."),
        click.option("--public-key", type=FOLDER, metavar="FILE", help="Key that has to have signed it, PEM."),
    ):
        command = option(command)
    return command


def signer_of(asked: str | None, public_key: Path | None, identity: str | None, issuer: str | None) -> Signer | None:
    """Return who has to have signed; None when nobody is named and nothing asks for it."""
    if asked is None and (public_key, identity, issuer) == (None, None, None):
        return None
    if (public_key is None) == (identity is None):
        raise ConfigError(
            f"{asked or 'a signature'} needs either --public-key FILE or --identity WHO with --issuer URL",
            "A signature says nothing without knowing whose it has to be.",
        )
    if (identity is None) != (issuer is None):
        raise ConfigError("--identity and --issuer go together", "Anybody can have an identity from some other issuer.")
    from dataaudit.manifest.trust import Signer

    return Signer(public_key=public_key, identity=identity, issuer=issuer)


def signing_of(sign: bool, key: Path | None, identity: bool) -> Signing | None:
    """Return how the options ask to sign; None when nothing is to be signed."""
    if not sign:
        if key is not None or identity:
            raise ConfigError(f"{'--key' if key else '--identity'} says how to sign", "Add --sign, or leave it out.")
        return None
    if (key is not None) == identity:
        raise ConfigError("--sign needs either --key FILE or --identity")
    from dataaudit.manifest.signing import Signing

    return Signing(key=key)


@click.command(
    short_help="Sign a manifest: whose it is.",
    epilog=ending(
        "dataaudit sign manifests/first --key build.pem",
        "dataaudit sign manifests/first --identity",
        "dataaudit gate manifests/first --policy release-gate --require-signature --public-key build.pub",
        codes={
            0: "it is signed",
            1: "the manifest is not as it was published, and is not signed",
            2: "there is no manifest, the key cannot be used, or the signature not be written",
            3: "sigstore's services do not answer",
        },
    ),
)
@click.argument("folder", type=MANIFEST, metavar="DIR")
@KEY
@IDENTITY
@JSON
def sign(folder: Path, key: Path | None, *, identity: bool, as_json: bool) -> None:
    """Check a manifest whole and write attestation.json into its folder: a signature of its id and of manifest.json.

    Sign where the manifest was built: a signature says whose it is, and who can write the folder before can forge it.
    A pass phrase of the key is read from DATAAUDIT_KEY_PASSWORD.
    """
    if (key is not None) == identity:
        raise ConfigError("sign needs either --key FILE or --identity")
    from dataaudit.manifest.load import load_manifest
    from dataaudit.manifest.signing import Signing, seal_of
    from dataaudit.manifest.trust import sign_manifest

    seal = seal_of(Signing(key=key), folder)
    manifest = load_manifest(folder)
    print_text(signed(folder, manifest, sign_manifest(manifest, seal)).shown(as_json=as_json))


def signed(folder: Path, manifest: Manifest, how: str) -> Written:
    """Return the signature of a manifest, which lies in its folder by now."""
    from dataaudit.base.render.result import Written
    from dataaudit.base.text import clean
    from dataaudit.manifest.replace import ATTESTATION
    from dataaudit.manifest.s3 import shown

    file, dataset = folder / ATTESTATION, clean(manifest.core.dataset.label)
    facts = {"manifest": manifest.id, "dataset": dataset, "signature": how}
    return Written(file=shown(file), data=file.read_bytes(), words=f"{dataset}, {how}", facts=facts)
