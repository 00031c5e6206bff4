"""Blocks as HTML: one file with charts, and what a notebook shows."""
