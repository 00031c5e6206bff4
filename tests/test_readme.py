"""The README and the pages tell the truth: commands exist, links lead somewhere, output is the program's."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "golden"))
import make_readme

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("manifests/*.md")])


def test_every_make_target_exists():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    targets |= {f"test-{name}" for name in re.search(r"^FRAMEWORKS := (.*)$", makefile, re.MULTILINE)[1].split()}
    code = [part for page in PAGES for part in re.findall(r"```.*?```|`[^`\n]*`", page.read_text("utf-8"), re.DOTALL)]
    named = {name for part in code for name in re.findall(r"(?:^|`)make ([a-z-]+)", part, re.MULTILINE)}
    assert {"demo", "test"} <= named
    assert named <= targets


def test_every_command_and_option_exists():
    from dataaudit.cli import main

    for page in PAGES:
        for command, rest in re.findall(r"dataaudit ([a-z-]+)([^\n`|]*)", code_of(page.read_text("utf-8"))):
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


def test_every_link_leads_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_ci_runs_the_readmes_test_command():
    assert re.search(r"^(?:step )?make test$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)


def test_versions_have_one_source():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"]
    assert "version" not in project


def test_base_install_carries_no_torch():
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


def test_the_demos_manifest_is_sound():
    from dataaudit.manifest.load import load_manifest
    from dataaudit.manifest.verify import verify

    assert verify(load_manifest(ROOT / "manifests" / "demo")) == []
    assert not re.search(r"/(home|root|tmp|work|Users)/", (ROOT / "manifests" / "demo" / "manifest.json").read_text())


def test_the_readme_shows_what_the_program_prints():
    """Its lines are those of the demo's manifest, its id and leaks among them; `make_readme.py` renews them."""
    assert make_readme.updated(README) == README
    assert "sha256:" in make_readme.shown()
    assert "25 of 117 documents of val" in make_readme.shown()


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 100
