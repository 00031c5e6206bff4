"""The command line: parse, call, exit code. No logic, and no heavy import before a command runs."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from dataaudit import __version__
from dataaudit.errors import DataAuditError, ExitCode
from dataaudit.report.text import clean_message

_FOLDER = click.Path(path_type=Path)
_DEBUG = "DATAAUDIT_DEBUG"


class _Group(click.Group):
    """Turns our errors into a message on stderr and an exit code, with no traceback.

    A pipe that is closed early (``| head -1``) is no error: what is still to be printed is dropped and the
    exit code stays that of the command.
    """

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        kwargs["standalone_mode"] = False
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a name that the terminal's encoding lacks is no error
                stream.reconfigure(errors="backslashreplace")
        try:
            code = super().main(*args, **kwargs)
        except DataAuditError as error:
            code = _complain(f"dataaudit: {error}", error.exit_code)
        except click.exceptions.Exit as error:
            code = error.exit_code
        except click.ClickException as error:
            code = _complain(_wrong_use(error), ExitCode.WRONG_USE)
        except (KeyboardInterrupt, click.Abort):
            code = _complain("dataaudit: interrupted", ExitCode.INTERRUPTED)
        except OSError as error:
            code = _complain(f"dataaudit: {_os_error(error)}", ExitCode.NOT_EVALUATED)
        except Exception as error:
            if os.environ.get(_DEBUG):
                raise
            code = _complain(_fault(error), ExitCode.NOT_EVALUATED)
        sys.exit(int(code or 0))

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse; the help text and the version are printed here."""
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError:
            _drop_stdout()
            raise click.exceptions.Exit(0) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; its help text is printed here."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _drop_stdout()
            raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None


def _print(text: str) -> None:
    """Print on stdout; when nobody reads it any more, go on."""
    try:
        click.echo(text, nl=False)
    except BrokenPipeError:
        _drop_stdout()


def _drop_stdout() -> None:
    """Send the rest of stdout nowhere, so that the flush at exit does not fail again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str, code: int) -> int:
    with contextlib.suppress(OSError):
        click.echo(clean_message(message), err=True)
    return code


def _wrong_use(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    lines = [f"dataaudit: {error.format_message()}"]
    if context is not None:
        lines += [f"  {line}" for line in context.get_usage().splitlines()]
        lines.append(f"  `{context.command_path} --help` explains every option.")
    return "\n".join(lines)


def _os_error(error: OSError) -> str:
    place = f": {error.filename}" if error.filename is not None else ""
    return f"the system refuses: {error.strerror or type(error).__name__}{place}"


def _fault(error: Exception) -> str:
    """Name a fault of ours by kind and place; its message may hold text of a document."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else ""
    return (
        f"dataaudit: internal error, a fault of this program: {type(error).__name__}{where}\n"
        f"  Please report it. {_DEBUG}=1 shows the traceback, which may hold text of the corpus."
    )


def _block(title: str, *lines: str) -> str:
    """Return a paragraph of help that click leaves as it is."""
    return "\b\n" + "\n".join([title, *(f"  {line}" for line in lines)])


_SAMPLES = click.option(
    "--samples", type=click.IntRange(1, 1000), metavar="N",
    help="Findings of each kind whose surroundings are written, masked, to --samples-dir.",
)  # fmt: skip
_SAMPLES_DIR = click.option(
    "--samples-dir", type=_FOLDER, metavar="DIR",
    help="New folder for samples; it will hold parts of documents, for your eyes alone.",
)  # fmt: skip
_MAIN_EPILOG = "\n\n".join(
    (
        _block(
            "Start here:",
            "dataaudit doctor",
            "dataaudit build data/train data/val --manifest manifests/first",
            "dataaudit show manifests/first",
        ),
        _block(
            "Exit codes:",
            "  0  pass, warnings included",
            "  1  a budget is exceeded, or a manifest disagrees with itself or with the data",
            "  2  wrong use or config",
            "  3  could not evaluate: unread bytes, lost workers",
            "  4  nothing was evaluated",
            "130  interrupted",
        ),
    )
)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_MAIN_EPILOG,
)
@click.version_option(__version__, prog_name="dataaudit")
def main() -> None:
    """Audit LLM pre-training corpora: shards in, a versioned and reproducible manifest out."""


@main.command(
    short_help="Scan a corpus and publish its manifest.",
    epilog=_block(
        "Examples:",
        "dataaudit build data/train data/val --manifest manifests/first",
        "dataaudit build corpus.yaml --manifest manifests/2026-11 --workers 8",
        "dataaudit build corpus.yaml --manifest manifests/2026-11 --json > summary.json",
    ),
)
@click.argument("inputs", nargs=-1, required=True, metavar="CONFIG.yaml | PATHS...")
@click.option("--manifest", "target", type=_FOLDER, required=True, metavar="DIR",
              help="Folder to publish; an old manifest there is replaced.")  # fmt: skip
@click.option("--tokenizer", metavar="FILE|HUB-ID",
              help="tokenizer.json, .tiktoken, SentencePiece .model, a hub id, or `default`.")  # fmt: skip
@click.option("--text", metavar="COLUMN", help="Text column, when building from paths.")
@click.option("--reference", metavar="DIR", help="Older manifest to compare with.")
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Local worker processes; one a core when left out."
)
@click.option("--scheduler", metavar="ADDRESS", help="An existing Dask cluster, for example tcp://host:8786.")
@click.option("--memory-limit", metavar="SIZE", default="auto", show_default=True,
              help="Memory of a local worker, like 2GiB.")  # fmt: skip
@click.option("--state", type=_FOLDER, metavar="DIR",
              help="Folder of partial results; .dataaudit beside the manifest by default.")  # fmt: skip
@click.option("--shard-timeout", type=click.FloatRange(min=1), metavar="SECONDS", default=1800.0,
              show_default=True, help="Seconds a sub-shard may take before it counts as stuck.")  # fmt: skip
@click.option("--hmac-key", type=_FOLDER, metavar="FILE",
              help="Key of 16 bytes or more; findings get digests under it.")  # fmt: skip
@_SAMPLES
@_SAMPLES_DIR
@click.option("--fresh", is_flag=True, help="Compute everything anew.")
@click.option("--rehash", is_flag=True, help="Hash every file, also those that look unchanged.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def build(
    inputs: tuple[str, ...],
    target: Path,
    tokenizer: str | None,
    text: str | None,
    reference: str | None,
    workers: int | None,
    scheduler: str | None,
    memory_limit: str,
    state: Path | None,
    shard_timeout: float,
    hmac_key: Path | None,
    samples: int | None,
    samples_dir: Path | None,
    *,
    fresh: bool,
    rehash: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Scan a corpus and publish its manifest.

    With CONFIG.yaml the config says what to read. With PATHS (files, folders, globs) splits, text column and
    sources are inferred, and what was inferred is printed. A build that was stopped goes on where it was when
    the same command is run again. Progress goes to stderr, the summary to stdout.
    """
    from dataaudit.engine.build import build as run
    from dataaudit.engine.cluster import ClusterChoice
    from dataaudit.engine.job import BuildOptions
    from dataaudit.engine.progress import Progress
    from dataaudit.engine.setup import prepare, read_key
    from dataaudit.report.summary import build_summary

    if scheduler is not None and workers is not None:
        raise click.UsageError("--workers and --scheduler exclude each other: a scheduler has its own workers.")
    options = BuildOptions(
        target=target,
        state=state,
        cluster=ClusterChoice(workers=workers, scheduler=scheduler, memory_limit=memory_limit),
        fresh=fresh,
        rehash=rehash,
        unit_seconds=shard_timeout,
        hmac_key=None if hmac_key is None else read_key(hmac_key),
        samples=_samples(samples, samples_dir),
    )
    signal.signal(signal.SIGTERM, _terminate)
    with Progress(quiet=quiet) as progress:
        prepared = prepare(inputs, Path.cwd(), tokenizer=tokenizer, text=text, reference=reference, note=progress.note)
        result = run(
            prepared.config,
            prepared.base,
            root_at_base=prepared.root_at_base,
            options=options,
            progress=progress,
        )
    _print(build_summary(result, target, as_json=as_json))
    sys.exit(result.exit_code)


def _samples(number: int | None, folder: Path | None) -> tuple[int, Path] | None:
    """Return both options of samples, or None when neither was given."""
    if number is not None and folder is not None:
        return number, folder
    if number is None and folder is None:
        return None
    raise click.UsageError("--samples N and --samples-dir DIR go together: how many, and where they may be written.")


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise KeyboardInterrupt


@main.command(
    short_help="Print a manifest as tables.",
    epilog=_block(
        "Examples:",
        "dataaudit show manifests/first",
        "dataaudit show manifests/first --metric exact_dup_rate",
        "dataaudit show manifests/first --json | jq .splits",
    ),
)
@click.argument("folder", type=_FOLDER, metavar="DIR")
@click.option("--metric", metavar="NAME", help="Every record of one metric.")
@click.option("--json", "as_json", is_flag=True, help="Print the same facts as JSON.")
def show(folder: Path, metric: str | None, *, as_json: bool) -> None:
    """Print a manifest as tables: totals, splits, sources, coverage, shards that stand out."""
    from dataaudit.report.show import show_manifest

    _print(show_manifest(folder, metric, as_json=as_json))


@main.command(
    short_help="Explain one shard, or one document.",
    epilog=_block(
        "Examples:",
        "dataaudit inspect manifests/first 3",
        "dataaudit inspect manifests/first train/part-00003.jsonl.zst",
        "dataaudit inspect manifests/first 3:1207",
        "dataaudit inspect manifests/first 3:1207 --samples 5 --samples-dir ~/samples",
    ),
)
@click.argument("folder", type=_FOLDER, metavar="DIR")
@click.argument("place", metavar="SHARD[:ROW]")
@_SAMPLES
@_SAMPLES_DIR
@click.option("--json", "as_json", is_flag=True, help="Print the same facts as JSON.")
def inspect(folder: Path, place: str, samples: int | None, samples_dir: Path | None, *, as_json: bool) -> None:
    """Say what a manifest knows of one shard, or of one document of it. Never its text.

    SHARD is an ordinal, a URI or split/uri; ROW counts the records of the shard from 0, bad ones included. With
    --samples the words around findings are written, masked, to files: docs/privacy.md says what is in them.
    """
    from dataaudit.report.inspect import inspect_place

    asked = _samples(samples, samples_dir)
    text = inspect_place(folder, place, as_json=as_json)
    if asked is not None:
        from dataaudit.engine.progress import Progress
        from dataaudit.engine.samples import prepare_samples, sample_place

        with Progress(quiet=True) as progress:
            sample_place(folder, place, prepare_samples(*asked, folder), progress)
    _print(text)


@main.command(
    short_help="Check a manifest, and the shards on request.",
    epilog=_block(
        "Examples:",
        "dataaudit verify manifests/first",
        "dataaudit verify manifests/first --data",
        "dataaudit verify manifests/first --data --root /mnt/copy/of/the/data",
    ),
)
@click.argument("folder", type=_FOLDER, metavar="DIR")
@click.option("--data", is_flag=True, help="Hash the shards again too.")
@click.option("--root", metavar="DIR", help="Where the shards lie now, a folder or an address; with --data.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def verify(folder: Path, root: str | None, *, data: bool, quiet: bool, as_json: bool) -> None:
    """Check schema, digests and ledger of a manifest; exit 1 when anything disagrees, 2 when there is none."""
    from dataaudit.engine.verifying import verify_folder

    text, code = verify_folder(folder, data=data, root=root, as_json=as_json, quiet=quiet)
    _print(text)
    sys.exit(code)


@main.group(
    short_help="Write a manifest in other programs' formats.",
    epilog=_block("Examples:", "dataaudit export lsh manifests/first --out first.lsh"),
)
def export() -> None:
    """Write what a manifest holds in the format of another program."""


@export.command(
    name="lsh",
    short_help="An index of datasketch, of the stored signatures.",
    epilog=_block("Examples:", "dataaudit export lsh manifests/first --out first.lsh"),
)
@click.argument("folder", type=_FOLDER, metavar="DIR")
@click.option("--out", type=_FOLDER, metavar="FILE", required=True, help="Where to write it.")
def export_lsh(folder: Path, out: Path) -> None:
    """Write a pickled datasketch.MinHashLSH whose keys are shard:row.

    The manifest has to keep signatures: `stages: {near_dup: {signatures: true}}` in the config.
    """
    from dataaudit.export.lsh import export_lsh as write

    _print(write(folder, out))


@main.command(
    short_help="Say what is installed and what is missing.",
    epilog=_block(
        "Examples:",
        "dataaudit doctor",
        "dataaudit doctor --json | jq '.checks[] | select(.state != \"ok\")'",
    ),
)
@click.option("--state", type=_FOLDER, metavar="DIR", default=Path(".dataaudit"), show_default=True,
              help="State folder of builds, to try its file system.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the same facts as JSON.")
def doctor(state: Path, *, as_json: bool) -> None:
    """Say what is installed, what is missing and what it is for; exit 2 when a build cannot work.

    The check of the tokenizer takes some seconds where no build has run before.
    """
    from dataaudit.engine.doctor import diagnose

    text, code = diagnose(state=state, as_json=as_json)
    _print(text)
    sys.exit(code)


@main.command(
    short_help="Print JSON Schemas of config and manifest.",
    epilog=_block(
        "Examples:",
        "dataaudit schema",
        "dataaudit schema config > dataaudit-config.schema.json",
        "dataaudit schema --out manifests/schema/v1",
    ),
)
@click.argument("name", required=False)
@click.option("--out", type=_FOLDER, metavar="DIR", help="Write NAME, or every schema, into this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON; a schema is JSON anyway.")
def schema(name: str | None, out: Path | None, *, as_json: bool) -> None:
    """Print a JSON Schema: config, manifest, metric, or the columns of all tables; without NAME, list them."""
    from dataaudit.engine.schemas import export_schemas

    _print(export_schemas(name, out, as_json=as_json))


__all__ = ["main"]
