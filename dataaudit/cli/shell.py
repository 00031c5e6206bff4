"""Shared by commands: errors become a message and an exit code, a closed pipe is no error; options of several."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

import click
from click.shell_completion import CompletionItem

from dataaudit.base.errors import ConfigError, DataAuditError, ExitCode, limit_hint
from dataaudit.base.redact import is_address
from dataaudit.base.text import clean_message
from dataaudit.decide.gate import BUILTIN, policy_path
from dataaudit.manifest.s3 import is_stored

if TYPE_CHECKING:
    from dataaudit.manifest.signing import Signing

_DEBUG = "DATAAUDIT_DEBUG"
_Args = ParamSpec("_Args")
_Command = TypeVar("_Command", bound=Callable[..., Any])


class _LocalPath(click.Path):
    """A path on this machine, never an address; ``stored`` converts an address in S3, where that is allowed too."""

    def __init__(self, stored: Callable[[str], Path | str] | None = None) -> None:
        super().__init__(path_type=Path)
        self._stored = stored

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if self._stored is not None and is_stored(value):
            return self._stored(value)
        if isinstance(value, str) and is_address(value):
            where = ", or s3://BUCKET/PREFIX" if self._stored else ""
            self.fail(f"a path on this machine is expected{where}, {value!r} is an address", param, ctx)
        return super().convert(value, param, ctx)


def _fetched(address: str) -> Path:
    """Return the folder here into which a manifest was fetched."""
    from dataaudit.manifest.remote import fetch_manifest

    return fetch_manifest(address)


def _fetched_side(address: str) -> Path:
    """Return the folder of a manifest that is compared."""
    from dataaudit.decide.diff.compare import no_mismatch

    with no_mismatch():
        return _fetched(address)


FOLDER = _LocalPath()
TARGET = _LocalPath(str)
MANIFEST = _LocalPath(_fetched)
SIDE = _LocalPath(_fetched_side)


def option(usage: str, text: str, *, to: str | None = None, **more: Any) -> Callable[[_Command], _Command]:
    """Return an option of ``--out FILE`` and its help, with its default; ``to`` is the name of its argument."""
    name, _, metavar = usage.partition(" ")
    more = {"metavar": metavar or None, "show_default": more.get("default") is not None, **more}
    return click.option(name, *([] if to is None else [to]), help=text, **more)


def flag(name: str, text: str, **more: Any) -> Callable[[_Command], _Command]:
    """Return an option without a value."""
    return option(name, text, is_flag=True, **more)


def path(usage: str, text: str, *, kind: click.ParamType[Any] = FOLDER, **more: Any) -> Callable[[_Command], _Command]:
    """Return an option that takes a path."""
    return option(usage, text, type=kind, **more)


def choice(name: str, words: str, text: str, **more: Any) -> Callable[[_Command], _Command]:
    """Return an option that takes one of some words."""
    return option(name, text, type=click.Choice(words.split()), **more)


class Group(click.Group):
    """Turns our errors into a message on stderr and an exit code, with no traceback.

    A pipe that is closed early (``| head -1``) is no error: what is still to be printed is dropped and the
    exit code stays that of the command.
    """

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run the program and exit with the code of what happened."""
        kwargs["standalone_mode"] = False
        kwargs["obj"] = not args and kwargs.get("args") is None  # whether this process is the command's own
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


def lean_process(command: Callable[_Args, None]) -> Callable[_Args, None]:
    """Have a command tune its own process: without pandas, which pyarrow imports where it is installed."""

    @functools.wraps(command)
    def run(*args: _Args.args, **kwargs: _Args.kwargs) -> None:
        if click.get_current_context().obj:
            from dataaudit.base.process import tune_process

            tune_process()
        command(*args, **kwargs)

    return run


def print_text(text: str) -> None:
    """Print on stdout; when nobody reads it any more, go on."""
    try:
        click.echo(text, nl=False)
    except BrokenPipeError:
        _drop_stdout()


_COLOURS = {
    "PASS": "green",
    "WARN": "yellow",
    "FAIL": "red",
    "NOT EVALUATED": "magenta",
    "NOTHING EVALUATED": "magenta",
}
_HEADLINE = re.compile(r"\A(FAIL(?=, NOT))?(?:, )?(PASS|FAIL|NOT EVALUATED|NOTHING EVALUATED)(?=[,:])")
_STATE = re.compile(r"^  (pass|warn|fail|not evaluated)(?=  )", re.MULTILINE)


def print_verdict(text: str) -> None:
    """Print a verdict, its states in colour where a person reads it: not in a pipe, nor with ``NO_COLOR``."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
    print_text(text if plain else coloured(text))


def coloured(text: str) -> str:
    """Return a verdict with escape sequences around its headline and the states of its rules."""

    def word(match: re.Match[str]) -> str:
        return match[0].replace(match[1], click.style(match[1], fg=_COLOURS[match[1].upper()], bold=True))

    def headline(match: re.Match[str]) -> str:
        return ", ".join(click.style(group, fg=_COLOURS[group], bold=True) for group in match.groups() if group)

    return _STATE.sub(word, _HEADLINE.sub(headline, text))


def note(text: str) -> None:
    """Print on stderr."""
    with contextlib.suppress(OSError):
        click.echo(clean_message(text.rstrip("\n")), err=True)


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


_NO_MEMORY = """dataaudit: out of memory
  Raise `ulimit -v` or the memory of the container; a build needs less with fewer --workers."""
_NO_ROOM = "Make room there, then run the same command: finished work is kept."


def _os_error(error: OSError) -> str:
    if error.filename is None and error.errno == errno.ENOENT and (gone := _folder_gone()):
        return gone
    path = f": {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else ""
    hint = _NO_ROOM if error.errno == errno.ENOSPC else limit_hint(error)
    return f"operating system error: {error.strerror or type(error).__name__}{path}" + (hint and f"\n  {hint}")


def _folder_gone() -> str:
    """Return a message when the current folder was deleted; nothing when it is there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        path = os.environ.get("PWD", "")
        return f"the current folder was deleted{f': {path}' if path else ''}\n  Change to one that exists."
    return ""


def _fault(error: Exception) -> str:
    """Name a fault of this program by type and line; its own message may quote a document."""
    if isinstance(error, MemoryError):
        return _NO_MEMORY
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else ""
    return (
        f"dataaudit: internal error, a fault of this program: {type(error).__name__}{where}\n"
        f"  Please report it. {_DEBUG}=1 shows the traceback, which may hold text of the corpus."
    )


class _Policy(_LocalPath):
    """A policy: a file, or the name of one that comes with the package."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        return policy_path(super().convert(value, param, ctx))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the policies that come with the package and begin so; else a shell completes files."""
        ready = [CompletionItem(name) for name in BUILTIN if name.startswith(incomplete)]
        return ready or super().shell_complete(ctx, param, incomplete)


POLICY = _Policy()

WORKERS = option(
    "--workers N",
    "Local worker processes; one a core when left out, 0 for none: all in this process.",
    type=click.IntRange(0),
)
SCHEDULER = option("--scheduler ADDRESS", "An existing Dask cluster, such as tls://host:8786.")
OPEN_SCHEDULER = flag(
    "--open-scheduler",
    "Sign or seal also over a scheduler that is not tls://, and trust everybody who reaches its port.",
)
STATE_KEY = path(
    "--state-key FILE", "Key of 16 bytes or more: of the state folder only what is sealed under it is believed."
)
SAMPLES = option(
    "--samples N",
    "Findings of each kind whose surroundings are written, masked, to --samples-dir.",
    type=click.IntRange(1, 1000),
)
SAMPLES_DIR = path("--samples-dir DIR", "New folder for samples; it will hold parts of documents, for your eyes alone.")


def check_workers(workers: int | None, scheduler: str | None) -> None:
    """Refuse workers beside a scheduler."""
    if scheduler is not None and workers is not None:
        raise click.UsageError("--workers and --scheduler exclude each other: a scheduler has its own workers.")


def chosen_samples(number: int | None, folder: Path | None) -> tuple[int, Path] | None:
    """Return both options of samples, or None when neither was given."""
    if number is not None and folder is not None:
        return number, folder
    if number is None and folder is None:
        return None
    raise click.UsageError("--samples N and --samples-dir DIR go together: how many, and where they may be written.")


KEY = path("--key FILE", "Private key, ed25519 or ECDSA, PEM.")
IDENTITY = flag("--identity", "Sign as this CI job, or as who logs in, with sigstore.")
REQUIRE_SIGNATURE = flag(
    "--require-signature", "The manifest has to be signed, by attestation.json in its folder; say by whom."
)


def signer_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say who has to have signed something: an argument ``signer``, for ``signer_of``."""

    @path("--public-key FILE", "Key that has to have signed it, PEM.")
    @option("--identity WHO", "Or: who has to have signed it with sigstore.")
    @option("--issuer URL", "Who has to vouch for that identity.")
    @functools.wraps(command)
    def run(*args: Any, public_key: Path | None, identity: str | None, issuer: str | None, **given: Any) -> None:
        command(*args, signer={"public_key": public_key, "identity": identity, "issuer": issuer}, **given)

    return run


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


def check_new(out: Path | None, folder: Path | None = None, *, force: bool) -> None:
    """Refuse a file of ``--out`` that cannot be written, or that is there already and may not be replaced."""
    from dataaudit.manifest.outfiles import check_files

    check_files({"--out": out}, folders=(folder,))
    if out is not None and out.is_file() and not force:
        raise ConfigError(f"--out: {out} is there already", "Give another name, or --force to replace it.")


def print_written(out: Path | None, data: bytes, words: str, facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Write a file, or print it where none is named; and say what it is."""
    from dataaudit.base.render.result import Written
    from dataaudit.manifest.outfiles import write_file

    if out is not None:
        write_file(out, data)
    print_text(Written(file=out, data=data, words=words, facts=dict(facts)).shown(as_json=as_json))


JSON = flag("--json", "Print the same facts as JSON.", to="as_json")


def ending(*examples: str, codes: Mapping[int, str], title: str = "Examples:") -> str:
    """Return the end of a command's help: calls, and the exit codes that it can return, each with what it means."""
    every = {2: "wrong use, or what is named is absent or damaged", 3: "the system fails, as by a full disk", **codes}
    lines = [f"{code:>3}  {words}" for code, words in sorted({130: "interrupted", **every}.items())]
    return "\n\n".join(
        "\b\n" + "\n".join([head, *(f"  {line}" for line in body)])  # click leaves such a paragraph as it is
        for head, body in ((title, examples), ("Exit codes:", lines))
    )
