"""The laboratory from end to end at 32 steps: pilot, runs, receipts, and the same verdicts again."""

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")

from lab_runs import NAMES, tiny_plan

from dataaudit.base.errors import ConfigError
from dataaudit.cli import main
from dataaudit.lab.model import Text
from dataaudit.lab.plan import load_plan
from dataaudit.lab.receipts import FIELDS, compare, compared_text, load_receipts
from dataaudit.lab.running import seeds_of

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return the folder of a pilot and of two runs of everything."""
    folder = tmp_path_factory.mktemp("lab")
    tiny_plan(folder)
    for name in ("first", "second"):
        result = lab_run(folder, name)
        assert result.exit_code in {1, 3}, result.output
    return folder


def lab_run(folder, name, *more):
    """Run the command on seeds 0 and 1."""
    arguments = ["--plan", str(folder / "plan.json"), "--out", str(folder / name), "--seeds", "0-1"]
    return CliRunner().invoke(main, ["lab", "run", *arguments, "--scenarios", ",".join(NAMES), *more])


def test_runs_of_the_same_command_have_the_same_verdicts_bit_for_bit(made):
    first, second = (load_receipts(made / name) for name in ("first", "second"))
    assert first["verdicts_digest"] == second["verdicts_digest"]
    assert first["runs"] == 2 * len(NAMES)
    result = CliRunner().invoke(main, ["lab", "compare", str(made / "first"), str(made / "second")])
    assert result.exit_code == 0
    assert result.output.startswith("The same verdicts")


def test_a_run_that_was_lost_is_made_again_with_the_same_bits(made):
    before = load_receipts(made / "second")
    lost = made / "second/runs/rate_creep-1.npz"
    lost.unlink()
    assert lab_run(made, "second").exit_code in {1, 3}
    assert lost.exists()
    assert load_receipts(made / "second")["verdicts_digest"] == before["verdicts_digest"]


def test_every_receipt_has_the_nine_fields_or_says_why_not(made):
    receipts = load_receipts(made / "first")["receipts"]
    assert {"qk_first_order_entropy", "router_token_entropy", "loss.ours", "gradient.gss"} <= receipts.keys()
    for name, own in receipts.items():
        assert all(own.get(field) for field in FIELDS), name


def test_bands_come_from_seeds_that_are_not_scored(made):
    refused = CliRunner().invoke(
        main, ["lab", "run", "--plan", str(made / "plan.json"), "--out", str(made / "third"), "--seeds", "1002"]
    )
    assert refused.exit_code == 2
    assert "seed 1002 is a seed of the plan's bands" in refused.output


def test_a_plan_that_was_changed_after_the_pilot_is_refused(made, tmp_path):
    plan = json.loads((made / "plan.json").read_text())
    limits = plan["limits"]["dense"]["later"]
    limits[next(iter(limits))] *= 0.5
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(ConfigError, match="changed after the pilot"):
        load_plan(tmp_path / "plan.json")


def test_a_page_of_another_plan_says_what_to_type(made, tmp_path):
    """It said to give --out, which `show` does not have."""
    shown = CliRunner().invoke(main, ["lab", "show", str(made / "first"), "--page", str(tmp_path / "page.html")])
    assert shown.exit_code == 2
    assert "Name it, too: --plan FILE." in shown.stderr


def test_a_pilot_whose_healthy_runs_diverged_says_so(tmp_path, monkeypatch):
    """Its bands are of runs that are not healthy, and nothing was said of it."""
    content = {"digest": "0" * 64, "scenarios": {}, "healthy_that_diverged": {"dense": 2, "experts": 0}}
    plan = SimpleNamespace(digest=content["digest"], content=content)
    monkeypatch.setattr("dataaudit.lab.piloting.write_plan", lambda *_, **__: plan)
    made = CliRunner().invoke(main, ["lab", "pilot", "--out", str(tmp_path)])
    assert "dense: 2 of 7 healthy runs diverged" in made.stdout
    assert "experts" not in made.stdout


def test_runs_in_a_single_file_are_named_where_two_are_compared(made):
    value = load_receipts(made / "first")
    one = value | {"verdicts": value["verdicts"][:3], "verdicts_digest": "other"}
    assert compared_text(compare(value, one)).startswith(
        f"0 of 3 runs differ, and {2 * len(NAMES) - 3} are in a single"
    )


def test_runs_of_another_plan_are_refused(made):
    refused = CliRunner().invoke(main, ["lab", "run", "--out", str(made / "first"), "--seeds", "0", "--stored"])
    assert refused.exit_code == 2
    assert "was made by the plan" in refused.output


def test_runs_of_another_text_are_refused(made, tmp_path):
    """Receipts named the text of the command, and the plan of a pilot that of its own, over runs of another."""
    (tmp_path / "text.txt").write_text("Rivers and stones. " * 5_000)
    refused = lab_run(made, "first", "--text", str(tmp_path / "text.txt"))
    assert refused.exit_code == 2
    assert "was made on the text" in refused.output
    with pytest.raises(ConfigError, match="healthy_dense-1000"):
        tiny_plan(made, Text.load(tmp_path / "text.txt"))


def test_a_folder_that_cannot_be_written_is_found_before_anything_is_trained(made):
    refused = lab_run(made, "plan.json/x")
    assert refused.exit_code == 2
    assert "--out: " in refused.stderr
    assert "seed 0" not in refused.stderr


def test_a_seed_that_is_named_twice_is_scored_once():
    """Each further naming counted the same run again, and the bound of a share rose."""
    assert seeds_of("3,0-2,1,3") == [3, 0, 1, 2]


def test_receipts_whose_verdicts_were_changed_are_refused(made, tmp_path):
    value = json.loads((made / "first/receipts.json").read_text())
    value["verdicts"][0]["diverged"] = 7
    (tmp_path / "receipts.json").write_text(json.dumps(value))
    shown = CliRunner().invoke(main, ["lab", "show", str(tmp_path)])
    assert shown.exit_code == 2
    assert "are not those of its digest" in shown.output


def test_the_page_draws_each_fault_and_names_every_signal(made, tmp_path):
    page = tmp_path / "receipts.html"
    arguments = ["--plan", str(made / "plan.json"), "--page", str(page)]
    shown = CliRunner().invoke(main, ["lab", "show", str(made / "first"), *arguments])
    assert shown.exit_code == 0, shown.output
    text = page.read_text()
    assert "No run diverged, so no lead is known: " in text
    assert "rate_creep, seed 0" in text
    assert "Loss, mean of 16 steps" in text
    assert "http://" not in text.split("</style>")[0]
