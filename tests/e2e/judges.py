"""The mark of tests that need the judges: 1.5 GB, which `make test` installs and `make test JUDGES=no` does not."""

from __future__ import annotations

import importlib.util

import pytest

JUDGES = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "detoxify", "presidio_analyzer")),
    reason="the judges are not installed: make .venv/.judges",
)
