"""Bands: the most rows that still reach the target."""

from __future__ import annotations

import pytest

from dataaudit.scan.kernels.minhash import chance_to_meet, choose_bands


def test_128_values_make_21_bands_of_6():
    assert choose_bands(128, 0.8, 0.99) == (21, 6)
    assert chance_to_meet(0.8, 21, 6) == pytest.approx(0.99831, abs=1e-5)
    assert chance_to_meet(0.8, 18, 7) < 0.99


def test_one_more_row_would_miss_the_target():
    for num_perm in (16, 64, 256):
        for threshold in (0.5, 0.8, 0.9):
            bands, rows = choose_bands(num_perm, threshold, 0.95)
            assert bands * rows <= num_perm
            assert chance_to_meet(threshold, bands, rows) >= 0.95
            assert chance_to_meet(threshold, num_perm // (rows + 1), rows + 1) < 0.95


def test_a_target_that_is_out_of_reach_has_no_bands():
    assert choose_bands(2, 0.1, 0.99) is None


def test_the_chance_is_the_number_of_ways_to_share_a_band():
    assert chance_to_meet(0.5, 1, 3) == 0.125
    assert chance_to_meet(0.5, 2, 1) == 0.75
    assert chance_to_meet(0.0, 5, 2) == 0.0
    assert chance_to_meet(1.0, 5, 2) == 1.0
