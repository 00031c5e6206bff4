"""The second step: was the run trained on what its manifest, and the baseline's run, let expect?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any, Final

import pyarrow.compute as pc

from dataaudit.base.render.line import Line, Name, say
from dataaudit.base.text import plural
from dataaudit.decide.diff.compare import load_pair
from dataaudit.decide.diff.difference import Bump, Difference, MetricChangeKind
from dataaudit.probes.triage.steps import Check, Step, absent, lines_of, names_of
from dataaudit.training.attribution.attribute import attribute
from dataaudit.training.attribution.findings import Attribution
from dataaudit.training.attribution.run_data import Data
from dataaudit.training.attribution.run_findings import SourceTrained, TrainedOn
from dataaudit.training.attribution.trained_on import ALARM_NATS, POINTS

_RATES: Final = frozenset(
    {"exact_dup_rate", "near_dup_rate", "train_val_overlap", "benchmark_contamination", "filter_reject_rate"}
)
"""Rates of a manifest whose change is named."""
_NO_DRIFT: Final = {
    "other_tokenizer": "the run's tokens are of another tokenizer than the manifest's",
    "no_labels": "the loop handed over no labels, so tokens were not counted",
    "no_histogram": "the manifest keeps no token counts",
    "folded_sources": "the manifest adds up small sources, so tokens of a source are not known",
}
_BATCH = "monitor.batch(tags, losses=losses, labels=labels)"
_COVERED = 0.99
"""Share of the targets of all steps that sources have to be counted of."""


def data_step(run: Data, baseline: Data | None, folders: tuple[Path, Path | None], other: str = "") -> Step:
    """Return whether the data is what it should be, given the folders of the run's manifest and of the baseline's.

    ``other`` is the id of the manifest of a baseline whose manifest was not named; then there is no ``baseline``.
    """
    mine, theirs = attribute(run), None if baseline is None else attribute(baseline)
    trained, before = mine.trained_on, None if theirs is None else theirs.trained_on
    assert trained is not None
    sides = [("run", run, trained)]
    if baseline is not None and before is not None:
        sides.append(("baseline", baseline, before))
    lost = [
        absent("run log", say("{}: {}", who, words)) for who, data, counts in sides if (words := _lost(data, counts))
    ]
    if lost:
        return Step("data", tuple(lost))
    checks = [_shares(trained, before), _tokens(trained, before), _lengths(trained, before)]
    if other:
        why = say("the baseline was trained on another manifest, {}, which was not named", Name(other))
        checks.insert(0, absent("manifest", why, "--baseline-manifest DIR"))
    elif baseline is not None:
        checks.insert(0, _manifests(run, baseline, folders))
        theirs = theirs if baseline.manifest.id == run.manifest.id else None
    return Step("data", (*checks, _shards(run, mine, theirs)))


def _lost(data: Data, trained: TrainedOn) -> str:
    """Return what a log lost that its counts cannot be judged without; empty where it has all."""
    targets = pc.sum(data.log.table("steps")["targets"]).as_py() or 0
    unread = f"; {data.log.torn_bytes:,} bytes of the log cannot be read" if data.log.torn_bytes else ""
    if trained.tokens < _COVERED * targets:
        return f"sources are counted of {trained.tokens:,} of {targets:,} targets{unread}"
    if not {"started", "resumed"} & set(data.log.table("events")["kind"].to_pylist()):
        return f"the events of its start are lost, and with them its tokenizer{unread}"
    return ""


def _manifests(run: Data, baseline: Data, folders: tuple[Path, Path | None]) -> Check:
    """Return how the manifests of both runs differ."""
    if baseline.manifest.id == run.manifest.id or folders[1] is None:
        return Check("manifest", "clean", "both runs were trained on the same")
    reasons = list(_reasons(load_pair(folders[1], folders[0])))
    numbers = {"old": baseline.manifest.id, "new": run.manifest.id}
    if not reasons:
        return Check("manifest", "clean", "another, but no shard, mixture or token count differs", numbers=numbers)
    feed = f"dataaudit diff {quote(str(folders[1]))} {quote(str(folders[0]))}"
    return Check("manifest", "found", lines_of(reasons, 6), feed, numbers=numbers, part="manifest")


def _reasons(difference: Difference) -> Iterator[Line]:
    """Yield what differs between two manifests of what a model learns from."""
    yield from (cause.text for cause in difference.proposal.causes if cause.bump in {Bump.MINOR, Bump.MAJOR})
    if mixture := [setting.name for setting in difference.settings if setting.area == "mixture"]:
        yield say("the declared mixture ({})", names_of(mixture))
    for drift in difference.drifts:
        beyond = drift.by_chance_high is None or (drift.kl or 0.0) > drift.by_chance_high
        if drift.source is not None and drift.kl is not None and drift.kl > ALARM_NATS and beyond:
            yield say("tokens of {} drifted by {} nats", Name(f"{drift.split}/{drift.source}"), f"{drift.kl:.2g}")
    for change in difference.metrics:
        moved = change.fate in {MetricChangeKind.CHANGED, MetricChangeKind.BEYOND_NOISE} and change.chance is not True
        if change.metric in _RATES and not change.scope.as_dict() and change.difference and moved:
            yield f"{change.metric} by {change.difference:+.3g}"


def _shares(trained: TrainedOn, before: TrainedOn | None) -> Check:
    """Return whether sources have the shares and passes that are declared, and the shares of the baseline."""
    name = "source shares"
    old = {} if before is None else {own.source: own for own in before.sources}
    numbers: dict[str, Any] = {}
    off: list[Line] = []
    for own in trained.sources:
        then = old.get(own.source)
        shares = own.share, own.declared, None if then is None else then.share
        numbers[own.source] = dict(zip(("share", "declared", "baseline"), shares, strict=True))
        words = f"{own.share:.1%} of the targets"
        if own.declared is not None and _beyond(own, own.declared, own.declared):
            off.append(say("{} is {}, declared {}", Name(own.source), words, f"{own.declared:.1%}"))
        elif old and (then is None or _beyond(own, then.low, then.high)):
            was = "none" if then is None else f"{then.share:.1%}"
            off.append(say("{} is {}, in the baseline {}", Name(own.source), words, was))
        if own.over:
            passes = f"{own.passes:.2f} times, declared {own.declared_epochs:g}"
            off.append(say("{} was passed over {}", Name(own.source), passes))
    off += [say("{} is gone", Name(source)) for source in old.keys() - numbers.keys()]
    if off:
        return Check(name, "found", lines_of(off), numbers=numbers, part="mixture")
    declared = any(own.declared is not None and own.low is not None for own in trained.sources)
    if not declared and not old and len(numbers) > 1:
        why = "the manifest declares no mixture, or the steps are too few for an interval, and there is no baseline"
        return absent(name, why, "mixture: {NAME: {weight: 0.5}} in the config of `dataaudit build`")
    against = " and ".join([*(["the declared mixture"] if declared else []), *(["the baseline"] if old else [])])
    words = f"within {POINTS * 100:.0f} points, or their error, of {against}" if against else "there is a single source"
    return Check(name, "clean", words, numbers=numbers)


def _beyond(own: SourceTrained, low: float | None, high: float | None) -> bool:
    """Return whether a share's whole interval lies more than 2 points off an interval, which chance does not do."""
    if own.low is None or own.high is None or low is None or high is None:
        return False
    return own.low > high + POINTS or own.high < low - POINTS


def _tokens(trained: TrainedOn, before: TrainedOn | None) -> Check:
    """Return whether the tokens of each source are those that were audited."""
    if trained.drift_reason:
        feed = _BATCH if trained.drift_reason == "no_labels" else ""
        return absent("tokens", _NO_DRIFT[trained.drift_reason], feed, needed=False)
    known = set() if before is None else {own.source for own in before.drift if own.mark == "beyond"}
    beyond = [own for own in trained.drift if own.source and own.mark == "beyond" and own.source not in known]
    off: list[Line] = [say("{} is {} nats off, beyond chance", Name(own.source), f"{own.kl:.2g}") for own in beyond]
    if trained.outside and not (before is not None and before.outside):
        off.append(f"{trained.outside:,} targets are ids outside of the vocabulary")
    if off:
        return Check("tokens", "found", lines_of(off), part="tokens")
    return Check("tokens", "clean", f"as audited, within {ALARM_NATS} nats or chance")


def _lengths(trained: TrainedOn, before: TrainedOn | None) -> Check:
    """Return whether rows and their padding are those of the baseline."""
    name, new = "lengths and padding", trained.lengths
    if before is None or not new.context or not before.lengths.context:
        return absent(name, "no baseline, or a log counts no lengths", _BATCH, needed=False)
    old, off = before.lengths, list[Line]()
    if new.pad_fraction is not None and old.pad_fraction is not None:
        off += [f"padding is {new.pad_fraction:.1%}"] * (abs(new.pad_fraction - old.pad_fraction) > POINTS)
    off += [f"rows have {new.context} places"] * (new.context != old.context)
    was = f"the baseline's {old.context} places with padding of {old.pad_fraction or 0:.1%}"
    if off:
        return Check(name, "found", say("{}; {}", lines_of(off), was), part="lengths")
    return Check(name, "clean", f"as {was}")


def _shards(run: Data, mine: Attribution, theirs: Attribution | None) -> Check:
    """Return whether shards stand behind spikes, or have odd losses, that do not in the baseline."""
    name, feed = "shards behind losses", f"dataaudit attribute {quote(str(run.log.folder))} --manifest DIR"
    spikes = (
        f"{plural(len(mine.episodes), 'episode')}, {sum(own.found is not None for own in mine.episodes)} of a shard"
    )
    every, known = dict(_named(mine)), set() if theirs is None else {shard for shard, _ in _named(theirs)}
    named = {shard: why for shard, why in every.items() if shard not in known}
    if named:
        shown = lines_of([say("{} ({})", Name(shard), why) for shard, why in named.items()])
        onset = min((own.first_step for own in mine.episodes if own.found is not None), default=None)
        words = say("{}; {}", shown, spikes)
        return Check(name, "found", words, feed, numbers={"shards": list(named)}, part="shards", onset=onset)
    if not pc.sum(run.log.table("steps")["scored"]).as_py() or (
        not mine.judged and all(own.outcome == "not_evaluated" for own in mine.residual_tests)
    ):
        return absent(name, "too few steps, or the loop handed over no losses of segments", _BATCH)
    rest = f"; {plural(len(every), 'shard')} as in the baseline" if every else "; no block or shard has odd losses"
    return Check(name, "clean", spikes + rest)


def _named(found: Attribution) -> Iterator[tuple[str, str]]:
    """Yield the shards that residuals, the order of episodes, or episodes name, and why; the strongest last."""
    yield from ((own.name, "odd losses") for test in found.residual_tests for own in test.units if own.outlier)
    test = found.event_test
    if test is not None and test.outcome == "follows":
        yield from ((own.name, "spikes follow it") for own in test.units if own.p <= test.alpha)
    yield from ((own.found.name, "behind a spike") for own in found.episodes if own.found is not None)
