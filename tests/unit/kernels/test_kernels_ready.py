from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dataaudit.kernels import jit


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    jit.cache_folder.cache_clear()
    yield tmp_path
    jit.cache_folder.cache_clear()


def test_kernels_are_compiled_once(empty_cache, monkeypatch):
    loaded = []
    monkeypatch.setattr(jit.Kernel, "load", lambda kernel: loaded.append(kernel.__name__))
    assert not jit.are_compiled()
    jit.compile_all()
    assert sorted(loaded) == sorted(kernel.__name__ for kernel in jit.all_kernels())
    assert jit.are_compiled()


def test_where_nothing_can_be_kept_nothing_is_compiled_ahead(monkeypatch):
    monkeypatch.setattr(jit, "cache_folder", lambda: None)
    assert jit.are_compiled()


def test_every_kernel_that_python_calls_is_listed():
    """Functions under @compiled, found in the sources, are those of the list."""
    found = set()
    for path in Path(jit.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(one, ast.Call) and getattr(one.func, "id", "") == "compiled" for one in node.decorator_list
            ):
                found.add(node.name)
    assert found == {kernel.__name__ for kernel in jit.all_kernels()}
