"""What failed first in real and recorded logs, what only followed, and that healthy logs give no event."""

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
from click.testing import CliRunner
from log_excerpts import (
    BOTO,
    EXCERPTS,
    EXPECTED,
    FORMS,
    HEALTHY,
    MAIN,
    RECORDED,
    STEP,
    progress,
    ranked,
    traceback,
    watchdog,
)

from dataaudit.base.errors import ConfigError
from dataaudit.cli import main
from dataaudit.live import failing_nodes, triage
from dataaudit.live.log_events import MOST_EVENTS, display
from dataaudit.live.log_patterns import RULES, TRIGGERS, Level
from dataaudit.live.log_reader import read_log
from dataaudit.live.log_triage import triage_text

LIVE_LOGS = Path(__file__).parents[2] / "live_logs/recorded"


def read(folder, *texts, **more):
    """Triage texts, each as a log of its own."""
    paths = []
    for number, text in enumerate(texts):
        path = folder / f"part-{number}.log"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        paths.append(path)
    return triage(paths, **more)


def facts(event):
    """Return class, rank, stage and node."""
    return event.error.value, event.rank, event.stage.value, event.node


@pytest.mark.parametrize("name", EXCERPTS)
def test_the_first_failure_of_an_excerpt_is_named(name, tmp_path):
    """By class, rank, stage and node; everything else of its attempt follows from it."""
    result = read(tmp_path, EXCERPTS[name])
    assert facts(result.root) == EXPECTED[name]
    place = result.roots[-1]
    same = [event for event in result.events if event.attempt == result.root.attempt and not event.survived]
    assert [event.cause for event in same if event is not result.root] == [place] * (len(same) - 1)
    assert not result.root.consequence


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_further_programs_are_known(name, tmp_path):
    """Of launchers, clusters and shells."""
    text, error = FORMS[name]
    assert read(tmp_path, text).root.error.value == error


def test_a_barrier_names_the_rank_that_did_not_come(tmp_path):
    """Not the one that reports it."""
    assert read(tmp_path, FORMS["monitored"][0]).root.rank == 3


def test_prefixes_of_lines_are_learned_from_tracebacks(tmp_path):
    """Nodes and ranks that they name are taken."""
    roots = {name: read(tmp_path, FORMS[name][0]).root for name in ("deepspeed-pdsh", "ray", "mpirun")}
    assert (roots["deepspeed-pdsh"].node, roots["ray"].pid, roots["mpirun"].rank) == ("node03", 4203, 3)


@pytest.mark.parametrize("name", RECORDED)
def test_the_first_failure_of_a_recorded_run_is_named(name):
    """Logs of torchrun, in which a rank failed on purpose: see record.py."""
    result = triage([LIVE_LOGS / name])
    assert facts(result.root) == RECORDED[name]
    assert result.root.time is not None
    ranks = {event.rank for event in result.events if event.consequence} - {None}
    assert result.root.rank not in ranks or name == "segfault"
    if name != "terminated":
        assert any(event.consequence for event in result.events)


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_logs_have_no_event(name, tmp_path):
    """Though they have the words error, failed, killed, timeout and traceback."""
    result = read(tmp_path, HEALTHY[name])
    assert (result.events, result.roots, result.exit_code) == ((), (), 0)


def test_a_recorded_healthy_run_has_no_event():
    """Nor has one of torchrun."""
    result = triage([LIVE_LOGS / "healthy"])
    assert (result.events, result.exit_code) == ((), 0)
    assert result.lines > 10


def test_a_hang_is_the_silent_rank_and_not_the_one_that_the_launcher_names():
    """Torchrun names rank 0, which waited; rank 2 slept, and said nothing until the launcher ended it."""
    text = (LIVE_LOGS / "hang/launcher.log").read_text()
    assert "rank      : 0 (local_rank: 0)" in text.partition("Root Cause")[2]
    result = triage([LIVE_LOGS / "hang"])
    assert result.suspects == (2,)
    waited = next(event for event in result.events if event.rank == 0)
    assert waited.time - result.root.time == pytest.approx(8, abs=1)
    assert "waited 8 s" in result.root.what


def test_who_is_waited_for_is_not_guessed_from_too_little(tmp_path):
    """Where every rank but one is quiet, nobody is suspected; equal counts of collectives suspect none."""
    quiet = "Rank 3 of 4\n" + watchdog(0, 118, 117)
    assert read(tmp_path, quiet).suspects == (1, 2, 3)
    assert read(tmp_path, watchdog(0, 118, 117) + watchdog(1, 118, 117)).suspects == ()
    assert read(tmp_path, watchdog(0, 118, 117) + watchdog(1, 117, 117) + watchdog(2, 117, 117)).suspects == (1, 2)


def test_collectives_of_groups_are_not_compared(tmp_path):
    """Rank 2 hangs: rank 0 waits for it in one group, as its first, and rank 3 in another, as its second."""
    waits = [(0, 118, "7(dp)", 0), (3, 5000, "6(tp)", 1), (1, 5100, "5(tp)", 1)]
    dogs = (watchdog(rank, number, number - 1, group=group, own=own) for rank, number, group, own in waits)
    result = read(tmp_path, "Rank 3 of 4\n" + progress(1, 5) + "".join(dogs))
    assert result.suspects == (2,)
    assert {event.rank for event in result.events if event.consequence} == {0, 1, 3}
    behind = watchdog(2, 4990, 4989, group="6(tp)", own=0) + watchdog(3, 5000, 4999, group="6(tp)", own=1)
    assert read(tmp_path, behind + watchdog(0, 118, 117, group="7(dp)", own=0)).suspects == (2,)


RESTART = (
    "E0314 09:30:20.101000 4100 torch/distributed/elastic/agent/server/api.py:946] [default] Worker group FAILED. 2/3"
    " attempts left; will restart worker group\n"
)


def test_who_is_waited_for_does_not_follow_from_an_attempt_before(tmp_path):
    """Rank 1 failed in the first, at fewer collectives; in the second rank 2 is silent."""
    one = ranked(1, *traceback("AssertionError: x", MAIN, STEP))
    one += "".join(watchdog(rank, 4990 if rank == 1 else 5000, 4989) for rank in range(4))
    two = "".join(watchdog(rank, 118, 117, second=50) for rank in (0, 1, 3))
    result = read(tmp_path, "Rank 3 of 4\n" + progress(1, 5) + one + RESTART + progress(5, 9, minute=40) + two)
    assert result.suspects == (2,)
    assert [result.events[place].rank for place in result.roots] == [1, 2]


def test_collectives_of_a_start_before_are_told_by_their_number(tmp_path):
    """Each rank's file goes on over starts, and shows none: the newest count of a rank is the smaller one."""
    counts = {0: (5_000, 118), 1: (4_990, 118), 3: (5_000, 118)}
    texts = ("".join(watchdog(rank, own, own - 1) for own in both) for rank, both in counts.items())
    result = read(tmp_path, "Rank 3 of 4\n", *texts)
    assert result.suspects == (2,)
    few = [watchdog(0, 118, 117) + watchdog(0, 20, 19), watchdog(1, 118, 117)]
    assert read(tmp_path, "Rank 1 of 2\n", *few, "", "").suspects == ()


def test_a_node_that_came_later_did_not_fail_before(tmp_path):
    """The launcher's summary names the node of the second attempt; where rank 2 was before nobody says."""
    first = ranked(2, *traceback("AssertionError: expected 9 columns, found 7", MAIN, STEP))
    last = (LIVE_LOGS / "assertion/launcher.log").read_text().replace("attempt_0/", "attempt_1/")
    result = read(tmp_path, progress(1, 5) + first + RESTART + progress(5, 9, minute=40) + last)
    nodes = [(event.attempt, event.node) for event in result.events if event.rank == 2 and not event.consequence]
    assert nodes == [(0, ""), (1, "node01")]


def test_a_log_is_read_by_itself(tmp_path):
    """With its ranks and their nodes, lines of progress, and the longest wait."""
    log = read_log(LIVE_LOGS / "hang/launcher.log")
    (waits,) = log.waits.values()
    assert (log.ranks, waits.silent, waits.seconds, log.progress) == ({0, 1, 2}, {2}, 8.0, 3)
    assert set(waits.nodes.values()) == {"node01"}
    assert log.last - log.first == pytest.approx(10.7, abs=0.1)


def test_what_another_log_of_a_failure_knows_is_taken(tmp_path):
    """Node, process and stage of the launcher's summary go to the rank's own traceback."""
    own = ranked(2, *traceback("AssertionError: expected 9 columns, found 8", MAIN))
    (tmp_path / "rank_2.log").write_text(own)
    (tmp_path / "a-launcher.log").write_text((LIVE_LOGS / "assertion/launcher.log").read_text().partition("E1127")[2])
    events = [
        event for event in triage([tmp_path / "rank_2.log", tmp_path / "a-launcher.log"]).events if event.rank == 2
    ]
    assert [(event.node, event.stage.value, event.named) for event in events] == [("node01", "forward", True)]


def test_survived_errors_are_no_cause(tmp_path):
    """A read that was repeated, after which the run went on, is an event and nothing more."""
    result = read(tmp_path, EXCERPTS["survived-then-spot"])
    (survived,) = [event for event in result.events if event.survived]
    assert (survived.error.value, survived.rank, survived.consequence) == ("io", 2, False)
    assert "the run went on" in triage_text(result)


@pytest.mark.parametrize(
    "line",
    [
        "{'loss': 2.31, 'grad_norm': 1.21, 'learning_rate': 9e-05, 'epoch': 0.59}",  # transformers
        "Epoch 0:  10%|#   | 100/1000 [00:30<04:30,  3.33it/s, v_num=0, train_loss=2.310]",  # Lightning
        "Training epoch 0, iteration 7/999 | lr: 5e-06 | global_step: 7 | reduced_train_loss: 11.03",  # NeMo
        "INFO [step=7/740000,epoch=1,eta=3 days]",  # OLMo-core
        "[batch=7/3200]:",  # Composer
        "[INFO] [logging.py:96:log_dist] [Rank 0] step=7, skipped=0, lr=[0.0001], mom=[(0.9, 0.95)]",  # DeepSpeed
    ],
)
def test_progress_of_other_trainers_shows_that_an_error_was_survived(tmp_path, line):
    """What ended the run long after it is the first failure."""
    first, last = ("\n".join(traceback(own, MAIN)) for own in (BOTO, "torch.OutOfMemoryError: CUDA out of memory."))
    result = read(tmp_path, f"{first}\n" + f"{line}\n" * 20 + last)
    assert result.root.error == "out_of_memory"
    assert [event.error for event in result.events if event.survived] == ["io"]


def test_attempts_have_a_first_failure_each(tmp_path):
    """A launcher that restarts begins a further attempt."""
    result = read(tmp_path, EXCERPTS["restarts"])
    assert [facts(result.events[place])[:3] for place in result.roots] == [
        ("assertion", 1, "unknown"),
        ("io", 0, "checkpoint"),
    ]
    assert "first failure of attempt 2" in triage_text(result)
    assert "attempt 2 has had no failure" in triage_text(triage([LIVE_LOGS / "restart"]))


def test_a_launchers_summary_belongs_to_the_attempt_of_its_error_file(tmp_path):
    """Where the ranks' lines are in files of their own, the launcher's log shows no restart."""
    text = (LIVE_LOGS / "per-rank/launcher.log").read_text().replace("attempt_0/", "attempt_1/")
    (tmp_path / "launcher.log").write_text(text)
    for attempt in (0, 1):
        path = tmp_path / f"attempt_{attempt}/1/stderr.log"
        path.parent.mkdir(parents=True)
        path.write_text(ranked(1, *traceback(f"AssertionError: expected 9 columns, found {8 + attempt}", MAIN, STEP)))
    result = triage([tmp_path])
    assert [facts(result.events[place])[:2] for place in result.roots] == [("assertion", 1), ("assertion", 1)]
    assert result.root.node == "node01"


@pytest.mark.parametrize("packed", [False, True])
def test_compressed_cut_and_undecodable_logs_are_read(packed, tmp_path):
    """Lines of megabytes, bytes that are no UTF-8, colours, and a gzip file whose end is missing."""
    text = b"\xff\xfe" + b"x" * 3_000_000 + b" \r" + EXCERPTS["progress-bars"].encode() + b"\xc3\n"
    data = gzip.compress(text + bytes(200_000))[:-40] if packed else text
    result = read(tmp_path, data)
    assert facts(result.root) == EXPECTED["progress-bars"]


def test_memory_does_not_depend_on_the_size_of_a_log(tmp_path):
    """Twenty megabytes in a few."""
    path = tmp_path / "big.log"
    with path.open("w") as file:
        for _ in range(150):
            file.write(progress(1, 600))
        file.write(EXCERPTS["cuda-oom"])
    assert path.stat().st_size > 20e6
    tracemalloc.start()
    result = triage([path])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert facts(result.root) == EXPECTED["cuda-oom"]
    assert peak < 12e6


@pytest.mark.parametrize(
    "line",
    [
        "9999-12-31 23:59:59-10:00 begin",
        "0001-01-01 00:00:00+10:00 begin",
        f"[rank0]: last enqueued NCCL work: {'9' * 5_000}",
        f"Timed out after {'9' * 5_000} ms",
        f"100 % [rank{'9' * 5_000}]: Traceback (most recent call last):",
        f"worker pid={'9' * 5_000}: Traceback (most recent call last):",
        f"Root Cause (first observed failure):\n  rank : {'9' * 5_000}\n  traceback : Signal 9 (SIGKILL) received",
    ],
)
def test_numbers_without_end_are_none(line, tmp_path):
    """Times that no calendar has, and more digits than a number may have."""
    result = read(tmp_path, f"{line}\n=====\n" + progress(1, 3) + ranked(0, *traceback("KeyError: 'a'", MAIN, STEP)))
    assert (result.root.rank, result.root.error.value) == (0, "code")
    assert "KeyError" in triage_text(result)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"message": {"extraInfo": {"timestamp": "inf", "py_callstack": ""}}}']
)
def test_an_error_file_of_another_kind_is_a_log(text, tmp_path):
    """Nested without end, or of a time that is none."""
    (tmp_path / "error.json").write_text(text)
    assert triage([tmp_path]).exit_code == 0


def test_events_are_bounded_and_counted(tmp_path):
    """Repetitions are counted; different ones beyond the bound are, too."""
    lines = [line for word in range(MOST_EVENTS + 50) for line in traceback(f"KeyError: '{_word(word)}'", MAIN, STEP)]
    result = read(tmp_path, "\n".join(lines) + "\n" + ranked(0, *traceback("KeyError: 'a'", MAIN, STEP)) * 7)
    assert len(result.events) == MOST_EVENTS
    assert result.dropped >= 50
    again = read(tmp_path, ranked(0, *traceback("KeyError: 'a'", MAIN, STEP)) * 7)
    assert [event.count for event in again.events] == [7]


def _word(number):
    return "".join(chr(97 + int(digit)) for digit in str(number))


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        ("2026-03-14T09:30:05Z ", 1773480605.0),
        ("2026-03-14T10:30:05.250+01:00 ", 1773480605.25),
        ("2026-03-14 09:30:05,500 ", 1773480605.5),
        ("[2026-03-14 09:30:05] ", 1773480605.0),
        ("[Sat Mar 14 09:30:05 2026] ", 1773480605.0),
        ("03/14/2026 09:30:05 - ", 1773480605.0),
    ],
)
def test_times_of_several_formats_are_read(stamp, seconds, tmp_path):
    """Each as UTC."""
    result = read(tmp_path, f"{stamp}begin\n" + ranked(0, *traceback("KeyError: 'a'", MAIN, STEP)))
    assert result.root.time == seconds
    assert result.first_time == seconds


def test_times_without_a_year_take_it_from_those_around(tmp_path):
    """Over the turn of a year, too."""
    text = (
        "2026-12-31 23:59:58 begin\nE0101 00:00:03.000000 1 x.py:1] failed (exitcode: -9) local_rank: 2 (pid: 4) of\n"
    )
    assert read(tmp_path, text).root.time == 1798761603.0


def test_local_times_are_told_by_those_with_a_zone(tmp_path):
    """A log in local time with some times in UTC says its own offset, so the log of another node is comparable."""
    local = "2026-03-14T09:30:00Z begin\n2026-03-14 14:30:00 INFO begun\n2026-03-14 14:30:20 INFO\n"
    other = "2026-03-14T09:30:10Z begin\n"
    late = local + ranked(0, *traceback("KeyError: 'late'", MAIN, STEP))
    early = other + ranked(1, *traceback("KeyError: 'early'", MAIN, STEP))
    result = read(tmp_path, late, early)
    assert (result.root.rank, result.root.time) == (1, 1773480610.0)
    assert [event.time for event in result.events] == [1773480610.0, 1773480620.0]


@pytest.mark.parametrize(("naive", "offset"), [("14:30:00", 5), ("09:37:00", 0), ("00:15:00", -9.25), ("23:45:00", 0)])
def test_zones_are_quarters_of_an_hour_within_fourteen(naive, offset, tmp_path):
    """Other distances of two times are only distances."""
    text = f"2026-03-14T09:30:00Z a\n2026-03-14 {naive} b\n" + ranked(0, *traceback("KeyError: 'a'", MAIN, STEP))
    hours, minutes, _ = map(int, naive.split(":"))
    expected = 1773480600.0 + (hours - 9 - offset) * 3600 + (minutes - 30) * 60
    result = read(tmp_path, text)
    assert result.root.time == expected
    assert result.last_time == max(expected, 1773480600.0)


def test_the_launchers_summary_finds_a_death_by_its_process(tmp_path):
    """The line before names a local rank; the summary has the one of the run, and the node."""
    text = (
        (LIVE_LOGS / "killed/launcher.log")
        .read_text()
        .replace("rank      : 2 (local_rank: 2)", "rank      : 10 (local_rank: 2)")
    )
    dead = [event for event in read(tmp_path, text).events if event.error.value == "killed" and event.rank is not None]
    assert [(event.rank, event.node, event.pid, event.count) for event in dead] == [(10, "node01", 23777, 1)]


def test_without_a_time_the_order_of_the_file_decides(tmp_path):
    """And there is no rate."""
    text = ranked(1, *traceback("KeyError: 'a'", MAIN, STEP)) + ranked(0, *traceback("TypeError: b", MAIN, STEP))
    result = read(tmp_path, text)
    assert (result.root.rank, result.root.time, result.hours) == (1, None, None)
    assert result.error_event_rate() == {"code": None}


def test_rates_are_of_the_newest_hour_and_leave_out_what_follows(tmp_path):
    """By class."""
    text = "2026-03-14 08:00:00 begin\n" + EXCERPTS["cuda-oom"]
    for end, rate in (("10:00", 1.0), ("12:00", 0.0)):
        rates = read(tmp_path, f"{text}2026-03-14 {end}:00 end\n").error_event_rate()
        assert rates == {"out_of_memory": rate, "communication": 0.0}


@pytest.mark.parametrize("zone", ["", "+05:30"])
def test_errors_of_a_long_log_are_counted_by_their_own_times(tmp_path, zone):
    """A storm in the last hour of ten days is a storm, and that of the first hour is over."""
    error = traceback("OSError: [Errno 5] Input/output error: '/data/shard-7'", MAIN, STEP)

    def step(day, hour, minute=0):
        return f"2026-03-{day:02}T{hour:02}:{minute:02}:00{zone} step 7 loss 3.0\n"

    def storm(day, hour):
        return "".join(step(day, hour, minute) + ranked(3, *error) for minute in range(50))

    days = "".join(step(day, hour) for day in range(2, 10) for hour in range(24))
    late = read(tmp_path, days + storm(10, 23) + step(10, 23, 59))
    assert late.error_event_rate() == {"io": 50.0}
    assert read(tmp_path, storm(1, 0) + days).error_event_rate() == {"io": 0.0}
    assert "minutes" not in late.to_json()["events"][0]


def test_the_kernels_log_says_why_a_process_was_killed(tmp_path):
    """In a file of its own, by the id of the process."""
    text = EXCERPTS["kernel-oom"]
    at = text.index("Mar 14")
    result = read(tmp_path, text[:at], text[at:])
    assert facts(result.root) == EXPECTED["kernel-oom"]
    assert [event.error.value for event in result.events if event.consequence].count("killed") == 2


def test_elastic_error_files_are_read(tmp_path):
    """With the rank of their folder, and the time that they name."""
    path = tmp_path / "attempt_1/3/error.json"
    path.parent.mkdir(parents=True)
    stack = "\n".join(traceback("AssertionError: no rows", MAIN, STEP))
    path.write_text(
        json.dumps(
            {
                "message": {
                    "message": "AssertionError: no rows",
                    "extraInfo": {"py_callstack": stack, "timestamp": "1773480605"},
                }
            }
        )
    )
    root = triage([tmp_path]).root
    assert (root.error.value, root.rank, root.attempt, root.time) == ("assertion", 3, 1, 1773480605.0)
    assert triage([tmp_path]).lines == len(stack.splitlines())


def test_a_node_that_fails_in_two_runs_is_named(tmp_path):
    """And none that only reported what it saw of others."""
    runs = [read(tmp_path, EXCERPTS[name]) for name in ("slurm-oom", "infiniband", "slurm-oom", "node-failure")]
    assert failing_nodes(runs) == {"gpu-07": 2}
    paths = []
    for number in (1, 2):
        paths.append(tmp_path / f"run-{number}.out")
        paths[-1].write_text(EXCERPTS["slurm-oom"])
    done = CliRunner().invoke(main, ["triage-log", *map(str, paths), "--history"])
    assert done.exit_code == 1
    assert "node gpu-07: first to fail in 2 runs" in done.output


SECRETS = ("hunter2hunter2", "hf_abcdefghijklmnop", "8c1f", "AKIAIOSFODNN7EXAMPLE", "eyJhbGciOiJIUzI1NiJ9")


def test_no_secret_and_no_long_quotation_is_printed(tmp_path):
    """Of addresses, keys and tokens; what is quoted at length is data."""
    said = f"ValueError: https://user:{SECRETS[0]}@host/x token={SECRETS[1]} {SECRETS[3]}"
    said += f" Authorization: Bearer {SECRETS[4]}"
    text = ranked(0, *traceback(said, MAIN, STEP)) + ranked(1, *traceback(BOTO, MAIN, STEP))
    text += ranked(2, *traceback(f"KeyError: '{'private words ' * 20}'", MAIN, STEP))
    result = read(tmp_path, text)
    for shown in (triage_text(result), json.dumps(result.to_json())):
        assert not [secret for secret in SECRETS if secret in shown]
        assert "private words" not in shown
    assert display("KeyError: 'short'") == "KeyError: 'short'"


def test_messages_cannot_steer_a_terminal(tmp_path):
    """Control characters are escapes."""
    result = read(tmp_path, ranked(0, *traceback("ValueError: a\x07b\u202e", MAIN, STEP)))
    assert "\x07" not in triage_text(result)
    assert "\\x07" in triage_text(result)


def test_every_rule_is_reached_by_a_trigger():
    """A block is searched for triggers alone, so a rule's words are among them."""
    assert {word for rule in RULES for word in rule.words} <= set(TRIGGERS)
    assert all(rule.words and rule.level in Level for rule in RULES)


def test_blocks_without_a_trigger_still_count_as_progress(tmp_path):
    """What is skipped moves the run on: an error before it was survived, and times go on."""
    text = ranked(2, *traceback(BOTO, MAIN, STEP)) + "x\n" * 200_000 + progress(1, 59) * 60 + "y\n" * 100
    result = read(tmp_path, text)
    assert [event.survived for event in result.events] == [True]
    assert result.root is None
    assert result.last_time == 1773480058.0


def test_the_command_prints_text_and_json(tmp_path):
    """With exit code 1 for errors, 0 without, 4 without a line, 2 for what is not there."""
    (tmp_path / "bad.log").write_text(EXCERPTS["cuda-oom"])
    (tmp_path / "good.log").write_text(HEALTHY["megatron"])
    (tmp_path / "empty.log").touch()
    codes = {"bad.log": 1, "good.log": 0, "empty.log": 4, "none.log": 2}
    for name, code in codes.items():
        assert CliRunner().invoke(main, ["triage-log", str(tmp_path / name)]).exit_code == code, name
    done = CliRunner().invoke(main, ["triage-log", str(tmp_path / "bad.log"), "--json"])
    said = json.loads(done.stdout)
    assert said["events"][said["roots"][-1]]["error"] == "out_of_memory"
    assert (
        "first failure: out_of_memory, rank 3"
        in CliRunner().invoke(main, ["triage-log", str(tmp_path / "bad.log")]).output
    )
    assert CliRunner().invoke(main, ["triage-log", "x", "--utc-offset", "1"]).exit_code == 2


def test_the_offset_of_local_times_is_given_on_the_command_line(tmp_path):
    """Where no time names its zone."""
    (tmp_path / "a.log").write_text("2026-03-14 09:30:05 x\n" + ranked(0, *traceback("KeyError: 'a'", MAIN, STEP)))
    done = CliRunner().invoke(main, ["triage-log", str(tmp_path / "a.log"), "--json", "--utc-offset", "+09:00"])
    assert json.loads(done.stdout)["events"][0]["time"] == 1773480605.0 - 9 * 3600


def test_folders_without_logs_are_refused(tmp_path):
    """With the names that are read."""
    with pytest.raises(ConfigError, match="no log in"):
        triage([tmp_path])


def test_ranks_that_repeat_their_watchdogs_lines_are_counted_once(tmp_path):
    """A rank's lines of one kind are one event."""
    result = read(tmp_path, watchdog(1, 118, 117) * 5)
    assert max(event.count for event in result.events) == 5
    assert len({event.key for event in result.events}) == len(result.events)
