"""What all tests share: the level of the run, and the time left."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import os

import pytest
from hypothesis import HealthCheck, settings
from levels import HIGHER, LEVEL, examples

from dataaudit.gate import policy
from dataaudit.kernels.ready import are_compiled, compile_all
from dataaudit.metrics import relations

pytest_plugins = ["time_left"]
# Texts are wrapped as for a pipe, whatever terminal the tests run in; a test of narrow or wide ones says its width.
os.environ["COLUMNS"] = "100"
settings.register_profile(
    "tests", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("tests")


def pytest_configure(config):
    """Compile the kernels before processes share the tests: each would compile them all."""
    if not (hasattr(config, "workerinput") or config.option.collectonly or are_compiled()):
        with contextlib.suppress(OSError):
            compile_all()


def pytest_collection_modifyitems(config, items):
    """Leave out what belongs to a higher level."""
    kept, left = [], []
    for item in items:
        (left if any(item.get_closest_marker(mark) for mark in HIGHER[LEVEL]) else kept).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def pytest_collection_finish():
    """Leave what is imported and collected out of Python's search for cycles, which took 7 % of the tests' time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch):
    """No test depends on the user's environment or reaches a model hub."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in [name for name in os.environ if name.startswith("DASK_")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True, scope="session")
def _made_by_hand():
    """Manifests made by hand name neither stage nor library: the numbers in them are not held against each other."""
    real = relations._without_stages

    def without_stages(manifest):
        return real(manifest) if manifest.core.libraries else []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relations, "_without_stages", without_stages)
        yield


@pytest.fixture(scope="module")
def policies_parsed_once():
    """A policy that many commands name is parsed from YAML once; each is given values of its own, and checks them."""
    parsed = functools.cache(policy.load_yaml)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "load_yaml", lambda text, *, where: copy.deepcopy(parsed(text, where=where)))
        yield
