"""Toxicity: a cheap screen of every document and an expensive judge of a sample."""
