"""Numeric kernels: pure functions on arrays. Each has a reference implementation in ``tests/twins`` or in its test."""
