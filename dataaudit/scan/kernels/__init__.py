"""Numeric kernels: pure functions on arrays. Each has a slow twin in ``tests/twins`` or in its test."""
