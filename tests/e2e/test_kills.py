"""Kills at random points: of workers, of the whole build, by Ctrl-C. One manifest id comes out of all of them."""

import contextlib
import json
import os
import random
import signal
import time

import psutil
import pytest
from corpus import write_slow_corpus
from lanes import thinned
from running import build, start

from dataaudit.engine.store_entries import PACKS

WORKER_KILLS = thinned(30, few=4)
BUILD_KILLS = thinned(24, few=4)
pytestmark = pytest.mark.kills


@pytest.fixture(scope="module")
def slow_corpus(tmp_path_factory):
    """A corpus whose scan takes some seconds, its config, and the id that it has."""
    root = tmp_path_factory.mktemp("slow")
    write_slow_corpus(root, per_shard=700)
    summary, _ = build(root / "config.yaml", "--workers", 2, "--state", root / "state-0", manifest=root / "m-0")
    return root, summary["id"]


def started(root, name, *more):
    """Start a build on two workers, with a state folder and a manifest of its own."""
    places = ("--state", root / f"state-{name}", "--manifest", root / f"m-{name}")
    return start("build", root / "config.yaml", "--workers", 2, *places, *more)


def workers_of(process):
    """Return the worker processes of a running build."""
    with contextlib.suppress(psutil.Error):
        return [
            child
            for child in psutil.Process(process.pid).children(recursive=True)
            if "spawn_main" in " ".join(child.cmdline())
        ]
    return []


@pytest.mark.timeout(900)
def test_killed_workers_change_nothing(slow_corpus):
    root, expected = slow_corpus
    rng = random.Random(20)
    kills = builds = 0
    while kills < WORKER_KILLS:
        builds += 1
        process = started(root, f"w{builds}", "--json")
        for _ in range(8):
            time.sleep(rng.uniform(0.2, 1.2))
            workers = workers_of(process)
            if workers and process.poll() is None:
                with contextlib.suppress(psutil.Error):
                    rng.choice(workers).kill()
                    kills += 1
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert json.loads(out)["id"] == expected
        assert "Traceback" not in err


@pytest.mark.timeout(900)
def test_killed_builds_resume_to_the_same_manifest(slow_corpus):
    """The whole build gets kill -9 or Ctrl-C at random moments; reruns end in the same id."""
    root, expected = slow_corpus
    rng = random.Random(21)
    kills = rounds = 0
    while kills < BUILD_KILLS:
        rounds += 1
        for _ in range(min(8, BUILD_KILLS)):
            process = started(root, f"b{rounds}", "--json")
            time.sleep(rng.uniform(0.3, 6.0))
            sent = rng.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
            if process.poll() is None:
                kills += 1
                if sent == signal.SIGINT:
                    os.killpg(process.pid, sent)  # what a terminal does
                else:
                    process.send_signal(sent)
            out, err = process.communicate(timeout=120)
            if process.returncode == 0:
                assert json.loads(out)["id"] == expected
            elif process.returncode == 130:
                assert "Run the same command again" in err or "interrupted" in err
                assert "Traceback" not in err, err
            else:
                assert process.returncode in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT), err
        call = (root / "config.yaml", "--workers", 2, "--state", root / f"state-b{rounds}")
        summary, _ = build(*call, manifest=root / f"m-b{rounds}")
        assert summary["id"] == expected


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", thinned([1], few=[]))
def test_a_stopped_worker_costs_only_time(slow_corpus, number):
    """A worker that stands still (SIGSTOP) is noticed, its work is repeated, and the id is the same.

    One that stops between being given a task and beginning it is given up after five minutes of silence, so this is
    waited for in a whole run alone.
    """
    root, expected = slow_corpus
    process = started(root, "s", "--json", "--shard-timeout", 5)
    victims = []
    for _ in range(1200):
        time.sleep(0.05)
        state = root / "state-s" / "partials" / PACKS
        if state.exists() and workers_of(process):
            victims = workers_of(process)[:number]
            break
    for victim in victims:
        victim.suspend()
    out, err = process.communicate(timeout=500)
    assert victims
    assert process.returncode == 0, err
    assert json.loads(out)["id"] == expected


@pytest.mark.timeout(120)
def test_no_worker_outlives_its_build(slow_corpus):
    root, _ = slow_corpus
    process = started(root, "o")
    workers = []
    for _ in range(1200):
        time.sleep(0.05)
        workers = workers_of(process)
        if len(workers) >= 2:
            break
    process.kill()
    process.communicate()
    assert workers
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive


@pytest.mark.timeout(120)
@pytest.mark.parametrize("delay", thinned([0.3, 0.0, 0.6, 0.9, 1.2], few=[0.3]))
def test_ctrl_c_while_workers_start_is_heard(slow_corpus, delay):
    """Ctrl-C between the listing and the first worker ends the build, and no worker prints a traceback."""
    root, _ = slow_corpus
    process = started(root, f"c{delay}")
    assert process.stderr is not None
    assert any(line.startswith("found:") for line in process.stderr)
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err, err
    assert not (root / f"m-c{delay}").exists()
