"""Replays of a run from its checkpoints: is the data itself odd, and does it break the model?"""
