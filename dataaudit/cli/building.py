"""The command that scans a corpus."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dataaudit.base.process import signals_taken
from dataaudit.cli.shell import (
    FOLDER,
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
    note,
    print_text,
)
from dataaudit.cli.signing import IDENTITY, KEY, signed, signing_of

if TYPE_CHECKING:
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
@click.option(
    "--manifest",
    "target",
    type=TARGET,
    required=True,
    metavar="DIR|s3://...",
    help="Folder or address in S3 to publish; an old manifest there is replaced.",
)
@click.option(
    "--tokenizer",
    metavar="FILE|HUB-ID",
    help="tokenizer.json, .tiktoken, SentencePiece .model, a hub id, or `default`.",
)
@click.option("--text", metavar="COLUMN", help="Text column, when building from paths.")
@click.option("--reference", metavar="DIR", help="Older manifest to compare with.")
@WORKERS
@SCHEDULER
@OPEN_SCHEDULER
@click.option(
    "--memory-limit", metavar="SIZE", default="auto", show_default=True, help="Memory of a local worker, like 2GiB."
)
@click.option(
    "--state",
    type=FOLDER,
    metavar="DIR",
    help="Folder of partial results; .dataaudit beside the manifest by default, here for a manifest in S3.",
)
@STATE_KEY
@click.option(
    "--shard-timeout",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    default=1800.0,
    show_default=True,
    help="Seconds a sub-shard may take before it counts as stuck.",
)
@click.option("--hmac-key", type=FOLDER, metavar="FILE", help="Key of 16 bytes or more; findings get digests under it.")
@click.option("--quarantine", type=FOLDER, metavar="FILE", help="List whose shards and documents are left out.")
@SAMPLES
@SAMPLES_DIR
@click.option("--sign", "sign_it", is_flag=True, help="Sign the manifest once it is published: --key or --identity.")
@KEY
@IDENTITY
@click.option("--fresh", is_flag=True, help="Compute everything anew.")
@click.option("--rehash", is_flag=True, help="Hash every file, also those that look unchanged.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.pass_obj
def build(
    own_process: bool,
    /,
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
    from dataaudit.base.process import be_lean

    if own_process:
        be_lean()
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
    print_text(build_summary(result, folder, as_json=as_json))
    if seal is not None:
        from dataaudit.manifest.trust import sign_manifest

        note(signed(folder, result.manifest, sign_manifest(result.manifest, seal)).shown(as_json=False))
    sys.exit(result.exit_code)


def _seal_of(signing: Signing, folder: Path) -> Seal:
    """Return what will sign, before hours of work: a wrong key is known at once, and that nobody is there to sign."""
    from dataaudit.manifest.signing import expect_identity, seal_of

    seal = seal_of(signing, folder)
    if signing.key is None:
        expect_identity()
    return seal
