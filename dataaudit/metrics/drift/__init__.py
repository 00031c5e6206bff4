"""Drift of token frequencies from a reference."""
