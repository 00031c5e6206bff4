"""Held-out documents in training data."""
