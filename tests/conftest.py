"""Fixtures shared by all tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("ci", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("ci")


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch):
    """No test depends on the user's environment or reaches a model hub."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in [name for name in os.environ if name.startswith("DASK_")]:
        monkeypatch.delenv(name)
