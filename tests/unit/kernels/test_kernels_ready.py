from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dataaudit.kernels import jit, ready


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    jit.cache_folder.cache_clear()
    yield tmp_path
    jit.cache_folder.cache_clear()


@pytest.mark.parametrize("helpers", [0, 2])
def test_kernels_are_compiled_once_whoever_takes_part(empty_cache, monkeypatch, helpers):
    """Helpers that take kernels and do nothing leave them to this process."""
    taken, loaded = [], []

    def take(taking):
        taken.extend(os.read(taking, 5))
        return subprocess.Popen(["true"])

    monkeypatch.setattr(ready, "_start_helper", take)
    monkeypatch.setattr(ready, "_MOST_HELPERS", helpers)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(helpers + 1))
    monkeypatch.setattr(jit.Kernel, "load", lambda kernel: loaded.append(kernel.__name__))
    assert not ready.are_compiled()
    ready.compile_all()
    names = [kernel.__name__ for kernel in ready.all_kernels()]
    assert taken == list(range(5 * helpers))
    assert loaded == names[5 * helpers :] + names
    assert ready.are_compiled()


@pytest.mark.parametrize("executable", [None, "", "/nowhere", "/bin/false"])
def test_without_a_python_to_start_there_are_no_helpers(empty_cache, monkeypatch, executable):
    loaded = []
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4))
    monkeypatch.setattr(jit.Kernel, "load", lambda kernel: loaded.append(kernel.__name__))
    ready.compile_all()
    assert set(loaded) == {kernel.__name__ for kernel in ready.all_kernels()}
    assert ready.are_compiled()


def test_a_helper_that_does_not_get_on_is_ended(empty_cache, monkeypatch):
    started = []

    def stuck(_):
        started.append(subprocess.Popen(["sleep", "100"]))
        return started[-1]

    monkeypatch.setattr(ready, "_start_helper", stuck)
    monkeypatch.setattr(ready, "_SECONDS", 0.1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(2))
    monkeypatch.setattr(jit.Kernel, "load", lambda kernel: None)
    ready.compile_all()
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_a_helper_function_that_python_calls_is_plain_python():
    """It is compiled without what Python needs to call it."""
    assert jit.helper(lambda number: number + 1)(3) == 4


@pytest.mark.tables
def test_a_helper_compiles_what_it_takes(empty_cache):
    names = [kernel.__name__ for kernel in ready.all_kernels()]
    taking, giving = os.pipe()
    os.write(giving, bytes([len(names) - 1, len(names) - 2]))
    os.close(giving)
    assert ready._start_helper(taking).wait(timeout=100) == 0
    assert os.read(taking, 1) == b""
    os.close(taking)
    kept = {path.name.split("-")[0].split(".")[1] for path in empty_cache.rglob("*.nbi")}
    assert kept == {*names[-2:]}


def test_where_nothing_can_be_kept_nothing_is_compiled_ahead(monkeypatch):
    monkeypatch.setattr(ready, "cache_folder", lambda: None)
    assert ready.are_compiled()


def test_every_kernel_that_python_calls_is_listed():
    """Functions under @compiled, found in the sources, are those of the list."""
    found = set()
    for path in Path(jit.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(one, ast.Call) and getattr(one.func, "id", "") == "compiled" for one in node.decorator_list
            ):
                found.add(node.name)
    assert found == {kernel.__name__ for kernel in ready.all_kernels()}
