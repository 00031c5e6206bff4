"""Tiny plans and runs of the laboratory."""

from dataaudit.lab.model import Size, Text
from dataaudit.lab.piloting import write_plan
from dataaudit.lab.scenarios import BY_NAME

NAMES = ("healthy_dense", "healthy_experts", "attention_bias", "rate_creep", "rate_start")
SIZE = Size(width=16, heads=2, inner=16, experts=4, expert_inner=8, length=12, rows=2)


def tiny_plan(folder, text=None):
    """Return the plan of a pilot of 32 steps, four of them before a fault."""
    return write_plan(
        folder,
        text or Text.load(),
        lambda line: None,
        band_seeds=range(1000, 1004),
        pilot_seeds=(2000,),
        scored_seeds=(0, 1),
        onset=12,
        steps=32,
        size=SIZE,
        scenarios=[BY_NAME[name] for name in NAMES],
    )
