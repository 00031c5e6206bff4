"""The command line: parse, call, exit code. No logic, and no heavy import before a command runs."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from dataaudit import __version__
from dataaudit.errors import BuildInterrupted, DataAuditError, ExitCode

_FOLDER = click.Path(path_type=Path, file_okay=False)


class _Group(click.Group):
    """Turns our errors into a message on stderr and an exit code, with no traceback."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, **kwargs)
        except DataAuditError as error:
            click.echo(f"dataaudit: {error}", err=True)
            code = error.exit_code
        except click.exceptions.Exit as error:
            code = error.exit_code
        except click.ClickException as error:
            error.show()
            code = ExitCode.WRONG_USE
        except (KeyboardInterrupt, click.Abort):
            click.echo("dataaudit: interrupted", err=True)
            code = ExitCode.INTERRUPTED
        except BrokenPipeError:
            sys.stderr.close()
            code = ExitCode.PASS
        sys.exit(int(code or 0))


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="dataaudit")
def main() -> None:
    """Audit LLM pre-training corpora: shards in, a versioned and reproducible manifest out.

    Exit codes: 0 pass, 1 a budget is exceeded, 2 wrong use, 3 could not evaluate (unread bytes, lost
    workers), 4 nothing was evaluated, 130 interrupted.
    """


@main.command()
@click.argument("inputs", nargs=-1, required=True, metavar="CONFIG.yaml | PATHS...")
@click.option(
    "--manifest", "target", type=_FOLDER, required=True, help="Folder to publish; an old one is replaced."
)
@click.option(
    "--tokenizer", metavar="FILE|HUB-ID", help="tokenizer.json, .tiktoken, SentencePiece .model, hub id."
)
@click.option("--text", metavar="COLUMN", help="Text column, when building from paths.")
@click.option("--reference", metavar="DIR", help="Older manifest to compare with.")
@click.option("--workers", type=click.IntRange(1), help="Local worker processes; one a core when left out.")
@click.option("--scheduler", metavar="ADDRESS", help="An existing Dask cluster, for example tcp://host:8786.")
@click.option(
    "--memory-limit", default="auto", show_default=True, help="Memory of a local worker, like 2GiB."
)
@click.option(
    "--state", type=_FOLDER, help="Folder of partial results; .dataaudit beside the manifest by default."
)
@click.option("--shard-timeout", type=click.FloatRange(min=1), default=1800.0, show_default=True,
              help="Seconds a sub-shard may take before it counts as stuck.")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Compute everything anew.")
@click.option("--rehash", is_flag=True, help="Hash every file, also those that look unchanged.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
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
    *,
    fresh: bool,
    rehash: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Scan a corpus and publish its manifest.

    With CONFIG.yaml the config says what to read. With PATHS (files, folders, globs) splits, text column and
    sources are inferred, and what was inferred is printed.
    """
    from dataaudit.engine.build import BuildOptions, ClusterChoice, build as run  # noqa: PLC0415
    from dataaudit.engine.progress import Progress  # noqa: PLC0415
    from dataaudit.engine.setup import prepare  # noqa: PLC0415
    from dataaudit.report.summary import build_summary  # noqa: PLC0415

    if scheduler is not None and workers is not None:
        raise click.UsageError(
            "--workers and --scheduler exclude each other: a scheduler has its own workers."
        )
    options = BuildOptions(
        target=target,
        state=state,
        cluster=ClusterChoice(workers=workers, scheduler=scheduler, memory_limit=memory_limit),
        fresh=fresh,
        rehash=rehash,
        unit_seconds=shard_timeout,
    )
    signal.signal(signal.SIGTERM, _terminate)
    with Progress(quiet=quiet) as progress:
        prepared = prepare(
            inputs, Path.cwd(), tokenizer=tokenizer, text=text, reference=reference, note=progress.note
        )
        result = run(
            prepared.config,
            prepared.base,
            root_at_base=prepared.root_at_base,
            options=options,
            progress=progress,
        )
    click.echo(build_summary(result, target, as_json=as_json), nl=False)
    sys.exit(result.exit_code)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise KeyboardInterrupt


@main.command()
@click.argument("folder", type=_FOLDER)
@click.option("--metric", metavar="NAME", help="Every record of one metric.")
@click.option("--json", "as_json", is_flag=True, help="Print records as JSON.")
def show(folder: Path, metric: str | None, *, as_json: bool) -> None:
    """Print a manifest as tables people read."""
    from dataaudit.report.show import show_manifest  # noqa: PLC0415

    show_manifest(folder, metric, as_json=as_json)


@main.command()
@click.argument("folder", type=_FOLDER)
@click.argument("place", metavar="SHARD[:ROW]")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def inspect(folder: Path, place: str, *, as_json: bool) -> None:
    """Say what a manifest knows of a shard, or why a document of it is flagged.

    SHARD is an ordinal or a URI.
    """
    from dataaudit.report.inspect import inspect_place  # noqa: PLC0415

    inspect_place(folder, place, as_json=as_json)


@main.command()
@click.argument("folder", type=_FOLDER)
@click.option("--data", is_flag=True, help="Hash the shards again too.")
@click.option("--root", type=_FOLDER, help="Where the shards lie now, if they were moved.")
@click.option("--json", "as_json", is_flag=True, help="Print problems as JSON.")
def verify(folder: Path, root: Path | None, *, data: bool, as_json: bool) -> None:
    """Check schema, digests and ledger of a manifest; exit 1 when anything disagrees."""
    from dataaudit.engine.verifying import verify_folder  # noqa: PLC0415

    text, code = verify_folder(folder, data=data, root=root, as_json=as_json)
    click.echo(text)
    sys.exit(code)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def doctor(*, as_json: bool) -> None:
    """Say what is installed, what is missing and what it is for."""
    from dataaudit.engine.doctor import diagnose  # noqa: PLC0415

    click.echo(diagnose(as_json=as_json))


@main.command()
@click.argument("name", required=False)
@click.option("--out", type=_FOLDER, help="Write every schema into this folder.")
def schema(name: str | None, out: Path | None) -> None:
    """Print a JSON Schema: config, manifest, metric or tables; without a name, list them."""
    from dataaudit.engine.schemas import export_schemas  # noqa: PLC0415

    click.echo(export_schemas(name, out))


__all__ = ["BuildInterrupted", "main"]
