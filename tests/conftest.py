"""What all tests share: which of them run, and the time left."""

import contextlib
import copy
import functools
import gc
import importlib.util
import os
import sys
from importlib.machinery import PathFinder

import pytest
from hypothesis import HealthCheck, settings
from lanes import ALWAYS, NEEDS_TORCH, PARTS, VARIABLE, WHOLE_RUN, chosen, examples, may_have_tests, part_of

from dataaudit import verify
from dataaudit.decide.gate import policy
from dataaudit.metrics import relations
from dataaudit.scan.kernels.jit import are_compiled, compile_all

pytest_plugins = ["time_left"]
# Texts are wrapped as for a pipe, whatever terminal the tests run in; a test of narrow or wide ones says its width.
os.environ["COLUMNS"] = "100"


def _no_sync(descriptor):
    """Check the file as `os.fsync` does, and do not wait for the disk: only a power cut would show the difference."""
    os.fstat(descriptor)


os.fsync = _no_sync
settings.register_profile(
    "tests", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("tests")


def pytest_addoption(parser):
    """An option for environments that are made for some tests: one that is skipped there is a fault."""
    parser.addoption("--no-skips", action="store_true", help="a test that is skipped fails the run")


def pytest_sessionfinish(session):
    """With --no-skips, fail a run that skipped tests, or files of them."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.option.no_skips and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_configure(config):
    """Choose all tests of files that a command names; compile the kernels before processes share the tests."""
    if config.args_source is config.ArgsSource.ARGS:
        os.environ.setdefault(VARIABLE, ",".join((ALWAYS, *(part for part in PARTS if _has_its_libraries(part)))))
    if chosen() <= {ALWAYS, WHOLE_RUN}:
        sys.meta_path[sys.meta_path.index(PathFinder)] = _WithoutTorch
    if not (hasattr(config, "workerinput") or config.option.collectonly or are_compiled()):
        with contextlib.suppress(OSError):
            compile_all()


class _WithoutTorch(PathFinder):
    """Finds modules as for a newcomer, who has no torch and no judges, wherever the tests run."""

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        hidden = ("torch", "transformers", "detoxify", "spacy", "presidio_analyzer")
        return None if fullname.partition(".")[0] in hidden else super().find_spec(fullname, path, target)


def _has_its_libraries(part):
    return part not in NEEDS_TORCH or importlib.util.find_spec("torch") is not None


def pytest_ignore_collect(collection_path):
    """Leave out, without importing it, a file all of whose tests are of other parts."""
    if collection_path.name.startswith("test_") and collection_path.suffix == ".py":
        return True if not may_have_tests(collection_path.read_text(encoding="utf-8")) else None
    return None


def pytest_collection_modifyitems(config, items):
    """Leave out the tests of other parts."""
    names = chosen()
    left = [item for item in items if part_of(item) not in names]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if part_of(item) in names]


def pytest_terminal_summary(terminalreporter):
    """Say what was not run, and the command that runs it."""
    left = [part for part in PARTS if part not in chosen()]
    browser = sum("browser" in str(report.longrepr) for report in terminalreporter.getreports("skipped"))
    if browser:
        terminalreporter.write_line(
            f"{browser} tests need a browser, which is not here: apt-get install chromium chromium-driver"
        )
    if left and chosen() & {ALWAYS}:
        terminalreporter.write_line(f"Not run: {', '.join(left)}. To run them: make test-ci PART=all")


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


@pytest.fixture(scope="module")
def odd_numbers():
    """Let manifests that a file makes by hand have numbers and names that contradict what else is in them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relations, "check_core", _of_builds(relations.check_core))
        for module in (relations, verify):
            patch.setattr(module, "contradictions", _of_builds(module.contradictions))
        yield


def _of_builds(check):
    return lambda manifest, *more: check(manifest, *more) if manifest.core.libraries else []


@pytest.fixture(scope="module")
def policies_parsed_once():
    """A policy that many commands name is parsed from YAML once; each is given values of its own, and checks them."""
    parsed = functools.cache(policy.load_yaml)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "load_yaml", lambda text, *, where: copy.deepcopy(parsed(text, where=where)))
        yield
