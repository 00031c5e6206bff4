"""The loop of the page on Accelerate: it trains as without us, and its log has what it trained on."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from reading import bits, block_of, logged_rows, read_back, tiny_gpt2, trained_tokens, values

from dataaudit.training.loaders.collator import TaggedCollator
from dataaudit.training.packing import PackedDocuments

torch = pytest.importorskip("torch", reason="its tensors are torch's")
pytest.importorskip("transformers", reason="the model is transformers'")
pytest.importorskip("accelerate", reason="its loop is what is tested")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # those of other people's libraries
ROWS, CONTEXT, STEPS = 8, 64, 5
PAGE = "docs/frameworks/accelerate.md"


@pytest.fixture(scope="module")
def rows(documents):
    whole = PackedDocuments(documents, CONTEXT, shift="inner")
    return torch.utils.data.Subset(whole, range(2 * ROWS * STEPS - ROWS))  # the last step has one batch


def given(corpus, rows):
    """Return what the page asks its reader for, and what the model is trained on."""
    model, seen = tiny_gpt2(CONTEXT), Counter()
    model.register_forward_hook(lambda _model, _args, how, found: seen.update(tokens(how, found)), with_kwargs=True)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses: list[float] = []
    model.register_forward_hook(lambda _model, _args, found: losses.append(found.loss.item()))
    names = {"model": model, "optimizer": optimizer, "rows": rows, "corpus": corpus, "TaggedCollator": TaggedCollator}
    return names, seen, losses


def tokens(how, _found):
    assert "tags" not in how
    return how["labels"][:, 1:].flatten().tolist()


def test_the_loop_of_the_page_trains_as_without_us_and_its_log_has_what_it_trained_on(
    rows, corpus, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    text = re.sub(r"^(corpus|rows) = .*\n", "", block_of(PAGE, "Accelerator("), flags=re.MULTILINE)
    bare = re.sub(r"with TrainingMonitor\(.*?\) as monitor:", "if True:", text, flags=re.DOTALL)
    bare = bare.replace("monitor.norm_is_taken(accelerator", "(accelerator")
    bare = bare.replace("monitor.step(sum(losses) / len(losses))", "pass")
    bare = re.sub(r"monitor\.batch\(.*\)", "pass", bare)
    assert "monitor." not in bare
    names, _, losses = given(corpus, rows)
    exec(bare, names)  # noqa: S102
    without = (losses, bits(names["model"]))
    names, seen, losses = given(corpus, rows)
    exec(text, names)  # noqa: S102
    assert (losses, bits(names["model"])) == without
    assert trained_tokens(tmp_path / "runs/8") == seen
    steps = logged_rows(tmp_path / "runs/8", "steps")
    assert [one["micro_batches"] for one in steps] == [2] * (STEPS - 1) + [1]
    for place, one in enumerate(steps):
        mean = sum(losses[2 * place : 2 * place + 2]) / one["micro_batches"]
        assert one["scored"] == one["targets"] == one["micro_batches"] * ROWS * (CONTEXT - 1)
        assert one["user_loss"] == pytest.approx(mean, rel=1e-6)
        assert one["loss_sum"] / one["scored"] == pytest.approx(mean, rel=1e-4)
    assert values(tmp_path / "runs/8", "learning_rate")
    assert values(tmp_path / "runs/8", "grad_global_norm")


def test_every_stretch_of_its_loader_is_its_documents_bytes(made, rows, corpus):
    accelerator = __import__("accelerate").Accelerator()
    loader = torch.utils.data.DataLoader(rows, ROWS, shuffle=True, collate_fn=TaggedCollator())
    read_back(made, corpus, accelerator.prepare(loader))
