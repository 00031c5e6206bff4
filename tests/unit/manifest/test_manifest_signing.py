"""Keys and envelopes: what is signed, what is noticed, and a second implementation of the same."""

import base64
import json

import pytest
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope as TheirEnvelope
from securesystemslib.signer import CryptoSigner, SSlibKey

from dataaudit.base.errors import ConfigError
from dataaudit.manifest.signing import (
    PAYLOAD_TYPE,
    PHRASE_FROM,
    BadEnvelope,
    PrivateKey,
    PublicKey,
    load_private_key,
    load_public_key,
    pae,
    parse,
    seal,
    unseal,
)

PAYLOAD = b'{"_type":"https://in-toto.io/Statement/v1","predicate":{"a":[1,2.5,"\xc3\xa9"]}}'
KEYS = {
    "ed25519": PrivateKey(ed25519.Ed25519PrivateKey.from_private_bytes(b"k" * 32)),
    "p256": PrivateKey(ec.derive_private_key(2**200 + 7, ec.SECP256R1())),
    "p384": PrivateKey(ec.derive_private_key(2**300 + 7, ec.SECP384R1())),
    "p521": PrivateKey(ec.derive_private_key(2**500 + 7, ec.SECP521R1())),
}
SEALED = {name: seal(PAYLOAD, key) for name, key in KEYS.items()}
every_key = pytest.mark.parametrize("name", sorted(KEYS))


def private_pem(key, *, password=None):
    hidden = form.BestAvailableEncryption(password) if password else form.NoEncryption()
    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, hidden)


def public_pem(key):
    return key.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)


def changed(data, index, value):
    """Return the bytes with one of them changed by 1 to 255."""
    place = index % len(data)
    return data[:place] + bytes([(data[place] + value) % 256]) + data[place + 1 :]


def test_what_is_signed_is_the_encoding_of_the_specification():
    """The example of the DSSE protocol's page."""
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )
    assert pae("\u00e9", b"") == b"DSSEv1 2 \xc3\xa9 0 "


@every_key
def test_a_sealed_payload_comes_back(name):
    assert unseal(SEALED[name], KEYS[name].public) == PAYLOAD


@every_key
def test_the_same_payload_gets_the_same_signature(name):
    assert seal(PAYLOAD, KEYS[name]) == SEALED[name]


@every_key
def test_another_key_of_the_same_kind_does_not_open_it(name):
    others = {
        "ed25519": ed25519.Ed25519PrivateKey.generate(),
        "p256": ec.generate_private_key(ec.SECP256R1()),
        "p384": ec.generate_private_key(ec.SECP384R1()),
        "p521": ec.generate_private_key(ec.SECP521R1()),
    }
    with pytest.raises(BadEnvelope, match="another key signed it"):
        unseal(SEALED[name], PrivateKey(others[name]).public)


@given(name=st.sampled_from(sorted(KEYS)), index=st.integers(0, 10**6), value=st.integers(1, 255))
def test_no_byte_of_an_envelope_can_change(name, index, value):
    with pytest.raises(BadEnvelope):
        unseal(changed(SEALED[name], index, value), KEYS[name].public)


@given(name=st.sampled_from(sorted(KEYS)), cut=st.integers(0, 10**6))
def test_no_envelope_can_be_cut_short(name, cut):
    data = SEALED[name].removesuffix(b"\n")
    assert unseal(data, KEYS[name].public) == PAYLOAD
    with pytest.raises(BadEnvelope):
        unseal(data[: cut % len(data)], KEYS[name].public)


@given(name=st.sampled_from(sorted(KEYS)), index=st.integers(0, 10**6), value=st.integers(1, 255))
def test_a_changed_public_key_opens_nothing_unless_it_is_the_same_key(name, index, value, tmp_path_factory):
    """A change in the white space or the padding of a PEM file may leave the key what it was."""
    path = tmp_path_factory.mktemp("key") / "key.pub"
    path.write_bytes(changed(public_pem(KEYS[name].public.key), index, value))
    try:
        key = load_public_key(path)
        unseal(SEALED[name], key)
    except (ConfigError, BadEnvelope):
        return
    assert key.id == KEYS[name].public.id


@given(payload=st.binary(max_size=300), kind=st.text(max_size=20))
def test_our_encoding_is_that_of_securesystemslib(payload, kind):
    assert pae(kind, payload) == TheirEnvelope(payload, kind, {}).pae()


@every_key
def test_securesystemslib_opens_our_envelopes(name):
    public = KEYS[name].public
    theirs = TheirEnvelope.from_dict(json.loads(SEALED[name]))
    key = SSlibKey.from_crypto(public.key, keyid=public.id)
    assert theirs.verify([key], 1) == {public.id: key}
    assert theirs.payload == PAYLOAD


@every_key
def test_we_open_envelopes_of_securesystemslib(name):
    public = KEYS[name].public
    signer = CryptoSigner(KEYS[name].key, SSlibKey.from_crypto(public.key, keyid=public.id))
    envelope = TheirEnvelope(PAYLOAD, PAYLOAD_TYPE, {})
    envelope.sign(signer)
    assert unseal(json.dumps(envelope.to_dict(), indent=2).encode(), public) == PAYLOAD


def test_an_envelope_with_several_signatures_is_opened_by_each_of_their_keys():
    one, two = (json.loads(SEALED[name]) for name in ("ed25519", "p256"))
    both = json.dumps(one | {"signatures": [*one["signatures"], *two["signatures"]]}).encode()
    assert {unseal(both, KEYS[name].public) for name in ("ed25519", "p256")} == {PAYLOAD}


def test_an_envelope_without_a_key_id_is_opened():
    plain = json.loads(SEALED["ed25519"])
    del plain["signatures"][0]["keyid"]
    assert unseal(json.dumps(plain).encode(), KEYS["ed25519"].public) == PAYLOAD


def test_another_type_of_payload_is_refused_although_it_is_signed():
    data = seal(PAYLOAD, KEYS["ed25519"], payload_type="text/plain")
    with pytest.raises(BadEnvelope, match="text/plain"):
        unseal(data, KEYS["ed25519"].public)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not JSON"),
        (b"[]", "expected the envelope to be an object"),
        (b'{"payload":"","payloadType":"x","signatures":[]}', "no signature"),
        (b'{"payload":"","payloadType":"x","signatures":[],"more":1}', "no others"),
        (b'{"payload":"","payload":"","payloadType":"x","signatures":[]}', "twice"),
        (b'{"payload":"?","payloadType":"x","signatures":[{"sig":"QQ=="}]}', "not base64"),
        (b'{"payload":"QR==","payloadType":"x","signatures":[{"sig":"QQ=="}]}', "not canonical base64"),
        (b'{"payload":1,"payloadType":"x","signatures":[{"sig":"QQ=="}]}', "wrong type"),
        (b'{"payload":"","payloadType":"x","signatures":["QQ=="]}', "expected the signature"),
        (b"\n" + SEALED["ed25519"], "before or after"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_envelope_is_named(data, words):
    with pytest.raises(BadEnvelope, match=words):
        parse(data)


@every_key
def test_keys_are_read_from_pem_files(name, tmp_path):
    (tmp_path / "key.pem").write_bytes(private_pem(KEYS[name].key))
    (tmp_path / "key.pub").write_bytes(public_pem(KEYS[name].public.key))
    assert load_private_key(tmp_path / "key.pem").public.id == load_public_key(tmp_path / "key.pub").id


def test_the_pass_phrase_of_a_key_is_read_from_the_environment(tmp_path, monkeypatch):
    path = tmp_path / "key.pem"
    path.write_bytes(private_pem(KEYS["p256"].key, password=b"open sesame"))
    with pytest.raises(ConfigError, match=f"is encrypted; set its pass phrase in {PHRASE_FROM}"):
        load_private_key(path)
    monkeypatch.setenv(PHRASE_FROM, "wrong")
    with pytest.raises(ConfigError, match="wrong pass phrase"):
        load_private_key(path)
    monkeypatch.setenv(PHRASE_FROM, "open sesame")
    assert load_private_key(path).public.id == KEYS["p256"].public.id


def test_a_pass_phrase_for_a_key_without_one_is_said(tmp_path, monkeypatch):
    path = tmp_path / "key.pem"
    path.write_bytes(private_pem(KEYS["p256"].key))
    monkeypatch.setenv(PHRASE_FROM, "needless")
    with pytest.raises(ConfigError, match="is not encrypted, but a pass phrase is set"):
        load_private_key(path)


@pytest.mark.parametrize("load", [load_private_key, load_public_key])
def test_a_file_that_is_no_key_is_refused_without_a_byte_of_it(load, tmp_path):
    path = tmp_path / "key.pem"
    path.write_bytes(b"-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert "openssl genpkey" in str(caught.value)
    assert "canary" not in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "absent.pem")


def test_keys_of_other_kinds_are_refused(tmp_path):
    path = tmp_path / "key.pem"
    path.write_bytes(private_pem(rsa.generate_private_key(65537, 2048)))
    with pytest.raises(ConfigError, match="a key of another kind"):
        load_private_key(path)
    path.write_bytes(private_pem(ec.generate_private_key(ec.SECP256K1())))
    with pytest.raises(ConfigError, match="one on the curve secp256k1"):
        load_private_key(path)
    path.write_bytes(public_pem(ec.generate_private_key(ec.SECP256K1()).public_key()))
    with pytest.raises(ConfigError, match="one on the curve secp256k1"):
        load_public_key(path)


def test_a_private_key_does_not_show_itself():
    shown = repr(KEYS["ed25519"])
    assert shown == f"PrivateKey({KEYS['ed25519'].public.id})"
    assert base64.b64encode(b"k" * 32).decode() not in shown


def test_the_id_of_a_key_is_the_digest_of_its_der():
    """As `openssl pkey -pubin -outform DER | sha256sum` gives it, for the public key of the first test of RFC 8032."""
    raw = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    key = PublicKey(ed25519.Ed25519PublicKey.from_public_bytes(raw))
    assert key.id == "06e3fd8fda29bb60ab59557de61edb0aecdb231134be30e75b455f8e1b792fa9"
