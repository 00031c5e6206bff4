"""Signing with an identity: sigstore's services are played, its parser, its statement and its verifier are real."""

import base64
import datetime as dt
import json
import subprocess
import sys
from contextlib import contextmanager

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from made_manifest import make, shard
from made_verdict import verdict_of
from sigstore import dsse, models, oidc, sign, verify

from dataaudit.base.errors import ConfigError, StoreError
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.trust import Trust, check_trust
from dataaudit.present.export.verdict import About, Signing, export_verdict, statement

TIME = "2026-11-22T10:00:00Z"


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("identities") / "m"
    make(folder, [shard("a.jsonl")])
    return load_manifest(folder)


def codes(manifest, trust):
    return [problem.code for problem in check_trust(manifest, trust)[1]]


def certificate(key):
    """Return a certificate as sigstore gives them, but issued by nobody."""
    now = dt.datetime.now(dt.UTC)
    usage = dict.fromkeys(
        (
            "content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign",
            "crl_sign", "encipher_only", "decipher_only",
        ),
        False,
    )  # fmt: skip
    made = x509.CertificateBuilder().serial_number(1).public_key(key.public_key())
    made = made.subject_name(x509.Name([])).issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nobody")]))
    made = made.not_valid_before(now).not_valid_after(now + dt.timedelta(minutes=10))
    for extension, critical in (
        (x509.SubjectAlternativeName([x509.RFC822Name("a@b.c")]), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False),
        (x509.KeyUsage(digital_signature=True, **usage), True),
        (x509.BasicConstraints(ca=False, path_length=None), True),
    ):
        made = made.add_extension(extension, critical)
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def forged(payload):
    """Return a bundle in the right form, with a right signature, under a certificate that nobody vouches for."""

    def encoded(data):
        return base64.b64encode(data).decode()

    key = ec.generate_private_key(ec.SECP256R1())
    envelope = dsse._sign(key, dsse.Statement(payload))
    proof = {
        "logIndex": "1",
        "rootHash": encoded(b"r" * 32),
        "treeSize": "2",
        "hashes": [encoded(b"h" * 32)],
        "checkpoint": {"envelope": "x"},
    }
    entry = {
        "logIndex": "1",
        "logId": {"keyId": encoded(b"k" * 32)},
        "kindVersion": {"kind": "dsse", "version": "0.0.1"},
        "integratedTime": str(int(dt.datetime.now(dt.UTC).timestamp())),
        "inclusionProof": proof,
        "inclusionPromise": {"signedEntryTimestamp": encoded(b"s")},
        "canonicalizedBody": encoded(b"{}"),
    }
    bundle = {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "dsseEnvelope": json.loads(envelope.to_json()),
        "verificationMaterial": {"certificate": {"rawBytes": encoded(certificate(key))}, "tlogEntries": [entry]},
    }
    return json.dumps(bundle).encode()


def test_the_real_verifier_refuses_a_bundle_that_nobody_vouches_for(manifest, tmp_path, monkeypatch):
    """With the roots of trust that the library carries, so without a network."""
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    offline = verify.Verifier.production(offline=True)
    monkeypatch.setattr(verify.Verifier, "production", classmethod(lambda *_: offline))
    (tmp_path / "v").write_bytes(forged(statement(verdict_of(manifest), manifest, None, About(time=TIME))))
    assert models.Bundle.from_json((tmp_path / "v").read_bytes())
    trust = Trust(signature=tmp_path / "v", identity="a@b.c", issuer="https://accounts.example")
    verdict, problems = check_trust(manifest, trust)
    assert verdict.summary is None
    assert [problem.code for problem in problems] == ["signature"]
    assert "the signature does not hold" in problems[0].text


class _Bundle:
    """What sigstore gives, as far as it is looked at."""

    def __init__(self, payload):
        self.payload = payload

    def to_json(self):
        return json.dumps({"payload": base64.b64encode(self.payload).decode()})


def test_an_identity_signs_the_same_statement(manifest, tmp_path, monkeypatch):
    """The services of sigstore are played; the statement is checked by sigstore's own class."""
    signed, tokens = [], []

    class _Signer:
        def sign_dsse(self, given):
            signed.append(given)
            return _Bundle(given._contents)

    class _Context:
        @contextmanager
        def signer(self, given):
            tokens.append(given)
            yield _Signer()

    monkeypatch.setattr(models.ClientTrustConfig, "production", classmethod(lambda *_: "config"))
    monkeypatch.setattr(sign.SigningContext, "from_trust_config", classmethod(lambda *_: _Context()))
    monkeypatch.setattr(oidc, "detect_credential", lambda: "of the job")
    monkeypatch.setattr(oidc, "IdentityToken", str)
    done = export_verdict(verdict_of(manifest), manifest, None, tmp_path / "v", About(time=TIME), Signing())
    assert "signed by an identity" in done.words
    assert tokens == ["of the job"]
    assert signed[0]._inner.predicate["verificationResult"] == "PASSED"
    payload = base64.b64decode(json.loads((tmp_path / "v").read_bytes())["payload"])
    assert payload == statement(verdict_of(manifest), manifest, None, About(time=TIME))


def test_without_a_network_signing_with_an_identity_says_so(manifest, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("name resolution failed")

    monkeypatch.setattr(models.ClientTrustConfig, "production", fail)
    with pytest.raises(StoreError, match="needs a network") as caught:
        export_verdict(verdict_of(manifest), manifest, None, tmp_path / "v", About(), Signing())
    assert caught.value.exit_code == 3
    assert not (tmp_path / "v").exists()


def test_nobody_to_log_in_is_said(manifest, tmp_path, monkeypatch):
    monkeypatch.setattr(models.ClientTrustConfig, "production", classmethod(lambda *_: "config"))
    monkeypatch.setattr(sign.SigningContext, "from_trust_config", classmethod(lambda *_: None))
    monkeypatch.setattr(oidc, "detect_credential", lambda: None)
    with pytest.raises(ConfigError, match="id-token: write"):
        export_verdict(verdict_of(manifest), manifest, None, tmp_path / "v", About(), Signing())


def test_without_the_library_the_command_to_install_it_is_named(manifest, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sigstore", None)
    with pytest.raises(ConfigError, match="pip install"):
        export_verdict(verdict_of(manifest), manifest, None, tmp_path / "v", About(), Signing())


@pytest.mark.parametrize("data", [b"", b"{}", b"not a bundle"])
def test_a_file_that_is_no_bundle_is_a_problem(manifest, tmp_path, data):
    (tmp_path / "v").write_bytes(data)
    trust = Trust(signature=tmp_path / "v", identity="a@b.c", issuer="https://accounts.example")
    verdict, problems = check_trust(manifest, trust)
    assert verdict.summary is None
    assert [problem.code for problem in problems] == ["signature"]
    assert "no sigstore bundle" in problems[0].text


def test_a_bundle_of_the_identity_is_taken_and_of_another_is_not(manifest, tmp_path, monkeypatch):
    """Sigstore's verifier is played; which identity it is asked for, and what becomes of its answer, is ours."""
    from sigstore.errors import VerificationError

    class _Verifier:
        @classmethod
        def production(cls):
            return cls()

        def verify_dsse(self, bundle, policy):
            if policy._identity != "a@b.c":
                raise VerificationError("certificate's SANs do not match a@b.c")
            return "application/vnd.in-toto+json", bundle

    payload = statement(verdict_of(manifest), manifest, None, About(time=TIME))
    monkeypatch.setattr(models.Bundle, "from_json", classmethod(lambda *_: payload))
    monkeypatch.setattr(verify, "Verifier", _Verifier)
    (tmp_path / "v").write_bytes(b"a bundle")
    trust = Trust(signature=tmp_path / "v", identity="a@b.c", issuer="https://accounts.example")
    verdict, problems = check_trust(manifest, trust)
    assert (verdict.signer, problems) == ("a@b.c (https://accounts.example)", [])
    assert codes(manifest, Trust(signature=tmp_path / "v", identity="x@y.z", issuer="https://a.example")) == [
        "signature"
    ]


def test_roots_of_trust_that_cannot_be_had_are_no_verdict(manifest, tmp_path, monkeypatch):
    class _Verifier:
        @classmethod
        def production(cls):
            raise OSError("no route")

    monkeypatch.setattr(models.Bundle, "from_json", classmethod(lambda *_: b""))
    monkeypatch.setattr(verify, "Verifier", _Verifier)
    (tmp_path / "v").write_bytes(b"a bundle")
    with pytest.raises(StoreError):
        check_trust(manifest, Trust(signature=tmp_path / "v", identity="a", issuer="https://a.example"))


def test_verifying_with_a_key_imports_nothing_of_sigstore():
    modules = "dataaudit.manifest.signing, dataaudit.manifest.trust"
    code = f"import sys, {modules}; print([name for name in sys.modules if 'sigstore' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
