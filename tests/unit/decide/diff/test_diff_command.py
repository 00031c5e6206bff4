"""The command: exit codes, forms, errors."""

import json

import pytest
from click.testing import CliRunner
from diff_made import made, shard

from dataaudit import cli


def invoke(*arguments):
    """Run the command line in this process."""
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two manifests that differ in a shard."""
    folder = tmp_path_factory.mktemp("pair")
    made(folder / "old", [shard("a"), shard("b")])
    made(folder / "new", [shard("a"), shard("b"), shard("c")])
    return folder / "old", folder / "new"


def test_equal_manifests_end_with_0(pair):
    """In every form."""
    for form in ("text", "json", "md"):
        assert invoke("diff", pair[0], pair[0], "--format", form).exit_code == 0


def test_different_manifests_end_with_1(pair):
    """Whatever differs; the result goes to stdout."""
    shown = invoke("diff", *pair)
    assert (shown.exit_code, shown.stderr) == (1, "")
    assert "minor bump" in shown.stdout


def test_json_is_json_by_either_option(pair):
    """`--json` is short for `--format json`."""
    shown = invoke("diff", *pair, "--json")
    assert shown.stdout == invoke("diff", *pair, "--format", "json").stdout
    assert json.loads(shown.stdout)["proposal"]["bump"] == "minor"


def test_what_cannot_be_read_ends_with_2(pair, tmp_path):
    """Also a manifest that disagrees with itself: exit code 1 would read as a difference."""
    assert invoke("diff", pair[0], tmp_path / "none").exit_code == 2
    made(tmp_path / "bad", [shard("a")])
    path = tmp_path / "bad/manifest.json"
    document = json.loads(path.read_text())
    document["core"]["totals"]["documents"] += 1
    path.write_text(json.dumps(document))
    shown = invoke("diff", pair[0], tmp_path / "bad")
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert "the id says" in shown.stderr


def test_a_missing_table_ends_with_2(pair, tmp_path):
    """By name."""
    made(tmp_path / "m", [shard("a")])
    (tmp_path / "m/metrics.parquet").unlink()
    shown = invoke("diff", tmp_path / "m", pair[0])
    assert shown.exit_code == 2
    assert "table metrics" in shown.stderr
