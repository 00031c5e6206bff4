"""Personal data in text: the shipped registry of entities, its validators, and what users add to it.

``load_pii(files)`` gives the registry for :class:`dataaudit.scan.detectors.patterns.screen.PatternScreen`; the
modules ``analyzer...`` are the judge of a sample, which shares it.
"""

from __future__ import annotations

from dataaudit.scan.detectors.pii.shipped import load_pii, pii_names

__all__ = ["load_pii", "pii_names"]
