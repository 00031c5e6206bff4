"""A first build compiles the kernels that its stages call: those that it leaves out are called by no other."""

import pytest
from corpus import write_corpus
from running import build

from dataaudit.metrics.registry import FAMILIES
from dataaudit.scan.kernels import jit

pytestmark = pytest.mark.builds
KERNELS = {family.stage_name: family.kernels for family in FAMILIES if family.kernels}
CONFIG = """
splits:
  train: {{paths: ["data/train/*"], text: text, source: {{column: source}}}}
  val: {{paths: ["data/val/*"], text: text, source: {{column: source}}, held_out: {held_out}}}
stages: {{{off}}}
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A small corpus of every format, in two splits."""
    folder = tmp_path_factory.mktemp("kernels")
    write_corpus(folder / "data", per_shard=20)
    return folder


@pytest.fixture
def loaded(monkeypatch):
    """Modules of the kernels that are called."""
    names, plain = set(), jit.Kernel.load

    def load(kernel):
        names.add(kernel.function.__module__.rpartition(".")[2])
        return plain(kernel)

    monkeypatch.setattr(jit.Kernel, "load", load)
    return names


@pytest.mark.parametrize("stage", [None, "held out", *KERNELS])
def test_a_module_is_called_where_its_stage_runs_and_nowhere_else(data, loaded, tmp_path, stage):
    """Without held-out splits and evaluation sets nothing is searched for."""
    config = data / f"{stage}.yaml"
    off = f"{stage}: false" if stage in KERNELS else ""
    config.write_text(CONFIG.format(off=off, held_out=str(stage != "held out").lower()))
    build(config, "--state", tmp_path / "state", manifest=tmp_path / "m")
    assert loaded.isdisjoint(left_out := KERNELS.get("overlap" if stage == "held out" else stage, ()))
    assert all(loaded.intersection(modules) for modules in KERNELS.values() if modules is not left_out)
