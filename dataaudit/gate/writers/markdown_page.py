"""The verdict as Markdown, for a step summary and for a comment: the verdict first, then why, then everything else.

A page is fitted into a platform's limit: whole rows only, and what is left out is said.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from dataaudit.gate.verdict import Subject, Verdict
from dataaudit.gate.writers import words as w
from dataaudit.gate.writers.blocks import rule_blocks
from dataaudit.render.blocks import Facts, Table
from dataaudit.render.markdown import Measure, code, fitted, num_bytes, num_characters
from dataaudit.text import plural

SUMMARY_BYTES = 1024 * 1024
"""Of a step; a runner drops the whole of a larger one."""
COMMENT_CHARACTERS = 65_535
_REST = "`--out gate.json` writes them to a file."


def step_summary(verdict: Verdict, *, used: int = 0) -> str:
    """Return the page for ``GITHUB_STEP_SUMMARY``; empty when there is no room for the verdict.

    Args:
        verdict: The verdict.
        used: Bytes that the step's summary holds already.
    """
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
        f" `--fail-on` {code(verdict.fail_on)}; waivers held against {code(verdict.on)}.\n"
    )
