"""The commands about token files: tokenize and map."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    choice,
    ending,
    flag,
    lean_process,
    option,
    path,
    print_text,
)

if TYPE_CHECKING:
    from dataaudit.engine.job import BuildOptions

_ROOT = option("--root DIR", "Folder or address that holds the shards now.")
_QUARANTINE = path("--quarantine FILE", "Quarantine list: what it holds back today is left out.")
_APPLIED = path("--applied DIR", "Folder of `quarantine apply --documents`: its drop list is left out.")
_SPLIT = option("--split NAME", "Split; those that are not held out when left out.", to="splits", multiple=True)
_TOKENIZER = option("--tokenizer FILE|HUB-ID", "The manifest's tokenizer, where the state folder has no copy of it.")
_STATE = path("--state DIR", "Folder of partial results; .dataaudit beside the manifest by default.")
_QUIET = flag("--quiet", "No progress.")


def _running_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where the shards are and where the work is done: those of :func:`_running` as a dict."""
    names = ("state", "state_key", "workers", "scheduler", "open_scheduler")

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> None:
        command(*args, running={name: given.pop(name) for name in names}, **given)

    for add in (_QUIET, OPEN_SCHEDULER, SCHEDULER, WORKERS, STATE_KEY, _STATE, _ROOT, _TOKENIZER):
        run = add(run)
    return run


def _running(
    manifest: Path,
    *,
    state: Path | None,
    state_key: Path | None,
    workers: int | None,
    scheduler: str | None,
    **more: Any,
) -> BuildOptions:
    from dataaudit.engine.cluster import ClusterChoice
    from dataaudit.engine.inputs import read_state_key
    from dataaudit.engine.job import BuildOptions, state_folder

    check_workers(workers, scheduler)
    cluster = ClusterChoice(workers=workers, scheduler=scheduler, **more)
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
@path("--out DIR", "Folder of the files: SPLIT.bin and its map.", required=True)
@choice(
    "--format",
    "megatron flat",
    "megatron: .bin with .idx; flat: .bin alone, as nanoGPT reads it.",
    to="format",
    required=True,
)
@_SPLIT
@path("--policy FILE|NAME", "Policy that the manifest has to pass.", kind=POLICY)
@_QUARANTINE
@_APPLIED
@option("--dtype TYPE", "uint16, int32 or uint32; by format and vocabulary when left out.")
@option("--end-token TOKEN|ID|none", "Token after each document; the tokenizer's one of a usual name when left out.")
@_running_options
@flag("--json", "Print what was written as JSON.", to="as_json")
@lean_process
def tokenize(
    manifest: Path,
    splits: tuple[str, ...],
    policy: Path | None,
    running: dict[str, Any],
    *,
    quiet: bool,
    as_json: bool,
    **given: Any,
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

    own = _running(manifest, **running)
    left_out = {name: given.pop(name) for name in ("quarantine", "applied", "root")}
    options = TokenizeOptions(**given)
    with signals_taken(), Progress(quiet=quiet) as progress:
        corpus = open_manifest(
            manifest,
            require="verified" if policy is None else "passed",
            policy=policy,
            splits=splits or None,
            **left_out,
        )
        for line in corpus.notes:
            progress.note(line)
        loaded = load_manifest(manifest)
        written = run(loaded, corpus, options, own, progress)
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
@path("--manifest DIR", "The manifest that they should be of.", required=True)
@_SPLIT
@_QUARANTINE
@_APPLIED
@flag("--any-order", "Documents may stand in any order, over the files as well.")
@choice("--dtype", "uint16 uint32 int32", "Of the tokens of flat files.")
@option("--end-token TOKEN|ID|none", "Token after documents; the tokenizer's one of a usual name.")
@option("--begin-token TOKEN|ID|none", "Token before documents; the tokenizer's one of a usual name.")
@path("--out FILE", "The record; FILE.proof.json beside the first file by default.")
@_running_options
@flag("--json", "Print the record instead of a table.", to="as_json")
@lean_process
def map_(
    files: tuple[Path, ...],
    manifest: Path,
    splits: tuple[str, ...],
    root: str | None,
    running: dict[str, Any],
    *,
    quiet: bool,
    as_json: bool,
    **given: Any,
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
    from dataaudit.manifest.outfiles import check_files
    from dataaudit.present.report.token_proof import proof_json, proof_text
    from dataaudit.scan.corpus.token_files import index_path
    from dataaudit.training.opening import open_manifest

    own = _running(manifest, **running)
    left_out = {name: given.pop(name) for name in ("quarantine", "applied")}
    options = MapOptions(files=files, **given)
    read = {f"token file {path}": path for path in files} | {"--quarantine": left_out["quarantine"]}
    check_files({"--out": options.record}, read | {f"index {path}": path for path in map(index_path, files)})
    with signals_taken(), Progress(quiet=quiet) as progress:
        corpus = open_manifest(manifest, require="verified", root=root, splits=splits or None, **left_out)
        loaded = load_manifest(manifest)
        proof = map_files(loaded, corpus, open_readable(loaded, corpus.splits, root), options, own, progress)
    print_text(proof_json(proof) if as_json else proof_text(proof, options.record))
    sys.exit(proof.exit_code)
