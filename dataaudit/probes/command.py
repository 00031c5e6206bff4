"""``dataaudit probe``: options to a suite, and a report in words."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError
from dataaudit.base.extras import absent, require
from dataaudit.base.yamlfile import load_yaml
from dataaudit.live.alerts import Alerts
from dataaudit.live.probe_batch import ProbeBatch
from dataaudit.live.rules import load_alerts
from dataaudit.manifest.outfiles import check_folder
from dataaudit.probes.checkpoints import load_checkpoint
from dataaudit.probes.cloze import Cloze, HarnessTasks
from dataaudit.probes.contamination import Contamination, named_sets
from dataaudit.probes.corpus import Corpus
from dataaudit.probes.frozen import Frozen
from dataaudit.probes.held_out import HeldOutLoss
from dataaudit.probes.memorization import Memorization
from dataaudit.probes.models import Model
from dataaudit.probes.report import Number, ProbeReport, probed_detail, values_of
from dataaudit.probes.suite import Probe, ProbeSuite
from dataaudit.probes.toxicity import PromptToxicity, read_prompts
from dataaudit.runlog.format import RUN_FILE
from dataaudit.runlog.reader import load_run
from dataaudit.runlog.writer import whole_values
from dataaudit.vitals.sinks import RunLogSink

FROZEN_ROWS, FROZEN_TOKENS = 32, 512
"""Rows of the frozen batch, and tokens of a row, at most."""
BATCH_FILE = "frozen_batch.npz"
_OF_CHECKPOINT = ("tokenizer", "end", "function", "context", "dtype", "device")


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """What the command was given."""

    checkpoint: str
    manifest: Path
    probes: tuple[str, ...]
    root: Path | None = None
    tokenizer: str | None = None
    end: str | None = None
    function: str | None = None
    context: int | None = None
    dtype: str | None = None
    device: str | None = None
    step: int = 0
    documents: int = 2_000
    prompts: int = 200
    domains: Path | None = None
    rtp: Path | None = None
    judge: str = "original"
    generations: int = 25
    tasks: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    seed: int = 0
    out: Path | None = None
    baseline: Path | None = None
    runlog: Path | None = None
    alert: Path | None = None


def run_probes(options: ProbeOptions, report_line: Callable[[str], None]) -> ProbeReport:
    """Load the checkpoint, run the probes that are named, and write their report."""
    require("probe", "train")
    if options.tokenizer != "bytes":
        require("probe with a tokenizer's file", "build")
    _check_outputs(options)
    given: dict[str, Any] = {name: getattr(options, name) for name in _OF_CHECKPOINT}
    if options.end is not None and options.end.isdecimal():
        given["end"] = int(options.end)
    model, digest = load_checkpoint(options.checkpoint, **given)
    corpus = Corpus(folder=options.manifest, tokenizer=model.tokenizer, root=options.root)
    progress = _Progress(report_line)
    common: dict[str, Any] = {"seed": options.seed, "progress": progress}
    makers: dict[str, Callable[[], Probe]] = {
        "frozen": lambda: _frozen(options, model, corpus),
        "held_out": lambda: _held_out(options, corpus, progress),
        "cloze": lambda: Cloze.of(corpus, items=options.prompts, **common),
        "memorization": lambda: Memorization.of(corpus, prompts=options.prompts, **common),
        "contamination": lambda: Contamination.of(corpus, named_sets(options.sets), samples=options.prompts, **common),
        "rtp": lambda: _toxicity(options, common),
        "lm_eval": lambda: _lm_eval(options),
    }
    probes = [makers[name]() for name in dict.fromkeys(options.probes)]
    suite = ProbeSuite(probes, manifest=corpus.manifest.id)
    report = suite.run(
        model, options.step, out=options.out, digest=digest, baseline=options.baseline, begun=progress.begin
    )
    if options.runlog is not None:
        log_report(report, options.runlog, options.alert)
    return report


def _check_outputs(options: ProbeOptions) -> None:
    """Check what is read and written at the end before anything is measured."""
    if options.out is not None:
        check_folder("--out", options.out)
        if options.out.resolve().is_relative_to(Path(options.checkpoint).resolve()):
            raise ConfigError("--out lies in the checkpoint, whose digest it would change", "Name a folder beside it.")
    if options.runlog is not None:
        check_folder("--run", options.runlog)
        _check_step(options.step)
        load_alerts(options.alert)
    elif options.alert is not None:
        raise ConfigError("--alert judges what --run writes: name a folder with --run, too")


def _check_step(step: int) -> None:
    if step < 2:
        raise ConfigError("--run keeps numbers by step, and none was given", "Name it: --step N, 2 or more.")


def log_report(report: ProbeReport, folder: Path, rules: Path | None = None) -> None:
    """Add the numbers of a report to a run log of probes; those of later steps stay, of this step are replaced.

    Rules see the numbers of the step before, too, so that a change between two commands fires. Without rules the
    shipped ones judge; what fires is written and sent as in a training run.
    """
    _check_step(report.step)
    known = (folder / RUN_FILE).exists()
    stored = load_run(folder).table("values") if known else None
    steps = np.zeros(0) if stored is None else stored["step"].to_numpy()
    earlier = steps[steps < report.step]
    with (
        Alerts(folder, load_alerts(rules)) as alerts,
        RunLogSink(folder, "probes", first_step=report.step if known else 1, alerts=alerts) as sink,
    ):
        alerts.joins(0, 0)  # an incident that an earlier command sent is the same one
        if stored is not None and len(earlier):
            alerts.take("values", _columns(stored, steps == earlier.max()))
        if rows := values_of(report.numbers):
            sink.add_values(whole_values(report.step, rows))
        sink.add_event(report.step, "probed", probed_detail(report))
        if stored is not None and (steps > report.step).any():
            sink.add_values(_columns(stored, steps > report.step))


def _columns(table: pa.Table, rows: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Return some rows of a table of values as columns, by step."""
    chosen = table.filter(pa.array(rows)).sort_by("step")
    named = zip(chosen.column_names, chosen.columns, strict=True)
    return {name: own.to_pylist() if pa.types.is_string(own.type) else own.to_numpy() for name, own in named}


class _Progress:
    """Says on stderr how far a probe is, every few seconds."""

    def __init__(self, line: Callable[[str], None]) -> None:
        self._line, self._last = line, time.monotonic()

    def note(self, line: str) -> None:
        self._line(t.clean(line))

    def begin(self, name: str) -> None:
        self._line(f"probe {name} ...")

    def __call__(self, what: str, done: int, of: int) -> None:
        if time.monotonic() - self._last > 5:
            self._last = time.monotonic()
            self._line(f"  {what}: {done:,} of {of:,}")


def _frozen(options: ProbeOptions, model: Model, corpus: Corpus) -> Probe:
    """Return the probe of the frozen batch: that of --out, or one drawn from the manifest and kept there."""
    path = None if options.out is None else options.out / BATCH_FILE
    if path is not None and path.is_file():
        return Frozen(batch=ProbeBatch.load(path))
    drawn = corpus.sample(held_out=True, limit=FROZEN_ROWS) or corpus.sample(held_out=False, limit=FROZEN_ROWS)
    if drawn is None:
        raise ConfigError("the manifest has no document of two tokens to make a frozen batch of")
    most = min(FROZEN_TOKENS, model.context)
    batch = ProbeBatch.of_rows([row[:most] for row in drawn.rows], model.tokenizer.digest)
    if path is not None:
        batch.save(path)
    return Frozen(batch=batch)


def _held_out(options: ProbeOptions, corpus: Corpus, progress: _Progress) -> Probe:
    domains = None
    if options.domains is not None:
        try:
            domains = load_yaml(options.domains.read_text(encoding="utf-8"), where=str(options.domains))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--domains: {options.domains} cannot be read: {type(error).__name__}") from None
        if not isinstance(domains, Mapping) or not all(
            isinstance(item, str) for pair in domains.items() for item in pair
        ):
            raise ConfigError(f"--domains: {options.domains}: expected `source: domain` on each line")
    documents = corpus.sample(
        held_out=True, limit=options.documents, domains=domains, languages=not absent("build"), seed=options.seed
    )
    if documents is not None and (odd := sorted((domains or {}).keys() - documents.documents.corpus.sources)):
        progress.note(f"--domains: the manifest has no source {', '.join(odd)}")
    return HeldOutLoss(documents=documents, progress=progress)


def _toxicity(options: ProbeOptions, common: Mapping[str, Any]) -> Probe:
    if options.rtp is None:
        raise ConfigError("the probe rtp needs --rtp FILE, in the format of RealToxicityPrompts")
    sizes: dict[str, Any] = {"limit": options.prompts, "generations": options.generations}
    return PromptToxicity.of(read_prompts(options.rtp), judge=options.judge, **sizes, **common)


def _lm_eval(options: ProbeOptions) -> Probe:
    if not options.tasks:
        raise ConfigError("the probe lm_eval needs a task: --task NAME")
    return HarnessTasks(tasks=options.tasks, limit=options.prompts, seed=options.seed)


def exit_code(report: ProbeReport) -> int:
    """Return 0, 3 where a number or a comparison is missing, 4 where nothing was evaluated."""
    if len(report.not_evaluated) == len(report.numbers):
        return 4
    tolerated = {"no_previous", "few_documents", "no_domain", "all_alike"}
    missing = [number for number in report.not_evaluated if number.reason not in tolerated]
    return 3 if missing or report.invalid else 0


def report_text(report: ProbeReport) -> str:
    """Return a report as people read it: a line a number."""
    lines = [f"{t.clean(report.checkpoint)}, step {report.step:,}", f"manifest {report.manifest}"]
    if report.compared_with:
        lines.append(f"compared with {t.clean(report.compared_with)}")
    rows = [_row(number) for number in report.numbers]
    widths = [max(len(row[column]) for row in rows) for column in range(3)] if rows else [0, 0, 0]
    lines += [
        " ".join(cell.ljust(width) for cell, width in zip(row, (*widths, 0), strict=True)).rstrip() for row in rows
    ]
    return "\n".join([*lines, *(f"note: {t.clean_message(note)}" for note in report.notes)]) + "\n"


def _row(number: Number) -> tuple[str, str, str, str]:
    scope = " ".join(f"{name}={value}" for name, value in sorted(number.scope.items()))
    name = number.metric if number.stat == "value" else f"{number.metric}.{number.stat}"
    if number.value is None or not number.known:
        why = f"not evaluated: {number.reason or 'not_finite'}"
        return f"  {name}", t.clean(scope), "-", f"{why}, {_invalid(number)}" if number.invalid else why
    bounds = "" if number.low is None or number.high is None else f" ({number.low:.4g} to {number.high:.4g})"
    least = "at least " if number.method == "at_least" else ""
    change, moved = _invalid(number) if number.invalid else "", number.change
    if moved is not None and not number.invalid:
        change = f"{moved.value:+.3g}" + ("" if moved.low is None else f" ({moved.low:+.2g} to {moved.high:+.2g})")
    return f"  {name}", t.clean(scope), f"{least}{number.value:.4g}{bounds} {number.unit}", change


def _invalid(number: Number) -> str:
    return f"comparison invalid: {', '.join(number.invalid)} differ"
