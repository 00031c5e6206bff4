"""A log is followed row by row, however little of it is read at a time."""

import tracemalloc

import numpy as np
import pytest

from dataaudit.runlog.following import Follower
from tests.unit.live.live_logs import Run


def long_log(folder, steps):
    """Write a log of two ranks and two attempts, whose batches have up to seven steps."""
    for rank, first in ((0, 1), (1, 1), (0, steps // 2)):
        run = Run(folder, rank=rank, ranks=2, first=first)
        for step in range(first, steps + 1):
            run.end_step(loss=float(step), grad_global_norm=float(rank), learning_rate=1e-3)
            if step % 5 == 0:
                run.happen("flagged", step=step)
            if step % (3 + 4 * rank) == 0:
                run.writer.flush()
        run.close()


def handed_over(folder, most):
    """Return all rows that a follower yields, one by one, in plain types."""
    follower = Follower(folder)
    follower.most = most
    found = []
    for rows in follower.read():
        columns = {name: np.ma.getdata(np.asarray(column)).tolist() for name, column in rows.columns.items()}
        columns.pop("time", None)
        found += [(rows.table, rows.rank, rows.attempt, *row) for row in zip(*columns.values(), strict=True)]
    assert not list(follower.read())
    return found


@pytest.mark.parametrize("most", [1, 2_000, 9_000])
def test_what_is_handed_over_does_not_depend_on_how_much_is_read_at_a_time(tmp_path, most):
    long_log(tmp_path, 300)
    expected = handed_over(tmp_path, 1 << 30)
    found = handed_over(tmp_path, most)
    for attempt in (0, 1):  # an attempt that began later is read beside an earlier one
        assert [own for own in found if own[2] == attempt] == [own for own in expected if own[2] == attempt]
    assert len(found) == len(expected)


def test_rows_that_wait_do_not_grow_with_the_log(tmp_path):
    run = Run(tmp_path)
    for step in range(1, 4_001):
        run.end_step(grad_global_norm=1.0)
        if step % 50 == 0:
            run.writer.flush()
    run.close()
    follower = Follower(tmp_path)
    follower.most = 1 << 14
    next(iter(follower.read()))
    tracemalloc.start()
    number = sum(1 for _ in follower.read())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert number > 4_000
    assert peak < 2 << 20
