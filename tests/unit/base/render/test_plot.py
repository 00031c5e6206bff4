"""Curves in characters: where points lie, what is pointed out, and what has no place."""

import math

from dataaudit.base.render.terminal import LOUD, QUIET, plot_lines


def test_a_column_a_step_where_there_is_room():
    lines = plot_lines([1, 2, 3, 4], [1.0, 2.0, 3.0, 2.0], [False, False, True, False], 80, height=3)
    assert lines == ["3.00 |  #", "     | . .", "1.00 |.", "     +----", "      1  4"]


def test_steps_that_share_a_column_show_their_mean_and_the_loudest():
    steps = list(range(100, 300))
    values = [1.0, 3.0] * 99 + [2.0, 8.0]
    lines = plot_lines(steps, values, [value == 8.0 for value in values], 27)
    drawn = "".join(line[6:] for line in lines[:-2])
    assert drawn.count(LOUD) == 1
    assert drawn.count(QUIET) == 21
    assert max(map(len, lines)) <= 27
    assert lines[-1].split() == ["100", "299"]


def test_what_is_not_finite_has_no_point():
    assert plot_lines([1, 2], [math.nan, math.inf], [True, True], 80) == []
    drawn = plot_lines([1, 2, 3], [1.0, math.nan, 2.0], [False, True, False], 80)
    assert LOUD not in "".join(drawn)


def test_a_flat_curve_is_a_line():
    lines = plot_lines(list(range(30)), [2.5] * 30, [False] * 30, 80)
    assert [line.count(QUIET) for line in lines if QUIET in line[6:]] == [30]
