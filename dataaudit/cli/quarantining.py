"""The commands of the quarantine list."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dataaudit.base.errors import QuarantineDamaged
from dataaudit.cli.shell import FOLDER, JSON, ending, flag, option, path, print_text

if TYPE_CHECKING:
    from dataaudit.decide.quarantine.changes import Change


def _names(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> list[str] | None:
    return [name.strip() for value in values for name in value.split(",")] or None


def _day(_context: click.Context, parameter: click.Parameter, value: str | None) -> dt.date | None:
    if value is None:
        return None
    try:
        return dt.date.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"expected a day such as 2026-12-31, found {value}", param=parameter) from None


FILE = click.argument("file", type=FOLDER, metavar="FILE")
REASON = option("--reason CODE", "Why, as a short code: letters, digits, `.`, `_`, `-`.", required=True)
NOTE = option("--note TEXT", "Why, in words.")
WHO = option("--who NAME", "Who answers for it; by default git's user.email, else the user's name.")
UNTIL = option("--until DAY", "Last day, UTC, of the entry: 2026-12-31.", callback=_day)
ON = option("--on DAY", "Day, UTC, that expiries are compared with; today by default.", callback=_day)
_CHANGED = "a table of the manifest is not the one that was published"
_FORMATS = click.Choice(["list", "datatrove", "hf"])


def _print(file: Path, change: Change, verb: str, *, as_json: bool) -> None:
    from dataaudit.decide.quarantine.view import change_view

    print_text(change_view(file, change, verb=verb, as_json=as_json))


@click.group(
    short_help="The list of shards and documents that loaders leave out.",
    epilog=ending(
        "dataaudit quarantine add quarantine.jsonl --manifest manifests/first train/part-3.parquet --reason spam",
        "dataaudit quarantine list",
        "dataaudit quarantine apply quarantine.jsonl --manifest manifests/first --out clean --documents",
        codes={
            0: "done",
            1: _CHANGED,
            3: "lines of the list cannot be read, or the drop list is known to lack something",
            4: "no shard is left",
        },
    ),
)
def quarantine() -> None:
    """Keep a list of what is left out of training, and write what loaders read of it.

    The list is a file of JSON lines that only grows: keep it in git, beside the config.
    `dataaudit explain quarantine` says more.
    """


@quarantine.command(
    name="list",
    short_help="What is left out, and why.",
    epilog=ending(
        "dataaudit quarantine list",
        "dataaudit quarantine list quarantine.jsonl --all --json | jq .counts",
        codes={0: "printed", 3: "lines of the list cannot be read, or one that the verdict names is lost"},
    ),
)
@click.argument("file", type=FOLDER, metavar="[FILE]", default=Path("quarantine.jsonl"))
@flag("--all", "Lifted, expired and accepted entries too.", to="everything")
@path("--verdict FILE", "A gate.json: lines that it names may not be lost.", to="gate_file")
@ON
@JSON
def list_entries(file: Path, gate_file: Path | None, on: dt.date | None, *, everything: bool, as_json: bool) -> None:
    """Print the entries of a list: FILE, or quarantine.jsonl; exit 3 when lines of it cannot be read."""
    from dataaudit.decide.quarantine.list import fold, read, today
    from dataaudit.decide.quarantine.view import list_view

    contents, lost = read(file), None
    if gate_file is not None:
        from dataaudit.decide.quarantine.released import check_gate_file

        try:
            check_gate_file(contents, gate_file, file)
        except QuarantineDamaged as error:
            lost = error
    folded = fold(contents.entries, on or today())
    text, code = list_view(file, contents, folded, everything=everything, as_json=as_json, lost=lost is not None)
    print_text(text)
    if lost is not None:
        raise lost
    sys.exit(code)


@quarantine.command(
    short_help="Leave shards or documents out.",
    epilog=ending(
        "dataaudit quarantine add quarantine.jsonl --manifest manifests/first 14 --reason drift --until 2026-12-31",
        "dataaudit quarantine add quarantine.jsonl --manifest manifests/first train/a.parquet:1207 --reason secret",
        "dataaudit quarantine add quarantine.jsonl sha256:$(sha256sum < bad.parquet | cut -c1-64) --reason spike",
        codes={0: "added, or there already", 1: _CHANGED},
    ),
)
@FILE
@click.argument("places", nargs=-1, required=True, metavar="SHARD[:ROW]...")
@path("--manifest DIR", "Where the shards stand.")
@REASON
@option("--metric NAME", "Number of the table of shards that becomes evidence: exact_dup_rate.")
@option("--run ID", "Training run that becomes evidence.")
@UNTIL
@NOTE
@WHO
@JSON
def add(file: Path, places: tuple[str, ...], manifest: Path | None, *, as_json: bool, **given: Any) -> None:
    """Leave out shards, or documents as SHARD:ROW, by their digests; made when there is no FILE.

    SHARD is an ordinal, a URI or split/uri of the manifest; or sha256:HEX, which needs none. What is left out for the
    same reason and evidence already is not added again.
    """
    from dataaudit import api

    change = api.quarantine(file).add(places, manifest=manifest, **given)
    _print(file, change, "left out from now on", as_json=as_json)


@quarantine.command(
    short_help="End entries, turn proposals down, pass over lines that cannot be read.",
    epilog=ending(
        "dataaudit quarantine lift quarantine.jsonl 3f2a91 --reason repaired",
        "dataaudit quarantine lift quarantine.jsonl train/part-3.parquet --reason repaired",
        codes={0: "lifted"},
    ),
)
@FILE
@click.argument("names", nargs=-1, required=True, metavar="ENTRY|TARGET...")
@REASON
@NOTE
@WHO
@JSON
def lift(file: Path, names: tuple[str, ...], reason: str, note: str | None, who: str | None, *, as_json: bool) -> None:
    """End entries: ENTRY is the beginning of an id; TARGET is split/uri or split/uri:row and ends all of its own.

    A line that cannot be read is passed over by its id, as `list` shows it.
    """
    from dataaudit import api

    change = api.quarantine(file).lift(names, reason=reason, note=note, who=who)
    _print(file, change, "lifted", as_json=as_json)


@quarantine.command(
    name="propose",
    short_help="Propose what a training run's log and its replay found.",
    epilog=ending(
        "dataaudit attribute runs/7b --manifest manifests/first --replay train.py:replay",
        "dataaudit quarantine propose quarantine.jsonl --run runs/7b --manifest manifests/first",
        codes={0: "proposed, or nothing to propose", 1: _CHANGED},
    ),
)
@FILE
@path("--run RUNLOG", "The run log, with its attribution.json.", required=True)
@path("--manifest DIR", "The manifest that it was trained on.", required=True)
@WHO
@JSON
def propose_found(file: Path, run: Path, manifest: Path, who: str | None, *, as_json: bool) -> None:
    """Put what `attribute` proposes on a list, with its evidence; nothing is left out until `accept`.

    Proposed are odd data, data that breaks the model from any checkpoint (both by replay), and what several episodes
    follow upon in an order that is known to be random. What one spike sat in is no reason.
    """
    from dataaudit.decide.quarantine.changes import author
    from dataaudit.manifest.load import load_manifest
    from dataaudit.training.proposing import propose_run

    change = propose_run(file, run, load_manifest(manifest), author(who, None))
    _print(file, change, "proposed: nothing is left out yet", as_json=as_json)


@quarantine.command(
    short_help="Put proposals in force.",
    epilog=ending(
        "dataaudit quarantine accept quarantine.jsonl 3f2a91",
        "dataaudit quarantine accept quarantine.jsonl --all --until 2026-12-31",
        codes={0: "in force"},
    ),
)
@FILE
@click.argument("names", nargs=-1, metavar="ENTRY|TARGET...")
@flag("--all", "Every open proposal.", to="everything")
@UNTIL
@NOTE
@WHO
@JSON
def accept(file: Path, names: tuple[str, ...], *, everything: bool, as_json: bool, **given: Any) -> None:
    """Leave out what was proposed, with its reason and evidence; `lift` turns a proposal down."""
    from dataaudit import api

    if everything == bool(names):
        raise click.UsageError("Name proposals, or say --all.")
    change = api.quarantine(file).accept(None if everything else names, **given)
    _print(file, change, "left out from now on", as_json=as_json)


@quarantine.command(
    short_help="Write what loaders read: lists of shards, documents to drop.",
    epilog=ending(
        "dataaudit quarantine apply quarantine.jsonl --manifest manifests/first --out clean",
        "dataaudit quarantine apply quarantine.jsonl --manifest manifests/first --out clean --format hf --documents",
        "dataaudit quarantine apply quarantine.jsonl --manifest manifests/first --out clean --documents --from overlap",
        codes={
            0: "written",
            1: _CHANGED,
            3: "the drop list is known to lack something, or lines of the list cannot be read",
            4: "no shard is left",
        },
    ),
)
@FILE
@path("--manifest DIR", "Where the shards stand.", required=True)
@path("--out DIR", "Folder to write: new, or an older result.", required=True)
@option(
    "--format", "Form of the lists, several if you like; `list` by default.", to="formats", type=_FORMATS, multiple=True
)
@option("--root DIR", "Where the shards lie now, a folder or an address.")
@flag("--documents", "Write documents.parquet: the documents to drop, with why.")
@option(
    "--from NAMES",
    "What drops documents, of clusters,overlap,findings; all by default.",
    to="origins",
    callback=_names,
    multiple=True,
)
@option(
    "--findings NAMES", "Detectors and tiers that do; secrets:validated by default.", callback=_names, multiple=True
)
@option(
    "--ngram-score",
    "Share of a held-out document's 13-grams from which on a training document leaks it.",
    type=click.FloatRange(0, 1),
    default=0.5,
)
@flag("--with-common", "Drop documents that share only notices, licences and the like, too.")
@flag("--held-out", "Drop duplicates and findings from held-out splits too.")
@flag("--rows", "Write the rows to drop of each shard as text, too.")
@flag("--exclude-changed", "Leave out shards that changed since they were listed.")
@flag("--keep-unread", "Keep shards that the build could not read.")
@flag("--ignore-bad-lines", "Go on when lines of FILE cannot be read.")
@ON
@JSON
def apply(file: Path, *, as_json: bool, **given: Any) -> None:
    """Write the lists of the shards that are not left out, and what loaders need to drop single documents.

    Exit 3 when the drop list is known to lack something, 4 when no shard is left.
    """
    from dataaudit import api
    from dataaudit.decide.quarantine.view import apply_view

    applied = api.quarantine(file).apply(**given)
    print_text(apply_view(given["out"], applied, as_json=as_json))
    sys.exit(applied.exit_code)
