"""Utilisation against a published number."""

import pytest

from dataaudit.vitals.compute import mfu

PALM = {"parameters": 540_350_000_000, "layers": 118, "heads": 48, "head_dim": 256, "sequence": 2048}


def test_palm_as_published():
    """PaLM 540B: 238.3 thousand tokens a second on 6144 chips of 275 teraflop/s, 46.2 % (arXiv 2204.02311)."""
    assert mfu(238_300, **PALM, peak=6144 * 275e12) == pytest.approx(0.462, abs=0.001)


def test_bad_numbers_are_named():
    with pytest.raises(ValueError, match="peak"):
        mfu(1.0, **PALM, peak=0)
    with pytest.raises(ValueError, match="negative"):
        mfu(-1.0, **PALM, peak=1e12)
