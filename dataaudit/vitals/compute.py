"""How much of a device's arithmetic a run makes use of."""

from __future__ import annotations


def mfu(
    tokens_per_second: float,
    *,
    parameters: int,
    layers: int,
    heads: int,
    head_dim: int,
    sequence: int,
    peak: float,
) -> float:
    """Return the model FLOPs utilisation of a decoder that trains: tokens/s · (6N + 12·L·H·Q·T) / peak.

    The convention is that of PaLM (arXiv 2204.02311, appendix B): N counts every parameter, embeddings too, a tied one
    once; attention is counted in full, masked or not; what is computed again (checkpointing) is not counted. Of a
    mixture of experts N is what a token meets. Numbers of another convention do not compare.
    """
    if not peak > 0:
        raise ValueError("mfu: peak: a number of FLOP/s above 0 is needed")
    if not min(tokens_per_second, parameters, layers, heads, head_dim, sequence) >= 0:
        raise ValueError("mfu: a number is negative")
    return tokens_per_second * (6 * parameters + 12 * layers * heads * head_dim * sequence) / peak
