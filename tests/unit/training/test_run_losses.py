"""Losses of a run: by source, exact however they are kept; beside a law of their past; beside a healthy run."""

import json
from dataclasses import fields

import jsonschema
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from lanes import thinned
from made_run import SOURCES, Made, make_shards, worse_state, write_run
from scipy.optimize import least_squares

from dataaudit import cli
from dataaudit.runlog.format import SUMS
from dataaudit.runlog.reader import load_run
from dataaudit.schemas import SCHEMAS
from dataaudit.training.attribution.attribute import attribute
from dataaudit.training.attribution.curve import Curve
from dataaudit.training.attribution.run_losses import (
    MOST_WINDOWS,
    collapse,
    fit_power_law,
    scaling_law,
    source_curves,
    source_losses,
)
from dataaudit.training.pages.blocks import render_text


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


@pytest.mark.runs
def test_a_source_that_costs_more_for_a_while_is_seen_and_does_not_move_its_line(written):
    data = written(Made(steps=800), dearer(range(400, 440), 1.0), dearer(range(600, 620), 1.0))
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


@pytest.mark.runs
def test_a_worse_state_moves_no_tax(written):
    """All sources alike: the run's loss leaves its band, and no source is named."""
    found = attribute(written(Made(steps=500), worse_state(range(300, 310), 2.0)))
    assert found.episodes
    assert not any(one.moved for one in found.source_losses.sources)


@pytest.mark.runs
def test_clean_runs_move_no_tax(tmp_path, manifest):
    moved = 0
    for seed in range(runs := thinned(40, 8)):
        write_run(tmp_path / str(seed), manifest, Made(steps=400, seed=seed))
        found = source_losses(curves_of(tmp_path / str(seed)), SOURCES)
        moved += any(one.moved for one in found.sources)
    assert moved <= runs // 20


def test_a_run_without_losses_of_stretches_has_none(written):
    data = written(Made(steps=120, scored=lambda step: False))
    found = attribute(data)
    assert found.source_losses is None
    assert "Losses by source" not in render_text(found, data)


def curve(steps=2_000, *, noise=0.0, seed=0, law=(2.0, 0.6, 0.4), scale=1.0, targets=1_000, changed=lambda step: 0.0):
    """Return a run whose loss falls by a law of its tokens."""
    step = np.arange(1, steps + 1)
    time = (step - 0.5) / steps
    loss = law[0] + law[1] * time ** -law[2] + noise * np.random.default_rng(seed).standard_normal(steps)
    loss = scale * (loss + np.array([changed(one) for one in step.tolist()]))
    return Curve(step=step, value=loss, targets=np.full(steps, targets), ranks=np.ones(steps, int))


def healthy(one):
    return np.ones(len(one.step), dtype=bool)


class TestLaw:
    @pytest.mark.parametrize("law", [(2.0, 0.6, 0.4), (0.0, 3.0, 0.1), (1.5, 0.05, 1.2)])
    def test_a_law_without_noise_leaves_nothing(self, law):
        one = curve(law=law)
        found = scaling_law(one, healthy(one))
        assert abs(found.residual) < 1e-3  # nats/token: values are means of bins
        assert max(map(abs, found.earlier)) < 1e-3
        assert found.irreducible + found.amplitude == pytest.approx(law[0] + law[1], abs=2e-3)
        assert (found.first_step, found.last_step) == (101, 1_800)

    @pytest.mark.parametrize("seed", range(thinned(20, 5)))
    def test_it_predicts_as_scipys_fit_does(self, seed):
        """The twin: all four numbers at once by a trust region, Huber's loss, no bins and no grid."""
        one = curve(noise=0.05, seed=seed)
        found = scaling_law(one, healthy(one))
        time = (one.step - 0.5) / len(one.step)
        past, newest = (time >= 0.05) & (time <= 0.9), time > 0.9

        def off(given):
            return given[0] + given[1] * time[past] ** -given[2] - one.value[past]

        twin = least_squares(off, (2.0, 1.0, 0.5), loss="huber", f_scale=0.05 * 1.345, bounds=([0, 0, 0.02], np.inf)).x
        expected = np.mean(one.value[newest] - twin[0] - twin[1] * time[newest] ** -twin[2])
        assert found.residual == pytest.approx(expected, abs=0.006)

    def test_what_is_far_off_does_not_move_it(self):
        random = np.random.default_rng(1)
        one = curve(noise=0.02)
        time, value = (one.step[100:] - 0.5) / 2_000, one.value[100:].copy()
        expected = fit_power_law(time, value, np.ones(len(time))).at(np.array([1.0]))[0]
        value[random.random(len(value)) < 0.1] += 3.0
        assert fit_power_law(time, value, np.ones(len(time))).at(np.array([1.0]))[0] == pytest.approx(
            expected, abs=0.01
        )

    @pytest.mark.runs
    def test_the_newest_residual_of_a_healthy_run_is_as_the_earlier_ones(self):
        """Of a residual and n earlier ones of its like it is the largest or the least in 2 / (n + 1) of runs."""
        outside, expected = 0, []
        for seed in range(runs := thinned(200, 30)):
            one = curve(noise=0.1, seed=seed)
            found = scaling_law(one, healthy(one))
            outside += not min(found.earlier) <= found.residual <= max(found.earlier)
            expected.append(2 / (len(found.earlier) + 1))
        share = np.mean(expected)
        assert 8 <= 2 / share - 1 <= 20
        assert outside <= runs * share + 4 * np.sqrt(runs * share * (1 - share))

    def test_a_loss_that_stops_falling_is_above_all_earlier_ones(self):
        one = curve(noise=0.02, changed=lambda step: 0.05 * (step > 1_800))
        found = scaling_law(one, healthy(one))
        assert found.residual == pytest.approx(0.05, abs=0.01)
        assert found.residual > max(found.earlier)

    def test_steps_of_episodes_and_of_the_warm_up_are_left_out(self):
        one = curve(changed=lambda step: 3.0 * (500 <= step < 520) + 2.0 * (step < 300))
        good = healthy(one)
        good[499:519] = False
        found = scaling_law(one, good, 300)
        assert found.first_step == 300
        assert abs(found.residual) < 2e-3

    @pytest.mark.parametrize("steps", [0, 1, 150])
    def test_too_few_steps_have_no_law(self, steps):
        one = curve(steps)
        assert scaling_law(one, healthy(one)) is None
        more = curve(2_000)
        assert scaling_law(more, ~healthy(more)) is None

    def test_a_loss_that_rises_is_compared_with_a_constant(self):
        one = curve(law=(2.0, 0.0, 1.0), changed=lambda step: step / 1_000)
        found = scaling_law(one, healthy(one))
        assert found.amplitude == 0
        assert found.residual > 0.5


class TestCollapse:
    def test_runs_that_differ_by_a_factor_fall_on_one_curve(self):
        reference, whole = curve(noise=0.01), curve(noise=0.01, seed=2, scale=1.3)
        half = Curve(**{field.name: getattr(whole, field.name)[:900] for field in fields(Curve)})
        found = collapse(half, healthy(half), reference, healthy(reference), name="good")
        assert found.progress == 0.45
        assert found.scale == pytest.approx(1.3, rel=0.01)
        assert abs(found.residual) < 4 * found.spread

    def test_what_leaves_the_course_is_off_by_as_much(self):
        reference, one = curve(noise=0.005), curve(noise=0.005, seed=3, changed=lambda step: 0.2 * (step > 1_800))
        found = collapse(one, healthy(one), reference, healthy(reference), name="good")
        assert found.residual == pytest.approx(0.2 / 2.6, rel=0.1)
        assert found.residual > 10 * found.spread

    def test_progress_is_by_the_tokens_of_the_reference(self):
        reference, one = curve(), curve(1_000, targets=500)
        assert collapse(one, healthy(one), reference, healthy(reference), name="good").progress == 0.25

    def test_too_little_of_either_has_none(self):
        reference, short, none = curve(), curve(60), curve(0)
        assert collapse(short, healthy(short), reference, healthy(reference), name="good") is None
        assert collapse(none, healthy(none), reference, healthy(reference), name="good") is None
        assert collapse(reference, healthy(reference), none, healthy(none), name="good") is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A manifest, a healthy run, and one that gets worse towards its end, all blocks alike."""
    folder = tmp_path_factory.mktemp("made")
    make_shards(folder / "manifest")
    two = Made(steps=1_000, ranks=2, batch_rows=4)  # each writes its rate
    write_run(folder / "good", folder / "manifest", two, rates=lambda step: min(1.0, step / 100))
    write_run(
        folder / "worse",
        folder / "manifest",
        Made(steps=1_000, seed=1),
        lambda batch: worse_state(range(900, 1_001), (batch.step - 900) * 0.004)(batch),
    )
    return folder


@pytest.mark.runs
class TestCommand:
    def attributed(self, folder, run, *more):
        done = CliRunner().invoke(
            cli.main, ["attribute", str(folder / run), "--manifest", str(folder / "manifest"), *more]
        )
        return done.exit_code, done.output

    def test_both_are_said(self, folder):
        code, printed = self.attributed(folder, "worse", "--reference", str(folder / "good"), "--json")
        found = json.loads(printed)
        assert (code, {one["reason"] for one in found["episodes"]}) == (3, {"state"})
        jsonschema.validate(found, SCHEMAS["attribution"][1]())
        assert found["scaling_law"]["residual"] > max(found["scaling_law"]["earlier"])
        assert found["collapse"]["reference"] == "good"
        assert found["collapse"]["residual"] > 3 * found["collapse"]["spread"]
        _, text = self.attributed(folder, "worse", "--reference", str(folder / "good"))
        assert "off the law of the time before" in " ".join(text.split())
        assert "At 100% of the tokens of good the newest steps are +0.0" in " ".join(text.split())

    def test_the_fit_begins_after_the_warm_up(self, folder):
        found = json.loads(self.attributed(folder, "good", "--json")[1])
        assert found["scaling_law"]["first_step"] == 100
        assert found["collapse"] is None
        assert json.loads(self.attributed(folder, "worse", "--json")[1])["scaling_law"]["first_step"] == 51

    def test_a_reference_that_is_no_log(self, folder):
        code, printed = self.attributed(folder, "good", "--reference", str(folder / "manifest"))
        assert code == 2
        assert "Traceback" not in printed
