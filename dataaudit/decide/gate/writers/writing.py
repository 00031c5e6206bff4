"""Writes the outputs of a gate run: checked before the work, written after it; and the verdict as Markdown.

A page, of a step summary or a comment, is fitted into a platform's limit: whole rows only, and the number of rows that
are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from dataaudit.base.extras import require
from dataaudit.base.files import read_safely
from dataaudit.base.render.blocks import Facts, Table
from dataaudit.base.render.markdown import Measure, code, fitted, num_bytes, num_characters
from dataaudit.base.text import plural
from dataaudit.decide.gate.document import gate_json
from dataaudit.decide.gate.verdict import Subject, Verdict
from dataaudit.decide.gate.writers import words as w
from dataaudit.decide.gate.writers.annotations import PolicyFile, annotation_lines, policy_file
from dataaudit.decide.gate.writers.blocks import rule_blocks
from dataaudit.manifest.outfiles import append_file, check_files, same_place, size_of, write_file

RUNNER = "GITHUB_ACTIONS"
SUMMARY = "GITHUB_STEP_SUMMARY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """The files to write beside the terminal's table, each named as its option."""

    out: Path | None = None
    """``gate.json``."""
    junit: Path | None = None
    sarif: Path | None = None
    summary: Path | None = None
    """Markdown; added to the end where it is the runner's own file of the step, a new file elsewhere."""
    markdown: Path | None = None
    """Markdown for a comment on a pull request."""
    failing: Path | None = None
    """JSON lines of :mod:`dataaudit.decide.gate.evidence`, which the caller writes."""
    annotations: bool = False
    """Whether the runner's commands are printed."""
    environ: Mapping[str, str] = field(default_factory=dict)

    def is_runners(self, path: Path) -> bool:
        """Return whether a file is the runner's own of the step, which others write to."""
        own = self.environ.get(SUMMARY)
        return bool(own) and same_place(path, Path(str(own)))

    @property
    def files(self) -> dict[str, Path | None]:
        """The files by option."""
        return {f"--{item.name}": getattr(self, item.name) for item in fields(self) if item.default is None}


def on_runner(environ: Mapping[str, str]) -> bool:
    """Return whether a GitHub runner reads stdout."""
    return environ.get(RUNNER) == "true"


def check_outputs(outputs: Outputs, given: Mapping[str, Path | None], manifests: Collection[Path | None] = ()) -> None:
    """Look at the files before the work, and delete those of an earlier verdict, which a refusal would leave."""
    for option, path in (("gate --junit", outputs.junit), ("gate --sarif", outputs.sarif)):
        if path is not None:
            require(option, "ci")
    check_files(outputs.files, given, manifests)
    for path in outputs.files.values():
        if path is not None and path.is_file() and not path.is_symlink() and not outputs.is_runners(path):
            path.unlink()


def write_outputs(verdict: Verdict, outputs: Outputs, policy: Path) -> str:
    """Write the files and return the lines to print for a runner."""
    marked = _policy_file(policy, outputs)
    if outputs.out is not None:
        write_file(outputs.out, gate_json(verdict))
    if outputs.junit is not None:
        from dataaudit.decide.gate.writers.junit import junit_xml

        write_file(outputs.junit, junit_xml(verdict))
    if outputs.sarif is not None:
        from dataaudit.decide.gate.writers.sarif import sarif_json

        write_file(outputs.sarif, sarif_json(verdict, marked))
    if outputs.markdown is not None:
        write_file(outputs.markdown, comment(verdict).encode("utf-8"))
    if outputs.summary is not None:
        if outputs.is_runners(outputs.summary):
            page = step_summary(verdict, used=size_of(outputs.summary))
            append_file(outputs.summary, page.encode("utf-8"))
        else:
            write_file(outputs.summary, step_summary(verdict).encode("utf-8"))
    return annotation_lines(verdict, marked) if outputs.annotations else ""


def _policy_file(policy: Path, outputs: Outputs) -> PolicyFile:
    try:
        text = read_safely(policy).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        text = None
    return policy_file(str(policy), text, outputs.environ)


SUMMARY_BYTES = 1024 * 1024
"""Of a step; a runner drops a larger summary."""
COMMENT_CHARACTERS = 65_535
_REST = "`--out gate.json` writes them to a file."


def step_summary(verdict: Verdict, *, used: int = 0) -> str:
    """Return the page for ``GITHUB_STEP_SUMMARY``; empty when there is no room for the verdict."""
    return _page(verdict, SUMMARY_BYTES - used, num_bytes, rows=500, of_a_rule=20)


def comment(verdict: Verdict) -> str:
    """Return the page for a comment on a pull request; its first line is what finds it again, to update it."""
    return _page(verdict, COMMENT_CHARACTERS, num_characters, rows=60, of_a_rule=5)


def marker(verdict: Verdict) -> str:
    """Return the hidden first line: the same for the same policy and dataset."""
    key = f"{verdict.policy}\0{verdict.subject.name}".encode("utf-8", "backslashreplace")
    return f"<!-- dataaudit-gate {hashlib.sha256(key).hexdigest()[:16]} -->"


def _page(verdict: Verdict, limit: int, measure: Measure, *, rows: int, of_a_rule: int) -> str:
    head, tail = _head(verdict), _tail(verdict)
    room = limit - measure(head) - measure(tail)
    if room >= 0:
        blocks = map(_folded, rule_blocks(verdict, rows, of_a_rule))
        return f"{head}{fitted(blocks, room, measure, _REST)}{tail}"
    page = f"**dataaudit gate: {w.headline(verdict)}**, exit code {int(verdict.exit_code)}.\n"
    return page if measure(page) <= limit else ""


def _folded(block: Table | Facts) -> Table | Facts:
    """Return the table of the rules that need nothing closed at first, with their number in its title."""
    if not isinstance(block, Table) or block.noun != "rule":
        return block
    return replace(block, title=f"{plural(len(block.rows), 'other rule')}", folded=True)


def _head(verdict: Verdict) -> str:
    lines = [
        marker(verdict),
        f"## dataaudit gate: {w.headline(verdict)}",
        "",
        f"**Exit code {int(verdict.exit_code)}{w.other_codes(verdict)}: {w.tally(verdict)}.**",
        "",
        w.advice(verdict),
        "",
        f"Judged: {_subject(verdict.subject)}.",
    ]
    if verdict.baseline is not None:
        lines += ["", f"Compared with: {_subject(verdict.baseline)}."]
    if (own := verdict.canary) is not None:
        lines += ["", f"Canary: {code(own.id)}, {own.verdict}, {plural(own.pairs, 'pair')}, {code(own.on)}."]
    for remark in verdict.remarks:
        lines += ["", f"Remark: {code(remark, w.TEXT_LIMIT)}"]
    return "\n".join([*lines, "", ""])


def _subject(subject: Subject) -> str:
    return (
        f"{code(subject.name)} {code(subject.version)}, {plural(subject.documents, 'document')}"
        f" in {plural(subject.shards, 'shard')}, manifest {code(subject.id)}"
    )


def _tail(verdict: Verdict) -> str:
    return (
        f"\nPolicy {code(verdict.policy)} {code(verdict.policy_version)}, {code(verdict.policy_digest)};"
        f" `--fail-on` {code(verdict.fail_on)}; waivers checked for {code(verdict.on)}.\n"
    )
