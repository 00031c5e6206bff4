"""Extras: what the base installation does alone, and the line that a command says whose extra is missing."""

import ast
import json
import shutil
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from base_only import closure, plain
from installs import PROJECT, ROOT, distributions, run
from packaging.requirements import Requirement

from dataaudit.base.errors import ConfigError, MissingExtra
from dataaudit.base.extras import EXTRAS, absent, install_line, require
from dataaudit.live import Checkpoints
from dataaudit.manifest.load import load_manifest
from dataaudit.runlog.format import RunFile
from dataaudit.runlog.writer import RankWriter, create_run
from dataaudit.scan.corpus.token_files import SCHEMA, write_map

pytestmark = pytest.mark.judges

DEMO = str(ROOT / "manifests/demo")
POLICY = str(ROOT / "pipelines/release-gate.yaml")
NOTEBOOK = f"""
import dataaudit
manifest = dataaudit.load({DEMO!r})
print(manifest._repr_html_(), manifest.table("shards").num_rows)
print(dataaudit.gate(manifest, {POLICY!r})._repr_html_(), dataaudit.diff(manifest, manifest)._repr_html_())
print(dataaudit.quarantine("../list.jsonl"))
"""
GIVEN = [
    "--license", "MIT", "--url", "https://example.org", "--creator", "A", "--description", "B", "--date-published",
    "2026-11-22",
]  # fmt: skip
TITAN = ("--order", "torchtitan", "--context", "8", "--micro-batch", "1")
READS = [
    ["--help"],
    ["--version"],
    ["show", DEMO],
    ["show", DEMO, "--metric", "exact_dup_rate"],
    ["inspect", DEMO, "0"],
    ["inspect", DEMO, "0:0", "--json"],
    ["verify", DEMO],
    ["verify", DEMO, "--signature", "../verdict.dsse.json", "--public-key", "../release.pub"],
    ["sign", "../manifest", "--key", "../release.pem"],
    ["gate", "../manifest", "--policy", POLICY, "--require-signature", "--public-key", "../release.pub"],
    ["policy", "draft", DEMO],
    ["diff", DEMO, "../manifest"],
    ["diff", DEMO, DEMO, "--format", "md"],
    [
        "gate", DEMO, "--policy", POLICY, "--out", "gate.json", "--markdown", "gate.md", "--summary", "sum.md",
        "--failing", "failing.jsonl", "--annotations",
    ],
    ["gate", DEMO, "--policy", POLICY, "--baseline", "../manifest", "--json"],
    ["quarantine", "list", "../list.jsonl"],
    ["quarantine", "apply", "../list.jsonl", "--manifest", DEMO, "--out", "applied", "--documents"],
    ["schema"],
    ["schema", "--out", "schemas"],
    ["attribute", "../runlog", "--manifest", DEMO],
    ["attribute", "../runlog", "--manifest", DEMO, "--json"],
    ["triage", "../runlog", "--manifest", DEMO],
    ["reconstruct", "run", "--manifest", DEMO, *TITAN, "--file", "../tokens.bin", "--steps", "1-9"],
    ["triage-log", str(ROOT / "tests/live_logs/recorded/hang")],
    ["alerts", "draft", "--out", "alerts.yaml"],
    ["watch", "../runlog", "--alert", "--once", "--no-send"],
    ["checkpoints", "../checkpoints"],
    ["lab", "check"],
    ["export", "card", DEMO],
    ["export", "croissant", DEMO, "--out", "croissant.json", *GIVEN],
    ["../notebook.py"],
]  # fmt: skip
"""Every command of the base installation."""
FRAMES = {"pandas", "polars", "streaming", "litdata", "lightning", "torchtitan", "olmo_core", "pynvml", "lm_eval"}
"""Libraries that are asked for only where they are: `load(DIR).pandas(...)`, the use of a GPU."""
COMES_ALONG = {"pydantic_core", "typing_extensions", "markupsafe", "google", "backports", "triton"}
"""Modules that are part of what pydantic, Jinja2, protobuf and `backports.zstd` offer; torch for GPUs brings Triton."""
DRIVERS = {"alembic", "sqlalchemy", "sqlparse"}
"""Modules that MLflow's skinny client imports for a database, and does not ask for itself."""
PROVIDES = {"mlflow": "mlflow-skinny"}
"""Packages of modules of another name, which are not installed where all of this is tested."""
NANOGPT = ("--order", "nanogpt", "--context", "8", "--micro-batch", "1", "--state", "1")
REFUSED = {
    ("build", "data", "--manifest", "m"): "build",
    ("verify", DEMO, "--data"): "build",
    ("inspect", DEMO, "0", "--samples", "1", "--samples-dir", "samples"): "build",
    ("tokenize", DEMO, "--out", "tokens", "--format", "flat"): "build",
    ("map", "train.bin", "--manifest", DEMO): "build",
    ("gate", DEMO, "--policy", POLICY, "--junit", "gate.xml"): "ci",
    ("gate", DEMO, "--policy", POLICY, "--sarif", "gate.sarif"): "ci",
    ("report", DEMO, "--out", "report.html"): "report",
    ("attribute", "../runlog", "--manifest", DEMO, "--picture", "spike.png"): "train",
    ("probe", "ckpt.pt", "--manifest", DEMO): "train",
    ("reconstruct", "r", "--manifest", DEMO, *NANOGPT, "--file", "x.bin", "--steps", "0-9"): "train",
    ("lab", "pilot", "--out", "lab"): "train",
    ("lab", "run", "--quick", "--out", "lab"): "train",
    ("export", "lsh", DEMO, "--out", "lsh"): "export",
    ("export", "openlineage", DEMO, "--out", "events"): "export",
    ("export", "verdict", DEMO, "--policy", POLICY, "--out", "v"): "export",
    ("export", "verdict", DEMO, "--policy", POLICY, "--out", "v", "--sign", "--identity"): "export,sign",
    ("sign", DEMO, "--identity"): "sign",
    ("verify", DEMO, "--signature", "../verdict.dsse.json", "--identity", "a@b", "--issuer", "https://c"): "sign",
}
"""Commands and the extra that they ask for."""


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    """A folder with a verdict that was signed with the base and `export` alone, and the key's public half."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    folder, key = tmp_path_factory.mktemp("signed"), Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "release.pem").write_bytes(private)
    (folder / "release.pub").write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    signing = ["--out", "../verdict.dsse.json", "--sign", "--key", "../release.pem"]
    done = run(
        folder / "export",
        [["export", "verdict", DEMO, "--policy", POLICY, *signing], ["export", "openlineage", DEMO, "--out", "events"]],
        ["export"],
    )
    assert [one["code"] for one in done] == [0, 0], done
    return folder


def write_log(folder):
    """Write the log of a run on the demo's manifest: sixty steps, the last one not finite."""
    demo = load_manifest(Path(DEMO))
    shards = demo.table("shards", ["shard", "sha256"])
    told = {"manifest": demo.id, "dataset": "demo", "started": "2026-11-22T00:00:00Z", "program": "0"}
    create_run(folder, RunFile(**told, sources=("web",), block_rows=4, ranks=1), shards)
    log = RankWriter(folder, 0, 1, 4)
    for step in range(1, 61):
        loss = np.array([np.nan if step == 60 else 3.0])
        row = {"time": 0.0, "micro_batches": 1, "targets": 8, "scored": 8, "loss_sum": 8 * loss[0], "merged": 0}
        columns = {name: np.array([value]) for name, value in row.items()}
        log.add_step(step, {"step": np.array([step]), **columns, "user_loss": np.ma.masked_array(loss, mask=[False])})
    log.close()


def test_the_base_installation_reads_manifests_as_a_full_one_does(signed):
    """The same output and exit code, and no word of an extra."""
    adding = ["quarantine", "add", "../list.jsonl", "1", "--manifest", DEMO, "--who", "tester", "--reason", "other"]
    (added,) = run(signed / "adding", [[*adding, "--note", "why"]])
    assert added["code"] == 0, added["err"]
    (signed / "notebook.py").write_text(NOTEBOOK)
    shutil.copytree(DEMO, signed / "manifest")
    write_log(signed / "runlog")
    with Checkpoints(signed / "checkpoints", reproducibility={}) as checkpoints:
        checkpoints.save(1, lambda path: (path / "model.bin").write_bytes(b"weights"))
    documents = [{"start": 0, "stop": 100, "shard": 0, "row": 0, "source": 0}]
    said = {"manifest": load_manifest(Path(DEMO)).id, "dtype": "uint16", "tokens": "100"}
    write_map(signed / "tokens.bin", [pa.Table.from_pylist(documents, schema=SCHEMA)], said)
    base, full = run(signed / "base", READS), run(signed / "full", READS, None)
    for command, one, other in zip(READS, base, full, strict=True):
        assert one == other, command
        assert "pip install" not in one["err"], command
        assert one["code"] in (0, 1, 3), (command, one["err"])
    written = {path.name for path in (signed / "base").iterdir()}
    assert {"gate.json", "gate.md", "sum.md", "applied", "schemas", "croissant.json"} <= written
    assert "PASSED" in base[7]["out"] or "FAILED" in base[7]["out"]


def test_a_command_whose_extra_is_missing_says_the_line_to_type(signed):
    """One line, one sentence, exit code 2, nothing written."""
    done = run(signed / "refused", [list(command) for command in REFUSED])
    for (command, extra), one in zip(REFUSED.items(), done, strict=True):
        assert one["code"] == 2, command
        assert one["err"].count("\n") == 1, one["err"]
        assert one["err"].endswith(f"needs packages that are not installed: pip install 'dataaudit[{extra}]'\n")
        assert one["out"] == ""
    assert list((signed / "refused").iterdir()) == []


def test_doctor_works_in_the_base_and_lists_the_extras(signed):
    """Those that are missing with their line, none of them a fault; those that are there as such."""
    text, found = run(signed / "doctor", [["doctor"], ["doctor", "--json"]])
    assert (text["code"], found["code"]) == (0, 0), text["err"]
    assert "ready to read manifests; to build them, pip install 'dataaudit[build]'" in text["out"]
    checks = {check["name"]: check for check in json.loads(found["out"])["checks"]}
    for extra in EXTRAS:
        assert (checks[extra]["state"], checks[extra]["advice"]) == ("missing", f"`{install_line(extra)}`")
    assert checks["pyarrow"]["state"] == "ok"
    (found,) = run(signed / "doctor-ci", [["doctor", "--json"]], ["ci", "report"])
    states = {check["name"]: check["state"] for check in json.loads(found["out"])["checks"]}
    assert (states["ci"], states["report"], states["build"]) == ("ok", "ok", "missing")


def test_an_extra_is_enough_for_its_commands(signed):
    """`ci` for JUnit and SARIF, `report` for the report."""
    written = ["--junit", "gate.xml", "--sarif", "gate.sarif"]
    (gate,) = run(signed / "ci", [["gate", DEMO, "--policy", POLICY, *written]], ["ci"])
    (report,) = run(signed / "report", [["report", DEMO, "--out", "report.html"]], ["report"])
    assert (gate["code"], report["code"]) == (3, 0), gate["err"] + report["err"]
    assert {path.name for path in (signed / "ci").iterdir()} == {"gate.xml", "gate.sarif"}
    assert (signed / "report/report.html").stat().st_size > 100_000


def test_a_build_names_the_extra_of_what_it_is_to_read(signed):
    """Shards in a store and rows of the hub, asked for where only `build` is installed."""
    config = "splits: {train: {dataset: {id: org/name}}}\n"
    (signed / "hub.yaml").write_text(config)
    asked = {"s3://b/k.jsonl": "s3", "https://h.example/k.jsonl": "http", "../hub.yaml": "hf"}
    done = run(signed / "stores", [["build", one, "--manifest", "m", "--quiet"] for one in asked], ["build"])
    for extra, one in zip(asked.values(), done, strict=True):
        assert one["code"] == 2
        assert one["err"].endswith(f"needs packages that are not installed: pip install 'dataaudit[{extra}]'\n")


def test_the_table_of_extras_is_that_of_the_project():
    """Each extra of pyproject names its modules, and the other extras that it brings."""
    provided = packages_distributions()
    extras = PROJECT["optional-dependencies"]
    assert set(EXTRAS) == set(extras) - {"all"}
    for name, extra in EXTRAS.items():
        listed = [Requirement(line) for line in extras[name]]
        known = {plain(one.name) for one in listed}
        own = {plain(one.name) for one in listed if one.marker is None} - {"dataaudit", "protobuf"}
        brought = {other for one in listed if one.name == "dataaudit" for other in one.extras}
        assert set(extra.needs) == brought, name
        named = {
            module: set(map(plain, provided.get(module, [PROVIDES.get(module, module)]))) for module in extra.modules
        }
        assert all(distributions & known for distributions in named.values()), name
        assert own <= set().union(*named.values()), name
    assert closure(distributions("all")).isdisjoint({"torch", "detoxify"})


def test_every_library_that_is_imported_is_asked_for_and_the_other_way_round():
    """No package comes by accident through another one, and none is asked for in vain."""
    imported, strings = set(), set()
    for path in (ROOT / "dataaudit").rglob("*.py"):
        if path.name == "extras.py":
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings.add(node.value)
    third = imported - set(sys.stdlib_module_names) - {"dataaudit", "compression"} - FRAMES
    optional = {module for extra in EXTRAS.values() for module in extra.modules}
    provided = packages_distributions()
    base = {module for module, names in provided.items() if distributions() & set(map(plain, names))}
    assert third <= base | optional | COMES_ALONG
    assert optional <= third | strings | DRIVERS, "data packages are named in strings"
    assert distributions() <= {plain(name) for module in third & base for name in provided[module]}


def test_what_is_missing_is_a_wrong_use_and_names_every_extra_once(monkeypatch):
    """For one extra or several; those that are there are not named."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in ("sigstore", "bokeh") else object())
    assert (absent("sign"), absent("report"), absent("ci")) == (("sigstore",), ("bokeh",), ())
    require("gate --junit", "ci")
    with pytest.raises(MissingExtra, match=r"^x needs .*: pip install 'dataaudit\[report,sign\]'$") as caught:
        require("x", "ci", "report", "sign")
    assert isinstance(caught.value, ConfigError)
    assert caught.value.exit_code == 2
