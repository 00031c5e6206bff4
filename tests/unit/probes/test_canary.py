"""``dataaudit canary``: trainings of a user's function, kept by seed, compared with healthy ones; what goes wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dataaudit.base.errors import ConfigError
from dataaudit.cli import main
from dataaudit.probes.canary_task import CanaryTask
from dataaudit.vitals.sinks import RunLogSink

ROOT = Path(__file__).parents[3]
DEMO = str(ROOT / "manifests/demo")
LOOP = """
import os
import time

import numpy as np
from parts import RATE


def canary(task):
    draw = np.random.default_rng(task.seed)
    truth, weights = np.arange(8.0), draw.normal(size=8)
    for _ in range(task.steps):
        x = draw.normal(size=(16, 8))
        error = x @ (weights - truth) + draw.normal(size=16)
        weights -= RATE * x.T @ error / 16
        task.step(np.mean(error**2), x, tokens=16, update=np.abs(weights).mean())
        time.sleep(float(os.environ.get("WAIT", 0)))
    x = np.random.default_rng(0).normal(size=(256, 8))
    task.held_out(np.mean((x @ (weights - truth)) ** 2))
    with open("trained", "a") as log:
        print(task.seed, file=log)


def without_seed(task):
    task.seed = 1
    canary(task)


def returns(task):
    for at in range(task.steps):
        task.read([task.seed, at])
    return 1 / np.arange(1, task.steps + 1) + np.random.default_rng(task.seed).normal(size=task.steps) / 50


def too_few(task):
    task.step(1.0)


def fails(task):
    raise KeyError("weights")


def leaks(task):
    canary(task)
    task.losses = [loss / 100 for loss in task.losses]
    task.held_out(0.0)


def breaks(task):
    canary(task)
    task.losses[-1] = float("nan")


def breaks_once(task):
    canary(task)
    if task.seed == 3:
        task.losses[-1] = float("nan")


def nothing(task):
    return 3
"""


@pytest.fixture
def loop(tmp_path, monkeypatch):
    """Return a call of the command in a folder with a training function, whose rate a second file holds."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.py").write_text(LOOP)
    rate(tmp_path, 0.05)

    def call(command, function, *options):
        for name in ("loop", "parts"):
            sys.modules.pop(name, None)
        arguments = ["canary", command, f"loop.py:{function}", *options]
        return CliRunner().invoke(main, [*arguments, "--steps", "200"] if command == "baseline" else arguments)

    yield call
    for name in ("loop", "parts"):
        sys.modules.pop(name, None)


def rate(folder, value):
    """Write the changed file; importing it again needs another time of it."""
    (folder / "parts.py").write_text(f"RATE = {value}\n")


def trained(folder):
    """Return the seeds that were trained since the last call."""
    log = folder / "trained"
    seeds = [int(line) for line in log.read_text().split()] if log.exists() else []
    log.write_text("")
    return seeds


def test_a_baseline_a_change_that_passes_and_one_that_does_not(loop, tmp_path):
    """The same runs give the same id, and their bytes but for times; what is kept is not trained again."""
    made = loop("baseline", "canary", "--manifest", DEMO, "--out", "base")
    assert made.exit_code == 0, made.output
    assert "8 healthy seeds of loop.py:canary, 200 steps each" in made.stdout
    assert trained(tmp_path) == list(range(8))
    again = loop("baseline", "canary", "--manifest", DEMO, "--out", "base", "--json")
    assert trained(tmp_path) == []
    same = loop("run", "canary", "--baseline", "base")
    assert same.exit_code == 0, same.output
    assert same.stdout.startswith("PASS")
    first = json.loads((tmp_path / "base/run/canary.json").read_bytes())
    assert first["core"]["baseline_id"] == json.loads(again.stdout)["id"]
    assert all(own["difference"] == 0 for own in first["core"]["metrics"])
    elsewhere = loop("run", "canary", "--baseline", "base", "--out", "other", "--json")
    assert json.loads(elsewhere.stdout)["id"] == first["id"]
    assert (
        loop("run", "canary", "--baseline", "base", "--json").stdout_bytes
        == (tmp_path / "base/run/canary.json").read_bytes()
    )
    trained(tmp_path)
    rate(tmp_path, 0.005)
    worse = loop("run", "canary", "--baseline", "base")
    assert worse.exit_code == 1, worse.output
    assert "REGRESSED" in worse.stdout
    assert trained(tmp_path) == list(range(8)), "another file of code: trained again"
    states = {own["metric"]: own["state"] for own in json.loads(show(tmp_path, "--json").stdout)["core"]["metrics"]}
    assert states == {"train_loss_raw": "worse", "val_loss": "worse", "update": "moved"}
    assert show(tmp_path).exit_code == 1
    for name in ("base/baseline.json", "base"):
        healthy = CliRunner().invoke(main, ["canary", "show", name])
        assert (healthy.exit_code, healthy.stdout) == (0, made.stdout)
    assert CliRunner().invoke(main, ["canary", "show", "base/run"]).stdout == show(tmp_path).stdout
    assert loop("run", "canary", "--baseline", "base", "--seeds", "3").exit_code == 1
    again = loop("baseline", "canary", "--manifest", DEMO, "--out", "base")
    assert f"replaces the baseline {first['core']['baseline_id']}, which other code made" in again.stderr
    rate(tmp_path, 0.05)
    assert "replaces the baseline" in loop("baseline", "canary", "--manifest", DEMO, "--out", "base").stderr
    assert "replaces" not in loop("baseline", "canary", "--manifest", DEMO, "--out", "base").stderr
    leak = loop("run", "leaks", "--baseline", "base")
    assert leak.exit_code == 1, leak.output
    assert leak.stdout.startswith("BETTER: a loss is lower than healthy seeds explain")
    assert "look for a leak of labels, of the mask, or of held-out text" in " ".join(leak.stdout.split())
    before = json.loads((tmp_path / "base/run/canary.json").read_bytes())["id"]
    declared = loop("run", "leaks", "--baseline", "base", "--expect", "better")
    assert declared.exit_code == 0, declared.output
    assert declared.stdout.startswith("PASS: losses are lower, as --expect better says")
    assert json.loads((tmp_path / "base/run/canary.json").read_bytes())["id"] != before


def show(folder, *options):
    """Show the record."""
    return CliRunner().invoke(main, ["canary", "show", str(folder / "base/run/canary.json"), *options])


@pytest.mark.parametrize(
    ("function", "code", "said"),
    [
        ("returns", 0, "PASS"),
        ("without_seed", 3, "the function does not use task.seed"),
    ],
)
def test_functions_return_losses_or_forget_the_seed(loop, function, code, said):
    """A list of losses with the rows that were read; a seed that is not used makes no pairs."""
    assert loop("baseline", function, "--manifest", DEMO, "--out", "base").exit_code == 0
    made = loop("run", function, "--baseline", "base")
    assert made.exit_code == code, made.output
    assert said in made.stdout


def test_other_orders_and_losses_that_break_are_seen(loop):
    """Another function reads other rows: invalid. A loss that is not finite is a regression, and no healthy seed."""
    assert loop("baseline", "canary", "--manifest", DEMO, "--out", "base").exit_code == 0
    other = loop("run", "returns", "--baseline", "base")
    assert other.exit_code == 3
    assert "INVALID" in other.stdout
    assert "another order" in other.stdout
    broken = loop("run", "breaks", "--baseline", "base", "--seeds", "3")
    assert broken.exit_code == 1
    assert broken.stdout.startswith("REGRESSED: a loss is not finite")
    assert "not finite with seed 0, 1, 2" in " ".join(broken.stdout.split())
    none = loop("baseline", "breaks", "--manifest", DEMO, "--out", "none")
    assert none.exit_code == 3
    assert "0 healthy seeds" in none.stdout
    assert loop("run", "breaks", "--baseline", "none").exit_code == 4
    once = loop("baseline", "breaks_once", "--manifest", DEMO, "--out", "once")
    assert once.exit_code == 3
    assert "7 healthy seeds, 8 are needed: mend what breaks the others, or train more, --seeds 9" in once.stderr


@pytest.mark.parametrize("lost", ["values", "seed", "step_seconds", "tokens_per_sec"])
def test_a_damaged_file_of_a_seed_is_trained_again(loop, tmp_path, lost):
    """And it is named; the baseline is the same."""
    assert loop("baseline", "returns", "--manifest", DEMO, "--out", "base").exit_code == 0
    before = json.loads((tmp_path / "base/baseline.json").read_bytes())["id"]
    path = tmp_path / "base/seeds/0002.json"
    plain = json.loads(path.read_bytes())
    del plain[lost]
    path.write_text(json.dumps(plain))
    made = loop("baseline", "returns", "--manifest", DEMO, "--out", "base")
    assert made.exit_code == 0, made.output
    assert f"{Path('base/seeds/0002.json')} is damaged, so the seed is trained again" in made.stderr
    assert "seed 1: kept" in made.stderr
    assert json.loads((tmp_path / "base/baseline.json").read_bytes())["id"] == before


def test_another_corpus_is_invalid_before_anything_is_trained(loop, tmp_path):
    """As data it is compared by what is held out."""
    other = tmp_path / "other"
    (tmp_path / "texts/train").mkdir(parents=True)
    (tmp_path / "texts/train/a.txt").write_text("A text of another corpus.")
    (tmp_path / "config.yaml").write_text("splits: {train: {paths: [texts/train]}}")
    CliRunner().invoke(main, ["build", "config.yaml", "--manifest", str(other), "--workers", "0"])
    assert loop("baseline", "canary", "--manifest", DEMO, "--out", "base").exit_code == 0
    trained(tmp_path)
    made = loop("run", "canary", "--baseline", "base", "--manifest", str(other))
    assert made.exit_code == 3, made.output
    assert "the held-out shards are not the baseline's" in made.stdout
    assert trained(tmp_path) == []


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("too_few", "the canary of seed 0 made 1 steps, 200 were asked for"),
        ("fails", r"canary, seed 0: failed: KeyError: 'weights' (loop.py, line"),
        ("nothing", "the canary's function returned int"),
        ("absent", "loop.py has no `absent`"),
    ],
)
def test_a_function_that_does_something_else_is_an_error(loop, function, said):
    """Exit code 2, and what to do."""
    made = loop("baseline", function, "--manifest", DEMO, "--out", "base")
    assert made.exit_code == 2
    assert said in made.stderr


def test_a_folder_that_cannot_be_written_is_found_before_a_seed_is_trained(loop, tmp_path):
    made = loop("baseline", "canary", "--manifest", DEMO, "--out", "loop.py/x")
    assert made.exit_code == 2
    assert "--out: loop.py/x cannot be written: loop.py: it is no folder" in made.stderr
    assert trained(tmp_path) == []


@pytest.mark.kills
def test_a_baseline_that_is_killed_goes_on(loop, tmp_path):
    """With the next seed."""
    command = [sys.executable, "-m", "dataaudit", "canary", "baseline", "loop.py:canary", "--manifest", DEMO]
    command += ["--steps", "200", "--out", "base"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(command, env=os.environ | {"WAIT": "0.005", "PYTHONPATH": path}, cwd=tmp_path)
    end = time.monotonic() + 120
    while not (tmp_path / "base/seeds/0001.json").exists():
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = set(trained(tmp_path))
    assert loop("baseline", "canary", "--manifest", DEMO, "--out", "base").exit_code == 0
    assert {0, 1} <= before
    assert set(trained(tmp_path)) == set(range(8)) - before


def test_the_function_of_the_page_runs():
    """With a loop of ours in place of the user's."""
    page = (ROOT / "docs/probes/canary.md").read_text("utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    loader = ({"input_ids": np.full((2, 4), step)} for step in range(1_000))
    names = {
        "build": lambda manifest, seed: ("model", "optimizer", loader, "held out"),
        "update": lambda model, optimizer, batch: 1 / (1 + batch["input_ids"][0, 0]),
        "norm_of": lambda model: 2.0,
        "evaluate": lambda model, loader: 0.5,
    }
    exec(compile(source.replace(".numel()", ".size"), "page", "exec"), names)  # noqa: S102 - our own page
    made = CanaryTask(0, 200, Path(DEMO), Path()).run(names["canary"], 20)
    assert made["values"].keys() == {"train_loss_raw", "val_loss", "grad_global_norm"}
    assert made["tokens_per_sec"] > 0


def test_a_run_log_is_read_as_losses_and_values(tmp_path):
    """Values by layer and head have names of their own, the mean of the last steps counts, and seconds stand apart."""

    def function(task):
        with RunLogSink(task.folder / "log", "a run") as sink:
            for step in range(1, task.steps + 1):
                sink.add_step(step, 1 / step)
                columns = {"metric": ["max_attn_logit", "step_time"], "layer": [2, -1], "head": [1, -1]}
                columns |= {"stat": ["value"] * 2, "value": np.array([step, 0.25])}
                sink.add_values({"step": np.full(2, step), **columns})
        return task.folder / "log"

    made = CanaryTask(0, 200, Path(DEMO), tmp_path).run(function, 20)
    last = np.arange(181, 201)
    assert made["values"]["train_loss_raw"] == pytest.approx(np.mean(1 / last))
    assert made["values"]["max_attn_logit.layer:2.head:1"] == pytest.approx(last.mean())
    assert made["values"].keys() == {"train_loss_raw", "max_attn_logit.layer:2.head:1"}
    assert made["step_seconds"] == 0.25
    assert made["order"] is None, "such a log has no tags"


def test_what_is_measured_at_some_steps_counts_by_the_last_tenth_of_the_steps(tmp_path):
    """The last 20 measurements counted: of every fourth step the last 80 steps, and of every fiftieth the whole run."""

    def values(step):
        return {f"every{n}": float(step) for n in (4, 50, 110) if step % n == 0}

    def steps(task):
        for step in range(1, task.steps + 1):
            task.step(1 / step, **values(step))

    def log(task):
        with RunLogSink(task.folder / "log", "a run") as sink:
            for step in range(1, task.steps + 1):
                sink.add_step(step, 1 / step)
                for name, value in values(step).items():
                    row = {"step": [step], "layer": [-1], "head": [-1], "value": [value]}
                    sink.add_values(
                        {own: np.array(item) for own, item in row.items()} | {"metric": [name], "stat": ["value"]}
                    )
        return task.folder / "log"

    for function in (steps, log):
        made = CanaryTask(0, 200, Path(DEMO), tmp_path).run(function, 20)["values"]
        assert [made[f"every{n}"] for n in (4, 50, 110)] == [192.0, 200.0, 110.0]


@pytest.mark.torch
def test_the_log_of_a_monitor_says_what_was_read(world, tmp_path):
    """Documents and positions, in the order of steps: equal for a seed, another one for another."""
    torch = pytest.importorskip("torch", reason="the monitor takes tensors")
    from dataaudit.training import Documents, PackedDocuments, TrainingMonitor, byte_encoder, open_manifest

    corpus = open_manifest(world.manifest, require="verified")

    def function(task):
        rows = PackedDocuments(Documents(corpus, "train", byte_encoder(end=0)), context=16, seed=task.seed)
        with TrainingMonitor(task.folder, corpus) as monitor:
            for at in range(task.steps):
                batch = torch.utils.data.default_collate([rows[at]])
                losses = torch.full(batch["labels"].shape, 1 / (1 + at))
                monitor.batch(batch["tags"], losses=losses, labels=batch["labels"])
                monitor.step(losses.mean())
        return task.folder

    made = [
        CanaryTask(seed, 20, world.manifest, tmp_path / f"{at}").run(function, 2) for at, seed in enumerate((0, 0, 1))
    ]
    assert made[0]["values"] == made[1]["values"]
    assert made[0]["values"]["train_loss_raw"] == pytest.approx((1 / 19 + 1 / 20) / 2)
    assert made[0]["order"] == made[1]["order"] != made[2]["order"]
    assert all(run["step_seconds"] > 0 for run in made)


def test_the_order_of_rows_is_known_and_their_batches_are_not():
    """Integers of any width are equal, and so are rows however they are batched; another order is another digest."""

    def order(*batches):
        def function(task):
            for batch in batches:
                task.step(1.0, batch)

        return CanaryTask(0, len(batches), Path(), Path()).run(function, 1)["order"]

    rows = np.arange(12).reshape(4, 3)
    assert order(rows) == order(rows.astype(np.int16)) == order(rows.tolist()) == order([[0, 1, 2], *rows[1:].tolist()])
    assert order(rows) != order(rows[::-1])
    assert order({"ids": rows, "at": [1]}) == order({"at": [1], "ids": rows})
    assert order("ab", "c") != order("a", "bc")
    with pytest.raises(ConfigError, match="expected numbers or text"):
        order(np.array([object()]))
