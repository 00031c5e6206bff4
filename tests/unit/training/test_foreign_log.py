"""Logs of other programs: spikes are found in a table of steps and losses, and nothing is said of data."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from dataaudit.cli.training import attribute
from dataaudit.errors import ConfigError
from dataaudit.training.foreign_log import detect


def curve(spike=range(0), dip=range(0), level=None, nan=()):
    """Return steps and losses of a healthy run with something planted."""
    random = np.random.default_rng(0)
    steps = np.arange(1, 301)
    loss = 2 + 2 * steps**-0.5 + random.normal(size=300) * 0.02
    loss[np.isin(steps, spike)] += 1
    loss[np.isin(steps, dip)] -= 1
    if level is not None:
        loss[steps >= level] += 1
    loss[np.isin(steps, nan)] = np.nan
    return steps, loss


def write(path, steps, losses, names=("step", "train_loss")):
    """Write a table, by the suffix of the file."""
    if path.suffix == ".csv":
        lines = [",".join(names)] + [f"{step},{loss}" for step, loss in zip(steps, losses, strict=True)]
    else:
        lines = [
            json.dumps(dict(zip(names, (int(a), float(b)), strict=True))) for a, b in zip(steps, losses, strict=True)
        ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_spikes_dips_levels_and_nan_are_apart(tmp_path, suffix):
    path = write(tmp_path / f"log{suffix}", *curve(range(100, 103), range(150, 152), 220, nan=(60,)))
    found, steps, losses = detect(path)
    kinds = [(one.kind, one.first_step, one.last_step) for one in found.episodes]
    assert kinds == [("not_finite", 60, 60), ("loss_spike", 100, 102), ("level_shift", 220, 269)]
    assert [(one.kind, one.first_step, one.last_step) for one in found.dips] == [("loss_dip", 150, 151)]
    assert (found.exit_code, found.steps, found.skipped, len(steps), len(losses)) == (3, 300, 0, 300, 300)


def test_the_command_says_what_it_cannot_tell(tmp_path):
    path = write(tmp_path / "log.csv", *curve(range(100, 103)))
    done = CliRunner().invoke(attribute, [str(path)])
    assert done.exit_code == 3
    assert done.output.startswith("1 episode in 300 steps. Which data they read is not in this log.")
    assert "nothing can be proposed" in " ".join(done.output.split())
    plain = json.loads(CliRunner().invoke(attribute, [str(path), "--json"]).output)
    assert plain["schema"] == {"name": "dataaudit-detection", "version": 1}
    assert CliRunner().invoke(attribute, [str(write(tmp_path / "fine.csv", *curve()))]).exit_code == 0


def test_rows_of_other_metrics_and_repeated_steps_are_counted(tmp_path):
    path = tmp_path / "log.jsonl"
    rows = [{"step": 1, "eval_loss": 3.0}, {"step": 1, "loss": 9.0}, {"step": 1, "loss": 2.0}, {"step": 2, "loss": 2.1}]
    path.write_text("\n".join(map(json.dumps, rows)))
    found, steps, losses = detect(path)
    assert (found.skipped, found.repeated, found.exit_code) == (1, 1, 4)
    assert losses.tolist() == [2.0, 2.1]
    assert steps.tolist() == [1, 2]


def test_a_damaged_line_is_counted_and_tabs_part_columns(tmp_path):
    path = write(tmp_path / "log.jsonl", *curve(range(100, 103)))
    path.write_text(path.read_text() + '{"step": 301, "train_lo\n')
    assert (detect(path)[0].skipped, detect(path)[0].steps) == (1, 300)
    table = write(tmp_path / "log.csv", *curve(range(100, 103))).read_text()
    (tmp_path / "log.tsv").write_text("\ufeff" + table.replace(",", "\t"))
    assert detect(tmp_path / "log.tsv")[0] == detect(tmp_path / "log.csv")[0]


def test_columns_of_other_names(tmp_path):
    path = write(tmp_path / "log.csv", *curve(range(100, 103)), names=("update", "ppl"))
    with pytest.raises(ConfigError, match="which column is the step\\? none of update, ppl has a usual name"):
        detect(path)
    with pytest.raises(ConfigError, match="has no `pl`"):
        detect(path, step="update", loss="pl")
    assert detect(path, step="update", loss="ppl")[0].exit_code == 3


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", b"{", "which column is the step"),
        ("a.jsonl", b"[1]", "which column is the step"),
        ("a.jsonl", b'{"step": 1, "loss": null}', "no line with a step and a loss"),
        ("a.csv", b"\xff\xfe\x00", "which column is the step"),
        ("a.csv", b"", "which column is the step"),
    ],
)
def test_what_is_no_table_is_said(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        detect(tmp_path / name)


def test_a_run_log_needs_its_manifest(tmp_path):
    done = CliRunner().invoke(attribute, [str(tmp_path)])
    assert done.exit_code == 2
    assert "--manifest DIR" in done.output
