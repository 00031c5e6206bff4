"""Items of evaluation sets in training data."""
