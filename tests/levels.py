"""How much a run of the tests does: `test` on every change, `ci` before anything lands, `all` before a release.

The level is the variable DATAAUDIT_TEST_LEVEL; `make test`, `.ci/run` and `make test-all` set it. What is thinned below
`all` is drawn from the same cases, never replaced by easier ones.
"""

from __future__ import annotations

import os

LEVELS = ("test", "ci", "all")
LEVEL = os.environ.get("DATAAUDIT_TEST_LEVEL", "test")
if LEVEL not in LEVELS:
    raise SystemExit(f"DATAAUDIT_TEST_LEVEL: expected one of {', '.join(LEVELS)}, found {LEVEL}")
WHOLE = LEVEL == "all"
HIGHER = {"test": {"ci", "judges", "torch", "all"}, "ci": {"all"}, "all": set()}
"""Marks of the tests that belong to a higher level, by level."""


def examples(whole):
    """Return how many examples of Hypothesis a property is tried with: an eighth below `all`, and no fewer than ten."""
    return whole if WHOLE else min(whole, max(10, whole // 8))


def thinned(whole, few):
    """Return a number of repetitions: the whole one before a release, few below."""
    return whole if WHOLE else few


def sample(cases, every, *, kind=None):
    """Return cases of a table: all of them before a release, one in ``every`` below, and one at least of each kind."""
    listed = list(cases)
    if WHOLE:
        return listed
    firsts = {kind(case): place for place, case in reversed([*enumerate(listed)])} if kind else {}
    return [case for place, case in enumerate(listed) if place % every == 0 or place in firsts.values()]


def workers(number):
    """Return the options of a build: so many workers before a release, none below.

    For builds that would be the same test without a cluster. Tests of what workers do name their number themselves.
    """
    return ("--workers", number) if WHOLE else ()
