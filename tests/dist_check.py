"""Wheel and sdist: built, looked through, and used in fresh environments. ``python tests/dist_check.py [--out dist]``.

The wheel is built from the sdist. In an environment of each Python that is found (``--python`` names others), the base
reads ``manifests/demo`` by every command that needs no extra, and says what line to type for one that does; in the
first of them the extras `build` and `report` then scan a tiny corpus and draw it. What a training loop opens a manifest
with works beside six packages. Needs a package index.
"""

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path, PurePath

from dataaudit.explain import PAGES

ROOT = Path(__file__).parents[1]
DEMO = str(ROOT / "manifests/demo")
POLICY = "release-gate"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
READS = (
    (0, ["--version"]),
    (0, ["show", DEMO]),
    (0, ["inspect", DEMO, "0"]),
    (0, ["verify", DEMO]),
    (3, ["gate", DEMO, "--policy", POLICY, "--out", "gate.json", "--markdown", "gate.md"]),
    (0, ["diff", DEMO, DEMO]),
    (
        0,
        ["quarantine", "add", "list.jsonl", "1", "--manifest", DEMO, "--who", "me", "--reason", "other", "--note", "x"],
    ),
    (0, ["quarantine", "list", "list.jsonl"]),
    (0, ["quarantine", "apply", "list.jsonl", "--manifest", DEMO, "--out", "applied"]),
    (0, ["export", "card", DEMO]),
    (0, ["schema", "--out", "schemas"]),
    (0, ["explain", "invalid_json"]),
    (0, ["doctor"]),
)
"""Exit codes and commands of the base; the gate finds shards that were not read."""
TRAINS = ("numpy", "orjson", "pyarrow", "pydantic", "pyyaml", "rfc8785")
"""What a training run needs beside torch; the wheel is installed without anything else."""
OPENS = "from dataaudit.training import open_manifest as o; o({!r}, require='passed', policy='release-gate')"
REFUSED = {
    "build": ["build", "data", "--manifest", "m"],
    "ci": ["gate", DEMO, "--policy", POLICY, "--junit", "gate.xml"],
    "report": ["report", DEMO, "--out", "report.html"],
    "export": ["export", "openlineage", DEMO, "--out", "events"],
}
SCANS = (
    (0, ["build", "data", "--manifest", "m", "--workers", "1", "--quiet"]),
    (0, ["verify", "m", "--data"]),
    (0, ["report", "m", "--out", "report.html"]),
)


def call(command, code=0, **kwargs):
    """Run a command that has to end with a code; return what it printed."""
    kwargs.setdefault("env", {name: value for name, value in os.environ.items() if name != "PYTHONPATH"})
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **kwargs)
    if done.returncode != code:
        sys.exit(
            f"{' '.join(map(str, command))}\nexit code {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
        )
    return done.stdout + done.stderr


def environment(python, folder, *packages):
    """Return the folder of programs of a fresh environment with packages in it."""
    call([python, "-m", "venv", folder])
    call([folder / "bin/pip", "--quiet", "--disable-pip-version-check", "install", *packages])
    return folder / "bin"


def build(out, scratch):
    """Build the sdist, and the wheel from it; return both, checked as an upload would be."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    programs = environment(sys.executable, scratch / "dist", *groups["backend"], *groups["dist"])
    shutil.rmtree(out, ignore_errors=True)
    call([programs / "python", "-m", "build", "--no-isolation", "--outdir", out, ROOT])
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    print(call([programs / "twine", "check", "--strict", sdist, wheel]).strip())
    return sdist, wheel


def look_through(sdist, wheel):
    """Both hold files of the repository alone; the wheel the package, policies and pages, and nothing else."""
    tracked = set(call(["git", "ls-files"], cwd=ROOT).split("\n"))
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = {name for name in tracked if name.startswith("dataaudit/")}
    policies = {f"dataaudit/policies/{name}.yaml" for name in ("canary", "release-gate", "strict")}
    pages = {f"dataaudit/{name}" for name in tracked for page in PAGES if PurePath(name).match(f"docs/{page}")}
    expected = package | policies | pages
    assert inside == expected, f"the wheel differs from the package: {sorted(inside ^ expected)}"
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()} - {"PKG-INFO"}
    assert package <= inside <= tracked, f"the sdist differs: {sorted((package - inside) | (inside - tracked))[:5]}"
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes; {sdist.name}: {sdist.stat().st_size:,} bytes")


def found_pythons():
    """Return the programs of those Pythons that are here, by version."""
    versions = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    found = {}
    for version in PYTHONS:
        beside = sorted(versions.glob(f"{version}.*/bin/python"))
        for path in filter(None, (shutil.which(f"python{version}"), *beside)):
            asked = "import sys; print('{}.{}'.format(*sys.version_info))"
            said = subprocess.run([path, "-c", asked], capture_output=True, text=True, check=False).stdout.strip()
            if said == version:
                found.setdefault(version, path)
    return found


def train(python, wheel, scratch):
    """Open the demo's manifest with few packages: it does not pass the policy that the wheel carries."""
    programs = environment(python, scratch / "train", *TRAINS)
    call([programs / "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps", wheel])
    said = call([programs / "python", "-c", OPENS.format(DEMO)], 1, cwd=scratch)
    assert "CorpusRefused: the manifest does not pass the policy release-gate: " in said, said
    print(f"  training: opens a manifest with {', '.join(TRAINS)} alone")


def use(python, wheel, scratch, *, scan):
    """Install the wheel and use it in a folder of its own."""
    folder = scratch / "used"
    programs = environment(python, scratch / "venv", wheel)
    folder.mkdir(parents=True)
    for code, command in READS:
        call([programs / "dataaudit", *command], code, cwd=folder)
    for extra, command in REFUSED.items():
        said = call([programs / "dataaudit", *command], 2, cwd=folder)
        assert said.strip().endswith(f"pip install 'dataaudit[{extra}]'"), said
    print(f"  base: {len(READS)} commands work, {len(REFUSED)} name their extra")
    train(python, wheel, scratch)
    if not scan:
        return
    call([programs / "pip", "--quiet", "--disable-pip-version-check", "install", f"{wheel}[build,report]"])
    (folder / "data").mkdir()
    for split in ("train", "val"):
        lines = "".join(f'{{"text": "the {split} document number {number}"}}\n' for number in range(20))
        (folder / "data" / f"{split}.jsonl").write_text(lines)
    for code, command in SCANS:
        call([programs / "dataaudit", *command], code, cwd=folder)
    print(f"  build, report: {len(SCANS)} commands work")


def main():
    """Check everything; what is wrong ends the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--python", action="append", metavar="PROGRAM", help="A Python to use; may be given again.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        sdist, wheel = build(given.out.absolute(), scratch)
        look_through(sdist, wheel)
        pythons = {path: path for path in given.python} if given.python else found_pythons()
        for (version, path), number in zip(pythons.items(), itertools.count()):
            print(f"Python {version}: {path}")
            use(path, wheel.absolute(), scratch / str(number), scan=number == 0)
    absent = [] if given.python else [version for version in PYTHONS if version not in pythons]
    print("all is well" + (f"; not here and not tried: Python {', '.join(absent)}" if absent else ""))
    sys.exit(0 if pythons else "no Python was found to install into")


if __name__ == "__main__":
    main()
