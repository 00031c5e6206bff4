"""Documents that stand in the corpus more than once."""
