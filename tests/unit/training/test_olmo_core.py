"""OLMo-core's own trainer with our callback: nothing of the training changes, its log and trackers have the loss."""

import numpy as np
import pytest
from reading import events, kinds, steps_of

from dataaudit.base.errors import ConfigError
from dataaudit.runlog.reader import load_run
from dataaudit.training.attribution.run_facts import run_facts
from dataaudit.vitals.sinks import MemorySink

torch = pytest.importorskip("torch", reason="its tensors are torch's")
olmo_train = pytest.importorskip("olmo_core.train", reason="its trainer is what is tested")
from olmo_core.data import (  # noqa: E402 - after the skip
    NumpyDataLoaderConfig,
    NumpyFSLDatasetConfig,
    TokenizerConfig,
)
from olmo_core.nn.transformer import TransformerConfig  # noqa: E402
from olmo_core.optim import AdamWConfig  # noqa: E402
from olmo_core.train import Duration, TrainerConfig  # noqa: E402
from olmo_core.train.callbacks import Callback, CheckpointerCallback  # noqa: E402
from olmo_core.train.common import StepSkipRange  # noqa: E402
from olmo_core.train.train_module import TransformerTrainModuleConfig  # noqa: E402

from dataaudit.training.loaders.olmo_core import WatchCallback  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # those of other people's libraries
CONTEXT, STEPS = 32, 4


class Losses(Callback):
    """Keeps the losses that the trainer itself has."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def post_step(self):
        self.seen.append(float(self.trainer.get_metric("train/CE loss")))


class Crash(Callback):
    """Ends the training by an error before a step is trained."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def pre_step(self, batch):
        if self.step == self.at:
            raise RuntimeError("as planned")


def trainer_of(folder):
    """Return a trainer of OLMo-core with a tiny model."""
    folder.mkdir(exist_ok=True)
    tokens = np.random.default_rng(0).integers(3, 256, 4096).astype(np.uint16)
    tokens.tofile(folder / "tokens.npy")
    own = TokenizerConfig(vocab_size=256, eos_token_id=0, pad_token_id=1)
    given = {"paths": [str(folder / "tokens.npy")], "sequence_length": CONTEXT, "tokenizer": own}
    dataset = NumpyFSLDatasetConfig(**given, work_dir=str(folder / "work")).build()
    loader = NumpyDataLoaderConfig(global_batch_size=4 * CONTEXT, seed=0, num_workers=0).build(dataset)
    torch.manual_seed(0)
    model = TransformerConfig.llama_like(d_model=32, vocab_size=256, n_layers=2, n_heads=2).build()
    module = TransformerTrainModuleConfig(
        rank_microbatch_size=2 * CONTEXT, max_sequence_length=CONTEXT, optim=AdamWConfig(lr=1e-3)
    ).build(model, device=torch.device("cpu"))
    config = TrainerConfig(save_folder=str(folder / "out"), max_duration=Duration.steps(STEPS), device="cpu")
    config.metrics_collect_interval = 1
    return config.build(module, loader)


def train(folder, *callbacks):
    """Train it; return losses and weights to the bit."""
    trainer, losses = trainer_of(folder), Losses()
    for number, callback in enumerate((losses, *callbacks)):
        trainer.add_callback(f"own{number}", callback)
    trainer.fit()
    return losses.seen, [item.detach().numpy().tobytes() for item in trainer.train_module.model.parameters()]


def test_it_trains_as_without_us_and_log_and_sinks_have_the_loss(tmp_path):
    sink = MemorySink()
    without = train(tmp_path / "without")
    found = train(tmp_path / "with", WatchCallback(tmp_path / "run", sinks=[sink], name="own"))
    assert found == without
    assert len(found[0]) == STEPS
    log = load_run(tmp_path / "run")
    steps = log.table("steps").to_pylist()
    assert [row["user_loss"] for row in steps] == found[0]
    assert [value for _, metric, *_, value in sink.values if metric == "train_loss_raw"] == found[0]
    metrics = {row["metric"] for row in log.table("values").to_pylist()}
    assert {"grad_norm", "residual_rms", "update_to_weight", "max_attn_logit"} <= metrics


def test_steps_at_which_a_checkpoint_is_saved_and_steps_that_are_skipped_are_in_the_log(tmp_path):
    """A skipped step has no loss, and is counted."""
    trainer, losses = trainer_of(tmp_path / "own"), Losses()
    losses.post_step = lambda: None
    losses.log_metrics = lambda step, metrics: losses.seen.append((step, metrics.get("train/CE loss")))
    trainer.callbacks["checkpointer"] = saving = CheckpointerCallback(save_interval=2, ephemeral_save_interval=None)
    saving.trainer = trainer
    trainer.steps_to_skip = [StepSkipRange(start=3, stop=4)]
    for name, callback in {"losses": losses, "dataaudit": WatchCallback(tmp_path / "run")}.items():
        trainer.add_callback(name, callback)
    trainer.fit()
    found = {row["step"]: row["user_loss"] for row in load_run(tmp_path / "run").table("steps").to_pylist()}
    own = {step: loss for step, loss in losses.seen if loss is not None}
    assert found == {1: own[1], 2: own[2], 3: None, 4: own[4]}
    facts = run_facts(load_run(tmp_path / "run"))
    assert (facts.steps_seen, facts.skipped_updates) == (3, 1)


def test_an_error_is_in_the_log_and_a_run_that_died_before_its_first_checkpoint_begins_it_again(tmp_path):
    with pytest.raises(RuntimeError, match="as planned"):
        train(tmp_path / "own", WatchCallback(tmp_path / "run"), Crash(3))
    ends = ("started", "resumed", "failed", "closed")
    assert [kind for kind in kinds(tmp_path / "run") if kind in ends] == ["started", "failed", "closed"]
    assert events(tmp_path / "run", "failed") == [(2, {"error": "RuntimeError"})]
    assert steps_of(tmp_path / "run") == [1, 2]
    with pytest.raises(ConfigError, match="resume=True"):
        train(tmp_path / "own", WatchCallback(tmp_path / "run"))
    train(tmp_path / "own", WatchCallback(tmp_path / "run", resume=True))
    assert steps_of(tmp_path / "run") == [1, 2, 3, 4]
    assert [kind for kind in kinds(tmp_path / "run") if kind in ends] == ["started", "started", "closed"]
