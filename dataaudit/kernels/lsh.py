"""Bands of a MinHash signature: how likely two documents of a given similarity share one (Leskovec et al., ch. 3.4)."""

from __future__ import annotations


def chance_to_meet(jaccard: float, bands: int, rows: int) -> float:
    """Return the probability that two documents agree on all rows of some band: 1 - (1 - J^rows)^bands."""
    return 1.0 - (1.0 - jaccard**rows) ** bands


def choose_bands(num_perm: int, threshold: float, target_recall: float) -> tuple[int, int] | None:
    """Return bands and rows: the most rows that reach the recall at the threshold, and all bands that fit.

    More rows are fewer chance meetings of dissimilar documents. None when even one row does not reach it.

    Args:
        num_perm: Values of a signature.
        threshold: Jaccard similarity of a near-duplicate.
        target_recall: Least chance to meet at the threshold.
    """
    for rows in range(num_perm, 0, -1):
        bands = num_perm // rows
        if chance_to_meet(threshold, bands, rows) >= target_recall:
            return bands, rows
    return None
