"""The error tree. Every message says what was expected, what was found, where, and what to do.

::

    DataAuditError                 exit code 2 unless a class says otherwise
    +-- ConfigError                wrong use: a bad option, config file or path pattern
    |   +-- MissingExtra           a command or option needs an extra that is not installed
    +-- TokenizerError             a tokenizer cannot be found, read or trusted
    +-- DetectorError              a detector or its model cannot be found or read
    +-- ManifestError              a manifest is absent, damaged or of an unknown schema
    |   +-- ManifestMismatch       contents and digests disagree                        (1)
    |   +-- SignatureRefused       a manifest is not signed by who has to have signed it (1)
    +-- QuarantineError            a quarantine list is absent, of another version or no such list
    |   +-- QuarantineDamaged      lines of it cannot be read, so what they hold is not known (3)
    |   +-- ReleasedHeldBack       a manifest releases what the list holds back           (1)
    +-- CorpusRefused              a corpus may not be trained on, or not with this checkpoint   (1)
    +-- CheckpointDamaged          a checkpoint is not what was saved                   (1)
    +-- RunLogError                a run log is absent, damaged or of an unknown schema
    +-- TagsError                  a batch has no tags, or tags that do not fit it
    +-- ClusterError               the Dask cluster cannot do the work                   (3)
    +-- StoreError                 a remote store does not answer, so what it holds is not known (3)
    +-- NothingEvaluated           no document was read; an older manifest was kept      (4)
    +-- BuildInterrupted           Ctrl-C or SIGTERM; the state left behind is resumable (130)

A shard that cannot be read is not an exception but a value (:class:`dataaudit.scan.corpus.loss.Loss`): it
is counted in the ledger and the rest of the corpus is audited.

CatchErrors: calls of libraries that are not ours, whose errors have no common root and may quote what was read.
"""

from __future__ import annotations

import errno
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from dataaudit.base.redact import without_secrets

_LIMITS = {
    errno.EMFILE: "This process may not open more files: raise `ulimit -n`.",
    errno.ENFILE: "This machine may not open more files: close some.",
    errno.EFBIG: "This process may not write larger files: raise `ulimit -f`.",
}


def limit_hint(error: OSError) -> str:
    """Return what to do about a limit of this process or machine; empty when it is no such limit."""
    return _LIMITS.get(error.errno or 0, "")


class ExitCode(IntEnum):
    """The exit codes of every command."""

    PASS = 0
    BUDGET_EXCEEDED = 1
    WRONG_USE = 2
    NOT_EVALUATED = 3
    NOTHING_EVALUATED = 4
    HELD_OUT = 5
    INTERRUPTED = 130


class DataAuditError(Exception):
    """Root of all errors that a user can cause or meet; survives pickling across workers.

    What it says quotes addresses, so their secrets are taken out here, once for all.

    Args:
        message: What was expected, what was found and where.
        hint: What to do about it, one sentence.
    """

    exit_code = ExitCode.WRONG_USE

    def __init__(self, message: str, hint: str = "") -> None:
        message, hint = without_secrets(message), without_secrets(hint)
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Join message and hint on two lines."""
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class ConfigError(DataAuditError):
    """The command line, the config file or a path in it is wrong."""


class MissingExtra(ConfigError):
    """A command or option needs packages of an extra that is not installed; the message is the line to type."""


class TokenizerError(DataAuditError):
    """A tokenizer cannot be found, read or trusted."""


class DetectorError(DataAuditError):
    """A detector or its model cannot be found, read or trusted."""


class ManifestError(DataAuditError):
    """A manifest is absent, damaged or written by an unknown schema version."""


class ManifestMismatch(ManifestError):
    """The contents of a manifest disagree with its digests, or the data with the manifest."""

    exit_code = ExitCode.BUDGET_EXCEEDED


class SignatureRefused(ManifestError):
    """A manifest is not signed, or not by who has to have signed it, or the signature is of another manifest."""

    exit_code = ExitCode.BUDGET_EXCEEDED


class QuarantineError(DataAuditError):
    """A quarantine list is absent, cannot be read or written, or is of another version."""


class QuarantineDamaged(QuarantineError):
    """Lines of a quarantine list, or what was applied of it, cannot be read: what is held back is not known."""

    exit_code = ExitCode.NOT_EVALUATED


class ReleasedHeldBack(QuarantineError):
    """A manifest has shards or documents in its numbers that a quarantine list holds back."""

    exit_code = ExitCode.BUDGET_EXCEEDED


class CorpusRefused(DataAuditError):
    """A corpus may not be trained on: it did not pass, was changed, is too old, or its files are not those audited."""

    exit_code = ExitCode.BUDGET_EXCEEDED


class CheckpointDamaged(DataAuditError):
    """A checkpoint is not what was saved, or none that is good is whole; the message names the files."""

    exit_code = ExitCode.BUDGET_EXCEEDED


class RunLogError(DataAuditError):
    """A run log is absent, damaged or written by an unknown schema version."""


class TagsError(DataAuditError):
    """A batch has no tags, or tags that do not fit it: nothing could be attributed."""


class ClusterError(DataAuditError):
    """The Dask cluster cannot do the work: unreachable, without workers, or without the files."""

    exit_code = ExitCode.NOT_EVALUATED


class StoreError(DataAuditError):
    """A remote store does not answer: what it holds cannot be known."""

    exit_code = ExitCode.NOT_EVALUATED


class NothingEvaluated(DataAuditError):
    """No document entered the numbers, and a good manifest was not replaced by an empty one."""

    exit_code = ExitCode.NOTHING_EVALUATED


class BuildInterrupted(DataAuditError):
    """The build was stopped by the user; what was finished is kept."""

    exit_code = ExitCode.INTERRUPTED


class CatchErrors:
    """Context of a call that may fail in any way: an error ends the block and becomes a value.

    Which classes a library raises depends on its version and on the bytes that it was given, and an error's text may
    hold a document, a password or an address with its signature. So none is listed, none is shown, and what is known
    of one is its class and the line of code that raised it. Ctrl-C and other exceptions that are no errors pass.

    ::

        with CatchErrors(MemoryError) as call:
            model = library.load(path)
        if call.error is not None:
            raise DetectorError(f"the model cannot be loaded ({call.kind})")

    Args:
        passing: Errors that mean something to the caller and are raised as they are.
    """

    __slots__ = ("_passing", "error", "kind", "origin")

    def __init__(self, *passing: type[Exception]) -> None:
        self._passing = passing
        self.error: Exception | None = None
        """What was raised, without its traceback, whose frames would keep the document alive; None when all went well.
        Its text is not for messages."""
        self.kind = ""
        """Name of its class."""
        self.origin = ""
        """Name of its class, file and line."""

    def __enter__(self) -> Self:
        """Begin the call."""
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> bool:
        """Keep an error; let pass what is none or was named."""
        if not isinstance(error, Exception) or isinstance(error, self._passing):
            return False
        self.kind, self.origin = type(error).__name__, _origin(error)
        self.error = error.with_traceback(None)
        return True


def _origin(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
    return f"{type(error).__name__}{where}"
