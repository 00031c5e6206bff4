"""The commands that make manifests: build and sign."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dataaudit.base.errors import ConfigError
from dataaudit.base.process import signals_taken
from dataaudit.cli.shell import (
    IDENTITY,
    JSON,
    KEY,
    MANIFEST,
    OPEN_SCHEDULER,
    SAMPLES,
    SAMPLES_DIR,
    SCHEDULER,
    STATE_KEY,
    TARGET,
    WORKERS,
    check_workers,
    chosen_samples,
    ending,
    flag,
    lean_process,
    note,
    option,
    path,
    print_text,
    signing_of,
)

if TYPE_CHECKING:
    from dataaudit.base.render.result import Written
    from dataaudit.manifest.load import Manifest
    from dataaudit.manifest.signing import Seal, Signing


@click.command(
    short_help="Scan a corpus and publish its manifest.",
    epilog=ending(
        "dataaudit build data/train data/val --manifest manifests/first",
        "dataaudit build corpus.yaml --manifest manifests/2026-11 --workers 8",
        "dataaudit build corpus.yaml --manifest manifests/2026-11 --json > summary.json",
        "dataaudit build corpus.yaml --manifest manifests/2026-11 --sign --key build.pem --state-key state.key",
        "dataaudit build corpus.yaml --manifest s3://bucket/manifests/2026-11",
        codes={
            0: "published, and everything was read",
            1: "another build published in S3 first, or took the place of this one before it was read or signed",
            2: "wrong use or config, or a key that cannot sign",
            3: "published, but something could not be read; or the workers or a store cannot do the work",
            4: "nothing was evaluated: no document entered the numbers",
            130: "interrupted; the same command goes on",
        },
    ),
)
@click.argument("inputs", nargs=-1, required=True, metavar="CONFIG.yaml | PATHS...")
@path(
    "--manifest DIR|s3://...",
    "Folder or address in S3 to publish; an old manifest there is replaced.",
    to="target",
    kind=TARGET,
    required=True,
)
@option("--tokenizer FILE|HUB-ID", "tokenizer.json, .tiktoken, SentencePiece .model, a hub id, or `default`.")
@option("--text COLUMN", "Text column, when building from paths.")
@option("--reference DIR", "Older manifest to compare with.")
@WORKERS
@SCHEDULER
@OPEN_SCHEDULER
@option("--memory-limit SIZE", "Memory of a local worker, like 2GiB.", default="auto")
@path("--state DIR", "Folder of partial results; .dataaudit beside the manifest by default, here for a manifest in S3.")
@STATE_KEY
@option(
    "--shard-timeout SECONDS",
    "Seconds a sub-shard may take before it counts as stuck.",
    type=click.FloatRange(min=1),
    default=1800.0,
)
@path("--hmac-key FILE", "Key of 16 bytes or more; findings get digests under it.")
@path("--quarantine FILE", "List whose shards and documents are left out.")
@SAMPLES
@SAMPLES_DIR
@flag("--sign", "Sign the manifest once it is published: --key or --identity.", to="sign_it")
@KEY
@IDENTITY
@flag("--fresh", "Compute everything anew.")
@flag("--rehash", "Hash every file, also those that look unchanged.")
@flag("--quiet", "No progress.")
@flag("--json", "Print the summary as JSON.", to="as_json")
@lean_process
def build(
    inputs: tuple[str, ...],
    target: Path | str,
    samples: int | None,
    samples_dir: Path | None,
    key: Path | None,
    *,
    sign_it: bool,
    identity: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Scan a corpus and publish its manifest.

    With CONFIG.yaml the config says what to read. With PATHS (files, folders, globs) splits, text column and
    sources are inferred, and what was inferred is printed. A build that was stopped goes on where it was when
    the same command is run again; with --sign, only if it has a --state-key. Progress goes to stderr, the summary
    to stdout. A key is tried before the build; a signature that fails after it leaves the manifest, not signed, and
    exit code 2 or 3.
    """
    from dataaudit import api
    from dataaudit.present.report.show import build_summary

    check_workers(options["workers"], options["scheduler"])
    signing = signing_of(sign_it, key, identity)
    seal = None if signing is None else _seal_of(signing, Path(target))
    with signals_taken():
        result = api.build(
            inputs,
            target,
            trust_state=signing is None,
            samples=chosen_samples(samples, samples_dir),
            progress="warnings" if quiet else True,
            **options,
        )
    folder = result.manifest.folder
    print_text(build_summary(result, as_json=as_json))
    if seal is not None:
        from dataaudit.manifest.trust import sign_manifest

        note(signed(folder, result.manifest, sign_manifest(result.manifest, seal)).shown(as_json=False))
    sys.exit(result.exit_code)


def _seal_of(signing: Signing, folder: Path) -> Seal:
    """Return what will sign, before hours of work: a wrong key is known at once, and that nobody is there to sign."""
    from dataaudit.manifest.signing import expect_identity, load_seal

    seal = load_seal(signing, folder)
    if signing.key is None:
        expect_identity()
    return seal


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
    from dataaudit.manifest.signing import Signing, load_seal
    from dataaudit.manifest.trust import sign_manifest

    seal = load_seal(Signing(key=key), folder)
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
