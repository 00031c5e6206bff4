"""Encrypted Parquet, as pyarrow writes it; the keys are wrapped by nothing but base64."""

from __future__ import annotations

import base64

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.parquet import encryption


class _Kms(encryption.KmsClient):
    """Keys that are their own names."""

    def wrap_key(self, key_bytes, _):
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key, _):
        return base64.b64decode(wrapped_key)


def encrypted(table: pa.Table, column: str, *, plaintext_footer: bool) -> bytes:
    """Return a Parquet file of which one column is encrypted, and the footer unless it is to be plain."""
    factory = encryption.CryptoFactory(lambda _: _Kms())
    wanted = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"k": [column]}, plaintext_footer=plaintext_footer, double_wrapping=False
    )
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), wanted)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
