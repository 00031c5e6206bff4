"""Files: named by options, whole or not at all, and told apart from the runner's own."""

import os
import stat
from pathlib import Path

import pytest
from made_verdict import mixed

from dataaudit.base.errors import ConfigError, ExitCode
from dataaudit.decide.gate.writers.writing import Outputs, check_outputs, on_runner, write_outputs

POLICY = "policy: release-gate\nrules:\n  - name: copied-spans\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Stand in a folder with a policy."""
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(POLICY)
    return Path("policy.yaml")


def test_every_file_is_written(place):
    """Each with its format; nothing else is left in the folder."""
    outputs = Outputs(junit=Path("j.xml"), sarif=Path("s.sarif"), summary=Path("s.md"), markdown=Path("c.md"))
    assert write_outputs(mixed(), outputs, place) == ""
    assert sorted(os.listdir()) == ["c.md", "j.xml", "policy.yaml", "s.md", "s.sarif"]
    assert Path("j.xml").read_text().startswith("<?xml")
    assert '"startLine":3' in Path("s.sarif").read_text()
    assert Path("s.md").read_text().startswith("<!-- dataaudit-gate")


def test_a_link_is_replaced_and_not_followed(place):
    """Who can plant a link in the folder does not choose what is written over."""
    Path("real.md").write_text("older")
    Path("c.md").symlink_to("real.md")
    write_outputs(mixed(), Outputs(markdown=Path("c.md")), place)
    assert not Path("c.md").is_symlink()
    assert Path("c.md").read_text().startswith("<!-- dataaudit-gate")
    assert Path("real.md").read_text() == "older"


def test_a_new_file_has_the_usual_rights(place):
    """Not those of a secret."""
    write_outputs(mixed(), Outputs(junit=Path("j.xml")), place)
    Path("usual").touch()
    assert stat.S_IMODE(Path("j.xml").stat().st_mode) == stat.S_IMODE(Path("usual").stat().st_mode)


def test_the_runners_own_summary_is_added_to(place):
    """Other commands of the step have written to it, and may again."""
    Path("step.md").write_text("before\n")
    environ = {"GITHUB_STEP_SUMMARY": str(Path("step.md").resolve())}
    outputs = Outputs(summary=Path("step.md"), environ=environ)
    write_outputs(mixed(), outputs, place)
    write_outputs(mixed(), outputs, place)
    text = Path("step.md").read_text()
    assert text.startswith("before\n<!-- dataaudit-gate")
    assert text.count("## dataaudit gate") == 2


def test_a_full_summary_of_a_step_is_not_overfilled(place):
    """The runner would drop all of it."""
    step = Path("step.md")
    step.write_bytes(b"x" * (1024 * 1024 - 60))
    write_outputs(mixed(), Outputs(summary=step, environ={"GITHUB_STEP_SUMMARY": str(step)}), place)
    assert step.stat().st_size <= 1024 * 1024


def test_annotations_are_returned_with_the_rules_lines(place):
    """For whoever prints them."""
    text = write_outputs(mixed(), Outputs(annotations=True), place)
    assert "file=policy.yaml,line=3::" in text
    assert write_outputs(mixed(), Outputs(), place) == ""


def test_a_policy_that_is_gone_costs_the_lines_alone(place):
    """It was read before."""
    place.unlink()
    assert "::error title=" in write_outputs(mixed(), Outputs(annotations=True), place)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (Outputs(junit=Path("no/j.xml")), "--junit: the folder no does not exist\n  Make it first: mkdir -p no"),
        (Outputs(sarif=Path()), "--sarif: . is a folder"),
        (Outputs(summary=Path("a"), markdown=Path("./a")), "--markdown and --summary name the same file"),
        (Outputs(sarif=Path("policy.yaml")), "--sarif and --policy name the same file"),
    ],
)
def test_what_cannot_be_written_is_said_before_the_work(place, outputs, message):
    """With the option, and exit code 2."""
    with pytest.raises(ConfigError) as caught:
        check_outputs(outputs, {"--policy": place})
    assert message in str(caught.value)
    assert caught.value.exit_code == ExitCode.WRONG_USE


def test_no_file_of_a_manifest_is_written(place):
    """They are held by digests; a gate.json may lie beside them."""
    Path("m").mkdir()
    for folders in ((Path("m"), None), (Path("other"), Path("m"))):
        with pytest.raises(ConfigError, match=r"--sarif: m/manifest\.json is a part of a manifest"):
            check_outputs(Outputs(sarif=Path("m/manifest.json")), {}, folders)
    check_outputs(Outputs(out=Path("m/gate.json"), sarif=Path("beside")), {}, (Path("m"), None))


def test_two_outputs_may_go_to_the_same_pipe(place):
    """/dev/null is no file that one would replace."""
    outputs = Outputs(junit=Path("/dev/null"), sarif=Path("/dev/null"))
    check_outputs(outputs, {"--policy": place})
    write_outputs(mixed(), outputs, place)
    assert not Path("/dev/null").is_file()


def test_a_stream_of_this_process_is_written_to(place):
    """As with --junit >(command), which is a name below /dev/fd."""
    read, write = os.pipe()
    write_outputs(mixed(), Outputs(junit=Path(f"/dev/fd/{write}")), place)
    os.close(write)
    with open(read, "rb") as stream:
        assert stream.read().startswith(b"<?xml")


def test_a_summary_of_the_step_that_is_a_link_is_not_followed(place):
    """The runner's own file is a file."""
    Path("mine").write_text("mine")
    Path("step.md").symlink_to("mine")
    outputs = Outputs(summary=Path("step.md"), environ={"GITHUB_STEP_SUMMARY": "step.md"})
    with pytest.raises(ConfigError, match=r"the file step\.md cannot be written"):
        write_outputs(mixed(), outputs, place)
    assert Path("mine").read_text() == "mine"


def test_a_file_that_cannot_be_replaced_is_a_clear_error(place, monkeypatch):
    """The old one is there still, and no half of the new one."""
    Path("j.xml").write_text("old")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(ConfigError, match=r"the file j\.xml cannot be written: Permission denied"):
        write_outputs(mixed(), Outputs(junit=Path("j.xml")), place)
    assert Path("j.xml").read_text() == "old"
    assert sorted(os.listdir()) == ["j.xml", "policy.yaml"]


def test_a_runner_is_known_by_its_variable():
    """Only the word true."""
    assert on_runner({"GITHUB_ACTIONS": "true"})
    assert not on_runner({"GITHUB_ACTIONS": "1"})
    assert not on_runner({})
