"""Numeric kernels: pure functions on arrays. Each has a slow reference in ``tests/reference`` or its test."""
