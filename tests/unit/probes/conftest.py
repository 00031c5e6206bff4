"""What several files of these tests probe."""

import pytest
from click.testing import CliRunner
from probe_world import World

from dataaudit.cli import main

LOADS = """
import sys
sys.path.insert(0, {folder!r})
from probe_world import tiny
import torch
def load(path):
    model = tiny(0, dropout=0.0).eval()
    with torch.no_grad():
        model.head.weight *= float(path.read_text())
    return model
"""


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture
def probing(world, tmp_path, monkeypatch):
    """Return `dataaudit probe` in a folder with checkpoints `a`, `b`, which is far worse, and `c`, which is `a`."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(world.folder / "user"))
    (tmp_path / "load.py").write_text(LOADS.format(folder=__file__.rpartition("/")[0]))
    for name, scale in (("a", "1"), ("b", "40"), ("c", "1")):
        (tmp_path / name).write_text(scale)

    def call(checkpoint, *options, tokenizer="bytes", end="256"):
        fixed = ["--manifest", str(world.manifest), "--model", "load.py:load", "--context", "64"]
        chosen = ["--tokenizer", tokenizer, "--end", end]
        return CliRunner().invoke(main, ["probe", checkpoint, *fixed, *chosen, *options])

    return call
