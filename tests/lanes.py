"""Which tests a run takes: `always` on every change, parts where a change reaches them.

A test is in the lane `always`, unless it, its class or its file has the mark of a part: each test is in exactly one.
The variable DATAAUDIT_TESTS names what runs, separated by commas; `make test`, `make test-ci PART=...`, `.ci/run` and
`make test-all` set it. With `whole` among them, tests that have repetitions run with all examples, seeds and workers.
Where it is not set, a command that names files runs all of their tests.
"""

import os
import re

import pytest

ALWAYS, WHOLE_RUN, BENCHMARKS = "always", "whole", "benchmarks"
PARTS = {
    "kills": "workers and builds that are killed, an existing scheduler",
    "children": "child processes that crash or take too long, processes that train together, checkpoints",
    "stores": "remote stores and their faults, harmed state folders, stored manifests, token files",
    "inputs": "every input format, bad and hostile input, tokenizers",
    "judges": "the judges of toxicity and personal data, that no text leaves, extras, exports, pages in a browser",
    "torch": "training with torch",
    "vitals": "vitals with torch",
    "tables": "wide tables of cases",
    "builds": "whole builds of each metric",
    "runs": "made runs of many steps: which shard is named and which is not, false alarms, intervals that cover",
}
"""What each part guards."""
NEEDS_TORCH = ("judges", "torch", "vitals")
_MARKS = (*PARTS, BENCHMARKS)

VARIABLE = "DATAAUDIT_TESTS"


def chosen():
    """Return the names that the variable holds."""
    names = frozenset(os.environ.get(VARIABLE, ALWAYS).split(","))
    if unknown := names - {ALWAYS, WHOLE_RUN, *_MARKS}:
        expected = ", ".join((ALWAYS, *_MARKS, WHOLE_RUN))
        raise SystemExit(f"{VARIABLE}: expected some of {expected}, found {', '.join(sorted(unknown))}")
    return names


WHOLE = WHOLE_RUN in chosen()

_FILE_MARK = re.compile(rf"^pytestmark = (?:.*|\[\n(?: .*\n)*? .*)\bmark\.({'|'.join(_MARKS)})\b", re.MULTILINE)
_MARK = re.compile(r"\bmark\.(\w+)")
_PART = re.compile(r"\bpart=\"(\w+)\"")
_REPEATS = re.compile(r"\b(?:thinned|examples|given|workers)\(")


def part_of_file(source):
    """Return the part that a test file names for all of its tests, or `always`; a single test may name another."""
    named = _FILE_MARK.search(source)
    return named.group(1) if named else ALWAYS


def may_have_tests(source):
    """Return whether a test file may have tests that are chosen, from its text: to import all others takes a minute."""
    names = chosen()
    if WHOLE and not _REPEATS.search(source):
        return False
    own = {*_MARK.findall(source), *_PART.findall(source), *(["tables"] if "sample(" in source else [])}
    return part_of_file(source) in names or bool(own & names)


def part_of(item):
    """Return the part of a collected test: of its case, its function, its class, its file, or `always`."""
    own = [mark.name for mark in item.own_markers if mark.name in _MARKS]
    return own[-1] if own else next((mark.name for mark in item.iter_markers() if mark.name in _MARKS), ALWAYS)


def examples(most):
    """Return how many examples of Hypothesis a property is tried with: an eighth but in a whole run, ten at least."""
    return most if WHOLE else min(most, max(10, most // 8))


def thinned(most, few):
    """Return a number of repetitions: the most in a whole run, few else."""
    return most if WHOLE else few


def sample(cases, every, *, kind=None, part="tables"):
    """Return the cases of a table for `parametrize`, all of them: those beyond a sample are of a part.

    The sample is one case in ``every``, and one at least of each kind.
    """
    listed = list(cases)
    firsts = {kind(case): place for place, case in reversed([*enumerate(listed)])} if kind else {}
    return [
        case if place % every == 0 or place in firsts.values() else _in_part(case, part)
        for place, case in enumerate(listed)
    ]


def _in_part(case, part):
    if not hasattr(case, "marks"):
        case = pytest.param(*(case if isinstance(case, tuple) else (case,)))
    return pytest.param(*case.values, marks=[*case.marks, getattr(pytest.mark, part)], id=case.id)


def workers(number):
    """Return the options of a build: so many workers in a whole run, none else.

    For builds that would be the same test without a cluster. Tests of what workers do name their number themselves.
    """
    return ("--workers", number) if WHOLE else ()
