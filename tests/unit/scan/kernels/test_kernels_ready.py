import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dataaudit.scan.kernels import jit
from dataaudit.scan.kernels import jit as ready


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    jit.cache_folder.cache_clear()
    yield tmp_path
    jit.cache_folder.cache_clear()


@pytest.fixture
def loaded(empty_cache, monkeypatch):
    """Names of the kernels that this process compiles, of a machine with three cores."""
    names = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(3))
    monkeypatch.setattr(jit.Kernel, "load", lambda kernel: names.append(kernel.__name__))
    return names


def names_of(kernels):
    return [kernel.__name__ for kernel in kernels]


@pytest.mark.parametrize("reported", [0, 3, 5])
def test_kernels_are_compiled_once_and_what_nobody_reported_in_the_end(loaded, monkeypatch, reported):
    """Helpers that take kernels and end without a word leave them to this process."""
    taken = []

    def take(taking, telling):
        taken.append(os.read(taking, 5))
        os.write(telling, taken[-1][:reported])
        return subprocess.Popen(["true"])

    monkeypatch.setattr(ready, "_start_helper", take)
    assert not ready.are_compiled()
    ready.compile_all()
    names = names_of(ready.all_kernels())
    assert b"".join(taken) == bytes(range(10))
    assert loaded == names[10:] + names[reported:5] + names[5 + reported : 10]
    assert ready.are_compiled()


def test_kernels_that_a_build_does_not_need_are_left_for_another(loaded, monkeypatch):
    """What was compiled is not compiled again."""
    monkeypatch.setattr(ready, "_MOST_HELPERS", 0)
    with ready.compiling({"filters", "words"}) as work:
        assert work.left() == len(ready.all_kernels()) - 4
        assert len(list(work.rest())) == len(loaded)
    assert not {"_count_documents", "_mark_runs", "_split", "_unmark"} & set(loaded)
    assert ready._missing(()) == {"filters", "words"}
    assert not ready.are_compiled()
    del loaded[:]
    ready.compile_all()
    assert sorted(loaded) == ["_count_documents", "_mark_runs", "_split", "_unmark"]
    assert ready.are_compiled()


def test_another_processor_needs_code_of_its_own(loaded, monkeypatch):
    ready.compile_all()
    assert ready.are_compiled()
    monkeypatch.setattr(ready, "_processor", lambda: b"another")
    assert not ready.are_compiled()


@pytest.mark.parametrize("executable", [None, "", "/nowhere", "/bin/false"])
def test_without_a_python_to_start_there_are_no_helpers(loaded, monkeypatch, executable):
    monkeypatch.setattr(sys, "executable", executable)
    ready.compile_all()
    assert loaded == names_of(ready.all_kernels())
    assert ready.are_compiled()


def test_a_helper_that_does_not_get_on_is_ended(loaded, monkeypatch):
    started = []

    def stuck(*_):
        started.append(subprocess.Popen(["sleep", "100"]))
        return started[-1]

    monkeypatch.setattr(ready, "_start_helper", stuck)
    monkeypatch.setattr(ready, "_SECONDS", 0.1)
    ready.compile_all()
    assert [process.returncode for process in started] == 2 * [-signal.SIGKILL]


def test_helpers_end_with_a_build_that_fails_before_it_needs_kernels(loaded, monkeypatch):
    started, pipes = [], set(os.listdir("/proc/self/fd"))

    def busy(*_):
        started.append(subprocess.Popen(["sleep", "100"]))
        return started[-1]

    monkeypatch.setattr(ready, "_start_helper", busy)
    with pytest.raises(ValueError, match="wrong config"), ready.compiling():
        raise ValueError("wrong config")
    assert [process.returncode for process in started] == 2 * [-signal.SIGKILL]
    assert set(os.listdir("/proc/self/fd")) == pipes
    assert loaded == []
    assert not ready.are_compiled()


def test_a_helper_function_that_python_calls_is_plain_python():
    assert jit.helper(lambda number: number + 1)(3) == 4


@pytest.mark.tables
def test_a_helper_compiles_what_it_takes_and_tells(empty_cache):
    names = names_of(ready.all_kernels())
    wanted = bytes([len(names) - 1, len(names) - 2])
    taking, giving = os.pipe()
    seeing, telling = os.pipe()
    os.write(giving, wanted)
    os.close(giving)
    assert ready._start_helper(taking, telling).wait(timeout=100) == 0
    os.close(telling)
    assert os.read(taking, 1) == b""
    assert os.read(seeing, 9) == wanted
    os.close(taking)
    os.close(seeing)
    kept = {path.name.split("-")[0].split(".")[1] for path in empty_cache.rglob("*.nbi")}
    assert kept == {*names[-2:]}


def test_where_nothing_can_be_kept_nothing_is_compiled_ahead(monkeypatch):
    monkeypatch.setattr(ready, "cache_folder", lambda: None)
    assert ready.are_compiled()


def test_every_kernel_that_python_calls_is_listed():
    found = set()
    for path in Path(jit.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(one, ast.Call) and getattr(one.func, "id", "") == "compiled" for one in node.decorator_list
            ):
                found.add(node.name)
    assert found == {kernel.__name__ for kernel in ready.all_kernels()}
