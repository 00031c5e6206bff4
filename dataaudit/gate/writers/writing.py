"""All outputs of one gate run: which were asked for, checked before the work, written after it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dataaudit.extras import require
from dataaudit.gate.verdict import Verdict
from dataaudit.gate.writers.place_in_repository import PolicyFile, policy_file
from dataaudit.outfiles import append_file, check_files, same_place, size_of, write_file
from dataaudit.regular import read_regular

RUNNER = "GITHUB_ACTIONS"
SUMMARY = "GITHUB_STEP_SUMMARY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What is to be written beside the terminal's table."""

    verdict: Path | None = None
    """``gate.json``."""
    junit: Path | None = None
    sarif: Path | None = None
    summary: Path | None = None
    """Markdown; added to the end where it is the runner's own file of the step, a new file elsewhere."""
    comment: Path | None = None
    """Markdown for a comment on a pull request."""
    failing: Path | None = None
    """JSON lines of :mod:`dataaudit.gate.failing`, which whoever has the manifest writes."""
    annotations: bool = False
    """Whether the runner's commands are printed."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The environment: the runner's root of the repository and file of the summary."""

    @property
    def files(self) -> dict[str, Path | None]:
        """The files by option."""
        return {
            "--out": self.verdict,
            "--junit": self.junit,
            "--sarif": self.sarif,
            "--summary": self.summary,
            "--markdown": self.comment,
            "--failing": self.failing,
        }


def on_runner(environ: Mapping[str, str]) -> bool:
    """Return whether a GitHub runner reads what is printed."""
    return environ.get(RUNNER) == "true"


def check_outputs(outputs: Outputs, given: Mapping[str, Path | None], manifests: Collection[Path | None] = ()) -> None:
    """Look at the files before the work.

    Args:
        outputs: What was asked for.
        given: Files that are read, by option; they stay as they are.
        manifests: Folders of manifests, which stay as they are.

    Raises:
        MissingExtra: JUnit or SARIF is asked for, and the extra `ci` is not installed.
        ConfigError: One cannot be written, or would replace what is read, or another one.
    """
    for option, path in (("gate --junit", outputs.junit), ("gate --sarif", outputs.sarif)):
        if path is not None:
            require(option, "ci")
    check_files(outputs.files, given, manifests)


def write_outputs(verdict: Verdict, outputs: Outputs, policy: Path) -> str:
    """Write the files and return what is to be printed for a runner, whole lines or nothing.

    Args:
        verdict: The verdict.
        outputs: What was asked for.
        policy: The policy file, for the lines that marks point at.

    Raises:
        ConfigError: A file cannot be written.
    """
    place = _place(policy, outputs)
    if outputs.verdict is not None:
        from dataaudit.gate.document import gate_json

        write_file(outputs.verdict, gate_json(verdict))
    if outputs.junit is not None:
        from dataaudit.gate.writers.junit import junit_xml

        write_file(outputs.junit, junit_xml(verdict))
    if outputs.sarif is not None:
        from dataaudit.gate.writers.sarif import sarif_json

        write_file(outputs.sarif, sarif_json(verdict, place))
    _write_pages(verdict, outputs)
    if not outputs.annotations:
        return ""
    from dataaudit.gate.writers.annotations import annotation_lines

    return annotation_lines(verdict, place)


def _write_pages(verdict: Verdict, outputs: Outputs) -> None:
    from dataaudit.gate.writers.markdown_page import comment, step_summary

    if outputs.comment is not None:
        write_file(outputs.comment, comment(verdict).encode("utf-8"))
    if outputs.summary is None:
        return
    own = outputs.environ.get(SUMMARY)
    if not own or not same_place(outputs.summary, Path(own)):
        write_file(outputs.summary, step_summary(verdict).encode("utf-8"))
        return
    used = size_of(outputs.summary)
    append_file(outputs.summary, step_summary(verdict, used=used).encode("utf-8"))


def _place(policy: Path, outputs: Outputs) -> PolicyFile:
    try:
        text = read_regular(policy).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        text = None
    return policy_file(str(policy), text, outputs.environ)
