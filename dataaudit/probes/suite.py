"""``ProbeSuite``: runs probes at a checkpoint, compares with the one before, and hands numbers to log and alerts.

::

    suite = ProbeSuite([Frozen(batch=batch)], sinks=[monitor], every=500)
    for step, data in enumerate(loader, 1):
        ...
        suite.step(model, step)  # the cheap probes; losses, weights and random states keep their bits
    suite.run(model, step, out="probes")  # all of them, at a checkpoint
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from dataaudit import __version__
from dataaudit.base.errors import CatchErrors, ConfigError, DataAuditError
from dataaudit.probes.models import Model
from dataaudit.probes.report import EvalArtifacts, Outcome, ProbeReport, latest_before, probed_detail, values_of
from dataaudit.probes.store import Store
from dataaudit.runlog.writer import whole_values

CHEAP = frozenset({"frozen"})
"""Probes that run between steps."""


class Probe(Protocol):
    """Something that measures a model."""

    name: ClassVar[str]

    def artifacts(self, model: Model) -> EvalArtifacts:
        """Return what its numbers depend on besides the weights."""

    def run(self, model: Model, store: Store, previous: Mapping[str, np.ndarray]) -> Outcome:
        """Measure."""


class Sink(Protocol):
    """A monitor, a run log or another place that takes values by step."""

    def add_values(self, columns: Mapping[str, Any]) -> None:
        """Take rows of a run log's table of values."""


class ProbeSuite:
    """Probes and where their numbers go.

    Args:
        probes: What to measure, in order.
        sinks: Take the numbers: a :class:`dataaudit.training.TrainingMonitor` with its alerts, a
            :class:`dataaudit.vitals.sinks.RunLogSink`, or any with ``add_values``.
        every: Steps between two runs of the cheap probes by :meth:`step`; 0: none.
        manifest: Id of the manifest that the probes read.

    Raises:
        ConfigError: Two probes have one name, or ``every`` is below 0.
    """

    def __init__(
        self, probes: Sequence[Probe], *, sinks: Sequence[Sink] = (), every: int = 0, manifest: str = ""
    ) -> None:
        names = [probe.name for probe in probes]
        if not probes or len(set(names)) < len(names) or every < 0:
            raise ConfigError(
                f"a suite needs probes of different names and `every` of 0 or more, found {names}, {every}"
            )
        self.probes, self.sinks, self.every, self.manifest = tuple(probes), tuple(sinks), every, manifest
        self.failures: list[str] = []
        """What went wrong between steps; a probe ends no run."""
        self._newest: ProbeReport | None = None
        self._logged: set[str] = set()

    def step(self, model: Model, step: int) -> ProbeReport | None:
        """Run the cheap probes at every ``every``-th step of a training loop; nothing of the loop changes.

        What fails is kept in ``failures`` and the run goes on. Where the model is sharded, all ranks have to call this.
        """
        if not self.every or step % self.every:
            return None
        with CatchErrors() as call:
            cheap = [probe for probe in self.probes if probe.name in CHEAP]
            report = self._measured(model, step, cheap, None, self._newest)
            self._newest = report
            self._send(report)
        if call.error is not None:
            self.failures.append(f"step {step}: {call.origin}")
            return None
        return report

    def run(
        self,
        model: Model,
        step: int,
        *,
        out: str | os.PathLike[str] | None = None,
        digest: str = "",
        baseline: str | os.PathLike[str] | None = None,
        begun: Callable[[str], None] | None = None,
    ) -> ProbeReport:
        """Run all probes on a checkpoint, or go on with a run of the same checkpoint that was killed.

        Args:
            model: The checkpoint.
            step: Of the training run.
            out: Folder of reports: this is written to ``step-<step>``, and compared with the newest of a step before.
            digest: Of the checkpoint's file.
            baseline: Folder of the report to compare with instead.
            begun: Called with the name of each probe.

        Raises:
            ConfigError: A folder cannot be read or written.
        """
        folder = None if out is None else Path(out) / f"step-{step:08d}"
        known = Path(baseline) if baseline is not None else None if out is None else latest_before(Path(out), step)
        before = self._newest if known is None else ProbeReport.load(known)
        report = self._measured(model, step, self.probes, folder, before, digest=digest, begun=begun)
        if folder is not None:
            report.write(folder)
        self._newest = report
        self._send(report)
        return report

    def _measured(
        self,
        model: Model,
        step: int,
        probes: Sequence[Probe],
        folder: Path | None,
        before: ProbeReport | None,
        digest: str = "",
        begun: Callable[[str], None] | None = None,
    ) -> ProbeReport:
        report = ProbeReport(
            checkpoint=model.name, step=step, digest=digest, manifest=self.manifest, program=f"dataaudit {__version__}"
        )
        for probe in probes:
            if begun is not None:
                begun(probe.name)
            own = probe.artifacts(model)
            key, prefix = own.digest, f"{probe.name}:"
            kept = before.arrays if before is not None and key in before.artifacts else {}
            previous = {name.removeprefix(prefix): array for name, array in kept.items() if name.startswith(prefix)}
            path = None if folder is None else folder / f"partial-{probe.name}.jsonl"
            store = Store(path, f"{key} {digest or model.name} {step}")
            made, done = Outcome(), False
            try:
                with CatchErrors(DataAuditError) as call:
                    made, done = probe.run(model, store, previous), True
            finally:
                store.close(done=done)
            if call.error is not None:
                broken = isinstance(call.error, FloatingPointError)
                made.absent(probe.name, "", "not_finite" if broken else f"failed: {call.origin}")
                if not broken:
                    given = f"{model.context:,} tokens at once, of {model.tokenizer.encoder.vocab:,} different"
                    made.notes.append(f"{probe.name}: does the model take {given}? Else --context N, --tokenizer FILE")
            report.artifacts[key] = own
            report.numbers += [replace(number, artifacts=key) for number in made.numbers]
            report.units |= made.units
            report.arrays |= {f"{prefix}{name}": array for name, array in made.arrays.items()}
            report.notes += made.notes
        if before is not None:
            report.compare(before)
            _explain_divergence(report, before)
        return report

    def _send(self, report: ProbeReport) -> None:
        if rows := values_of(report.numbers):
            for sink in self.sinks:
                sink.add_values(whole_values(report.step, rows))
        if report.artifacts.keys() - self._logged:  # so that the log says what its numbers were made with
            self._logged |= report.artifacts.keys()
            for sink in self.sinks:
                if hasattr(sink, "add_event"):
                    sink.add_event(report.step, "probed", probed_detail(report))


def _explain_divergence(report: ProbeReport, before: ProbeReport) -> None:
    """Say of a divergence that has nothing to be compared with which artifacts are other ones."""
    for at, number in enumerate(report.numbers):
        if number.metric != "output_kl_to_prev" or number.value is not None or number.reason != "no_previous":
            continue
        theirs = next((other for other in before.numbers if other.metric == "output_kl_to_prev"), None)
        if theirs is not None and theirs.artifacts != number.artifacts:
            differ = report.artifacts[number.artifacts].differing(before.artifacts[theirs.artifacts])
            report.numbers[at] = replace(number, reason="other_artifacts", invalid=differ)
