"""Tiles of a run log: buckets against the numbers themselves, growth, resumed runs, hours."""

import numpy as np
import pytest
from live_logs import Run

from dataaudit.live import tiles as tiles_module
from dataaudit.live.tiles import COLUMNS, HeatTiles, Line, Tiles
from dataaudit.runlog.reader import load_run
from dataaudit.training.pages.run_view import RunView


def tiles_of(folder):
    """Return the tiles of a log, read to its end."""
    tiles = Tiles(folder, load_run(folder).run)
    assert not tiles.read()
    return tiles


def naive(steps, values, width):
    """Return least, mean and largest value by bucket, one bucket after the other."""
    found = {}
    for step, value in zip(steps, values, strict=True):
        found.setdefault(step // width, []).append(value)
    return [(min(own), sum(own) / len(own), max(own)) for _, own in sorted(found.items())]


@pytest.mark.parametrize("most", [7, 100, 1_000_000])
@pytest.mark.parametrize("number", [1, 50, 4_000])
def test_buckets_are_least_mean_and_largest_of_their_steps(monkeypatch, number, most):
    """At every width, with values that come in pieces, in any order, some of them no numbers."""
    monkeypatch.setattr(tiles_module, "KEEP", 1_000)
    random = np.random.default_rng(number)
    steps = np.sort(random.choice(np.arange(1, 3 * number + 1), number, replace=False))
    values = np.where(random.random(number) < 0.1, np.nan, random.normal(size=number))
    values[-1] = 1.0
    line = Line()
    for piece in np.array_split(np.arange(number), 7):
        shuffled = random.permutation(piece)
        line.add(steps[shuffled], values[shuffled])
    found = line.read(0, int(steps[-1]), most)
    known = np.isfinite(values)
    first = found.step[0] - (found.width - 1) / 2
    kept = known & (steps >= first)
    expected = naive(steps[kept].tolist(), values[kept].tolist(), found.width)
    assert len(found.step) <= max(most, 1) + 1
    assert np.allclose(np.column_stack([found.low, found.mean, found.high]), expected)
    assert line.newest == (steps[-1], values[-1])


def test_a_long_run_keeps_little_and_its_spike_stays(monkeypatch):
    """Of 100,000 steps each level but the widest keeps its newest buckets; the largest value is in its bucket."""
    monkeypatch.setattr(tiles_module, "KEEP", 500)
    line = Line()
    for first in range(0, 100_000, 2_000):
        values = np.ones(2_000)
        values[700] = 9.0 if first == 20_000 else 1.0
        line.add(np.arange(first, first + 2_000), values)
    assert all(level.size <= 2 * 500 for level in line.levels)
    found = line.read(0, 100_000, 300)
    assert found.high.max() == 9.0
    assert abs(found.step[found.high.argmax()] - 20_700) <= found.width
    newest = line.read(99_900, 100_000, 300)
    assert newest.width == 1
    assert len(newest.step) == 100


def test_layers_and_heads_have_means_in_few_columns():
    """The columns become wider as the run grows; rows stand by layer and head."""
    heat = HeatTiles()
    steps = np.arange(0, 5_000, 10)
    for layer in (1, 0):
        at = np.full(len(steps), layer)
        heat.add(steps, at, np.full(len(steps), 2), steps * 1.0 + layer)
    places, ends, means = heat.read()
    assert places == [(0, 2), (1, 2)]
    assert len(ends) <= COLUMNS
    width = heat.width
    inside = steps // width == ends[3] // width
    assert means[1, 3] == pytest.approx(steps[inside].mean() + 1)


def test_a_log_is_followed_as_it_grows(tmp_path):
    """What was read is not read again; events, ranks and the end are known."""
    run = Run(tmp_path / "run")
    run.end_step(loss=2.0, grad_global_norm=1.0)
    run.writer.flush()
    tiles = Tiles(tmp_path / "run", load_run(tmp_path / "run").run)
    tiles.read()
    assert tiles.step == 1
    assert not tiles.closed
    run.end_step(loss=4.0, max_attn_logit=[5.0, 6.0])
    run.close()
    tiles.read()
    tiles.read()
    found = tiles.line("loss").read(0, 2, 10)
    assert found.mean.tolist() == [2.0, 4.0]
    assert tiles.line("grad_global_norm").newest == (1, 1.0)
    assert tiles.heats["max_attn_logit", "value"].read()[2].tolist() == [[5.0], [6.0]]
    assert [event["kind"] for event in tiles.events] == ["started", "closed"]
    assert tiles.closed == {0}


def test_two_ranks_are_a_mean_and_a_spread(tmp_path):
    """A bucket of a single step holds both ranks."""
    for rank, loss in ((0, 2.0), (1, 4.0)):
        run = Run(tmp_path / "run", rank=rank, ranks=2)
        run.end_step(loss=loss)
        run.close()
    found = tiles_of(tmp_path / "run").line("loss").read(0, 1, 10)
    assert (found.low[0], found.mean[0], found.high[0]) == (2.0, 3.0, 4.0)


@pytest.mark.parametrize("seen", [True, False])
def test_a_resumed_run_supersedes_its_steps(tmp_path, seen):
    """Whether they were in tiles already, or not: the same as the log read anew."""
    run = Run(tmp_path / "run")
    for step in range(1, 11):
        run.end_step(loss=float(step))
    run.writer.close()  # killed: no event ends it
    tiles = Tiles(tmp_path / "run", load_run(tmp_path / "run").run)
    if seen:
        tiles.read()
        assert tiles.step == 10
    again = Run(tmp_path / "run", first=6)
    for _ in range(2):
        again.end_step(loss=100.0)
    again.writer.flush()
    tiles.read()
    assert tiles.line("loss").read(0, 20, 100).mean.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 100.0, 100.0]
    assert tiles.step == 7
    assert tiles.generation == 1


def test_reading_ends_when_its_time_is_up(tmp_path):
    """What is left is read the next time."""
    run = Run(tmp_path / "run")
    run.end_step()
    run.close()
    tiles = Tiles(tmp_path / "run", load_run(tmp_path / "run").run)
    assert tiles.read(-1.0)
    assert tiles.step == 0
    assert not tiles.read()
    assert tiles.step == 1


def test_a_damaged_part_is_named_and_the_rest_is_read(tmp_path):
    """A bit of the values is wrong: losses are there all the same."""
    run = Run(tmp_path / "run")
    run.end_step(grad_global_norm=1.0)
    run.close()
    path = tmp_path / "run/ranks/00000/values-00000.arrows"
    data = bytearray(path.read_bytes())
    data[-60] ^= 255
    path.write_bytes(data)
    tiles = tiles_of(tmp_path / "run")
    assert tiles.damaged == [str(path)]
    assert tiles.line("loss") is not None


def test_hours_hold_what_came_in_them(tmp_path):
    """Tokens, shares, lengths, padding and counts of tokens, each in the hour of its steps."""
    run = Run(tmp_path / "run")
    for step in range(1, 5):
        run.end_step(time=step * 2_000.0, targets=80, positions=100.0)
    lengths = {
        "step": [1, 4, 4],
        "source": [0, 0, 0],
        "length": [10, 20, 30],
        "stretches": [8, 3, 1],
        "begun": [8, 3, 1],
    }
    run.writer.add("lengths", {name: np.array(column) for name, column in lengths.items()})
    tokens = {"step": [1, 4], "source": [0, 0], "token": [7, 2], "count": [80, 90], "half": [40, 40]}
    run.writer.add("tokens", {name: np.array(column) for name, column in tokens.items()})
    run.close()
    hours = tiles_of(tmp_path / "run").hours
    first, second, third = (hours.by_time[begins] for begins in (0, 3_600, 7_200))
    assert (first.first_step, first.last_step, first.targets) == (1, 1, 80)
    assert first.sources.tolist() == [80]
    assert (first.quantile(0.5), third.quantile(0.5), third.quantile(0.95)) == (10, 20, 30)
    assert first.pad_fraction == pytest.approx(0.2)
    assert second.quantile(0.5) is None
    assert first.tokens[7] == 80
    assert third.tokens[2] == 90


def test_counts_of_old_hours_make_room(tmp_path):
    """What was made of them stays, and counts that come later are counted as late."""
    run = Run(tmp_path / "run")
    for hour in range(27):
        run.end_step(time=hour * 3_600.0 + 1)
        row = {"step": [run.step], "source": [0], "token": [hour], "count": [5], "half": [2]}
        run.writer.add("tokens", {name: np.array(column) for name, column in row.items()})
    run.close()
    hours = tiles_of(tmp_path / "run").hours
    hours.drifts(lambda hour: int(hour.tokens.sum()))
    assert [hour.drift for hour in hours.by_time.values()] == [5] * 27
    assert [at for at, hour in enumerate(hours.by_time.values()) if hour.tokens is None] == [0, 1, 2]
    late = {"step": [1], "source": [0], "token": [1], "count": [9], "half": [0]}
    hours.add("tokens", {name: np.array(column) for name, column in late.items()})
    assert hours.late == 9


@pytest.mark.parametrize(("starts", "here"), [((4, 3), {0, 1, 2}), ((3, 4), {0, 1, 2, 3})])
def test_ranks_that_the_newest_start_lacks_are_not_waited_for(tmp_path, starts, here):
    for attempt, ranks in enumerate(starts):
        for rank in range(ranks):
            run = Run(tmp_path / "run", rank, ranks, first=1 + 5 * attempt)
            run.happen("resumed" if attempt else "started", ranks=ranks)
            for _ in range(5):
                run.end_step()
            if attempt or rank < min(starts):
                run.close()
            else:
                run.writer.close()
    tiles = tiles_of(tmp_path / "run")
    assert set(tiles.present) == here
    view = RunView(tmp_path / "run")
    view.read(60.0)
    assert view.ended
    assert view.silent_seconds(1e9 + 12) == 2.0
