"""What runs the gate elsewhere, held against the platforms' own rules: the action, the hook, the examples of a page."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from junitparser import JUnitXml
from made_manifest import make, shard
from pre_commit.clientlib import load_config, load_manifest

ROOT = Path(__file__).parents[5]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
HOOKS = ROOT / ".pre-commit-hooks.yaml"
PAGE = (ROOT / "docs/howto/ci.md").read_text()
OFF = {"PACKAGE": "none", "FAILING": "", "REF": "", "REF_POLICY": "", "REF_KEY": "", "PYTHONSAFEPATH": "1"}
GIVEN = {"MANIFEST": "m", "POLICY": "p.yaml", "BASELINE": "", "QUARANTINE_LIST": "", "FAIL_ON": "fail"}
GIVEN |= {"PUBLIC_KEY": "", "IDENTITY": "", "ISSUER": ""} | OFF
"""Variables of the gate's step where no signature, no branch and no package is asked for."""
SNIPPETS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
STUB = """#!{python}
import json, os, pathlib, sys
with open(os.environ["CALLS"], "a") as stream:
    stream.write(json.dumps([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]) + "\\n")
for one in sys.argv[1:]:
    name, _, path = one.partition("=")
    if name in {{"--out", "--junit", "--sarif", "--markdown", "--failing"}} and os.environ.get("CODE_OF_GATE") != "2":
        pathlib.Path(path).write_text("<!-- mark 1 -->\\nbody")
if "--paginate" in sys.argv:
    print(os.environ.get("KNOWN", ""))
sys.exit(int(os.environ.get("CODE_OF_GATE", "0")))
"""
PROGRAM = f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m dataaudit "$@"\n'
INJECTED = "$(touch owned) `touch owned` \"; touch owned; #' ${{ github.token }}\n::error::x"


@pytest.fixture
def stubs(tmp_path, monkeypatch):
    """Put programs on PATH that write down how they are called, and make a runner's files."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("dataaudit", "gh"):
        (folder / name).write_text(STUB.format(python=sys.executable))
        (folder / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "GITHUB_REPOSITORY": "owner/corpus",
        "GITHUB_ACTION_PATH": str(ROOT),
    }


def step(name, environ, **given):
    """Run the script of a step as a runner does: the step's variables with these values, and nothing else."""
    wanted = STEPS[name]["env"]
    assert set(given) == set(wanted)
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]],
        env=environ | given,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def gate(environ, **given):
    """Run the script of the gate's step."""
    return step("Gate", environ, **GIVEN | given)


def calls(environ):
    """Return how the programs were called."""
    return [json.loads(line) for line in Path(environ["CALLS"]).read_text().splitlines()]


def outputs(environ):
    """Return the outputs that a step has set."""
    return dict(line.split("=", 1) for line in Path(environ["GITHUB_OUTPUT"]).read_text().splitlines())


def check(schema, content, tmp_path):
    """Hold a YAML text against a schema that check-jsonschema carries."""
    path = tmp_path / "file.yml"
    path.write_text(content)
    done = subprocess.run(
        [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", schema, str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_action_is_one_by_githubs_schema(tmp_path):
    """Inputs, outputs and steps."""
    check("vendor.github-actions", (ROOT / "action.yml").read_text(), tmp_path)


def test_no_input_reaches_a_script_but_through_the_environment():
    """An input in a script would be code."""
    for one in ACTION["runs"]["steps"]:
        assert "${{" not in one.get("run", "")


def test_actions_of_others_are_pinned():
    """By a whole commit."""
    used = [one["uses"] for one in ACTION["runs"]["steps"] if "uses" in one]
    assert len(used) == 3
    assert all(re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", name) for name in used)


@pytest.mark.judges
def test_packages_are_kept_by_what_is_installed(stubs):
    """In pip's own folder, for each package and list of dependencies; what the cache step reads is what is set here."""
    for package in ("", "", INJECTED):
        done = step("Where pip keeps what it fetches", stubs | {"XDG_CACHE_HOME": "/kept"}, PACKAGE=package)
        assert done.returncode == 0, done.stderr
    lines = Path(stubs["GITHUB_OUTPUT"]).read_text().splitlines()
    assert set(lines[::2]) == {"folder=/kept/pip"}
    assert all(re.fullmatch("wanted=[0-9a-f]{16}", line) for line in lines[1::2])
    assert lines[1] == lines[3] != lines[5]
    used = STEPS["Packages of an earlier run"]["with"]
    assert used["path"] == "${{ steps.pip.outputs.folder }}"
    assert used["key"].endswith("${{ steps.pip.outputs.wanted }}")


def test_every_output_comes_from_the_gate_step(stubs):
    """Each is set by the script when the files are there."""
    assert gate(stubs).returncode == 0
    assert "failing" not in outputs(stubs)
    gate(stubs, FAILING="true")
    named = {
        re.fullmatch(r"\${{ steps\.gate\.outputs\.([a-z-]+) }}", one["value"])[1] for one in ACTION["outputs"].values()
    }
    assert named == set(ACTION["outputs"]) == set(outputs(stubs))


def test_the_gate_is_called_with_what_the_inputs_say(stubs):
    """The baseline and the quarantine list only when there is one."""
    for baseline, listed in (("", ""), ("old", "q.jsonl")):
        gate(stubs, BASELINE=baseline, QUARANTINE_LIST=listed, FAIL_ON="warn")
    first, second = calls(stubs)
    assert first[:4] == ["dataaudit", "gate", "--policy=p.yaml", "--fail-on=warn"]
    assert first[-2:] == ["--", "m"]
    assert f"--summary={stubs['GITHUB_STEP_SUMMARY']}" in first
    assert not any(one.startswith(("--baseline", "--quarantine-list")) for one in first)
    assert {"--baseline=old", "--quarantine-list=q.jsonl"} <= set(second)


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4])
def test_the_job_ends_with_the_gates_code_after_everything_is_written(stubs, code):
    """The gate's step itself goes on, so that the comment is written."""
    done = gate(stubs | {"CODE_OF_GATE": str(code)})
    assert done.returncode == 0, done.stderr
    found = outputs(stubs)
    words = ["pass", "fail", "wrong_use", "not_evaluated", "nothing_evaluated"]
    assert (found["exit-code"], found["verdict"]) == (str(code), words[code])
    assert ("gate-json" in found) == (code != 2)
    assert step("Verdict", stubs, CODE=found["exit-code"]).returncode == code
    assert step("Verdict", stubs, CODE="").returncode == 2


def test_a_signature_is_asked_for_when_somebody_is_named(stubs):
    """Half of a name, too: the gate refuses it."""
    for given in ({"PUBLIC_KEY": "k.pub"}, {"IDENTITY": "who", "ISSUER": "https://i"}, {"ISSUER": "https://i"}):
        gate(stubs, **given)
    assert [call[call.index("--require-signature") + 1 : -2] for call in calls(stubs)] == [
        ["--public-key=k.pub"],
        ["--identity=who", "--issuer=https://i"],
        ["--issuer=https://i"],
    ]


def test_inputs_are_never_code(stubs, tmp_path):
    """Whatever they hold arrives as it is."""
    gate(stubs, **dict.fromkeys(GIVEN, INJECTED) | OFF)
    (call,) = calls(stubs)
    assert call[2:4] == [f"--policy={INJECTED}", f"--fail-on={INJECTED}"]
    assert call[-1] == INJECTED
    assert not list(tmp_path.rglob("owned"))
    gate(stubs, MANIFEST="--help")
    assert calls(stubs)[1][-2:] == ["--", "--help"]


@pytest.mark.parametrize(("known", "target"), [("", "issues/7/comments"), ("42", "issues/comments/42")])
def test_a_comment_is_made_once_and_then_updated(stubs, tmp_path, known, target):
    """Found by the first line of the body."""
    body = tmp_path / "gate.md"
    body.write_text("<!-- mark 1 -->\nbody")
    done = step("Comment", stubs | {"KNOWN": known}, BODY=str(body), GH_TOKEN="t", PULL_REQUEST="7")
    assert done.returncode == 0, done.stderr
    look, write = calls(stubs)
    assert "startswith(env.MARKER)" in look[-1]
    assert write[write.index("--method") + 1] == ("PATCH" if known else "POST")
    assert f"repos/owner/corpus/{target}" in write
    assert f"body=@{body}" in write


def test_the_action_judges_a_real_manifest(stubs, tmp_path):
    """With the program itself: every output is there, the policy's line is marked, the step's summary is written."""
    (tmp_path / "bin/dataaudit").write_text(PROGRAM)
    make(tmp_path / "m", [shard("a.jsonl"), shard("b::error::.jsonl")])
    (tmp_path / "p.yaml").write_text(
        "policy: p\nrules:\n  - name: large-enough\n    metric: documents\n    stat: count\n    unit: documents\n"
        "    comparator: '>='\n    budget: 1000\n"
    )
    done = gate(stubs)
    found = outputs(stubs)
    assert found["verdict"] == "fail", done.stdout + done.stderr
    assert "file=p.yaml,line=3::documents.count, whole dataset: 20 documents; limit >= 1,000 documents" in done.stdout
    assert json.loads(Path(found["gate-json"]).read_text())["exit_code"] == 1
    assert JUnitXml.fromfile(found["junit"]).failures == 1
    assert len(json.loads(Path(found["sarif"]).read_text())["runs"][0]["results"]) == 1
    assert "| **fail** | `large-enough` `documents.count` |" in Path(found["markdown"]).read_text()
    assert Path(stubs["GITHUB_STEP_SUMMARY"]).read_text().startswith("<!-- dataaudit-gate")


def test_the_hook_is_one_by_pre_commits_own_reader():
    """It names the program and passes no files."""
    (hook,) = load_manifest(str(HOOKS))
    assert (hook["id"], hook["entry"], hook["pass_filenames"]) == ("dataaudit-gate", "dataaudit gate", False)


def test_the_hook_runs_the_gate_and_stops_the_commit(stubs, tmp_path):
    """By pre-commit itself, with the program that is on PATH, as nothing is installed here."""
    repo = tmp_path / "repo"
    repo.mkdir()
    (hook,) = load_manifest(str(HOOKS))
    hook |= {"language": "system", "args": ["manifests/a", "--policy", "p.yaml"]}
    kept = {name: hook[name] for name in ("id", "name", "entry", "language", "files", "pass_filenames", "args")}
    (repo / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [{"repo": "local", "hooks": [kept]}]}))
    (repo / "manifest.json").write_text("{}")
    environ = os.environ | stubs | {"PRE_COMMIT_HOME": str(tmp_path / "home"), "CODE_OF_GATE": "1"}
    for command in (["git", "init", "-q"], ["git", "add", "-A"]):
        subprocess.run(command, cwd=repo, check=True, timeout=60)
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--all-files"],
        cwd=repo,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1, done.stdout
    assert "dataaudit gate" in done.stdout
    assert calls(stubs) == [["dataaudit", "gate", "manifests/a", "--policy", "p.yaml"]]


def test_the_examples_are_what_their_platforms_read(tmp_path):
    """A workflow, steps of one, a GitLab job, a configuration of pre-commit."""
    workflow, steps, building, gitlab, gitlab_building, hooks = SNIPPETS
    for one in (workflow, building):
        check("vendor.github-workflows", one, tmp_path)
    for one in (gitlab, gitlab_building):
        check("vendor.gitlab-ci", one, tmp_path)
    (tmp_path / "config.yaml").write_text(hooks)
    (repo,) = load_config(str(tmp_path / "config.yaml"))["repos"]
    assert repo["hooks"][0]["id"] == "dataaudit-gate"
    (one,) = yaml.safe_load(steps)["steps"]
    assert "\ndataaudit gate manifests/current --policy " in one["run"]
    for recipe in SNIPPETS:
        assert not re.search(r"(--policy|policy:|--public-key)[ =,]+target/|--(policy|public-key)[ ,]+gates/", recipe)
    assert not re.search(r"uses: (?!OWNER)\S+@v\d", PAGE)
    given = next(one for one in yaml.safe_load(workflow)["jobs"]["gate"]["steps"] if "dataaudit" in one["uses"])["with"]
    assert set(given) <= set(ACTION["inputs"])


def git(folder, *arguments):
    """Run git in a folder, as somebody."""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def corpus_repository(tmp_path_factory):
    """Return a repository with a small corpus, its config and a copy of the ready policy, all on its branch main."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = random.Random(5)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randrange(1, 4))) for _ in range(3000)]
    for name, number in (("train/a", 60), ("train/b", 60), ("train/c", 60), ("val/v", 20)):
        path = folder / f"data/{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = (" ".join(rng.choices(words, k=rng.randrange(80, 300))) + "." for _ in range(number))
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (folder / "corpus.yaml").write_text(
        "dataset: {name: small, version: 1.0.0}\nsplits:\n"
        "  train: {paths: ['data/train/*'], text: text}\n"
        "  val: {paths: ['data/val/*'], text: text, held_out: true}\n"
    )
    (folder / "gates").mkdir()
    shutil.copy(ROOT / "pipelines/release-gate.yaml", folder / "gates")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "corpus")
    return folder


@pytest.mark.judges
@pytest.mark.parametrize("platform", ["github", "gitlab"])
def test_a_job_that_builds_comes_to_a_verdict(corpus_repository, tmp_path, platform):
    """Every command of the page but the installation, in a checkout; the policy of the branch is not used."""
    git(tmp_path, "clone", "--quiet", str(corpus_repository), "checkout")
    checkout = tmp_path / "checkout"
    (checkout / "gates/release-gate.yaml").write_text("none")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/dataaudit").write_text(PROGRAM)
    (tmp_path / "bin/dataaudit").chmod(0o755)
    jobs = {
        name: yaml.safe_load(one) for name, one in zip(("github", "gitlab"), (SNIPPETS[2], SNIPPETS[4]), strict=True)
    }
    job = jobs["github"]["jobs"]["audit"] if platform == "github" else jobs["gitlab"]["audit"]
    commands = [one["run"] for one in job["steps"] if "run" in one] if platform == "github" else job["script"]
    assert "pip install" in commands[0]
    environ = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_BASE_REF": "main",
        "CI_DEFAULT_BRANCH": "main",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    for command in commands[1:]:
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command.replace("/tmp/", f"{tmp_path}/")],
            cwd=checkout,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("PASS")
    assert "\x1b" not in done.stdout
    page = tmp_path / "summary.md" if platform == "github" else checkout / "gate.md"
    assert "## dataaudit gate: PASS" in page.read_text()
    assert (checkout / ".dataaudit").is_dir()


@pytest.mark.parametrize("code", [1, 2, 3, 127])
def test_what_was_not_judged_is_said_wherever_a_verdict_would_be(stubs, code):
    """Nothing was written by the gate, so an older comment would stay: one of the same mark takes its place."""
    gate(stubs)
    mark = Path(outputs(stubs)["markdown"]).read_text().splitlines()[0]
    Path(stubs["GITHUB_OUTPUT"]).unlink()
    program = f"#!/bin/sh\nprintf 'dataaudit: 100%% wrong\\n```\\n<!-- x -->\\n' >&2\nexit {code}\n"
    (Path(stubs["PATH"].split(":")[0]) / "dataaudit").write_text(program)
    done = gate(stubs)
    page = Path(outputs(stubs)["markdown"]).read_text()
    assert page.splitlines()[:2] == [mark, "## dataaudit gate: NOT JUDGED"]
    assert re.fullmatch("<!-- dataaudit-gate [0-9a-f]{16} -->", mark)
    assert page.endswith("\n\n    dataaudit: 100% wrong\n    ```\n    <!-- x -->\n")
    assert Path(stubs["GITHUB_STEP_SUMMARY"]).read_text() == page
    command = f"::error title=dataaudit gate: not judged, exit code {code}::dataaudit: 100%25 wrong%0A```%0A<!-- x -->"
    assert command in done.stdout.splitlines()
    assert outputs(stubs)["exit-code"] == str(code)


def test_policy_and_key_of_a_branch_are_read_from_it_and_never_from_the_checkout(stubs, tmp_path):
    """A branch that cannot be read is no reason to take the pull request's."""
    done = step("Policy of the branch", stubs, REF="main", POLICY="g/p q.yaml", PUBLIC_KEY="k.pub", GH_TOKEN="t")
    assert done.returncode == 0, done.stderr
    first, second = calls(stubs)
    assert (first[-1], second[-1]) == ("repos/owner/corpus/contents/g/p%20q.yaml", "repos/owner/corpus/contents/k.pub")
    assert "ref=main" in first
    found = outputs(stubs)
    asked = {"PUBLIC_KEY": "k.pub", "REF": "main"}
    gate(stubs, **asked, REF_POLICY=found["policy"], REF_KEY=found["public-key"])
    gate(stubs, **asked)
    *_, there, absent = calls(stubs)
    assert (there[2], there[-3]) == (f"--policy={found['policy']}", f"--public-key={found['public-key']}")
    assert (absent[2], absent[-3], absent[-4]) == (
        "--policy=/nonexistent",
        "--public-key=/nonexistent",
        "--require-signature",
    )
    step(
        "Policy of the branch", stubs | {"CODE_OF_GATE": "1"}, REF="main", POLICY="strict", PUBLIC_KEY="", GH_TOKEN="t"
    )
    assert outputs(stubs)["policy"] == "strict"
    stubs |= {"CODE_OF_GATE": "1"}
    assert step("Policy of the branch", stubs, REF="x", POLICY="p", PUBLIC_KEY="", GH_TOKEN="t").returncode == 1


def test_no_module_of_the_checkout_is_run(stubs, tmp_path):
    """Not by pip, not by the program: each is started so that the current folder is no place to import from."""
    for name in ("pip", "venv", "urllib", "yaml", "click", "dataaudit"):
        (tmp_path / f"{name}.py").write_text("open('owned', 'w')")
    for one in ACTION["runs"]["steps"]:
        script = re.sub(r"#.*", "", one.get("run", ""))
        assert script.count("python") == len(re.findall(r"python3? -I |/bin/python\" -I ", script)), one["name"]
    step("Where pip keeps what it fetches", stubs, PACKAGE="")
    step("Policy of the branch", stubs, REF="main", POLICY="p", PUBLIC_KEY="", GH_TOKEN="t")
    (tmp_path / "dataaudit-gate/bin").mkdir(parents=True)
    (tmp_path / "dataaudit-gate/bin/python").symlink_to(sys.executable)
    gate(stubs | {"PYTHONPATH": str(tmp_path)}, PACKAGE="")
    assert not list(tmp_path.rglob("owned"))


def test_what_the_action_installs_is_pinned_with_hashes():
    """The program's own needs, those of the extra and of its build, in versions that were tested together."""
    lock, tested = ((ROOT / f"requirements-{name}.lock").read_text() for name in ("ci", "dev"))
    blocks = re.split(r"(?m)^(?=[a-z0-9])", lock)[1:]
    assert all("--hash=sha256:" in block and block in tested for block in blocks)
    names = {re.match(r"[a-z0-9.-]+", block)[0] for block in blocks}
    assert {"click", "hatchling", "junitparser", "numpy", "pyarrow", "pydantic", "sarif-pydantic"} <= names
    assert "--require-hashes" in STEPS["Install dataaudit"]["run"]
    assert "--no-build-isolation" in STEPS["Install dataaudit"]["run"]


def test_the_page_names_every_output_of_the_gate():
    """And every exit code."""
    from dataaudit.decide.gate.writers.writing import Outputs

    assert all(f"`{option} FILE`" in PAGE for option in Outputs().files)
    assert [int(code) for code in re.findall(r"^\| (\d) \|", PAGE, re.MULTILINE)] == [0, 1, 2, 3, 4]
