"""A pytest plugin that says every half minute how far the tests have come and how long the rest will take.

A test is expected to take what it took the last time (kept in pytest's cache), or what tests of its folder take; how
fast this machine is shows in the tests that have run.
"""

import time

import pytest

_KEPT = "dataaudit/seconds"
_EVERY = 30.0
_USUAL = {"e2e": 2.0, "conformance": 0.5}
"""Seconds of a test, by folder, as long as nothing is known of it."""
_ELSE = 0.1
_ENOUGH = 0.03
"""Share that has to be done before anything is said of the rest."""


class TimeLeft:
    """Counts what has run against what was expected."""

    def __init__(self, config):
        self._config = config
        self._cache = getattr(config, "cache", None)  # none with -p no:cacheprovider
        self._known = self._cache.get(_KEPT, {}) if self._cache else {}
        self._took, self._ended, self._expected = {}, set(), {}
        self._began = self._told = time.monotonic()

    def expect(self, names):
        """Learn which tests will run."""
        for name in names:
            folder = name.split("/")[1] if name.count("/") > 1 else ""
            self._expected[name] = self._known.get(name, _USUAL.get(folder, _ELSE))

    def pytest_collection_finish(self, session):
        """Of one process: what it runs."""
        self.expect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids):
        """Of several processes: each knows all tests."""
        self.expect(ids)

    def pytest_runtest_logreport(self, report):
        """Add up set-up, call and tear-down of a test."""
        name = report.nodeid
        self._took[name] = self._took.get(name, 0.0) + report.duration
        if report.when == "teardown":
            self._ended.add(name)
            if time.monotonic() - self._told > _EVERY:
                self._told = time.monotonic()
                self._tell()

    def _tell(self):
        total = sum(self._expected.values())
        done = sum(self._expected.get(name, 0.0) for name in self._ended)
        if done < _ENOUGH * total or total <= done:
            return
        left = (time.monotonic() - self._began) * (total - done) / done
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        reporter.write_line(
            f"  {len(self._ended):,} of {len(self._expected):,} tests, about {left // 60:.0f}:{left % 60:02.0f} left"
        )

    def pytest_sessionfinish(self):
        """Keep what each test took, for the next estimate."""
        if self._cache:
            self._cache.set(_KEPT, self._known | {name: round(took, 2) for name, took in self._took.items()})


def pytest_configure(config):
    """Count in the process that reports, not in those that it starts."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(TimeLeft(config), "time-left")
