"""What all tests share: the level of the run, one cluster at a time, and the time left."""

from __future__ import annotations

import fcntl
import os

import pytest
from hypothesis import HealthCheck, settings
from levels import LEVEL, examples

pytest_plugins = ["time_left"]
settings.register_profile(
    "tests", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("tests")


def pytest_collection_modifyitems(config, items):
    """Leave out what belongs to a higher level."""
    higher = {"test": {"ci", "judges", "all"}, "ci": {"all"}, "all": set()}[LEVEL]
    kept = [item for item in items if not any(item.get_closest_marker(mark) for mark in higher)]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept


@pytest.fixture(autouse=True)
def _one_cluster_at_a_time(request, tmp_path_factory):
    """Of several processes that run tests, one at a time starts clusters."""
    if request.node.get_closest_marker("cluster") is None:
        yield
        return
    folder = tmp_path_factory.getbasetemp()
    with (folder.parent / "cluster.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch):
    """No test depends on the user's environment or reaches a model hub."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in [name for name in os.environ if name.startswith("DASK_")]:
        monkeypatch.delenv(name)
