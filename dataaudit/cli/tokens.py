"""The commands about token files: tokenize and map."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dataaudit.base.process import signals_taken
from dataaudit.cli.shell import (
    FOLDER,
    OPEN_SCHEDULER,
    POLICY,
    SCHEDULER,
    STATE_KEY,
    WORKERS,
    check_workers,
    ending,
    lean_process,
    print_text,
)

if TYPE_CHECKING:
    from dataaudit.engine.job import BuildOptions

_ROOT = click.option("--root", metavar="DIR", help="Folder or address that holds the shards now.")
_QUARANTINE = click.option(
    "--quarantine", type=FOLDER, metavar="FILE", help="Quarantine list: what it holds back today is left out."
)
_APPLIED = click.option(
    "--applied", type=FOLDER, metavar="DIR", help="Folder of `quarantine apply --documents`: its drop list is left out."
)
_SPLIT = click.option(
    "--split", "splits", multiple=True, metavar="NAME", help="Split; those that are not held out when left out."
)
_TOKENIZER = click.option(
    "--tokenizer", metavar="FILE|HUB-ID", help="The manifest's tokenizer, where the state folder has no copy of it."
)
_STATE = click.option(
    "--state", type=FOLDER, metavar="DIR", help="Folder of partial results; .dataaudit beside the manifest by default."
)
_QUIET = click.option("--quiet", is_flag=True, help="No progress.")


def _running_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where the shards are, and where the work is done."""
    for option in (_QUIET, OPEN_SCHEDULER, SCHEDULER, WORKERS, STATE_KEY, _STATE, _ROOT, _TOKENIZER):
        command = option(command)
    return command


def _running(
    manifest: Path,
    *,
    state: Path | None,
    state_key: Path | None,
    workers: int | None,
    scheduler: str | None,
    open_scheduler: bool,
) -> BuildOptions:
    from dataaudit.engine.cluster import ClusterChoice
    from dataaudit.engine.inputs import read_state_key
    from dataaudit.engine.job import BuildOptions, state_folder

    check_workers(workers, scheduler)
    cluster = ClusterChoice(workers=workers, scheduler=scheduler, open_scheduler=open_scheduler)
    options = BuildOptions(target=manifest, state=state, cluster=cluster)
    if state_key is None:
        return options
    return replace(options, state_key=read_state_key(state_key, state_folder(options), manifest))


@click.command(
    short_help="Write token files of a manifest's documents, with their map.",
    epilog=ending(
        "dataaudit tokenize manifests/2026-11 --out tokens --format megatron --policy release-gate",
        "dataaudit tokenize manifests/2026-11 --out tokens --format flat --split train --end-token '</s>'",
        codes={
            0: "written, or there already",
            1: "the manifest does not pass, or a shard is not the one that was audited",
            2: "wrong use",
            3: "the workers cannot do the work",
            130: "interrupted; the same command goes on",
        },
    ),
)
@click.argument("manifest", type=FOLDER, metavar="MANIFEST")
@click.option("--out", type=FOLDER, required=True, metavar="DIR", help="Folder of the files: SPLIT.bin and its map.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["megatron", "flat"]),
    required=True,
    help="megatron: .bin with .idx; flat: .bin alone, as nanoGPT reads it.",
)
@_SPLIT
@click.option("--policy", type=POLICY, metavar="FILE|NAME", help="Policy that the manifest has to pass.")
@_QUARANTINE
@_APPLIED
@click.option("--dtype", metavar="TYPE", help="uint16, int32 or uint32; by format and vocabulary when left out.")
@click.option(
    "--end-token",
    metavar="TOKEN|ID|none",
    help="Token after each document; the tokenizer's one of a usual name when left out.",
)
@_running_options
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
@lean_process
def tokenize(
    manifest: Path,
    out: Path,
    format_: Literal["megatron", "flat"],
    splits: tuple[str, ...],
    policy: Path | None,
    quarantine: Path | None,
    applied: Path | None,
    dtype: str | None,
    end_token: str | None,
    tokenizer: str | None,
    root: str | None,
    *,
    quiet: bool,
    as_json: bool,
    **running_options: Any,
) -> None:
    """Write the documents of a manifest as token files for Megatron or nanoGPT, with a map of which stands where.

    The manifest's own tokenizer encodes; shards and documents that are held back are left out. The bytes of every
    shard, its decoded rows and its number of tokens have to be those that were audited. FILE.bin.map.parquet appears
    last: without it a file is not whole. A command that was stopped goes on where it was when it is run again.
    """
    from dataaudit.base.extras import require

    require("tokenize", "build")
    from dataaudit.engine.progress import Progress
    from dataaudit.engine.tokens_write import TokenizeOptions, tokenized_json, tokenized_text
    from dataaudit.engine.tokens_write import tokenize as run
    from dataaudit.manifest.load import load_manifest
    from dataaudit.training.opening import open_manifest

    running = _running(manifest, **running_options)
    with signals_taken(), Progress(quiet=quiet) as progress:
        corpus = open_manifest(
            manifest,
            require="verified" if policy is None else "passed",
            policy=policy,
            quarantine=quarantine,
            applied=applied,
            root=root,
            splits=splits or None,
        )
        for line in corpus.notes:
            progress.note(line)
        options = TokenizeOptions(out=out, format=format_, dtype=dtype, end_token=end_token, tokenizer=tokenizer)
        loaded = load_manifest(manifest)
        written = run(loaded, corpus, options, running, progress)
    print_text((tokenized_json if as_json else tokenized_text)(written, loaded))


@click.command(
    "map",
    short_help="Prove that token files hold the documents that a manifest audited.",
    epilog=ending(
        "dataaudit map tokens/train.bin --manifest manifests/2026-11",
        "dataaudit map a_text_document.bin b_text_document.bin --manifest manifests/2026-11 --any-order",
        "dataaudit map train.bin --manifest manifests/2026-11 --dtype uint16 --end-token 50256 --json",
        codes={
            0: "the files hold what was audited, and nothing else",
            1: "they do not: the record says which documents; or a shard is not the one that was audited",
            2: "wrong use: a file is absent, empty, cut or damaged, or the tokenizer is another one",
            3: "the workers cannot do the work",
            5: "held-out documents are in the files",
            130: "interrupted; the same command goes on",
        },
    ),
)
@click.argument("files", type=FOLDER, nargs=-1, required=True, metavar="FILE...")
@click.option("--manifest", type=FOLDER, required=True, metavar="DIR", help="The manifest that they should be of.")
@_SPLIT
@_QUARANTINE
@_APPLIED
@click.option("--any-order", is_flag=True, help="Documents may stand in any order, over the files as well.")
@click.option("--dtype", type=click.Choice(["uint16", "uint32", "int32"]), help="Of the tokens of flat files.")
@click.option(
    "--end-token", metavar="TOKEN|ID|none", help="Token after documents; the tokenizer's one of a usual name."
)
@click.option(
    "--begin-token", metavar="TOKEN|ID|none", help="Token before documents; the tokenizer's one of a usual name."
)
@click.option(
    "--out", type=FOLDER, metavar="FILE", help="The record; FILE.proof.json beside the first file by default."
)
@_running_options
@click.option("--json", "as_json", is_flag=True, help="Print the record instead of a table.")
@lean_process
def map_(
    files: tuple[Path, ...],
    manifest: Path,
    splits: tuple[str, ...],
    quarantine: Path | None,
    applied: Path | None,
    dtype: str | None,
    end_token: str | None,
    begin_token: str | None,
    out: Path | None,
    tokenizer: str | None,
    root: str | None,
    *,
    any_order: bool,
    quiet: bool,
    as_json: bool,
    **running_options: Any,
) -> None:
    """Say which document of a manifest each document of token files is, whoever wrote them, and what differs.

    The audited shards are encoded again with the manifest's tokenizer, and compared by digests of tokens, document by
    document. Held-out documents in the files are the worst finding: they have an exit code of their own. What is
    missing, not audited, of another split, there too often, held back by a list, truncated, in other tokens or in
    another order is counted and named, too, in a record that a policy can demand (`token_proof`). A file with an .idx
    beside it is Megatron's; in any other, documents end with the end token. Begin and end tokens around a
    document are not compared; documents without an end token are counted. No text of documents is shown.
    """
    from dataaudit.base.extras import require

    require("map", "build")
    from dataaudit.engine.progress import Progress
    from dataaudit.engine.tokens_map import MapOptions, map_files, open_readable
    from dataaudit.manifest.load import load_manifest
    from dataaudit.present.report.token_proof import proof_json, proof_text
    from dataaudit.training.opening import open_manifest

    running = _running(manifest, **running_options)
    options = MapOptions(
        files=files,
        dtype=dtype,
        end_token=end_token,
        begin_token=begin_token,
        any_order=any_order,
        tokenizer=tokenizer,
        out=out,
    )
    with signals_taken(), Progress(quiet=quiet) as progress:
        corpus = open_manifest(
            manifest, require="verified", quarantine=quarantine, applied=applied, root=root, splits=splits or None
        )
        loaded = load_manifest(manifest)
        proof = map_files(loaded, corpus, open_readable(loaded, corpus.splits, root), options, running, progress)
    print_text(proof_json(proof) if as_json else proof_text(proof, options.record))
    sys.exit(proof.exit_code)
