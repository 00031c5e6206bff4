"""Files of fastText models, as far as they have to be understood before fastText reads them.

fastText trusts every length in a file: one that was cut short takes minutes and all memory to fail, or loads and
knows nothing. The layout is that of ``FastText::loadModel`` (fastText 0.9, file version 12).
"""

from __future__ import annotations

import struct

_MAGIC = 793_712_314
_VERSION = 12
_ARGUMENTS = struct.Struct("<12id")
_DICTIONARY = struct.Struct("<3iqq")
_SHAPE = struct.Struct("<qq")
_CODES = struct.Struct("<?qqi")
_QUANTIZER = struct.Struct("<4i")
_LABEL = 1
_CENTROIDS = 256


def model_labels(data: bytes) -> list[str]:
    """Return the labels of a supervised model in the bytes of its file, which has to be whole.

    Raises:
        ValueError: It is no model, or one whose lengths do not add up to the file's.
    """
    try:
        labels, place = _read_dictionary(data)
        (quantized,) = struct.unpack_from("<?", data, place)
        place = _skip_codes(data, place + 1) if quantized else _skip_matrix(data, place + 1)
        (output_quantized,) = struct.unpack_from("<?", data, place)
        both = quantized and output_quantized
        place = _skip_codes(data, place + 1) if both else _skip_matrix(data, place + 1)
    except (struct.error, OverflowError):
        raise ValueError("it ends too early") from None
    if place != len(data):
        raise ValueError(f"{len(data):,} bytes, where its own lengths say {place:,}")
    if not labels:
        raise ValueError("a model without labels")
    return labels


def _read_dictionary(data: bytes) -> tuple[list[str], int]:
    """Return the labels, and where the matrices begin."""
    if struct.unpack_from("<2i", data) != (_MAGIC, _VERSION):
        raise ValueError("no fastText model")
    place = 8 + _ARGUMENTS.size
    entries, _, _, _, pruned = _DICTIONARY.unpack_from(data, place)
    place += _DICTIONARY.size
    labels = []
    for _ in range(entries):
        end = data.find(b"\0", place)
        if end < 0:
            raise ValueError("it ends too early")
        (kind,) = struct.unpack_from("<b", data, end + 9)
        if kind == _LABEL:
            labels.append(data[place:end].decode("utf-8", "replace"))
        place = end + 10
    return labels, place + 8 * max(0, pruned)


def _skip_matrix(data: bytes, place: int) -> int:
    rows, columns = _SHAPE.unpack_from(data, place)
    return place + _SHAPE.size + 4 * _positive(rows) * _positive(columns)


def _skip_codes(data: bytes, place: int) -> int:
    """Skip a matrix of product-quantized rows."""
    norms, rows, _, codes = _CODES.unpack_from(data, place)
    place = _skip_quantizer(data, place + _CODES.size + _positive(codes))
    return _skip_quantizer(data, place + _positive(rows)) if norms else place


def _skip_quantizer(data: bytes, place: int) -> int:
    dimension, *_ = _QUANTIZER.unpack_from(data, place)
    return place + _QUANTIZER.size + 4 * _CENTROIDS * _positive(dimension)


def _positive(length: int) -> int:
    if length < 0:
        raise ValueError(f"a length of {length}")
    return length
