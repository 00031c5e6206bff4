"""Steps of a run of OLMo-core that goes on, without OLMo-core: what the callback gives to vitals."""

import importlib
import sys
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("torch", reason="vitals look at models of torch")
from dataaudit.vitals import VitalsConfig

pytestmark = pytest.mark.torch
PARTS = {
    "olmo_core": {},
    "olmo_core.distributed": {},
    "olmo_core.distributed.utils": {"get_rank": lambda: 0, "get_world_size": lambda: 1},
    "olmo_core.train": {},
    "olmo_core.train.callbacks": {"Callback": type("Callback", (), {"step": 1_000})},
    "olmo_core.train.common": {"TRAIN_CE_LOSS_METRIC": "loss"},
}


def test_vitals_of_a_run_that_goes_on_begin_with_the_step_of_the_trainer(tmp_path, monkeypatch):
    """They counted from 1, in a log that goes on at step 1,001."""
    for name, own in PARTS.items():
        module = ModuleType(name)
        vars(module).update(own)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "dataaudit.training.loaders.olmo_core", raising=False)
    loader = importlib.import_module("dataaudit.training.loaders.olmo_core")
    sys.modules.pop("dataaudit.training.loaders.olmo_core")
    given = []
    monkeypatch.setattr(loader, "Vitals", lambda _model, _optimizer, config, _sinks: given.append(config))
    callback = loader.WatchCallback(tmp_path / "run", config=VitalsConfig(preset="large"))
    callback.trainer = SimpleNamespace(train_module=SimpleNamespace(model=None))
    callback.pre_train()
    callback.close()
    assert given == [VitalsConfig(preset="large", first_step=1_001)]
