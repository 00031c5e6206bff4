"""The README tells the truth: its commands run, its file tree is the repository's, its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("manifests/*.md")])


def tracked():
    """Return every file of the repository, as git knows it."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=False,
                            capture_output=True, text=True)  # fmt: skip
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def tree_of_readme():
    """Return the paths in the README's file tree."""
    block = re.search(r"<!-- tree -->\n```\n(.*?)```", README, re.DOTALL)
    assert block, "the README has a file tree between <!-- tree --> and the end of its block"
    paths, parents = set(), []
    for line in block.group(1).splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        parents = [*parents[:depth], name.rstrip("/")]
        paths.add("/".join(parents) + ("/" if name.endswith("/") else ""))
    return paths


def test_every_make_target_exists():
    """`make x` in any page is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        name for page in PAGES for name in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text("utf-8"), re.MULTILINE)
    }
    assert {"demo", "test"} <= named
    assert named <= targets


def test_every_command_and_option_exists():
    """`dataaudit x --option` in any page is a command with that option."""
    from dataaudit.cli import main

    for page in PAGES:
        for command, rest in re.findall(r"dataaudit ([a-z]+)([^\n`|]*)", code_of(page.read_text("utf-8"))):
            assert command in main.commands, f"{page.name}: dataaudit {command} is no command"
            chosen = main.commands[command]
            inner = getattr(chosen, "commands", {}).get((rest.split() or [""])[0], chosen)
            known = {name for parameter in inner.params for name in parameter.opts} | {"--help", "-h"}
            for option in re.findall(r"(?<!\S)(--[a-z-]+)", rest):
                assert option in known, f"{page.name}: dataaudit {command} has no {option}"


def code_of(text):
    """Return the commands of a page: lines of code blocks, and inline code, that begin with the program's name."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
    return "\n".join(line for line in (*lines, *spans) if line.startswith("dataaudit "))


def test_the_file_tree_is_the_repositorys():
    """Every path of the README's tree exists, and every Python module and top-level entry is in it."""
    tree, files = tree_of_readme(), tracked()
    for path in tree:
        assert (ROOT / path).exists(), f"README names {path}, which does not exist"
        assert path.endswith("/") == (ROOT / path).is_dir(), path
    folders = {path.rstrip("/") for path in tree if path.endswith("/")}
    for name in files:
        top = name.split("/")[0]
        assert top in {path.split("/")[0].rstrip("/") for path in tree} or top.startswith("."), (
            f"{top} is not in the tree"
        )
        if name.startswith("dataaudit/") and name.endswith(".py") and not name.endswith("__init__.py"):
            assert name in tree or any(
                name.startswith(f"{folder}/") and not any(path.startswith(f"{folder}/") for path in tree)
                for folder in folders
            ), f"{name} is not in the README's tree"


def test_every_link_leads_somewhere():
    """Relative links in the pages point to files that exist."""
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_ci_runs_the_readmes_test_command():
    """CI calls the very command that the README names."""
    assert re.search(r"^make test$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)


def test_versions_have_one_source():
    """The version stands in the package and nowhere else."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"]
    assert "version" not in project


def test_base_install_carries_no_torch():
    """Neither the base lock file nor the base requirements bring torch."""
    assert not re.search(r"^torch\b", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text()


def test_lock_files_agree_and_are_complete():
    """Every requirement of the project is locked with a hash, and both files lock the same versions."""

    def read(name):
        text = (ROOT / name).read_text()
        assert "http" + "s:" not in text
        return set(re.findall(r"^([a-z0-9-]+==[^ \\]+)", text, re.MULTILINE))  # a further user widens its marker

    base, dev = read("requirements.lock"), read("requirements-dev.lock")
    assert base <= dev
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = {line.split("==")[0] for line in base}
    for requirement in project["dependencies"]:
        name = re.match(r"[A-Za-z0-9._-]+", requirement).group().lower().replace(".", "-")
        assert name in locked, name


def test_the_demos_manifest_is_sound_and_is_the_one_shown():
    """The manifest in `manifests/demo` verifies, and the README shows its id and its totals."""
    from dataaudit.manifest.load import load_manifest
    from dataaudit.manifest.verify import verify

    manifest = load_manifest(ROOT / "manifests" / "demo")
    assert verify(manifest) == []
    assert manifest.id in README
    for number in (manifest.core.totals.documents, manifest.core.totals.tokens):
        assert f"{number:,}" in README
    assert not re.search(r"/(home|root|tmp|work|Users)/", (ROOT / "manifests" / "demo" / "manifest.json").read_text())


def test_the_gate_prints_what_the_readme_shows():
    """Line by line, but for what is left out."""
    from click.testing import CliRunner

    from dataaudit.cli import main

    policy = "pipelines/release-gate.yaml"
    shown = README.partition(f"$ dataaudit gate demo/manifest --policy {policy}\n")[2].partition("\n```")[0]
    arguments = ["gate", str(ROOT / "manifests/demo"), "--policy", str(ROOT / policy), "--no-annotations"]
    printed = CliRunner().invoke(main, arguments, env={"COLUMNS": "100"}).output.splitlines()
    lines = [line for line in shown.splitlines() if line != "..."]
    assert len(lines) > 20
    assert [line for line in lines if line not in printed] == []
