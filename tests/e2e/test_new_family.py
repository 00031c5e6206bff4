"""A family that is added by one folder and one line is scanned, published, judged, compared, shown and reported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from corpus import write_jsonl
from running import run

import dataaudit

pytestmark = pytest.mark.builds

PACKAGE = Path(dataaudit.__file__).parent
FOLDER = Path(__file__).parents[1] / "new_family"
LINE = '    "questions",\n'
POLICY = "policy: p\nrules:\n  - {name: few-questions, metric: question_rate, stat: rate, unit: ratio, budget: 0.1}\n"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The package with one more family: everything else is the same file."""
    root = tmp_path_factory.mktemp("program")
    metrics = root / "dataaudit" / "metrics"
    metrics.mkdir(parents=True)
    for source, target in ((PACKAGE, metrics.parent), (PACKAGE / "metrics", metrics)):
        for entry in source.iterdir():
            if entry.name not in {"metrics", "scan", "registry.py", "__pycache__"}:
                (target / entry.name).symlink_to(entry)
    # Machine code is kept by where its source lies: with the path of every other test's, nothing is compiled anew.
    scan = metrics.parent / "scan"
    scan.mkdir()
    (scan / "__init__.py").write_text(f"__path__ = [{str((PACKAGE / 'scan').resolve(strict=True))!r}]\n", "utf-8")
    (metrics / "questions").symlink_to(FOLDER)
    text = (PACKAGE / "metrics" / "registry.py").read_text("utf-8")
    head, names, rest = text.partition("_NAMES = (\n")
    (metrics / "registry.py").write_text(head + names + LINE + rest, "utf-8")

    def call(*args, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "dataaudit", *map(str, args)],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root), "COLUMNS": "100"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return call


@pytest.fixture(scope="module")
def manifests(program, tmp_path_factory):
    """Two manifests: a third of the training documents ask, then half of them."""
    root = tmp_path_factory.mktemp("built")
    for name, share in (("first", 3), ("second", 2)):
        texts = [f"document number {index}{'?' if index % share == 0 else '.'}" for index in range(300)]
        write_jsonl(root / name / "train" / "a.jsonl", [{"text": text, "source": "web"} for text in texts])
        write_jsonl(
            root / name / "val" / "b.jsonl",
            [{"text": "what is that?", "source": "web"}, {"text": "nothing", "source": "web"}],
        )
        program("build", root / name / "train", root / name / "val", "--manifest", root / f"m-{name}", "--workers", 0)
    return root / "m-first", root / "m-second"


def test_its_records_are_published_for_every_scope(manifests):
    found = dataaudit.load(manifests[0]).metrics("question_rate", "rate")
    assert {(one.scope.split, one.scope.source): one.value for one in found} == pytest.approx(
        {
            (None, None): 101 / 302,
            (None, "web"): 101 / 302,
            ("train", None): 1 / 3,
            ("train", "web"): 1 / 3,
            ("val", None): 1 / 2,
            ("val", "web"): 1 / 2,
        }
    )


def test_it_is_judged_compared_shown_and_reported(program, manifests, tmp_path):
    (tmp_path / "p.yaml").write_text(POLICY)
    verdict = json.loads(program("gate", manifests[1], "--policy", tmp_path / "p.yaml", "--json", code=1))
    states = {one["rule"]["name"]: one["state"] for one in verdict["verdict"]["rules"]}
    assert states["few-questions"] == "fail"
    change = json.loads(program("diff", *manifests, "--json", code=1))
    said = [one for one in change["metrics"] if one["metric"] == "question_rate" and one["scope"] == {"split": "train"}]
    assert [one["fate"] for one in said] == ["changed"], said
    shown = program("show", manifests[0], "--section", "questions")
    assert "Questions by split" in shown
    assert "0.3333" in shown
    assert "question_rate" in program("show", manifests[0], "--metric", "question_rate")
    program("report", manifests[0], "--out", tmp_path / "report.html")
    assert 'id="questions"' in (tmp_path / "report.html").read_text("utf-8")


def test_a_program_without_it_reads_the_manifest_and_knows_no_rule_of_it(manifests, tmp_path):
    """Numbers of a family that a reader does not know are shown and verified; a policy that names them is an error."""
    run("verify", manifests[0])
    assert "question_rate" in run("show", manifests[0], "--all")[0]
    assert "0.3333" in run("show", manifests[0], "--metric", "question_rate")[0]
    (tmp_path / "p.yaml").write_text(POLICY)
    _, err = run("gate", manifests[0], "--policy", tmp_path / "p.yaml", expect=2)
    assert "no metric is named `question_rate`" in err
    run("diff", *manifests, "--json", expect=1)
