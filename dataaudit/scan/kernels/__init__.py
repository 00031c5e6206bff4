"""Numeric kernels: pure functions on arrays. Each has a reference implementation in ``tests/reference`` or in its test."""
