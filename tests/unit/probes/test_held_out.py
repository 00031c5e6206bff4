"""Held-out losses, and those of each slice, are a plain recomputation's; what leaks is known."""

import math

import numpy as np
import pytest
from reference.probes import cross_entropy, window_losses

torch = pytest.importorskip("torch", reason="models are of torch")
from probe_world import END, tiny  # noqa: E402

from dataaudit.probes import HeldOutLoss, ProbeModel, ProbeSuite, Tokenizer  # noqa: E402
from dataaudit.probes.corpus import Corpus  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def measured(world):
    """Losses of all held-out documents by a model with windows of 48 tokens, and the same token by token."""
    domains = {"web": "prose", "code": "canaries"}
    documents = world.corpus.sample(held_out=True, domains=domains, languages=True)
    module = tiny().eval()
    report = ProbeSuite([HeldOutLoss(documents=documents)]).run(ProbeModel(module, world.tokenizer, context=48), 1)

    def loss(before, token):
        with torch.no_grad():
            return cross_entropy(module(torch.tensor([before]))[0, -1].double().tolist(), token)

    plain = {}
    for source, texts in world.held_out.items():
        for row, text in enumerate(texts):
            plain[source, row] = window_losses([*text.encode(), END], 48, END, loss)
    return report, documents, plain


def test_the_loss_and_every_slice_are_a_recomputation(measured, world):
    report, _, plain = measured
    leaked = {("web", 0), ("web", 1), ("web", 2)}

    def mean(chosen):
        return sum(math.fsum(plain[key]) for key in chosen) / sum(len(plain[key]) for key in chosen)

    for scope, left in (({}, plain.keys()), ({"leaks": "out"}, plain.keys() - leaked)):
        assert report.get("val_loss", **scope).value == pytest.approx(mean(left), rel=1e-6)
        assert report.get("val_ppl", **scope).value == pytest.approx(math.exp(mean(left)), rel=1e-6)
        for source, domain in (("web", "prose"), ("code", "canaries")):
            own = mean([key for key in left if key[0] == source])
            assert report.get("slice_val_loss", source=source, **scope).value == pytest.approx(own, rel=1e-6)
            assert report.get("slice_val_loss", domain=domain, **scope).value == pytest.approx(own, rel=1e-6)
        short = mean([key for key in left if len(world.held_out[key[0]][key[1]].encode()) + 1 < 512])
        assert report.get("slice_val_loss", length="128-511", **scope).value == pytest.approx(short, rel=1e-6)
    assert report.get("slice_val_loss", language="en").value is not None
    assert report.get("val_loss", leaks="out").units == 29


def test_windows_of_no_end_token_leave_the_first_token_out(world):
    tokenizer = Tokenizer.of_bytes()
    corpus = Corpus(folder=world.manifest, tokenizer=tokenizer, cache=world.folder / "cache")
    module = tiny().eval()
    documents = corpus.sample(held_out=True, limit=3)
    report = ProbeSuite([HeldOutLoss(documents=documents)]).run(ProbeModel(module, tokenizer, context=40), 1)

    def loss(before, token):
        with torch.no_grad():
            return cross_entropy(module(torch.tensor([before]))[0, -1].double().tolist(), token)

    every = [value for row in documents.rows for value in window_losses(row.tolist(), 40, None, loss)]
    assert len(every) == sum(len(row) - 1 for row in documents.rows)
    assert report.get("val_loss").value == pytest.approx(np.mean(every), rel=1e-6)


def test_batches_change_nothing_but_the_last_digits(world):
    documents = world.corpus.sample(held_out=True, limit=6)
    found = [
        ProbeSuite([HeldOutLoss(documents=documents)])
        .run(ProbeModel(tiny().eval(), world.tokenizer, context=48, batch_tokens=size), 1)
        .get("val_loss")
        .value
        for size in (1, 100, 10_000)
    ]
    assert found == pytest.approx([found[0]] * 3, rel=1e-6)


def test_leaks_are_the_three_that_were_planted(measured):
    _, documents, _ = measured
    assert documents.leaked.sum() == 3
    assert [documents.labels["source"][at] for at in np.flatnonzero(documents.leaked)] == ["web"] * 3


def test_a_slice_of_few_documents_is_not_evaluated(world):
    documents = world.corpus.sample(held_out=True, limit=9)
    report = ProbeSuite([HeldOutLoss(documents=documents)]).run(
        ProbeModel(tiny().eval(), world.tokenizer, context=48), 1
    )
    reasons = {(n.metric, *n.scope.items()): n.reason for n in report.not_evaluated}
    assert "few_documents" in reasons.values()
    assert reasons["slice_val_loss", ("language", "*")] == "no_language"
    assert any("9 of 32 held-out documents" in note for note in report.notes)


def test_without_a_held_out_split_nothing_is_claimed():
    report = ProbeSuite([HeldOutLoss(documents=None)]).run(
        ProbeModel(tiny().eval(), Tokenizer.of_bytes(), context=48), 1
    )
    assert [(n.metric, n.reason) for n in report.numbers] == [("val_loss", "no_held_out_split")]
