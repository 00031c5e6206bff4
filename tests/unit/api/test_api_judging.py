"""Verdicts, differences, reports and lists from Python: what they take, and what is wrong use."""

import datetime as dt
import os
import shutil
from pathlib import Path

import made_manifest
import pytest
import yaml
from click.testing import CliRunner
from forged import rewrite
from made_keys import write_keys
from made_manifest import shard

from dataaudit import api, cli
from dataaudit.base.errors import ConfigError, ManifestError, ManifestMismatch, QuarantineError, SignatureRefused
from dataaudit.decide.gate.document import gate_json
from dataaudit.decide.gate.policy import Policy
from dataaudit.decide.quarantine.list import Standing, read

pytestmark = pytest.mark.usefixtures("odd_numbers")
DEMO = Path(__file__).parents[3] / "manifests/demo"
RULE = {"name": "copies", "metric": "exact_dup_rate", "stat": "rate", "unit": "ratio", "budget": 0.5}
POLICY = {"policy": "mine", "rules": [RULE]}
TOKENS = {"stat": "count", "unit": "tokens", "comparator": ">="}
WHO = {"who": "test"}


@pytest.fixture
def manifest(tmp_path):
    """A manifest of two shards."""
    made_manifest.make(
        tmp_path / "m", [shard("a", sha256="ab" * 32), shard("b", sha256="cd" * 32, documents=7)], odd=True
    )
    return api.load(tmp_path / "m")


def test_a_policy_is_a_file_a_mapping_or_a_policy(tmp_path):
    """All three give the same verdict."""
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(POLICY))
    found = [api.gate(DEMO, given) for given in (tmp_path / "p.yaml", POLICY, Policy.model_validate(POLICY))]
    assert found[0] == found[1] == found[2]
    assert api.gate(str(DEMO), str(tmp_path / "p.yaml"), on=dt.date(2026, 1, 2)).on == "2026-01-02"


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({"policy": "none.yaml"}, ConfigError, "the policy none.yaml cannot be read"),
        ({"policy": 3}, TypeError, "policy: expected a path, found int"),
        ({"policy": {**POLICY, "polcy": 1}}, ConfigError, "did you mean `policy`"),
        ({"policy": {**POLICY, "rules": [RULE | {"metric": "exact_dup"}]}}, ConfigError, "exact_dup_rate"),
        ({"policy": POLICY, "fail_on": "warning"}, ConfigError, r"fail_on: no `warning` \(did you mean `warn`"),
        ({"policy": POLICY, "on": "tomorrow"}, ConfigError, "on: expected a day such as 2026-12-31, found tomorrow"),
        ({"policy": POLICY, "on": 3}, TypeError, "on: expected a day such as 2026-12-31, found int"),
        ({"policy": POLICY, "baseline": "nowhere"}, ManifestError, "no manifest at nowhere"),
        ({"policy": POLICY, "manifest": None}, TypeError, "manifest: expected a path, found NoneType"),
    ],
)
def test_a_gate_says_what_is_wrong(given, kind, says):
    """A wrong policy, day, severity or path, each with its name."""
    with pytest.raises(kind, match=says):
        api.gate(**({"manifest": DEMO} | given))


def test_a_difference_takes_folders_and_manifests(manifest):
    """In any mixture; a folder without a manifest is an error of ours."""
    assert api.diff(manifest, manifest.folder) == api.diff(str(manifest.folder), manifest)
    with pytest.raises(ManifestError, match="no manifest at"):
        api.diff(manifest, "nowhere")
    with pytest.raises(TypeError, match="manifest: expected a path, found int"):
        api.diff(3, manifest)


def test_a_report_shows_a_verdict_and_marks_what_a_file_says(manifest, tmp_path):
    """As an object or a file, which anybody may have edited; one of another manifest is refused."""
    verdict = api.gate(manifest, POLICY)
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(POLICY))
    (manifest.folder / "gate.json").write_bytes(gate_json(verdict))
    pages = [
        api.report(manifest, tmp_path / f"{number}.html", **given).read_text("utf-8")
        for number, given in enumerate(
            ({"verdict": verdict}, {"policy": tmp_path / "p.yaml"}, {"verdict": manifest.folder / "gate.json"}, {})
        )
    ]
    assert all("mine" in page for page in pages)
    assert ["Unchecked: " in page for page in pages] == [False, False, True, True]
    assert ["it was not judged here" in page for page in pages] == [False, False, True, True]
    (manifest.folder / "gate.json").unlink()
    os.mkfifo(manifest.folder / "gate.json")
    with pytest.raises(ManifestError, match=r"gate\.json is no file"):
        api.report(manifest, tmp_path / "r.html")
    with pytest.raises(ManifestMismatch, match="the verdict judges the manifest"):
        api.report(DEMO, tmp_path / "r.html", verdict=verdict)
    with pytest.raises(ConfigError, match="is a folder"):
        api.report(manifest, tmp_path)


def test_a_manifest_is_signed_by_a_key(manifest, tmp_path):
    """What the command writes: the gate takes it by the key that signed, and by no other."""
    for name in ("build", "other"):
        write_keys(tmp_path, name)
    policy = {"policy": "mine", "require_signature": True, "rules": [RULE | {"metric": "tokens", **TOKENS}]}
    with pytest.raises(SignatureRefused):
        api.gate(manifest, policy, public_key=tmp_path / "build.pub")
    file = api.sign(manifest, key=tmp_path / "build.pem")
    first = file.read_bytes()
    assert file == manifest.folder / "attestation.json"
    assert api.gate(manifest.folder, policy, public_key=tmp_path / "build.pub").subject.id == manifest.id
    with pytest.raises(SignatureRefused):
        api.gate(manifest.folder, policy, public_key=tmp_path / "other.pub")
    shutil.copytree(manifest.folder, tmp_path / "old", ignore=shutil.ignore_patterns("attestation.json"))
    with pytest.raises(SignatureRefused, match="old is not believed"):
        api.report(manifest, tmp_path / "r.html", baseline=tmp_path / "old", public_key=tmp_path / "build.pub")
    shown = CliRunner().invoke(cli.main, ["sign", str(manifest.folder), "--key", str(tmp_path / "build.pem")])
    assert (shown.exit_code, file.read_bytes()) == (0, first), shown.output


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({}, ConfigError, "either key=FILE or identity=True"),
        ({"key": "build.pem", "identity": True}, ConfigError, "either key=FILE or identity=True"),
        ({"key": "none.pem"}, ConfigError, "none.pem"),
        ({"key": 3}, TypeError, "key: expected a path, found int"),
        ({"key": "build.pem", "manifest": "nowhere"}, ManifestError, "no manifest at nowhere"),
    ],
)
def test_signing_says_what_is_wrong(given, kind, says, manifest, tmp_path, monkeypatch):
    """And leaves the folder as it was."""
    monkeypatch.chdir(tmp_path)
    write_keys(tmp_path)
    with pytest.raises(kind, match=says):
        api.sign(**({"manifest": manifest} | given))
    assert not (manifest.folder / "attestation.json").exists()


def test_what_was_changed_is_not_signed(manifest, tmp_path):
    """A signature says whose it is as it was published."""
    write_keys(tmp_path)
    rewrite(manifest.folder, "metrics", lambda table: table.slice(1))
    with pytest.raises(ManifestMismatch):
        api.sign(manifest.folder, key=tmp_path / "build.pem")
    assert not (manifest.folder / "attestation.json").exists()


def test_a_list_is_changed_and_read(manifest, tmp_path):
    """Added, known already, lifted, expired; days as text or dates; a day to come shows expiries, frees nothing."""
    held = api.quarantine(tmp_path / "q.jsonl")
    assert [entry.target.uri for entry in held.add("a", manifest=manifest, reason="drift", **WHO).added] == ["a"]
    again = held.add(["train/a", 1], manifest=manifest.folder, reason="drift", until="2999-01-01", **WHO)
    assert (len(again.added), len(again.known)) == (1, 1)
    assert held.held(on=dt.date(2999, 1, 1)).holds(sha256="cd" * 32)
    assert held.held(on="2999-01-02").holds(sha256="cd" * 32)
    held.lift("a", reason="mended", **WHO)
    assert [record.standing for record in held.entries()] == [Standing.HELD]
    assert [record.standing for record in held.entries(everything=True, on="2999-01-02")] == [
        Standing.LIFTED,
        Standing.EXPIRED,
    ]
    applied = held.apply(manifest, tmp_path / "clean", formats="datatrove")
    assert [one.name for one in applied.selection.kept] == ["train/a"]
    assert applied.exit_code == 0


def test_a_twin_is_told(tmp_path):
    """What a digest holds back besides is in the notes of a change."""
    made_manifest.make(tmp_path / "m", [shard("a"), shard("b")])
    change = api.quarantine(tmp_path / "q.jsonl").add("a", manifest=tmp_path / "m", reason="drift", **WHO)
    assert change.notes == ("train/b has the same digest: it is left out too",)


def test_a_verdict_proposes(manifest, tmp_path):
    """Shards that fail a rule about shards; nothing is held back before somebody accepts it."""
    rule = {
        "name": "short",
        "metric": "seq_len_p50_p95",
        "stat": "p50",
        "unit": "tokens",
        "budget": 1.0,
        "scope": {"per": "shard"},
    }
    verdict = api.gate(manifest, {"policy": "mine", "rules": [rule]})
    held = api.quarantine(tmp_path / "q.jsonl")
    assert len(held.propose(verdict, manifest, **WHO).added) == 2
    assert held.held().entries == ()
    assert len(held.accept(["a"], **WHO).added) == 1
    assert len(held.accept(until="2999-01-01", **WHO).added) == 1
    assert len(held.held().entries) == 2
    with pytest.raises(ManifestError, match="is another one"):
        held.propose(verdict, DEMO)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"documents": True, "findings": "secret:validated"}, "did you mean `secrets:validated`"),
        ({"formats": "hugging"}, "format: no `hugging`"),
        ({"documents": True, "origins": "cluster"}, "did you mean `clusters`"),
        ({"documents": True, "ngram_score": 2}, "expected 0 to 1, found 2"),
        ({"rows": True}, "documents=True"),
        ({"on": "soon"}, "on: expected a day"),
    ],
)
def test_an_option_that_makes_no_sense_is_said(options, says, manifest, tmp_path):
    """By its name, with the nearest that is known; nothing is written."""
    held = api.quarantine(tmp_path / "q.jsonl")
    held.add("a", manifest=manifest, reason="drift", **WHO)
    with pytest.raises(ConfigError, match=says):
        held.apply(manifest, tmp_path / "clean", **options)
    assert not (tmp_path / "clean").exists()


def test_a_list_says_what_is_wrong(manifest, tmp_path):
    """No file, no such place, no manifest, lines that cannot be read."""
    held = api.quarantine(tmp_path / "q.jsonl")
    with pytest.raises(QuarantineError, match="no quarantine list at"):
        held.entries()
    with pytest.raises(ConfigError, match="`a` is no digest, and no manifest says which shard it is"):
        held.add("a", reason="drift", **WHO)
    with pytest.raises(TypeError, match="places: expected texts, found float"):
        held.add([0.5], manifest=manifest, reason="drift", **WHO)
    with pytest.raises(TypeError, match="file: expected a path, found NoneType"):
        api.quarantine(None)
    held.add("a", manifest=manifest, reason="drift", **WHO)
    with held.file.open("a") as file:
        file.write("half a li")
    with pytest.raises(QuarantineError, match="line 2"):
        held.entries()
    held.lift(read(held.file).bad[0].id, reason="killed-writer", **WHO)
    assert len(held.entries()) == 1
