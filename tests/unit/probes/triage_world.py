"""Run logs, manifests and reports made by hand, with a single thing wrong: what triage reads, without torch."""

from __future__ import annotations

import numpy as np
from made_manifest import make, shard

from dataaudit.manifest.load import load_manifest
from dataaudit.probes.estimates import Units
from dataaudit.probes.report import EvalArtifacts, Number, Outcome, ProbeReport
from dataaudit.runlog.format import RunFile
from dataaudit.runlog.writer import RankWriter, create_run, event

SOURCES = ("code", "web")
SHARDS = 12
STEPS, ROWS, TARGETS, EVERY = 160, 8, 64, 4
SHAPE = {"parameters": 1_000_000, "layers": 2, "width": 64, "attention": "2 of 2 layers, 4 heads", "experts": "2 of 2"}
LEVELS = {
    ("attn_entropy", "normalised"): 0.6,
    ("max_attn_logit", "sampled"): 9.0,
    ("q_norm", "rms"): 5.0,
    ("k_norm", "rms"): 5.0,
    ("router_token_entropy", "normalised"): 0.6,
    ("moe_util_entropy", "normalised"): 0.95,
    ("router_weight_similarity", "mean_cosine"): 0.0,
    ("router_centered_conditioning", "ratio"): 3.0,
    ("residual_rms", "block"): 3.0,
    ("activation_kurtosis", "block"): 4.0,
    ("spectral_norm", "largest"): 3.0,
    ("stable_rank", "least"): 5.0,
    ("update_to_weight", "matrices"): 0.005,
}
"""Healthy levels by metric and statistic."""


def manifest(folder, *, shards=SHARDS, mixture=True):
    """Publish a manifest whose shards are of two sources in turn, equal parts of which may be declared."""
    made = [
        shard(f"part-{at}.jsonl", documents=40, tokens=4_000, sha256=f"{at + 1:064x}", sources={SOURCES[at % 2]: 4_000})
        for at in range(shards)
    ]
    make(folder, made, mixture=dict.fromkeys(SOURCES, 0.5) if mixture else None)
    return folder


def run(
    folder,
    manifest_folder,
    *,
    seed=0,
    code=0.5,
    loss=2.0,
    steps=STEPS,
    off=None,
    since=0,
    shape=None,
    vitals=True,
    every=EVERY,
    bad=None,
    events=(),
    validation=None,
    scored=True,
    closed=True,
):
    """Write a run log.

    Args:
        folder: Of the log.
        manifest_folder: Of its manifest.
        seed: Of losses and documents.
        code: Share of rows that are code.
        loss: Level of the loss.
        steps: Of the run.
        off: Levels of vitals from step ``since`` on that differ, by metric.
        since: That step, or one by metric.
        shape: What vitals found of the model, where it is not the usual.
        vitals: Whether there are any.
        every: Steps between two that are measured.
        bad: Range of steps of which a row of the first shard has a loss that is far too high.
        events: Further events, (step, kind, detail).
        validation: Loss of a validation at the last step.
        scored: Whether segments have losses.
        closed: Whether the log says at its end that it has ended.
    """
    loaded = load_manifest(manifest_folder)
    about = {"manifest": loaded.id, "dataset": "made@1", "sources": SOURCES, "block_rows": 64, "ranks": 1}
    table = loaded.table("shards", ["shard", "split", "uri", "sha256"])
    create_run(folder, RunFile(**about, started="2026-11-22T00:00:00Z", program="0"), table)
    log, draw = RankWriter(folder, 0, 1, 64), np.random.default_rng(seed)
    log.add("events", event(0, "started", {"told": {}}))
    found = SHAPE | (shape or {})
    if vitals:
        names = {metric for metric, _ in LEVELS}
        log.add("events", event(0, "vitals", {"found": found, "metrics": dict.fromkeys(names, "ok")}))
    shards, rows, stretches = len(table), [], []
    for step in range(1, steps + 1):
        source = (draw.random(ROWS) > code).astype(int)
        shard_ = source + 2 * draw.integers(0, shards // 2, ROWS)
        losses = loss + 3.0 / (step + 10) + draw.normal(size=ROWS) * 0.05
        if bad is not None and step in bad:
            source[:3], shard_[:3] = 0, 0
            losses[:3] += 5.0
        stretches.append((np.full(ROWS, step), shard_, source, losses, draw.integers(0, 40, ROWS), np.arange(ROWS)))
        row = {"step": step, "time": float(step), "micro_batches": 1, "targets": ROWS * TARGETS, "merged": 0}
        row |= {"scored": ROWS * TARGETS * scored, "loss_sum": float(losses.sum()) * TARGETS}
        log.add_step(step, {name: [value] for name, value in row.items()} | {"user_loss": None if scored else [loss]})
        rows.append((step, "step_time", -1, "value", 0.5))
        if vitals and step % every == 0:
            rows += _vitals(step, off or {}, since, draw, found["layers"])
    if steps:
        joined = (np.concatenate(column) for column in zip(*stretches, strict=True))
        columns = dict(zip(("step", "shard", "source", "loss", "row", "batch_row"), joined, strict=True))
        columns["loss"] = columns["loss"] if scored else None
        zeros = {name: np.zeros(steps * ROWS) for name in ("micro_batch", "start", "offset", "epoch")}
        log.add("stretches", columns | zeros | {"targets": np.full(steps * ROWS, TARGETS)})
        rows += [(steps, "val_loss", -1, "value", validation)] if validation is not None else []
        log.add("values", values(rows))
    for at, kind, detail in events:
        log.add("events", event(at, kind, detail))
    if closed:
        log.add("events", event(steps, "closed", {"lost_steps": 0}))
    log.close()
    return folder


def _vitals(step, off, since, draw, layers):
    rows = []
    for (metric, stat), level in LEVELS.items():
        begins = since.get(metric, 0) if isinstance(since, dict) else since
        own = off.get(metric, level) if step >= begins else level
        noise = draw.normal(size=layers) * 0.02
        rows += [(step, metric, layer, stat, own * (1 + noise[layer])) for layer in range(layers)]
    return rows


def values(rows):
    """Return columns of the table of values, of rows of step, metric, layer, stat, value."""
    step, metric, layer, stat, value = (list(column) for column in zip(*rows, strict=True))
    whole = {"head": np.full(len(rows), -1), "metric": metric, "stat": stat}
    return {"step": np.array(step), "layer": np.array(layer), "value": np.array(value), **whole}


def report(folder, *, losses=2.0, step=STEPS, frozen=True, right=None, lm_eval=False, **artifacts):
    """Write the report of a checkpoint beside a run log; artifacts of the held-out probe may be others.

    Args:
        folder: Of the log.
        losses: Mean loss of held-out documents.
        step: Of the checkpoint.
        frozen: Whether the frozen batch was measured, too.
        right: Cloze items of 40 that are right; None: they were not asked.
        lm_eval: Whether they are of lm-evaluation-harness instead.
        artifacts: Of the probe of held-out documents.
    """
    given = {"tokenizer": "t", "prompts": "p", "dtype": "float32", "harness": "dataaudit-probes/held_out 1"} | artifacts
    own = EvalArtifacts(**given)
    other = EvalArtifacts(tokenizer="t", prompts="q", harness="dataaudit-probes/frozen 1", dtype="float32")
    made = ProbeReport(checkpoint=folder.name, step=step)
    documents = np.random.default_rng(3).normal(0.0, 0.4, 40)
    for metric, artifacts_, values in (("val_loss", own, losses + documents), ("fixed_probe_loss", other, None)):
        outcome = Outcome()
        if values is None and not frozen:
            continue
        outcome.add(metric, Units.of(losses + documents if values is None else values), "nats/token")
        for number in outcome.numbers:
            plain = {name: getattr(number, name) for name in number.__slots__}
            made.numbers.append(Number(**plain | {"artifacts": artifacts_.digest}))
        made.units |= outcome.units
        made.artifacts[artifacts_.digest] = artifacts_
    if right is not None:
        outcome = Outcome()
        outcome.add("microbench_score", Units.of(np.arange(40) < right), "ratio", task="cloze")
        if lm_eval:  # its scores have an interval, and no items
            task, own_share = {"metric": "microbench_score", "stat": "acc", "scope": {"task": "quiz"}}, right / 40
            outcome.numbers = [
                Number(**task, unit="ratio", value=own_share, low=own_share - 0.1, high=own_share + 0.1, units=40)
            ]
            outcome.units.clear()
        plain = {name: getattr(outcome.numbers[0], name) for name in outcome.numbers[0].__slots__}
        made.numbers.append(Number(**plain | {"artifacts": own.digest}))
        made.units |= outcome.units
    made.write(folder / "probes" / f"step-{step:08d}")
    return made
