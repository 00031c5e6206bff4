"""Signed manifests: a forger who makes digests, id and bytes fit is stopped by a signature, and by nothing else."""

import base64
import json
import os
import shutil
import stat
import subprocess

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from forged import forge
from google.protobuf.json_format import ParseDict
from in_toto_attestation.v1.statement import Statement
from made_manifest import make, shard
from made_verdict import verdict_of

from dataaudit import api
from dataaudit.base.errors import ConfigError, ManifestMismatch, SignatureRefused
from dataaudit.cli import main
from dataaudit.manifest.canonical import canonical_json
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Scope, ratio
from dataaudit.manifest.replace import ATTESTATION
from dataaudit.manifest.signing import PAYLOAD_TYPE, PrivateKey, Seal, Signing, load_private_key, pae, seal
from dataaudit.manifest.trust import ATTESTATION_PREDICATE, MOST_BYTES, Signer, attestation, attested, sign_manifest
from dataaudit.present.export.verdict import About, export_verdict

pytestmark = pytest.mark.usefixtures("odd_numbers")
POLICY = """
policy: few-duplicates
rules:
  - {name: duplicates, metric: exact_dup_rate, stat: rate, unit: ratio, budget: 0.1}
"""
SHARDS = [shard("a.jsonl"), shard("b.jsonl", split="val", documents=3)]
DUPLICATES = ratio("exact_dup_rate", "rate", 5, 10, scope=Scope(), unit="ratio", version="1")


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def expect(done, code, *words):
    """Check the exit code and words of the output of a command."""
    assert done.exit_code == code, done.output
    for text in words:
        assert text in done.output


@pytest.fixture
def place(tmp_path):
    """A manifest that half of is duplicates, a policy that forbids it, and keys."""
    make(tmp_path / "m", SHARDS, metrics=[DUPLICATES], odd=True)
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "strict.yaml").write_text(POLICY + "require_signature: true\n")
    for name in ("build", "other"):
        write_key(tmp_path / name, ed25519.Ed25519PrivateKey.generate())
    return tmp_path


def write_key(path, key, encryption=None):
    how = (Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())
    path.with_suffix(".pem").write_bytes(key.private_bytes(*how))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    path.with_suffix(".pub").write_bytes(public)


def sign(place, key="build.pem"):
    """Sign the manifest on the command line; return its attestation."""
    expect(run("sign", place / "m", "--key", place / key), 0)
    return place / "m" / ATTESTATION


def gate(place, *more, key="build.pub", policy="policy.yaml"):
    named = ["--require-signature", "--public-key", place / key] if key else []
    return run("gate", place / "m", "--policy", place / policy, *named, *more)


def refused(place, *more, key="build.pub"):
    """Return what the gate says of a manifest that it does not believe."""
    done = gate(place, *more, key=key)
    expect(done, 1, "is not believed: ")
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert "PASS" not in done.output
    return done.output


def believed(place, *more, key="build.pub"):
    """Return whether the gate believes a manifest."""
    return "is not believed" not in gate(place, *more, key=key).output


def fewer(table):
    """Return the metrics with no duplicates."""
    is_rate = pc.and_(pc.equal(table["metric"], "exact_dup_rate"), pc.equal(table["stat"], "rate"))
    zero = pa.scalar(0.0, pa.float64())
    return table.set_column(table.schema.get_field_index("value"), "value", pc.if_else(is_rate, zero, table["value"]))


def forged(place):
    """Write that there are no duplicates, as who knows the format does: every digest fits."""
    return forge(place / "m", {"metrics": fewer(load_manifest(place / "m").table("metrics"))})


def test_only_a_signature_stops_a_consistent_forger(place):
    """Verify, gate and a signed verdict all say well of it."""
    sign(place)
    assert gate(place).exit_code == 1
    before = load_manifest(place / "m").id
    assert forged(place) != before
    assert run("verify", place / "m").exit_code == 0
    assert gate(place, key=None).exit_code == 0
    out = place / "verdict"
    asked = ["export", "verdict", place / "m", "--policy", place / "policy.yaml", "--out", out]
    assert "PASSED" in run(*asked, "--sign", "--key", place / "other.pem").output
    assert "the signature is of another manifest" in refused(place)
    done = run("verify", place / "m", "--require-signature", "--public-key", place / "build.pub")
    expect(done, 1, "the signature is of another manifest")
    expect(run(*asked, "--public-key", place / "build.pub"), 1, "is not believed")
    with pytest.raises(SignatureRefused):
        api.gate(place / "m", place / "policy.yaml", public_key=place / "build.pub")


def test_a_manifest_without_a_signature_is_exit_1(place):
    assert "it is not signed, there is no attestation.json" in refused(place)


def test_a_signed_manifest_is_judged_as_before(place):
    sign(place)
    assert gate(place).stdout == gate(place, key=None).stdout
    strict = ["gate", place / "m", "--policy", place / "strict.yaml", "--public-key", place / "build.pub"]
    for how in (["--require-signature"], []):
        assert "duplicates" in run(*strict, *how).output


def test_the_statement_is_one_of_in_toto_about_id_and_file(place):
    path = sign(place)
    manifest = load_manifest(place / "m")
    envelope = json.loads(path.read_bytes())
    assert envelope["payloadType"] == PAYLOAD_TYPE
    payload = json.loads(base64.b64decode(envelope["payload"]))
    read = Statement([], "", {})
    ParseDict(payload, read.pb)
    read.validate()
    assert [(subject["name"], subject["digest"]["sha256"]) for subject in payload["subject"]] == [
        ("made@1.0.0", manifest.id.removeprefix("sha256:")),
        ("manifest.json", manifest.pointer_sha256),
    ]
    assert payload["predicateType"] == ATTESTATION_PREDICATE


def test_signing_again_gives_the_same_bytes_and_another_key_takes_their_place(place):
    first = sign(place).read_bytes()
    assert sign(place).read_bytes() == first
    sign(place, "other.pem")
    assert "another key signed it" in refused(place)
    assert gate(place, key="other.pub").exit_code == 1
    assert believed(place, key="other.pub")


@pytest.mark.parametrize("name", ["pairs.parquet", "repeat_index/extra", "signatures/0.parquet"])
def test_a_file_that_no_rule_reads_is_checked_as_well(place, name):
    sign(place)
    path = place / "m" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(path.read_bytes()[:-1] + b"x" if path.exists() else b"x")
    done = gate(place)
    expect(done, 1)
    assert "is signed, its files are others" in " ".join(done.output.split())


def test_a_changed_run_is_seen_although_the_id_fits(place):
    sign(place)
    pointer = place / "m/manifest.json"
    document = json.loads(pointer.read_bytes())
    document["run"]["finished"] = "2030-01-01T00:00:00+00:00"
    pointer.write_bytes(json.dumps(document).encode())
    assert "of other bytes of manifest.json" in refused(place)


def test_a_publish_takes_no_old_signature_along(place):
    sign(place)
    (place / "m/notes.txt").write_text("ours")
    make(place / "m", SHARDS)
    assert (place / "m/notes.txt").exists()
    assert not (place / "m" / ATTESTATION).exists()


def _statement(place, **changes):
    document = json.loads(attestation(load_manifest(place / "m"))) | changes
    return canonical_json(document)


def _sealed(place, payload, kind=PAYLOAD_TYPE, key="build.pem"):
    return seal(payload, load_private_key(place / key), kind)


def _subjects(place, edit):
    found = json.loads(_statement(place))["subject"]
    edit(found)
    return _sealed(place, _statement(place, subject=found))


def _verdict(place):
    manifest = load_manifest(place / "m")
    export_verdict(verdict_of(manifest), manifest, None, place / "v", About(), Signing(key=place / "build.pem"))
    return (place / "v").read_bytes()


def _signatures(place, edit):
    envelope = json.loads(_sealed(place, _statement(place)))
    edit(envelope)
    return canonical_json(envelope)


def _stranger(place):
    make(place / "n", [shard("c.jsonl")])
    return _sealed(place, attestation(load_manifest(place / "n")))


def _twice(place):
    text = _sealed(place, _statement(place).replace(b'"subject":', b'"subject":[],"subject":'))
    assert text.count(b"payload")
    return text


BAD = {
    "of another manifest": (_stranger, "the signature is of another manifest"),
    "a verdict": (
        _verdict,
        f"expected a statement https://in-toto.io/Statement/v1 with the predicate {ATTESTATION_PREDICATE}",
    ),
    "of another predicate": (
        lambda place: _sealed(place, _statement(place, predicateType="https://slsa.dev/provenance/v1")),
        "found 'https://in-toto.io/Statement/v1' with 'https://slsa.dev/provenance/v1'",
    ),
    "of another statement": (lambda place: _sealed(place, _statement(place, _type="x")), "found 'x' with"),
    "of another payload type": (
        lambda place: _sealed(place, _statement(place), "application/json"),
        "the payload is of type 'application/json'",
    ),
    "with a further subject": (
        lambda place: _subjects(place, lambda found: found.append({"name": "x", "digest": {"sha256": "0" * 64}})),
        "the signature is of 3 subjects",
    ),
    "of the id alone": (lambda place: _subjects(place, lambda found: found.pop()), "the signature is of 1 subjects"),
    "with subjects the other way round": (
        lambda place: _subjects(place, lambda found: found.reverse()),
        "the signature is of another manifest",
    ),
    "with another digest beside": (
        lambda place: _subjects(place, lambda found: found[1]["digest"].update(sha512="0" * 128)),
        "of other bytes of manifest.json",
    ),
    "with subjects that are none": (
        lambda place: _sealed(place, _statement(place, subject=[1, None])),
        "no in-toto statement",
    ),
    "without subjects": (lambda place: _sealed(place, _statement(place, subject=None)), "no in-toto statement"),
    "no statement": (lambda place: _sealed(place, b"[]"), "no in-toto statement"),
    "a field of the statement twice": (_twice, "given twice"),
    "by another key": (lambda place: _sealed(place, _statement(place), key="other.pem"), "another key signed it"),
    "by another key under this one's id": (
        lambda place: _signatures(
            place,
            lambda envelope: envelope["signatures"][0].update(
                sig=json.loads(_sealed(place, _statement(place), key="other.pem"))["signatures"][0]["sig"]
            ),
        ),
        "the signature does not hold",
    ),
    "no signature": (lambda place: _signatures(place, lambda envelope: envelope["signatures"].clear()), "no signature"),
    "empty": (lambda _: b"", "attestation.json is empty"),
    "no JSON": (lambda _: b"signed, really", "it is not JSON"),
    "nested deeply": (lambda _: b"[" * 100_000, "it is not JSON"),
    "not UTF-8": (lambda _: b"\xff\xfe{}", "it is not JSON"),
    "huge": (lambda _: b" " * (MOST_BYTES + 1), "larger than any signature"),
    "a field of the envelope twice": (
        lambda place: _sealed(place, _statement(place)).replace(b'{"payload":', b'{"payload":"","payload":', 1),
        "given twice",
    ),
    "a bundle": (lambda _: b'{"dsseEnvelope": {}, "mediaType": "x"}', "name it with --identity and --issuer"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_signature_of_this_manifest_is_refused(place, name):
    made, says = BAD[name]
    (place / "m" / ATTESTATION).write_bytes(made(place))
    assert says in refused(place).replace("\n  ", " ")


def test_one_right_signature_of_several_is_enough(place):
    """DSSE: others may sign too, before or after."""
    right, wrong = (json.loads(_sealed(place, _statement(place), key=key)) for key in ("build.pem", "other.pem"))
    path = place / "m" / ATTESTATION
    for order in ([right, wrong], [wrong, right]):
        path.write_bytes(canonical_json(right | {"signatures": [envelope["signatures"][0] for envelope in order]}))
        assert believed(place, key="build.pub")
        assert believed(place, key="other.pub")


def test_a_signature_of_several_payloads_does_not_pass_for_another(place):
    other = _sealed(place, _statement(place, predicateType="x"))
    envelope = json.loads(_sealed(place, _statement(place)))
    envelope["signatures"] = json.loads(other)["signatures"]
    (place / "m" / ATTESTATION).write_bytes(canonical_json(envelope))
    assert "the signature does not hold" in refused(place)


@pytest.mark.parametrize(
    ("put", "says"),
    [
        (lambda path: path.mkdir(), "attestation.json is no file"),
        (os.mkfifo, "attestation.json is no file"),
        (lambda path: path.symlink_to("/dev/zero"), "attestation.json is no file"),
        (lambda path: path.symlink_to(path), "cannot be read"),
        (lambda path: path.symlink_to("nowhere"), "there is no attestation.json"),
    ],
)
def test_what_is_no_file_is_refused_at_once(place, put, says):
    put(place / "m" / ATTESTATION)
    assert says in refused(place)


def test_signing_replaces_a_link_and_leaves_what_it_led_to(place):
    """Else a hostile folder chooses which file of the signer is overwritten."""
    (place / "diary").write_text("mine")
    (place / "m" / ATTESTATION).symlink_to(place / "diary")
    sign(place)
    assert (place / "diary").read_text() == "mine"
    assert not (place / "m" / ATTESTATION).is_symlink()
    assert believed(place)


def test_a_folder_that_is_a_link_is_signed_where_it_lies(place):
    (place / "real").mkdir()
    (place / "m").rename(place / "real/m")
    (place / "m").symlink_to(place / "real/m")
    sign(place)
    assert (place / "real/m" / ATTESTATION).is_file()
    assert believed(place)


def test_a_folder_in_the_way_of_a_signature_is_said(place):
    (place / "m" / ATTESTATION).mkdir()
    done = run("sign", place / "m", "--key", place / "build.pem")
    expect(done, 2, "cannot be written", "the manifest is as it was, not signed")


def test_a_damaged_manifest_is_not_signed(place):
    (place / "m/metrics.parquet").write_bytes(b"PAR1")
    expect(run("sign", place / "m", "--key", place / "build.pem"), 1, "is not signed")
    assert not (place / "m" / ATTESTATION).exists()


def test_a_manifest_that_is_replaced_while_it_is_signed_stays_unsigned(place):
    """The signature would be of one that is gone."""

    class _Slow(Seal):
        def sign(self, payload):
            make(place / "m", [shard("c.jsonl")])
            return super().sign(payload)

    with pytest.raises(ManifestMismatch, match="was replaced while it was signed"):
        sign_manifest(load_manifest(place / "m"), _Slow(key=load_private_key(place / "build.pem")))
    assert not (place / "m" / ATTESTATION).exists()


def test_a_private_key_is_not_published(place):
    """In the folder, below it or by a link: it would go where the manifest goes."""
    inside = place / "m" / "k.pem"
    shutil.copy(place / "build.pem", inside)
    (place / "link").symlink_to(place / "m")
    for key in (inside, place / "link" / "k.pem"):
        done = run("sign", place / "m", "--key", key)
        expect(done, 2, "lies in the folder that is signed, and would be published with it")
    assert not (place / "m" / ATTESTATION).exists()
    done = run("build", place, "--manifest", place / "m", "--sign", "--key", inside)
    expect(done, 2, "would be published with it")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sign", "{m}"], "sign needs either --key FILE or --identity"),
        (["sign", "{m}", "--key", "k", "--identity"], "sign needs either --key FILE or --identity"),
        (["sign", "{m}", "--key", "absent.pem"], "the key absent.pem cannot be read"),
        (["sign", "{m}", "--key", "{place}"], "cannot be read: expected a file, found a folder"),
        (["sign", "{m}", "--key", "{place}/build.pub"], "damaged key, or another kind of file"),
        (["sign", "{place}/nowhere", "--key", "{place}/build.pem"], "no manifest at"),
        (["sign", "gs://bucket/m", "--key", "{place}/build.pem"], "a path on this machine is expected"),
        (["gate", "{m}", "--policy", "{place}/policy.yaml", "--require-signature"], "--require-signature needs either"),
        (["gate", "{m}", "--policy", "{place}/policy.yaml", "--identity", "a"], "--identity and --issuer go together"),
        (["gate", "{m}", "--policy", "{place}/policy.yaml", "--issuer", "a"], "a signature needs either --public-key"),
        (["gate", "{m}", "--policy", "{place}/policy.yaml", "--public-key", "absent"], "the public key absent cannot"),
        (["gate", "{m}", "--policy", "{place}/policy.yaml", "--public-key", "{place}/build.pem"], "a private key"),
        (["gate", "{m}", "--policy", "{place}/strict.yaml"], "asks for signed manifests, and nobody said whose"),
        (["report", "{m}", "--policy", "{place}/strict.yaml", "--out", "{place}/r.html"], "asks for signed manifests"),
        (["export", "verdict", "{m}", "--policy", "{place}/strict.yaml", "--out", "{place}/v"], "asks for signed"),
        (["verify", "{m}", "--require-signature"], "--require-signature needs either"),
        (["verify", "{m}", "--public-key", "k"], "Add --signature FILE, or --require-signature"),
    ],
)
def test_wrong_use_is_exit_2_with_a_way_out(place, arguments, says):
    expect(run(*(argument.format(m=place / "m", place=place) for argument in arguments)), 2, says)
    assert not (place / "m" / ATTESTATION).exists()


def test_a_certificate_is_no_public_key(place):
    key = ec.generate_private_key(ec.SECP256R1())
    write_key(place / "p256", key)
    request = ["openssl", "req", "-x509", "-key", "p256.pem", "-out", "cert.pem", "-subj", "/CN=x", "-days", "1"]
    subprocess.run(request, check=True, capture_output=True, cwd=place)
    assert x509.load_pem_x509_certificate((place / "cert.pem").read_bytes())
    sign(place, "p256.pem")
    assert believed(place, key="p256.pub")
    expect(gate(place, key="cert.pem"), 2, "a certificate")


def test_a_key_with_a_pass_phrase_signs_and_a_wrong_phrase_is_said(place, monkeypatch):
    write_key(place / "locked", ed25519.Ed25519PrivateKey.generate(), BestAvailableEncryption(b"open sesame"))
    done = run("sign", place / "m", "--key", place / "locked.pem")
    expect(done, 2, "set its pass phrase in DATAAUDIT_KEY_PASSWORD")
    monkeypatch.setenv("DATAAUDIT_KEY_PASSWORD", "open barley")
    done = run("sign", place / "m", "--key", place / "locked.pem")
    expect(done, 2)
    assert "open barley" not in done.output
    monkeypatch.setenv("DATAAUDIT_KEY_PASSWORD", "open sesame")
    sign(place, "locked.pem")
    assert believed(place, key="locked.pub")


def test_a_policy_asks_for_a_signature_and_keeps_its_digest_without(place):
    from dataaudit.decide.gate.policy import load_policy

    plain, strict = (load_policy(place / name) for name in ("policy.yaml", "strict.yaml"))
    assert plain.digest != strict.digest
    assert "require_signature" not in plain.model_dump(exclude_none=True)
    done = run("gate", place / "m", "--policy", place / "strict.yaml", "--public-key", place / "build.pub")
    assert "is not signed" in done.output
    sign(place)
    out = place / "r.html"
    asked = ["report", place / "m", "--policy", place / "strict.yaml", "--out", out, "--public-key"]
    assert run(*asked, place / "build.pub").exit_code == 0
    assert run(*asked, place / "other.pub").exit_code == 1
    verdict = api.gate(place / "m", place / "strict.yaml", public_key=place / "build.pub")
    assert verdict.exit_code == 1
    with pytest.raises(ConfigError, match="identity and issuer go together"):
        api.gate(place / "m", place / "policy.yaml", identity="a")


def test_the_baseline_has_to_be_signed_too(place):
    sign(place)
    make(place / "old", SHARDS, metrics=[DUPLICATES], odd=True)
    output = refused(place, "--baseline", place / "old").replace("\n", "")
    assert f"the manifest {place / 'old'} is not believed" in output
    run("sign", place / "old", "--key", place / "build.pem")
    assert believed(place, "--baseline", place / "old")


def test_a_key_out_of_the_folder_that_it_vouches_for_is_refused(place):
    """Whoever forges the manifest puts a key of theirs beside it."""
    sign(place)
    shutil.copy(place / "build.pub", place / "m/build.pub")
    (place / "link.pub").symlink_to(place / "m/build.pub")
    for key in ("m/build.pub", "link.pub"):
        expect(gate(place, key=key), 2, "lies in the folder that it is to vouch for")


def test_an_option_that_is_empty_is_no_signer(place):
    sign(place)
    asked = ["gate", place / "m", "--policy", place / "policy.yaml", "--require-signature"]
    assert run(*asked, "--public-key", "").exit_code == 2
    assert run(*asked, "--identity", "", "--issuer", "").exit_code == 1


def test_an_identity_signs_and_is_checked(place, monkeypatch):
    """Sigstore is played; its bundle lies in the same file."""
    from sigstore import models, verify
    from sigstore.errors import VerificationError

    class _Verifier:
        @classmethod
        def production(cls):
            return cls()

        def verify_dsse(self, bundle, policy):
            if policy._identity != "ci@example.org":
                raise VerificationError("certificate's SANs do not match")
            return PAYLOAD_TYPE, bundle

    def from_json(data):
        if b"payloadType" in data:
            raise ValueError("no bundle")
        return data

    monkeypatch.setattr("dataaudit.manifest.signing.bundle_of", lambda payload: payload)
    monkeypatch.setattr(models.Bundle, "from_json", from_json)
    monkeypatch.setattr(verify, "Verifier", _Verifier)
    done = run("sign", place / "m", "--identity")
    assert "signed by an identity, as a sigstore bundle" in done.output
    asked = ["verify", place / "m", "--require-signature", "--issuer", "https://i.example", "--identity"]
    assert run(*asked, "ci@example.org").exit_code == 0
    assert run(*asked, "ana@example.org").exit_code == 1
    forged(place)
    expect(run(*asked, "ci@example.org"), 1, "the signature is of another manifest")
    sign(place)
    expect(run(*asked, "ci@example.org"), 1, "a key signed it, and an identity is expected")


def test_a_copy_of_a_signed_manifest_is_signed(place):
    sign(place)
    shutil.copytree(place / "m", place / "copy")
    asked = ["verify", place / "copy", "--require-signature", "--public-key", place / "build.pub"]
    done = run(*asked, "--json")
    expect(done, 0)
    key = load_private_key(place / "build.pem").public.id
    assert json.loads(done.output)["signed_by"] == f"key {key}"
    assert "signed by  key" in run(*asked).output


def test_no_output_is_written_over_a_signature(place):
    path = sign(place)
    for option in ("--out", "--markdown"):
        expect(gate(place, option, path), 2, "is a part of a manifest")


def test_a_signature_keeps_its_owner_readable_mode(place):
    assert stat.S_IMODE(sign(place).stat().st_mode) & 0o444


def test_who_signed_is_known_of_a_loaded_manifest(place):
    sign(place)
    signer = Signer(public_key=place / "build.pub")
    loaded = attested(load_manifest(place / "m"), signer)
    assert loaded.signed_by == f"key {load_private_key(place / 'build.pem').public.id}"
    assert loaded.table("metrics").num_rows
    assert load_manifest(place / "m").signed_by == ""
    key = PrivateKey(ed25519.Ed25519PrivateKey.generate())
    assert key.public.verifies(key.sign(pae(PAYLOAD_TYPE, b"x")), pae(PAYLOAD_TYPE, b"x"))
