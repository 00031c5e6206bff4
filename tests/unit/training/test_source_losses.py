"""Losses by source: exact whether stretches are kept or summed up, and a tax that moves is seen when it moves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from lanes import thinned
from made_run import SOURCES, Made, make_shards, worse_state, write_run

from dataaudit.runlog.format import SUMS
from dataaudit.runlog.reader import load_run
from dataaudit.training.attribution.attribute import attribute
from dataaudit.training.attribution.run_data import load_data
from dataaudit.training.attribution.run_losses import MOST_WINDOWS, source_curves, source_losses
from dataaudit.training.pages.blocks import render_text


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    """A manifest of twelve shards."""
    folder = tmp_path_factory.mktemp("made") / "manifest"
    make_shards(folder)
    return folder


def dearer(steps, above, source=1):
    """Return what raises the losses of a source in some steps."""

    def plant(batch):
        if batch.step in steps:
            batch["loss"][batch["source"] == source] += above

    return plant


def curves_of(folder):
    log = load_run(folder)
    return source_curves(log.table("stretches"), log.table("sums"), len(SOURCES))


def slow_losses(made, window, plant=lambda batch: None):
    """Add up a run's losses by window and source, stretch by stretch; of the float32 that a log has."""
    found = {}
    for step in range(1, made.steps + 1):
        batch = made.batch(step, 0)
        plant(batch)
        rows = zip(batch["source"].tolist(), batch["targets"].tolist(), batch["loss"].tolist(), strict=True)
        for source, targets, loss in rows:
            if targets and np.isfinite(loss):
                sums = found.setdefault((step // window * window, source), [0, 0.0])
                sums[0] += targets
                sums[1] += targets * float(np.float32(loss))
    return found


@pytest.mark.parametrize("kept", [{}, {"kept_steps": 120, "part_steps": 100}])
def test_sums_are_those_of_every_stretch_kept_or_not(tmp_path, manifest, kept):
    made = Made(steps=700)
    write_run(tmp_path / "run", manifest, made, **kept)
    assert (load_run(tmp_path / "run").table("sums").num_rows > 0) == bool(kept)
    curves = curves_of(tmp_path / "run")
    assert curves.window == (256 if kept else 2)
    expected = slow_losses(made, curves.window)
    assert int(curves.targets.sum()) == 700 * made.batch_rows * made.context
    for place, first in enumerate(curves.first.tolist()):
        for source in range(len(SOURCES)):
            targets, loss = expected[first, source]
            rest_targets, rest_loss = expected[first, 1 - source]
            assert curves.targets[place, source] == targets
            assert curves.losses[place, source] == pytest.approx(loss / targets, rel=1e-12)
            assert curves.taxes[place, source] == pytest.approx(loss / targets - rest_loss / rest_targets, abs=1e-9)


def test_no_more_windows_than_there_is_room_for():
    step = np.arange(1, 30_001)
    stretches = pa.table({"step": step, "source": step % 2, "targets": step * 0 + 3, "loss": step * 1.0})
    nothing = SUMS.schema.empty_table()
    curves = source_curves(stretches, nothing, 2)
    assert MOST_WINDOWS / 2 <= len(curves.first) <= MOST_WINDOWS
    assert curves.window == 128
    assert (np.diff(curves.first) == 128).all()
    assert len(source_curves(stretches.slice(0, 0), nothing, 2).first) == 0


def test_what_is_no_number_or_has_no_source_is_left_out():
    stretches = pa.table(
        {
            "step": [1, 1, 1, 1, 2],
            "source": [0, 0, 1, -1, 7],
            "targets": [10, 30, 20, 5, 5],
            "loss": pa.array([1.0, 2.0, None, 9.0, 9.0], pa.float32()),
        }
    )
    more = pa.table({"step": [1], "source": [1], "targets": [8], "loss": pa.array([np.nan], pa.float32())})
    curves = source_curves(pa.concat_tables([stretches, more]), SUMS.schema.empty_table(), 2)
    assert curves.targets.tolist() == [[40, 0]]
    assert curves.loss_sum.tolist() == [[70.0, 0.0]]
    assert np.isnan(curves.taxes).all(), "nothing to compare it with"
    (one,) = source_losses(curves, SOURCES).sources
    assert (one.source, one.loss, one.newest_tax, one.moved) == ("code", 1.75, None, ())


def test_a_source_that_costs_more_for_a_while_is_seen_and_does_not_move_its_line(tmp_path, manifest):
    def both(batch):
        dearer(range(400, 440), 1.0)(batch)
        dearer(range(600, 620), 1.0)(batch)

    write_run(tmp_path / "run", manifest, Made(steps=800), both)
    data = load_data(tmp_path / "run", manifest)
    found = attribute(data)
    for one in found.source_losses.sources:
        assert [(moved.first_step, moved.last_step) for moved in one.moved] == [(400, 439), (600, 619)]
        sign = 1 if one.source == "web" else -1
        for moved in one.moved:
            assert moved.tax - moved.expected == pytest.approx(sign * 1.0, abs=0.1)
            assert moved.expected == pytest.approx(sign * 0.6, abs=0.1), "the line is as it was before"
    text = render_text(found, data)
    assert "Losses by source over the whole run" in text
    assert "400 to 439 and 600 to 619" in text


def test_a_worse_state_moves_no_tax(tmp_path, manifest):
    """All sources alike: the run's loss leaves its band, and no source is named."""
    write_run(tmp_path / "run", manifest, Made(steps=500), worse_state(range(300, 310), 2.0))
    found = attribute(load_data(tmp_path / "run", manifest))
    assert found.episodes
    assert not any(one.moved for one in found.source_losses.sources)


def test_clean_runs_move_no_tax(tmp_path, manifest):
    moved = 0
    for seed in range(runs := thinned(40, 8)):
        write_run(tmp_path / str(seed), manifest, Made(steps=400, seed=seed))
        found = source_losses(curves_of(tmp_path / str(seed)), SOURCES)
        moved += any(one.moved for one in found.sources)
    assert moved <= runs // 20


def test_a_run_without_losses_of_stretches_has_none(tmp_path, manifest):
    write_run(tmp_path / "run", manifest, Made(steps=120, scored=lambda step: False))
    data = load_data(tmp_path / "run", manifest)
    found = attribute(data)
    assert found.source_losses is None
    assert "Losses by source" not in render_text(found, data)
