"""Logs of other programs: spikes are found in a table of steps and losses, and nothing is said of data."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from dataaudit.base.errors import ConfigError
from dataaudit.cli.training import attribute, reconstruct
from dataaudit.training.pages.foreign_log import detect


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


@pytest.mark.parametrize("option", ["--manifest", "--step", "--reference", "--picture", "--replay", "--suspect"])
def test_options_of_a_run_log_are_refused_beside_a_table(tmp_path, option):
    """They were taken, and changed nothing: no shard is named of a table."""
    done = CliRunner().invoke(attribute, [str(write(tmp_path / "log.csv", *curve())), option, "1"])
    assert (done.exit_code, f"{option} is of a run log" in done.output) == (2, True)


def test_columns_of_a_table_are_refused_beside_a_run_log(tmp_path):
    done = CliRunner().invoke(attribute, [str(tmp_path), "--manifest", str(tmp_path), "--loss-column", "loss"])
    assert (done.exit_code, "--loss-column is of a table" in done.output) == (2, True)
    of_order = ["--manifest", "m", "--order", "nanogpt", "--file", "f", "--steps", "1-2", "--step-column", "s"]
    done = CliRunner().invoke(reconstruct, [str(tmp_path), *of_order])
    assert (done.exit_code, "--step-column is of --losses" in done.output) == (2, True)


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


def lines_of(path):
    """Return the lines of a table of 300 steps with a spike at steps 100 to 102."""
    return write(path, *curve(range(100, 103))).read_text().splitlines()


def over(text, place, changed):
    """Return lines with one of them changed: the line of a step stands at its number."""
    return [changed(line) if at == place else line for at, line in enumerate(text)]


DAMAGED = {
    "a field too many": (lambda text: over(text, 50, lambda line: f"{line},7"), 1, 51),
    "fields too many": (lambda text: over(text, 50, lambda line: f"{line},7,8,9"), 1, 51),
    "a field too few": (lambda text: over(text, 50, lambda line: line.split(",")[0]), 0, None),
    "a line of commas": (lambda text: over(text, 50, lambda _: ",,,"), 0, None),
    "a quote that is not closed": (lambda text: over(text, 50, lambda line: line.replace(",", ',"')), 1, 51),
    "a quote before the step": (lambda text: over(text, 50, lambda line: f'"{line}'), 1, 51),
    "a quote behind a number": (lambda text: over(text, 50, lambda line: f'{line}"'), 0, None),
    "something behind a quote": (lambda text: over(text, 50, lambda line: line.replace(",", ',"x"y')), 1, 51),
    "a decimal comma": (lambda text: over(text, 50, lambda line: line.replace(".", ",")), 1, 51),
    "a header again": (lambda text: over(text, 50, lambda _: text[0]), 0, None),
    "a NUL": (lambda text: over(text, 50, lambda _: "\0"), 0, None),
    "a field that is too long": (lambda text: over(text, 50, lambda line: line + "x" * 200_000), 1, 51),
    "a step that no integer holds": (lambda text: over(text, 50, lambda _: "1e300,2"), 0, None),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_line_costs_itself_and_is_named(tmp_path, name):
    change, damaged, first = DAMAGED[name]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(change(lines_of(path))) + "\n")
    found, steps, _ = detect(path)
    assert (found.damaged, found.first_damaged, found.skipped) == (damaged, first, 1)
    assert sorted({*range(1, 301)} - set(steps.tolist())) == [50]
    assert [(one.first_step, one.last_step) for one in found.episodes] == [(100, 102)]
    done = CliRunner().invoke(attribute, [str(path)])
    assert done.exit_code == 3
    assert ("1 damaged line, the first is line 51." in " ".join(done.output.split())) == bool(damaged)


def test_two_open_quotes_cost_their_lines_and_none_between(tmp_path):
    """The second one closes the first: a hundred rows would be one text."""
    path = tmp_path / "log.csv"
    text = over(over(lines_of(path), 150, lambda line: f'"{line}'), 250, lambda line: f'{line}"')
    path.write_text("\n".join(text) + "\n")
    found, steps, _ = detect(path)
    assert sorted({*range(1, 301)} - set(steps.tolist())) == [150, 250]
    assert (found.damaged, found.skipped) == (1, 2)
    path.write_text("\n".join(over(lines_of(path), 150, lambda line: f'"{line}')) + "\n")
    assert (detect(path)[0].damaged, len(detect(path)[1])) == (1, 299)


def quoted(text):
    return [",".join(f'"{one}"' for one in line.split(",")) for line in text]


def with_notes(text):
    """Return lines with a text that holds breaks, separators and quotes."""
    return [f"{text[0]},note", *(f'{line},"a, ""b""\n\nc"' for line in text[1:])]


SAME = {
    "a comma at each end": lambda text: [text[0], *(f"{line}," for line in text[1:])],
    "a comma at each end, of the names too": lambda text: [f"{line}," for line in text],
    "quotes": quoted,
    "texts with line breaks": with_notes,
    "semicolons": lambda text: [line.replace(",", ";") for line in text],
    "semicolons and decimal commas": lambda text: [line.replace(",", ";").replace(".", ",") for line in text],
    "tabs in a CSV": lambda text: [line.replace(",", "\t") for line in text],
    "bars": lambda text: [line.replace(",", "|") for line in text],
    "a BOM": lambda text: [f"\ufeff{text[0]}", *text[1:]],
    "empty lines": lambda text: [one for line in text for one in (line, "", "  ")],
    "returns": lambda text: [f"{line}\r" for line in text],
    "spaces": lambda text: [line.replace(",", " , ") for line in text],
    "more columns": lambda text: [f"a,{text[0]},b", *(f",{line}," for line in text[1:])],
}


@pytest.mark.parametrize("name", SAME)
def test_tables_of_other_writers_are_the_same_table(tmp_path, name):
    plain, path = tmp_path / "plain.csv", tmp_path / "log.csv"
    text = lines_of(plain)
    path.write_text("\n".join(SAME[name](text)) + "\n", newline="")
    assert detect(path)[0].model_copy(update={"columns": ()}) == detect(plain)[0].model_copy(update={"columns": ()})
    assert detect(path)[2].tolist() == detect(plain)[2].tolist()


def test_a_parquet_file_is_the_same_table_and_a_damaged_one_is_named(tmp_path):
    steps, losses = curve(range(100, 103))
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"step": steps, "train_loss": losses, "note": [None] * len(steps)}), path)
    assert detect(path)[0] == detect(write(tmp_path / "log.csv", steps, losses))[0]
    assert CliRunner().invoke(attribute, [str(path)]).exit_code == 3
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ConfigError, match="is no Parquet"):
        detect(path)


def test_a_name_that_two_columns_have_is_asked_about(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("step,loss,loss\n1,2,3\n")
    with pytest.raises(ConfigError, match="2 columns `loss`: which one is it"):
        detect(path)
    path.write_text("step,loss,x,x\n1,2,3,4\n")
    assert detect(path)[2].tolist() == [2.0]
    path.write_text("step,loss\n1,2,3\n2,2,3\n")
    with pytest.raises(ConfigError, match="no line with a step and a loss; 2 have more fields than names, or are cut"):
        detect(path)


def test_numbers_of_json_that_no_float_holds_are_left_out(tmp_path):
    path = tmp_path / "log.jsonl"
    rows = ['{"step": 1, "loss": 2}', f'{{"step": 1{"0" * 400}, "loss": 2}}', '{"step": 2, "loss": [2]}', '{"step": 3,']
    path.write_text("\n".join([*rows, '{"step": 4, "loss": NaN}', '{"step": true, "loss": 1}', "[]", "x"]))
    found, steps, losses = detect(path)
    assert steps.tolist() == [1, 4]
    assert np.isnan(losses[1])
    assert (found.skipped, found.damaged, found.first_damaged) == (6, 3, 4)


def test_a_run_log_needs_its_manifest(tmp_path):
    done = CliRunner().invoke(attribute, [str(tmp_path)])
    assert done.exit_code == 2
    assert "--manifest DIR" in done.output
