"""Kernels are lazy, kept on disk, call each other, and run without numba's compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dataaudit.scan.kernels import jit


@jit.helper
def _mix(state, byte):
    return state * np.uint64(1099511628211) + np.uint64(byte)


@jit.compiled(f"uint64({jit.READ_BYTES})")
def _fold(data):
    state = np.uint64(2**63 + 1)
    for byte in data:
        state = _mix(state, byte)
    return state


def _expected(data: bytes) -> int:
    state = 2**63 + 1
    for byte in data:
        state = (state * 1099511628211 + byte) % 2**64
    return state


@pytest.fixture
def places(monkeypatch, tmp_path):
    """Two folders for the cache, and a clean choice of it before and after."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "given"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    jit.cache_folder.cache_clear()
    yield tmp_path
    jit.cache_folder.cache_clear()


def test_a_kernel_takes_read_only_bytes_and_calls_helpers():
    """Arrow's buffers are read-only; sums wrap as unsigned integers do."""
    data = np.frombuffer(b"some bytes \xff", dtype=np.uint8)
    assert not data.flags.writeable
    assert int(_fold(data)) == _expected(data.tobytes())


def test_importing_kernels_does_not_import_numba():
    """``dataaudit --help`` must not pay for the compiler."""
    code = "import sys, dataaudit.scan.kernels.jit; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_compiled_code_is_kept_where_the_environment_says(places):
    """A second process finds the machine code and compiles nothing."""
    jit.Kernel(_fold.function, _fold.signature)(np.zeros(3, np.uint8))
    assert list((places / "given").rglob("*.nbc"))
    again = jit.Kernel(_fold.function, _fold.signature)
    assert sum(again.load().stats.cache_hits.values()) == 1


def test_a_place_that_cannot_be_written_is_passed_over(places, monkeypatch):
    """A file where the folder should be stands for a read-only file system."""
    (places / "given").write_text("in the way", encoding="utf-8")
    folder = jit.cache_folder()
    assert folder is not None
    assert folder.is_relative_to(places / "user")


def test_a_place_that_others_can_write_is_passed_over(places):
    """Machine code that another user could have put there is never loaded."""
    (places / "given").mkdir()
    (places / "given").chmod(0o777)
    folder = jit.cache_folder()
    assert folder is not None
    assert folder.is_relative_to(places / "user")


def test_without_any_place_kernels_still_run(places, monkeypatch):
    monkeypatch.setattr(jit, "private_folder", lambda *places, within: None)
    jit.cache_folder.cache_clear()
    assert jit.cache_folder() is None
    assert int(jit.Kernel(_fold.function, _fold.signature)(np.ones(1, np.uint8))) == _expected(b"\x01")


def test_a_damaged_cache_is_not_fatal(places):
    jit.Kernel(_fold.function, _fold.signature).load()
    for index in (places / "given").rglob("*.nbi"):
        index.write_bytes(index.read_bytes()[:-20])
    assert int(jit.Kernel(_fold.function, _fold.signature)(np.ones(2, np.uint8))) == _expected(b"\x01\x01")


@pytest.mark.parametrize("name", ["*.nbc", "*.nbi", "*.sha256"])
def test_machine_code_that_is_not_under_its_digest_is_compiled_again(places, name):
    """Numba runs whatever it finds: a flipped bit would give other numbers, or end the process."""
    jit.Kernel(_fold.function, _fold.signature).load()
    (path,) = (places / "given").rglob(name)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    again = jit.Kernel(_fold.function, _fold.signature)
    assert int(again(np.ones(2, np.uint8))) == _expected(b"\x01\x01")
    assert sum(again.load().stats.cache_misses.values()) == 1
    third = jit.Kernel(_fold.function, _fold.signature)
    assert sum(third.load().stats.cache_hits.values()) == 1


def test_a_folder_of_another_user_is_not_used(places, monkeypatch):
    """Code that somebody else could have written is never loaded."""
    monkeypatch.setattr(os, "getuid", lambda: 10**6)
    jit.cache_folder.cache_clear()
    assert jit.cache_folder() is None


def test_plain_python_gives_the_same(tmp_path):
    """NUMBA_DISABLE_JIT=1 runs the kernel as it is written, without a warning of sums that wrap."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import numpy as np;"
        " import test_kernel_jit as t; print(int(t._fold(np.frombuffer(b'abc', np.uint8))))"
    )
    environment = dict(os.environ, NUMBA_DISABLE_JIT="1")
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    assert int(result.stdout) == _expected(b"abc")
