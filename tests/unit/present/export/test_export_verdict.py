"""Verdicts as statements: what they say, that others can read them, and what verify makes of signed ones."""

import datetime as dt
import hashlib
import json
import subprocess
from dataclasses import asdict, replace

import pytest
from click.testing import CliRunner
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st
from in_toto_attestation.predicates.vsa.v1.vsa_pb2 import VerificationSummary
from in_toto_attestation.v1.statement import Statement
from made_manifest import make, shard
from made_verdict import rule_result, used_waiver, verdict_of

from dataaudit import __version__
from dataaudit.base.errors import ConfigError, ManifestError
from dataaudit.cli import main
from dataaudit.decide.gate.policy import load_policy
from dataaudit.decide.gate.run import judge
from dataaudit.decide.gate.verdict import CanarySeen, State
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.trust import EXTENSION, BadStatement, Trust, TrustedPolicy, check_trust, summary
from dataaudit.present.export.verdict import About, Signing, export_verdict, judge_and_export, statement

TIME = "2026-11-22T10:00:00Z"
POLICY = """
policy: easy
rules:
  - {name: documents, metric: documents, stat: count, unit: documents, comparator: ">=", budget: 1}
"""
SHARDS = [shard("a.jsonl"), shard("b.jsonl", split="val", documents=3)]
HARD = POLICY.replace("budget: 1}", "budget: 1000000}")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A manifest, a policy and a pair of keys, made with the commands of the docs."""
    folder = tmp_path_factory.mktemp("verdicts")
    make(folder / "m", SHARDS)
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "hard.yaml").write_text(HARD)
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", folder / "key.pem"], check=True)
    subprocess.run(["openssl", "pkey", "-in", folder / "key.pem", "-pubout", "-out", folder / "key.pub"], check=True)
    return folder


@pytest.fixture(scope="module")
def manifest(place):
    return load_manifest(place / "m")


@pytest.fixture
def signed(place, manifest, tmp_path):
    """A signed verdict that passed."""
    out = tmp_path / "verdict.dsse.json"
    export_verdict(verdict_of(manifest), manifest, None, out, About(time=TIME), Signing(key=place / "key.pem"))
    return out


def run(*arguments):
    return CliRunner().invoke(main, [str(one) for one in arguments])


def codes(manifest, trust):
    return [problem.code for problem in check_trust(manifest, trust)[1]]


def file_digest(manifest):
    """Return the sha256 of manifest.json as it lies there."""
    return hashlib.sha256((manifest.folder / "manifest.json").read_bytes()).hexdigest()


def test_a_statement_is_what_in_toto_and_slsa_ask_for(manifest):
    made = json.loads(statement(verdict_of(manifest), manifest, None, About(time=TIME)))
    hexadecimal = manifest.id.removeprefix("sha256:")
    assert made["_type"] == "https://in-toto.io/Statement/v1"
    assert made["subject"] == [
        {"name": "made@1.0.0", "uri": f"urn:dataaudit:manifest:{manifest.id}", "digest": {"sha256": hexadecimal}}
    ]
    assert made["predicateType"] == "https://slsa.dev/verification_summary/v1"
    said = {name: value for name, value in made["predicate"].items() if name != EXTENSION}
    assert said == {
        "verifier": {"id": "urn:dataaudit:gate", "version": {"dataaudit": __version__}},
        "timeVerified": TIME,
        "resourceUri": "pkg:generic/made@1.0.0",
        "policy": {"uri": "urn:dataaudit:policy:strict:7", "digest": {"sha256": "5a" * 32}},
        "inputAttestations": [
            {"uri": f"urn:dataaudit:manifest:{manifest.id}", "digest": {"sha256": file_digest(manifest)}}
        ],
        "verificationResult": "PASSED",
        "verifiedLevels": ["DATAAUDIT_POLICY_PASSED"],
        "slsaVersion": "1.2",
    }


def test_a_statement_names_the_canary(manifest):
    """That the policy demanded; null where it demands none."""
    seen = CanarySeen(id="sha256:" + "1" * 64, verdict="pass", pairs=8, on="2026-11-28")
    for canary, said in ((seen, asdict(seen)), (None, None)):
        verdict = replace(verdict_of(manifest), canary=canary)
        made = json.loads(statement(verdict, manifest, None, About(time=TIME)))
        assert made["predicate"][EXTENSION]["canary"] == said


def test_the_library_of_in_toto_reads_a_statement_and_its_predicate(manifest):
    """Its class of the predicate knows no field of ours and takes `verifiedLevels` for one text, SLSA for a list."""
    payload = json.loads(statement(verdict_of(manifest), manifest, None, About(time=TIME)))
    read = Statement([], "", {})
    ParseDict(payload, read.pb)
    read.validate()
    standard = {name: value for name, value in payload["predicate"].items() if name != "verifiedLevels"}
    known = ParseDict(standard, VerificationSummary(), ignore_unknown_fields=True)
    assert known.verification_result == "PASSED"
    assert known.policy.digest["sha256"] == "5a" * 32
    assert known.time_verified.ToJsonString() == TIME


def test_fields_beyond_the_specification_stand_under_a_uri(manifest):
    """SLSA: producers may add fields whose names are URIs."""
    predicate = json.loads(statement(verdict_of(manifest), manifest, None, About(time=TIME)))["predicate"]
    known = {
        "verifier", "timeVerified", "resourceUri", "policy", "inputAttestations", "verificationResult",
        "verifiedLevels", "dependencyLevels", "slsaVersion",
    }  # fmt: skip
    assert [name for name in predicate if name not in known] == ["urn:dataaudit:verdict:v1"]


@pytest.mark.parametrize("state", [State.FAILED, State.NOT_EVALUATED])
def test_a_verdict_that_does_not_pass_is_failed(manifest, state):
    """And claims no level."""
    made = statement(verdict_of(manifest, rule_result("duplicates", state)), manifest, None, About(time=TIME))
    said = summary(made)
    assert (said.result, json.loads(made)["predicate"]["verifiedLevels"]) == ("FAILED", ["FAILED"])
    named = {State.FAILED: "failed", State.NOT_EVALUATED: "notEvaluated"}[state]
    assert said.facts[named] == ["duplicates"]


def test_warnings_and_waivers_pass_and_are_told(manifest):
    verdict = verdict_of(manifest, rule_result("duplicates", State.WARNED, severity="warn"), waivers=(used_waiver(),))
    said = summary(statement(verdict, manifest, None, About(time=TIME)))
    assert said.result == "PASSED"
    assert said.facts["rules"]["warn"] == 1
    assert said.facts["waivers"] == [
        {
            "fingerprint": "0123456789abcdef",
            "rule": "duplicates",
            "owner": "a@b.c",
            "expires": "2027-01-01",
            "state": "used",
        }
    ]


@pytest.mark.parametrize(("days", "wrong"), [(0, []), (-1, ["waivers"])])
def test_a_signed_verdict_ends_with_the_waiver_that_it_passed_by(manifest, place, tmp_path, days, wrong):
    """By the clock: the day that the statement gives revives nothing."""
    last = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=days)
    by = used_waiver()
    verdict = verdict_of(manifest, waivers=(replace(by, waiver=by.waiver.model_copy(update={"expires": last})),))
    export_verdict(verdict, manifest, None, tmp_path / "v", About(time=TIME), Signing(key=place / "key.pem"))
    assert codes(manifest, Trust(signature=tmp_path / "v", public_key=place / "key.pub")) == wrong


def test_a_baseline_is_one_of_the_inputs(manifest, tmp_path):
    make(tmp_path / "old", [shard("old.jsonl")])
    old = load_manifest(tmp_path / "old")
    said = summary(statement(verdict_of(manifest, baseline=old), manifest, old, About(time=TIME)))
    assert [digest for _, digest in said.inputs] == [file_digest(manifest), file_digest(old)]
    assert said.facts["baseline"]["manifest"] == old.id


def test_a_verdict_of_another_manifest_is_refused(manifest, tmp_path):
    make(tmp_path / "other", [shard("other.jsonl")])
    with pytest.raises(ValueError, match="the verdict is of"):
        statement(verdict_of(manifest), load_manifest(tmp_path / "other"), None, About(time=TIME))


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b'{"_type":"x","predicateType":"y","predicate":{}}', b"\xff"])
def test_what_is_no_statement_is_refused(payload):
    with pytest.raises(BadStatement):
        summary(payload)


def test_a_name_with_every_kind_of_character_survives(tmp_path):
    name = 'a b/c@d?e#f%g<script>"\u202e\n'
    make(tmp_path / "m", [shard("a")], dataset=name)
    manifest = load_manifest(tmp_path / "m")
    made = json.loads(statement(verdict_of(manifest), manifest, None, About(time=TIME)))
    assert made["subject"][0]["name"] == f"{name}@1.0.0"
    assert made["predicate"]["resourceUri"] == (
        "pkg:generic/a%20b%2Fc%40d%3Fe%23f%25g%3Cscript%3E%22%E2%80%AE%0A@1.0.0"
    )


def test_verify_takes_a_signed_verdict_of_the_manifest(place, manifest, signed):
    done = run("verify", place / "m", "--signature", signed, "--public-key", place / "key.pub")
    assert done.exit_code == 0
    for said in ("PASSED", "verified at  2026-11-22T10:00:00Z", "made@1.0.0", "urn:dataaudit:policy:strict:7"):
        assert said in done.output
    facts = json.loads(
        run("verify", place / "m", "--signature", signed, "--public-key", place / "key.pub", "--json").output
    )
    assert facts["signed_verdict"]["result"] == "PASSED"
    assert facts["signed_verdict"]["subject"] == [{"name": "made@1.0.0", "sha256": manifest.id[7:]}]


def test_verify_refuses_a_failed_verdict(place, manifest, tmp_path):
    out = tmp_path / "v"
    verdict = verdict_of(manifest, rule_result("duplicates", State.FAILED))
    assert "FAILED" in export_verdict(verdict, manifest, None, out, About(), Signing(key=place / "key.pem")).words
    done = run("verify", place / "m", "--signature", out, "--public-key", place / "key.pub")
    assert done.exit_code == 1
    assert "the verdict is FAILED, expected PASSED" in done.output


def test_verify_refuses_the_verdict_of_another_manifest(place, signed, tmp_path):
    make(tmp_path / "other", [shard("other.jsonl")])
    done = run("verify", tmp_path / "other", "--signature", signed, "--public-key", place / "key.pub")
    assert done.exit_code == 1
    assert "subject" in done.output


def test_verify_refuses_a_manifest_whose_run_was_changed(place, signed, tmp_path):
    """The id does not cover the circumstances of the run, the digest of the file does."""
    make(tmp_path / "m", SHARDS, roots="/elsewhere")
    trust = Trust(signature=signed, public_key=place / "key.pub")
    assert codes(load_manifest(tmp_path / "m"), trust) == ["manifest_file"]


def test_verify_refuses_another_policy(place, manifest, signed):
    path = place / "policy.yaml"
    policy = TrustedPolicy(path=path, digest=load_policy(path).digest)
    trust = Trust(signature=signed, public_key=place / "key.pub", policy=policy)
    assert codes(manifest, trust) == ["policy"]


def test_a_signed_payload_that_is_no_statement_is_refused(place, manifest, tmp_path):
    from dataaudit.manifest.signing import load_private_key, seal

    (tmp_path / "v").write_bytes(seal(b"{}", load_private_key(place / "key.pem")))
    assert codes(manifest, Trust(signature=tmp_path / "v", public_key=place / "key.pub")) == ["statement"]


@given(index=st.integers(0, 10**6), value=st.integers(1, 255))
def test_no_byte_of_the_pointer_can_change(place, manifest, tmp_path_factory, index, value):
    """Whatever is left of it either is no manifest, or is not the one that was signed."""
    folder = tmp_path_factory.mktemp("flipped")
    data = (place / "m/manifest.json").read_bytes()
    for name in (place / "m").iterdir():
        if name.name != "manifest.json":
            (folder / name.name).symlink_to(name)
    at = index % len(data)
    (folder / "manifest.json").write_bytes(data[:at] + bytes([(data[at] + value) % 256]) + data[at + 1 :])
    out = folder.parent / f"{folder.name}.dsse"
    export_verdict(verdict_of(manifest), manifest, None, out, About(time=TIME), Signing(key=place / "key.pem"))
    done = run("verify", folder, "--signature", out, "--public-key", place / "key.pub")
    assert done.exit_code in {1, 2}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--public-key", "k"], "Add --signature"),
        (["--policy", "p"], "Add --signature"),
        (["--signature", "s"], "needs either --public-key FILE or --identity"),
        (["--signature", "s", "--public-key", "k", "--identity", "i"], "needs either"),
        (["--signature", "s", "--identity", "i"], "--identity and --issuer go together"),
        (["--signature", "absent", "--public-key", "absent"], "the signature absent cannot be read"),
    ],
)
def test_options_of_a_signature_go_together(place, options, words):
    done = run("verify", place / "m", *options)
    assert done.exit_code == 2
    assert words in done.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--key", "k"], "Add --sign"),
        (["--identity"], "Add --sign"),
        (["--sign"], "--sign needs either"),
        (["--sign", "--key", "k", "--identity"], "--sign needs either"),
        (["--sign", "--key", "absent.pem"], "the key absent.pem cannot be read"),
        (["--time", "noon"], "expected a time"),
        (["--signed-by", "i"], "--signed-by and --issuer go together"),
        (["--issuer", "u"], "needs either --public-key FILE or --signed-by WHO"),
    ],
)
def test_options_of_signing_go_together(place, tmp_path, options, words):
    out = tmp_path / "v"
    done = run("export", "verdict", place / "m", "--policy", place / "policy.yaml", "--out", out, *options)
    assert done.exit_code == 2
    assert words in done.output
    assert not out.exists()


def test_from_policy_to_checked_signature_on_the_command_line(place, tmp_path):
    out = tmp_path / "v"
    asked = ["export", "verdict", place / "m", "--policy", place / "policy.yaml", "--out", out, "--sign", "--key"]
    done = run(*asked, place / "key.pem", "--time", TIME)
    assert done.exit_code == 0, done.output
    assert "PASSED, made@1.0.0 by easy; signed by the key " in done.output
    checked = ["verify", place / "m", "--signature", out, "--public-key", place / "key.pub", "--policy"]
    assert run(*checked, place / "policy.yaml").exit_code == 0
    assert run(*checked, place / "hard.yaml").exit_code == 1
    again = tmp_path / "again"
    asked[asked.index(out)] = again
    run(*asked, place / "key.pem", "--time", TIME)
    assert again.read_bytes() == out.read_bytes()


def test_a_failed_verdict_is_written_too(place, tmp_path):
    out = tmp_path / "v"
    done = run("export", "verdict", place / "m", "--policy", place / "hard.yaml", "--out", out, "--time", TIME)
    assert done.exit_code == 0, done.output
    assert "FAILED" in done.output
    assert summary(out.read_bytes()).facts["failed"] == ["documents"]


def test_the_time_of_a_reproducible_build_is_taken(manifest, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    export_verdict(verdict_of(manifest), manifest, None, tmp_path / "v", About(), None)
    assert summary((tmp_path / "v").read_bytes()).time == "2023-11-14T22:13:20Z"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "soon")
    with pytest.raises(ConfigError, match="SOURCE_DATE_EPOCH"):
        export_verdict(verdict_of(manifest), manifest, None, tmp_path / "v", About(), None)


def test_what_the_caller_says_stands_in_the_statement(manifest, tmp_path):
    about = About(
        time="2026-11-22T12:00:00+02:00",
        policy_uri="https://x.example/p",
        resource_uri="s3://b/d",
        verifier="https://ci",
    )
    export_verdict(verdict_of(manifest), manifest, None, tmp_path / "v", about, None)
    said = summary((tmp_path / "v").read_bytes())
    assert (said.time, said.policy, said.resource, said.verifier) == (
        TIME,
        "https://x.example/p",
        "s3://b/d",
        "https://ci",
    )


def test_what_is_signed_is_the_file_that_was_loaded(tmp_path):
    """Not the one that took its place while it was judged."""
    make(tmp_path / "m", SHARDS)
    loaded = load_manifest(tmp_path / "m")
    digest = file_digest(loaded)
    make(tmp_path / "m", SHARDS, roots="/elsewhere")
    assert load_manifest(tmp_path / "m").id == loaded.id
    said = summary(statement(verdict_of(loaded), loaded, None, About(time=TIME)))
    assert [found for _, found in said.inputs] == [digest]


def test_a_manifest_that_is_replaced_while_it_is_judged_is_not_signed(place, tmp_path, monkeypatch):
    make(tmp_path / "m", SHARDS)

    def replaced_before(*arguments, **options):
        make(tmp_path / "m", [shard("other.jsonl")])
        return judge(*arguments, **options)

    monkeypatch.setattr("dataaudit.decide.gate.run.judge", replaced_before)
    with pytest.raises(ManifestError, match="was replaced while it was read"):
        judge_and_export(tmp_path / "m", place / "policy.yaml", None, tmp_path / "v", "fail", About(time=TIME), None)
    assert not (tmp_path / "v").exists()


def test_a_verdict_that_compares_with_another_baseline_is_refused(manifest, tmp_path):
    make(tmp_path / "old", [shard("old.jsonl")])
    with pytest.raises(ValueError, match="does not compare with"):
        statement(verdict_of(manifest), manifest, load_manifest(tmp_path / "old"), About(time=TIME))


def test_a_statement_with_a_field_given_twice_is_refused(manifest):
    """Else one reader takes it for PASSED and another one for FAILED."""
    payload = statement(verdict_of(manifest), manifest, None, About(time=TIME))
    twice = payload.replace(b'"verificationResult":', b'"verificationResult":"FAILED","verificationResult":')
    assert twice != payload
    with pytest.raises(BadStatement, match="given twice"):
        summary(twice)


def test_nothing_is_written_over_a_part_of_the_manifest(place):
    """A signed verdict in place of a table would be the end of both."""
    done = run("export", "verdict", place / "m", "--policy", place / "policy.yaml", "--out", place / "m/shards.parquet")
    assert done.exit_code == 2
    assert "is a part of a manifest" in done.output
    load_manifest(place / "m").table("shards")
