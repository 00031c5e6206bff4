"""Vitals of a model while it trains: numbers that come from the mechanism, taken without changing a bit of the run."""
