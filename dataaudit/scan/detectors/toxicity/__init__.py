"""Toxicity: a cheap screen of every document and an expensive judge of a sample.

``find_screen`` names the screen that comes with this package; ``ToxicityScreen`` loads it, once a worker.
"""

from __future__ import annotations

from dataaudit.scan.detectors.toxicity.screen import ToxicityScreen, find_screen

__all__ = ["ToxicityScreen", "find_screen"]
