"""What the headline says where no episode is: the least rise that would have been seen, and what changed in the run."""

from __future__ import annotations

from dataaudit.text import plural
from dataaudit.training.findings import Attribution, Change, Detector, Span
from dataaudit.training.run_changes import beside

SAID = 5
"""Steps whose limit the headline names, where there is one."""
BLIND = 1.0
"""Nats: where no smaller rise would have been seen, that comes first."""
MOST = 3
"""Changes that are named in a line."""
_NAMES = {"learning_rate": "the learning rate", "batch": "targets of a step"}


def limit_said(detector: Detector) -> str:
    """Return "rise above 0.28 nats over 5 steps": the limit of visibility; nothing where no step was judged."""
    limits = {one.steps: one.rise for one in detector.visible}
    if not limits:
        return ""
    steps = SAID if SAID in limits else max(limits)
    during = "in a single step" if steps == 1 else f"over {steps} steps"
    return f"rise above {limits[steps]:.2g} nats {during}"


def none_seen(detector: Detector, steps: int) -> str:
    """Return the same of a run without an episode, without a full stop: "No rise above ... among 900 steps"."""
    blind = min((one.rise for one in detector.visible), default=0.0) > BLIND
    begin = f"Hardly anything could be seen: no {limit_said(detector)}" if blind else f"No {limit_said(detector)}"
    return f"{begin} among {plural(steps, 'step')}"


def nothing_said(found: Attribution) -> str:
    """Return the headline where no episode is: what could not have been seen, dips, and changes."""
    if found.asked_step is not None:
        return _step_said(found, Span(first_step=found.asked_step, last_step=found.asked_step, flagged=0))
    dips = f"; {plural(len(found.dips), 'dip')} below the band" if found.dips else ""
    changes = f"; {changes_said(found.changes)}" if found.changes else ""
    return f"{none_seen(found.detector, found.steps)}{dips}{changes}."


def _step_said(found: Attribution, step: Span) -> str:
    """Return the same of a step that was asked for."""
    below = any(one.first_step <= step.first_step <= one.last_step for one in found.dips)
    dip = ", but below the band" if below else ""
    changed = beside(found.changes, step)
    changes = f" Beside it: {changes_said(changed)}." if changed else ""
    seen = f"A {limit_said(found.detector)} is seen in half of the cases."
    return f"Step {step.first_step:,} is in no episode{dip}. {seen}{changes}"


def changes_said(changes: tuple[Change, ...]) -> str:
    """Return what changed, in a line."""
    more = f"; {plural(len(changes) - MOST, 'more change')}" if len(changes) > MOST else ""
    return "; ".join(map(change_said, changes[:MOST])) + more


def change_said(one: Change) -> str:
    """Return a change in words."""
    one_step = one.first_step == one.last_step
    steps = f"step {one.first_step:,}" if one_step else f"steps {one.first_step:,} to {one.last_step:,}"
    if one.kind == "skipped_updates":
        return f"{plural(int(one.after), 'skipped update')} at {steps}"
    if one.kind == "clipping":
        return f"every update clipped in {steps}, {one.before:.0%} before"
    times = f" (x {one.after / one.before:.3g})" if one.before > 0 else ""
    return f"{_NAMES[one.kind]} {one.after:,.4g} after {one.before:,.4g}{times} from {steps}"
