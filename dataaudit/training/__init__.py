"""Training on a corpus that passed: open it, tag batches, keep a run log, name the block behind a spike.

Needs no torch until a tensor is handed over: docs/training.md.
"""
