"""The sections of a run's page that say what it was trained on and what it did."""

from __future__ import annotations

from dataaudit.render.blocks import Block, Curves, Facts, Figure, Point, Section, Table, Tone, names, numbers, rows_of
from dataaudit.render.line import Name, say, share
from dataaudit.runlog.reader import RunLog
from dataaudit.training.findings import Attribution
from dataaudit.training.run_blocks import data_blocks, data_points, run_pairs, run_points
from dataaudit.training.run_findings import RunFacts
from dataaudit.training.trained_on import source_tokens


def trained_section(log: RunLog, found: Attribution | str | None) -> tuple[Section | None, list[Point]]:
    """Return the section of what was trained on: against the manifest where ``dataaudit attribute`` has looked.

    Args:
        log: Of the run.
        found: What ``attribute`` found, or why that cannot be read.
    """
    title, lead = "What was trained on", "Exact counts of the log."
    if isinstance(found, Attribution) and found.trained_on is not None and found.trained_on.tokens:
        points = list(data_points(found.trained_on))
        until = f"Against the manifest, by `dataaudit attribute`, up to step {found.last_step or 0:,}."
        first_point = points[0].text if points else until
        tone: Tone = "bad" if any(one.tone == "bad" for one in points) else "warn" if points else "good"
        blocks = tuple(data_blocks(found.trained_on))
        return Section(id="trained", title=title, lead=first_point, tone=tone, blocks=blocks), points
    tokens = source_tokens(log)
    if not tokens:
        return None, []
    total = sum(tokens.values())
    table = Table(
        title=title,
        columns=(*names("source"), *numbers("tokens", "share")),
        **rows_of(list(tokens.items()), lambda one: (Name(one[0]), f"{one[1]:,}", share(one[1] / total))),
        noun="source",
        note="`dataaudit attribute` compares it with the manifest: mixture, passes, token drift, languages, lengths.",
    )
    return Section(id="trained", title=title, lead=lead, blocks=(table,)), []


def run_section(found: RunFacts) -> Section | None:
    """Return what the run did, in numbers, with losses on held-out data over steps."""
    if not found.tokens_seen:
        return None
    points = list(run_points(found))
    blocks: list[Block] = [Facts(title="The run", pairs=tuple(run_pairs(found)))]
    for place, one in enumerate(found.held_out):
        rows = [point for point in one.points if point.train_val_gap is not None]
        if len(rows) < 2:
            continue
        line = tuple(float(point.step) for point in rows), tuple(float(point.train_val_gap or 0) for point in rows)
        blocks.append(
            Figure(
                id=f"gap-{place}",
                title=say("train_val_gap {}", Name(one.name)) if one.name else "train_val_gap",
                chart=Curves(series=(("gap", *line),), unit="nats/token"),
                table=Table(
                    title="Losses on held-out data",
                    columns=numbers("step", "val_loss", "train_loss_ema", "train_val_gap"),
                    **rows_of(
                        rows[::-1],
                        lambda point: (
                            point.step,
                            *(
                                f"{value:.4g}" if value is not None else "unknown"
                                for value in (point.val_loss, point.train_loss_ema, point.train_val_gap)
                            ),
                        ),
                    ),
                    folded=True,
                ),
                says=f"from {line[1][0]:+.3f} to {line[1][-1]:+.3f}",
                height=180,
            )
        )
    lead = points[0].text if points else "Nothing stands out."
    return Section(id="run", title="The run", lead=lead, tone="warn" if points else "good", blocks=tuple(blocks))
