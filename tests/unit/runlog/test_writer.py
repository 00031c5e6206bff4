"""Writing and reading a rank's log: resumed runs, thinned stretches with exact sums, and what could not be written."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lanes import thinned

from dataaudit.base.errors import ConfigError, RunLogError
from dataaudit.runlog import writer as thinning
from dataaudit.runlog.following import stored_stretches
from dataaudit.runlog.format import TABLES, RunFile
from dataaudit.runlog.parts import part_path, rank_folder, write_part
from dataaudit.runlog.reader import load_run, ranks_at
from dataaudit.runlog.writer import RankWriter, create_run, event, supersede_ranks

RUN = RunFile(
    manifest="sha256:" + "0" * 64,
    dataset="corpus@1",
    sources=("web", "code"),
    block_rows=4,
    ranks=1,
    started="2026-11-22T00:00:00Z",
    program="0",
)
SHARDS = pa.table({"shard": pa.array([0, 1], pa.int32()), "uri": ["a", "b"]})


def stretch_rows(step: int, *, seed: int = 0) -> dict[str, np.ndarray]:
    """Return six stretches of a step: two rows of three."""
    random = np.random.default_rng((seed, step))
    loss = np.ma.masked_array(random.normal(3, 1, 6), mask=random.random(6) < 0.2)
    return {
        "step": np.full(6, step),
        "micro_batch": np.zeros(6, np.int64),
        "batch_row": np.repeat([0, 1], 3),
        "start": np.tile([0, 10, 20], 2),
        "shard": random.integers(-1, 2, 6),
        "row": random.integers(0, 40, 6),
        "offset": np.zeros(6, np.int64),
        "source": random.integers(0, 2, 6),
        "epoch": np.zeros(6, np.int64),
        "targets": random.integers(1, 200, 6),
        "loss": loss,
    }


def step_row(step: int) -> dict[str, Any]:
    """Return the row of a step."""
    return {
        "step": np.array([step]),
        "time": np.array([0.0]),
        "micro_batches": np.array([1]),
        "targets": np.array([60]),
        "scored": np.array([60]),
        "loss_sum": np.array([180.0]),
        "user_loss": np.ma.masked_array([3.0], mask=[False]),
        "merged": np.array([0]),
    }


def write(log: RankWriter, steps: Iterator[int] | range, *, seed: int = 0, every: int = 7) -> None:
    """Write steps, flushed every few."""
    for step in steps:
        log.add("stretches", stretch_rows(step, seed=seed))
        log.add_step(step, step_row(step))
        if step % every == 0:
            assert log.flush()
    log.close()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    create_run(tmp_path, RUN, SHARDS)
    log = RankWriter(tmp_path, 0, 1, 4)
    log.add("events", event(1, "started", {"b": 1, "a": "ü"}))
    write(log, range(1, 31))
    run = load_run(tmp_path)
    assert run.run.model_copy(update={"checksums": {}}) == RUN
    assert run.shards.equals(SHARDS)
    assert run.ranks == [0]
    assert run.torn_bytes == 0
    assert run.table("steps")["step"].to_pylist() == list(range(1, 31))
    assert run.table("events")["detail"].to_pylist() == ['{"a":"ü","b":1}']
    found = run.table("stretches")
    expected = [stretch_rows(step) for step in range(1, 31)]
    assert found["row"].to_pylist() == [row for one in expected for row in one["row"]]
    assert found["loss"].null_count == sum(int(np.ma.getmaskarray(one["loss"]).sum()) for one in expected) > 0


def test_a_resumed_run_supersedes_the_steps_it_does_again(tmp_path: Path) -> None:
    create_run(tmp_path, RUN, SHARDS)
    write(RankWriter(tmp_path, 0, 1, 4), range(1, 41))
    write(RankWriter(tmp_path, 0, 21, 4), range(21, 36), seed=1)
    write(RankWriter(tmp_path, 0, 31, 4), range(31, 51), seed=2)
    run = load_run(tmp_path)
    assert run.table("steps")["step"].to_pylist() == list(range(1, 51))
    rows = run.table("stretches")["row"].to_pylist()
    seeds = [0] * 20 + [1] * 10 + [2] * 20
    expected = [stretch_rows(step, seed=seed)["row"] for step, seed in zip(range(1, 51), seeds, strict=True)]
    assert rows == [row for one in expected for row in one]


def test_stretches_of_steps_that_were_done_again_are_those_of_the_newest_attempt(tmp_path: Path) -> None:
    """Steps from before its first step on, whose documents are evidence of an incident."""
    create_run(tmp_path, RUN, SHARDS)
    write(RankWriter(tmp_path, 0, 1, 4, part_steps=10), range(1, 41))
    write(RankWriter(tmp_path, 0, 21, 4, part_steps=10), range(21, 26), seed=1)
    found = stored_stretches(tmp_path, 0, range(8, 24))
    rows = [row for part in found for row in np.asarray(part.columns["row"]).tolist()]
    expected = [stretch_rows(step, seed=int(step > 20))["row"] for step in range(8, 24)]
    assert rows == np.concatenate(expected).tolist()


def test_an_attempt_counts_from_its_first_part_on(tmp_path: Path) -> None:
    create_run(tmp_path, RUN, SHARDS)
    write(RankWriter(tmp_path, 0, 1, 4), range(1, 41))
    RankWriter(tmp_path, 0, 21, 4)
    for name in ("stretches", "values", "events"):  # as if killed after the first part of the second attempt
        part_path(rank_folder(tmp_path, 0), name, 1).unlink()
    assert load_run(tmp_path).table("stretches")["step"].to_pylist()[-1] == 20
    assert load_run(tmp_path).table("steps")["step"].to_pylist()[-1] == 20


def sums_by_block(tables: list[pa.Table]) -> Counter[tuple[int, int, int]]:
    """Return targets by window, shard and block, from stretches and from sums."""
    found: Counter[tuple[int, int, int]] = Counter()
    for table in tables:
        for row in table.to_pylist():
            window = row["window"] if "window" in row else row["step"] // 256 * 256
            block = row["block"] if "block" in row else (-1 if row["row"] < 0 else row["row"] // 4)
            found[window, row["shard"], block] += row["targets"]
    return found


def test_of_two_starts_at_a_step_the_last_says_how_many_ranks_there_are(tmp_path: Path) -> None:
    """Four ranks go on from step 10 and die; two go on from there, and what the others wrote last is their start."""
    create_run(tmp_path, RUN, SHARDS)
    for ranks, first in ((4, 1), (4, 11), (2, 11), (3, 21)):
        supersede_ranks(tmp_path, ranks, first, 4)
        for rank in range(ranks):
            log = RankWriter(tmp_path, rank, first, 4)
            log.add("events", event(first - 1, "resumed" if first > 1 else "started", {"ranks": ranks}))
            log.close()
    events = load_run(tmp_path).table("events")
    assert ranks_at(np.array([1, 10, 11, 20, 21, 99]), events, 4).tolist() == [4, 4, 2, 2, 3, 3]


def test_sums_leave_out_what_a_resumed_run_does_again(tmp_path: Path) -> None:
    """It goes on in the midst of a window, whose older part is thinned only then."""
    create_run(tmp_path, RUN, SHARDS)
    write(RankWriter(tmp_path, 0, 1, 4, kept_steps=0, part_steps=100), range(1, 351))
    write(RankWriter(tmp_path, 0, 301, 4, kept_steps=0, part_steps=100), range(301, 901), seed=1)
    run = load_run(tmp_path)
    assert run.table("sums").num_rows
    seeds = [0] * 300 + [1] * 600
    whole = [stretch_rows(step, seed=seed)["targets"].sum() for step, seed in enumerate(seeds, 1)]
    assert sums_by_block([run.table("stretches"), run.table("sums")]).total() == sum(whole)


def test_thinning_keeps_samples_flagged_stretches_and_exact_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thinning, "AROUND_STEPS", 10)
    create_run(tmp_path, RUN, SHARDS)
    log = RankWriter(tmp_path, 0, 1, 4, kept_steps=200, part_steps=100)
    log.flagged.add(150)
    write(log, range(1, 1001))
    whole = [stretch_rows(step) for step in range(1, 1001)]
    run = load_run(tmp_path)
    stretches, sums = run.table("stretches"), run.table("sums")
    steps = sorted(set(stretches["step"].to_pylist()))
    thinned = max(step for step in range(1, 1001) if step not in steps)
    assert 600 <= thinned <= 800
    kept = {step for step in range(1, thinned + 1) if step % 16 == 0 or 140 <= step <= 160}
    assert set(steps) == kept | set(range(thinned + 1, 1001))
    expected: Counter[tuple[int, int, int]] = Counter()
    for rows in whole:
        for step, shard, row, targets in zip(rows["step"], rows["shard"], rows["row"], rows["targets"], strict=True):
            expected[int(step) // 256 * 256, int(shard), int(row) // 4] += int(targets)
    assert sums_by_block([stretches, sums]) == expected
    lost = sum(float((rows["loss"].astype(np.float32) * rows["targets"]).sum()) for rows in whole)
    kept_sum = stretches["loss"].to_numpy(zero_copy_only=False).astype(float) * stretches["targets"].to_numpy()
    assert np.nansum(kept_sum) + sum(sums["loss_sum"].to_pylist()) == pytest.approx(lost, rel=1e-6)


def test_a_resumed_run_keeps_what_was_flagged_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part around the flagged step is thinned by the second attempt."""
    monkeypatch.setattr(thinning, "AROUND_STEPS", 10)
    create_run(tmp_path, RUN, SHARDS)
    log = RankWriter(tmp_path, 0, 1, 4, kept_steps=200, part_steps=100)
    log.add("events", event(152, "flagged", {"kind": "loss_spike", "first_step": 150}))
    write(log, range(1, 301))
    write(RankWriter(tmp_path, 0, 301, 4, kept_steps=200, part_steps=100), range(301, 701))
    steps = set(load_run(tmp_path).table("stretches")["step"].to_pylist())
    assert steps & set(range(100, 200)) == set(range(140, 163)) | {112, 128, 176, 192}


def test_a_kill_between_sums_and_thinned_part_counts_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_run(tmp_path, RUN, SHARDS)
    log = RankWriter(tmp_path, 0, 1, 4, kept_steps=100, part_steps=100)

    def killed(path: Path, table: str, *rest: Any) -> None:
        if table == "stretches":
            raise OSError("killed")
        write_part(path, table, *rest)

    monkeypatch.setattr(thinning, "write_part", killed)
    for step in range(1, 301):
        log.add("stretches", stretch_rows(step))
        log.add_step(step, step_row(step))
        log.flush()
    run = load_run(tmp_path)
    assert part_path(rank_folder(tmp_path, 0), "sums", 0).exists()
    assert len(run.table("sums")) == 0
    assert set(run.table("stretches")["step"].to_pylist()) == set(range(1, 301))


def test_a_log_that_cannot_be_written_raises_nothing_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create_run(tmp_path, RUN, SHARDS)
    log = RankWriter(tmp_path, 0, 1, 4)
    for step in range(1, 6):
        log.add_step(step, step_row(step))
    assert log.waiting_steps == 5

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("dataaudit.runlog.parts.os.write", full)
        assert not log.flush()
        log.add_step(6, step_row(6))
        assert not log.flush()
    assert (log.lost.steps, log.lost.errors, log.lost.last) == (6, 2, "No space left on device")
    log.add_step(7, step_row(7))
    assert log.flush()
    log.close()
    said = [record.message for record in caplog.records]
    assert len(said) == 2
    assert "No space left on device; training goes on without it" in said[0]
    assert said[1].endswith("lost so far: 6 steps")
    run = load_run(tmp_path)
    assert run.table("steps")["step"].to_pylist() == [7]
    assert run.table("events")["kind"].to_pylist() == ["lost"]


def test_a_log_whose_folder_is_deleted_is_begun_again(tmp_path: Path) -> None:
    create_run(tmp_path, RUN, SHARDS)
    log = RankWriter(tmp_path, 0, 1, 4)
    log.add_step(1, step_row(1))
    assert log.flush()
    shutil.rmtree(tmp_path / "ranks")
    log.add_step(2, step_row(2))
    assert not log.flush()
    log.add_step(3, step_row(3))
    assert log.flush()
    log.close()
    assert (log.lost.steps, log.lost.last) == (1, "the file was deleted while it was written")
    assert load_run(tmp_path).table("steps")["step"].to_pylist() == [3]


def test_old_parts_that_cannot_be_thinned_lose_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_run(tmp_path, RUN, SHARDS)

    def full(*_: object, **__: object) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(thinning, "thin_part", full)
    log = RankWriter(tmp_path, 0, 1, 4, kept_steps=0, part_steps=10)
    for step in range(1, 16):
        log.add("stretches", stretch_rows(step))
        log.add_step(step, step_row(step))
        log.flush()
    log.close()
    assert (log.lost.steps, log.lost.errors) == (0, 1)
    assert load_run(tmp_path).table("steps")["step"].to_pylist() == list(range(1, 16))


def test_parts_that_cannot_be_begun_leave_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk takes a name, and no bytes: the loop's own files must not run out for it."""
    create_run(tmp_path, RUN, SHARDS)
    log = RankWriter(tmp_path, 0, 1, 4)
    before, files = len(os.listdir("/proc/self/fd")), set(log.folder.iterdir())
    (log.folder / "steps-00000.arrows").unlink()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dataaudit.runlog.parts.os.write", full)
    for step in range(1, 9):
        log.add_step(step, step_row(step))
        assert not log.flush()
    assert len(os.listdir("/proc/self/fd")) <= before
    assert set(log.folder.iterdir()) < files


@pytest.mark.parametrize("call", ["fstat", "close"])
def test_a_network_that_no_longer_knows_a_file_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    create_run(tmp_path, RUN, SHARDS)
    log = RankWriter(tmp_path, 0, 1, 4, part_steps=2)
    close = os.close

    def stale(descriptor: int) -> None:
        if call == "close":
            close(descriptor)
        raise OSError(116, "Stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr(f"dataaudit.runlog.parts.os.{call}", stale)
        for step in range(1, 4):
            log.add("stretches", stretch_rows(step))
            log.add_step(step, step_row(step))
            log.flush()
    assert log.lost.last == ("Stale file handle" if call == "close" else "the file was deleted while it was written")
    log.add_step(4, step_row(4))
    log.close()
    assert load_run(tmp_path).table("steps")["step"].to_pylist()[-1] == 4


def test_a_folder_with_a_log_is_not_written_over(tmp_path: Path) -> None:
    create_run(tmp_path, RUN, SHARDS)
    with pytest.raises(ConfigError, match="holds a run log already"):
        create_run(tmp_path, RUN, SHARDS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no run log at"),
        (b"{", "is damaged"),
        (b"[]", "is damaged"),
        (b'{"schema": {"name": "x"}}', "another kind of JSON"),
        (b'{"schema": {"name": "dataaudit-runlog", "version": 9}}', "schema version 9"),
        (b'{"schema": {"name": "dataaudit-runlog", "version": 1}}', "is damaged"),
    ],
)
def test_what_is_no_run_log_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(RunLogError, match=message):
        load_run(tmp_path)


def test_a_stretch_takes_at_most_twenty_bytes(tmp_path: Path) -> None:
    create_run(tmp_path, RUN, SHARDS)
    log, random, count = RankWriter(tmp_path, 0, 1, 4), np.random.default_rng(0), 0
    for step in range(1, 257):
        size = 48
        count += size
        log.add(
            "stretches",
            {
                "step": np.full(size, step),
                "micro_batch": np.zeros(size),
                "batch_row": np.repeat(np.arange(16), 3),
                "start": np.tile([0, 700, 1500], 16) + random.integers(0, 500, size),
                "shard": random.integers(0, 100_000, size),
                "row": random.integers(0, 1_000_000, size),
                "offset": random.integers(0, 4_000, size),
                "source": random.integers(0, 30, size),
                "epoch": np.zeros(size),
                "targets": random.integers(1, 2_048, size),
                "loss": np.ma.masked_array(random.gamma(9, 0.3, size), mask=False),
            },
        )
        log.add_step(step, step_row(step))
    log.close()
    stored = part_path(rank_folder(tmp_path, 0), "stretches", 0).stat().st_size
    assert stored / count <= 20


@pytest.mark.runs
@pytest.mark.filterwarnings("error")
def test_a_flipped_bit_at_every_byte_of_a_log_is_named_or_harmless(tmp_path: Path) -> None:
    """In run.json, the table of shards and all tables of a thinned log: an error that names the file, or no change."""
    create_run(tmp_path, RUN, SHARDS)
    log = RankWriter(tmp_path, 0, 1, 4, kept_steps=5, part_steps=10)
    log.add("events", event(0, "started", {"ranks": 1}))
    write(log, range(1, 41))
    before = load_run(tmp_path)
    tables = {name: before.table(name) for name in TABLES}
    assert tables["sums"].num_rows
    assert before.torn_bytes == 0
    named, unnamed, wrong = [], 0, []
    for path in sorted(one for one in tmp_path.rglob("*") if one.is_file()):
        data, name = path.read_bytes(), path.name.split("-")[0]
        for at in range(0, len(data), thinned(1, 53)):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << (at * 3) % 8]) + data[at + 1 :])
            try:
                found = load_run(tmp_path)
                same = found.run == before.run and found.shards.equals(before.shards)
                read = [one for one in TABLES if name not in TABLES or one in (name, "sums")]
                if not same or not all(found.table(one).equals(tables[one]) for one in read):
                    wrong.append((path.name, at))
                unnamed += 1
            except RunLogError as error:
                named.append((path, error.message))
        path.write_bytes(data)
    assert wrong == []
    assert [message for path, message in named if str(path) not in message] == []
    assert len(named) > 500
    assert unnamed < len(named) / 50


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ((), r"run\.json has no checksum"),
        (("shards.arrow",), r"run\.json has no checksum"),
        (("run.json",), r"run\.json is damaged"),
    ],
)
def test_a_log_without_checksums_is_refused_by_name(tmp_path: Path, kept: tuple[str, ...], message: str) -> None:
    create_run(tmp_path, RUN, SHARDS)
    run = load_run(tmp_path).run
    sums = {name: value for name, value in run.checksums.items() if name in kept}
    (tmp_path / "run.json").write_bytes(run.model_copy(update={"checksums": sums}).to_json())
    with pytest.raises(RunLogError, match=message):
        load_run(tmp_path)


def test_shards_without_a_checksum_are_none(tmp_path: Path) -> None:
    create_run(tmp_path, RUN, None)
    with pa.OSFile(str(tmp_path / "shards.arrow"), "wb") as file, pa.ipc.new_file(file, SHARDS.schema) as stream:
        stream.write_table(SHARDS)
    with pytest.raises(RunLogError, match=r"shards\.arrow is damaged"):
        _ = load_run(tmp_path).shards
