"""The loop of the page on Accelerate: it trains as without us, and its log has what it trained on."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from reading import block_of, read_back

from dataaudit.runlog.reader import load_run
from dataaudit.training.documents import Documents, byte_encoder
from dataaudit.training.loaders.collator import TaggedCollator
from dataaudit.training.packing import PackedDocuments

torch = pytest.importorskip("torch", reason="its tensors are torch's")
transformers = pytest.importorskip("transformers", reason="the model is transformers'")
pytest.importorskip("accelerate", reason="its loop is what is tested")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # those of other people's libraries
ROWS, CONTEXT, STEPS = 8, 64, 5
PAGE = "docs/frameworks/accelerate.md"


@pytest.fixture(scope="module")
def rows(corpus):
    whole = PackedDocuments(Documents(corpus, "train", byte_encoder(end=0)), CONTEXT, shift="inner")
    return torch.utils.data.Subset(whole, range(2 * ROWS * STEPS - ROWS))  # the last step has one batch


def given(corpus, rows):
    """Return what the page asks its reader for, and what the model is trained on."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=256, n_positions=CONTEXT, n_embd=16, n_layer=1, n_head=2)
    model, seen = transformers.GPT2LMHeadModel(config), Counter()
    model.register_forward_hook(lambda _model, _args, how, found: seen.update(tokens(how, found)), with_kwargs=True)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses: list[float] = []
    model.register_forward_hook(lambda _model, _args, found: losses.append(found.loss.item()))
    names = {"model": model, "optimizer": optimizer, "rows": rows, "corpus": corpus, "TaggedCollator": TaggedCollator}
    return names, seen, losses


def tokens(how, _found):
    assert "tags" not in how
    return how["labels"][:, 1:].flatten().tolist()


def result(names, losses):
    """Return losses, weights and random state, to the bit."""
    weights = [one.detach().numpy().tobytes() for one in names["model"].parameters()]
    return losses, weights, torch.get_rng_state().numpy().tobytes()


def test_the_loop_of_the_page_trains_as_without_us_and_its_log_has_what_it_trained_on(
    rows, corpus, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    text = re.sub(r"^(corpus|rows) = .*\n", "", block_of(PAGE, "Accelerator("), flags=re.MULTILINE)
    bare = re.sub(r"with TrainingMonitor\(.*?\) as monitor:", "if True:", text, flags=re.DOTALL)
    bare = bare.replace("monitor.norm_is_taken(accelerator", "(accelerator")
    bare = bare.replace("if accelerator.sync_gradients:\n            monitor.step(outputs.loss)", "pass")
    bare = re.sub(r"monitor\.batch\(.*\)", "pass", bare)
    assert "monitor." not in bare
    names, _, losses = given(corpus, rows)
    exec(bare, names)  # noqa: S102
    without = result(names, losses)
    names, seen, losses = given(corpus, rows)
    exec(text, names)  # noqa: S102
    assert result(names, losses) == without
    log = load_run(tmp_path / "runs/8")
    trained = Counter()
    for one in log.table("tokens").to_pylist():
        trained[one["token"]] += one["count"]
    assert trained == seen
    steps = log.table("steps").to_pylist()
    assert [one["micro_batches"] for one in steps] == [2] * (STEPS - 1) + [1]
    for place, one in enumerate(steps):
        mean = sum(losses[2 * place : 2 * place + 2]) / one["micro_batches"]
        assert one["scored"] == one["targets"] == one["micro_batches"] * ROWS * (CONTEXT - 1)
        assert one["loss_sum"] / one["scored"] == pytest.approx(mean, rel=1e-4)
    metrics = {one["metric"] for one in log.table("values").to_pylist()}
    assert {"learning_rate", "grad_global_norm"} <= metrics


def test_every_stretch_of_its_loader_is_its_documents_bytes(made, rows, corpus):
    accelerator = __import__("accelerate").Accelerator()
    loader = torch.utils.data.DataLoader(rows, ROWS, shuffle=True, collate_fn=TaggedCollator())
    read_back(made, corpus, accelerator.prepare(loader))
