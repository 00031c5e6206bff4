"""Lightning with our callback: nothing of the training changes, and its log says what was trained on."""

from collections import Counter

import pytest
from reading import bits, events, kinds, logged_rows, read_back, steps_of, trained_tokens, untagged, values

from dataaudit.base.errors import ConfigError, TagsError
from dataaudit.runlog.reader import load_run
from dataaudit.training.attribution.run_facts import run_facts
from dataaudit.training.loaders.collator import TaggedCollator
from dataaudit.training.packing import PackedDocuments

torch = pytest.importorskip("torch", reason="its tensors are torch's")
lightning = pytest.importorskip("lightning.pytorch", reason="its trainer is what is tested")
from dataaudit.training.loaders.lightning import AuditCallback  # noqa: E402 - after the skip

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # those of other people's libraries
ROWS, CONTEXT, STEPS, ACCUMULATED = 4, 64, 6, 2


@pytest.fixture(scope="module")
def rows(documents):
    return PackedDocuments(documents, CONTEXT)


class Module(lightning.LightningModule):
    """The next byte by the last one, with dropout."""

    def __init__(self, *, returns="logits", manual=False):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Embedding(256, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 256))
        self.returns, self.automatic_optimization = returns, not manual
        self.seen, self.losses, self.rows = Counter(), [], []

    def training_step(self, batch, batch_idx):
        assert sorted(batch) == ["input_ids", "labels"]
        self.seen.update(batch["labels"].flatten().tolist())
        self.rows.append(batch["labels"].numpy().tobytes())
        logits = self.layers(batch["input_ids"])
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
        loss = losses.mean()
        self.losses.append(loss.item())
        if not self.automatic_optimization:
            self.optimizers().zero_grad()
            self.manual_backward(loss)
            self.optimizers().step()
        own = {"loss": loss, "logits": logits, "losses": losses.view(batch["labels"].shape)}
        return loss if self.returns is None else {name: own[name] for name in ("loss", self.returns)}

    def validation_step(self, batch, batch_idx):
        assert "tags" not in batch
        self.log("val_loss", torch.tensor(2.5))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 1e-2)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


def fit(folder, rows, callback=None, *, steps=STEPS, module=None, workers=0, val=None, ckpt=None, save=None, **more):
    """Train; return the module, and losses, weights and random state to the bit."""
    module = module or Module()
    trainer = lightning.Trainer(
        max_steps=steps,
        accumulate_grad_batches=1 if not module.automatic_optimization else ACCUMULATED,
        callbacks=[callback] if callback else [],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        default_root_dir=folder,
        **more,
    )
    torch.manual_seed(1)
    collate = TaggedCollator(shift="outer") if callback else untagged
    loader = torch.utils.data.DataLoader(rows, ROWS, shuffle=True, collate_fn=collate, num_workers=workers)
    trainer.fit(module, loader, val, ckpt_path=ckpt, weights_only=False)
    if save:
        trainer.save_checkpoint(save)
    return module, (module.losses, *bits(module))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("returns", ["logits", "losses", None])
def test_it_trains_as_without_us_to_the_bit_and_its_log_has_what_it_trained_on(
    rows, corpus, tmp_path, returns, workers
):
    _, without = fit(tmp_path, rows, module=Module(returns=returns), workers=workers)
    callback = AuditCallback(tmp_path / "run", corpus)
    module, found = fit(tmp_path, rows, callback, module=Module(returns=returns), workers=workers)
    assert found == without
    assert trained_tokens(tmp_path / "run") == module.seen
    steps = logged_rows(tmp_path / "run", "steps")
    assert [one["micro_batches"] for one in steps] == [ACCUMULATED] * STEPS
    for place, one in enumerate(steps):
        mean = sum(module.losses[place * ACCUMULATED :][:ACCUMULATED]) / ACCUMULATED
        assert one["user_loss"] == pytest.approx(mean, rel=1e-6)
        assert one["targets"] == ACCUMULATED * ROWS * CONTEXT
        assert one["scored"] == (one["targets"] if returns else 0)
        assert not returns or one["loss_sum"] / one["scored"] == pytest.approx(mean, rel=1e-5)
    assert values(tmp_path / "run", "learning_rate")
    assert load_run(tmp_path / "run").run.order == "rows"


def test_every_stretch_is_its_documents_bytes(made, rows, corpus):
    loader = torch.utils.data.DataLoader(rows, ROWS, shuffle=True, collate_fn=TaggedCollator(shift="outer"))
    read_back(made, corpus, loader, inner=False)


def test_a_run_goes_on_with_the_log_of_its_checkpoint(rows, corpus, tmp_path):
    """And what was logged behind the checkpoint counts no more."""
    fit(tmp_path, rows, AuditCallback(tmp_path / "run", corpus), steps=3, save=tmp_path / "a.ckpt")
    with pytest.raises(ConfigError, match="holds a run log already"):
        fit(tmp_path, rows, AuditCallback(tmp_path / "run", corpus))
    module, _ = fit(tmp_path, rows, AuditCallback(tmp_path / "run", corpus), ckpt=tmp_path / "a.ckpt")
    assert steps_of(tmp_path / "run") == list(range(1, STEPS + 1))
    ends = [kind for kind in kinds(tmp_path / "run") if kind in ("started", "resumed", "closed")]
    assert ends == ["started", "closed", "resumed", "closed"]
    assert len(module.rows) == (STEPS - 3) * ACCUMULATED


def test_manual_optimization_validation_and_passes(rows, corpus, tmp_path):
    """Each call of the optimizer is a step; a second pass is one in the log; losses on held-out data are kept."""
    few = torch.utils.data.Subset(rows, range(3 * ROWS))
    val = torch.utils.data.DataLoader(few, ROWS, collate_fn=TaggedCollator(shift="outer"))
    callback = AuditCallback(tmp_path / "run", corpus, order="")
    fit(tmp_path, few, callback, steps=5, module=Module(manual=True), val=val)
    assert len(steps_of(tmp_path / "run")) == 5
    found = logged_rows(tmp_path / "run", "stretches")
    assert {one["epoch"] for one in found if one["step"] <= 3} == {0}
    assert {one["epoch"] for one in found if one["step"] > 3} == {1}
    assert set(values(tmp_path / "run", "val_loss").values()) == {2.5}


def test_batches_without_tags_stop_the_first_step_and_an_error_ends_the_log(rows, corpus, tmp_path):
    callback = AuditCallback(tmp_path / "run", corpus)
    trainer = lightning.Trainer(max_steps=1, callbacks=[callback], logger=False, enable_checkpointing=False)
    loader = torch.utils.data.DataLoader(rows, ROWS, collate_fn=untagged)
    with pytest.raises(TagsError, match="has no tags"):
        trainer.fit(Module(), loader)
    assert [kind for kind in kinds(tmp_path / "run") if kind in ("failed", "closed")] == ["failed", "closed"]
    assert events(tmp_path / "run", "failed") == [(0, {"error": "TagsError"})]


def test_the_norm_that_lightning_clips_by_is_in_the_log_and_is_taken_once(rows, corpus, tmp_path, monkeypatch):
    norms, clip = [], torch.nn.utils.clip_grad_norm_
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *own: norms.append(clip(*own)) or norms[-1])
    _, without = fit(tmp_path, rows, gradient_clip_val=0.05)
    norms.clear()
    callback = AuditCallback(tmp_path / "run", corpus)
    _, found = fit(tmp_path, rows, callback, gradient_clip_val=0.05)
    assert found == without
    assert list(values(tmp_path / "run", "grad_global_norm").values()) == [norm.item() for norm in norms]
    assert len(norms) == STEPS
    assert values(tmp_path / "run", "grad_max_norm") == {1: 0.05}


def test_batches_whose_training_step_returns_none_are_not_counted(rows, corpus, tmp_path):
    """They have no gradients; a step of such batches is no update."""

    class Skips(Module):
        def training_step(self, batch, batch_idx):
            return None if batch_idx in (0, 1, 5, 6, 7) else super().training_step(batch, batch_idx)

    module, _ = fit(tmp_path, rows, AuditCallback(tmp_path / "run", corpus), module=Skips())
    assert trained_tokens(tmp_path / "run") == module.seen
    steps = logged_rows(tmp_path / "run", "steps")
    assert [one["micro_batches"] for one in steps] == [2, 1, 0, 2, 2]  # the log begins with the first batch
    assert [one["user_loss"] is None for one in steps] == [False, False, True, False, False]
    facts = run_facts(load_run(tmp_path / "run"))
    assert (facts.steps_seen, facts.skipped_updates) == (4, 1)
    assert [step for step, _ in events(tmp_path / "run", "no_batch")] == [0, 3]
