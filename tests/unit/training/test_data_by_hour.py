"""What a real run trained on, by hour, beside the manifest of a real build: lengths, shares and drift of tokens."""

from __future__ import annotations

import math
import time

import pytest
from reconstructed import Tokenized, call
from test_examples import own_tokenizer
from test_followed_run import section

from dataaudit.manifest.load import load_manifest
from dataaudit.training import Documents, Encoder, PackedDocuments, TrainingMonitor, open_manifest
from dataaudit.training.loaders.collator import TaggedCollator
from dataaudit.training.pages.live_page import live_page
from dataaudit.training.pages.run_view import RunView

torch = pytest.importorskip("torch", reason="its loader is torch's")
pytestmark = pytest.mark.torch
HOUR = 3_600


def test_an_hour_of_a_few_documents_is_beyond_chance_and_an_hour_of_all_is_not(tmp_path, monkeypatch):
    """The same numbers stand on the page that follows, and on the still one."""
    made = Tokenized(tmp_path, 60, stages={})
    corpus = open_manifest(made.manifest, require="verified")
    rows = PackedDocuments(
        Documents(corpus, "train", Encoder.of(own_tokenizer(tmp_path / "tiny.json")["tokenizer"])), 64
    )
    few = torch.utils.data.Subset(rows, [0, 1, 2] * (len(rows) // 3))
    now = time.time
    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        for hour, data in enumerate((rows, few)):
            monkeypatch.setattr(time, "time", lambda later=hour * HOUR: now() + later)
            for batch in torch.utils.data.DataLoader(data, 8, collate_fn=TaggedCollator(shift="outer")):
                monitor.batch(batch["tags"], labels=batch["labels"])
                monitor.step(2.0)
            monitor.state_dict()  # as at a checkpoint: counts of the hour are written
    view = RunView(tmp_path / "run", manifest=load_manifest(made.manifest))
    view.read(math.inf)
    first, second = (hour for _, hour in sorted(view.tiles.hours.by_time.items()))
    assert first.drift.mark in {"", "perhaps"}
    assert second.drift.mark == "beyond"
    assert first.targets == len(rows) * 64
    text = section(live_page(view), "data-hours")
    assert "Tokens of 1 hour differ from those audited beyond chance" in text
    done = call("report", made.manifest, "--run", tmp_path / "run", "--out", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    assert "Tokens of 1 hour differ" in (tmp_path / "page.html").read_text()
