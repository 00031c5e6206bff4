"""Numeric kernels: pure functions on arrays. ``reference`` holds the slow twin of each; it shares no code."""
