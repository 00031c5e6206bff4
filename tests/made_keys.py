"""Keys to sign with, made anew for each test."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


def write_keys(folder: Path, name: str = "build") -> None:
    """Write a private key, `NAME.pem`, and its public half, `NAME.pub`."""
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / f"{name}.pem").write_bytes(private)
    (folder / f"{name}.pub").write_bytes(public)
