"""What tests of loaders share: batches checked against the texts, and what a log holds; no library but torch."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np

from dataaudit.runlog.format import MERGED, UNUSED
from dataaudit.runlog.reader import load_run
from dataaudit.training.packing import OFFSET, ROW, SHARD, SOURCE, START, TARGETS, what_is_wrong

STRETCHES = 1_000


def check(made, corpus, batch, *, inner=True, end=b"\0", cut=False):
    """Hold every stretch of a batch against the texts; return how many there are."""
    tags = batch["tags"].numpy()
    assert not what_is_wrong(tags, len(made.uris), len(corpus.sources))
    tokens = batch["input_ids" if inner else "labels"].numpy()
    labels = batch["labels"].numpy()
    found = 0
    for row, places in enumerate(tags.tolist()):
        used = [one for one in places if one[SHARD] != UNUSED]
        for one, stop in zip(used, [*(one[START] for one in used[1:]), tokens.shape[1]], strict=True):
            counted = labels[row, max(one[START], int(inner)) : stop] != -100
            assert one[TARGETS] == counted.sum()
            if one[SHARD] == MERGED:
                continue
            text, source = made.text(one[SHARD], one[ROW])
            expected = (text.encode() + end)[one[OFFSET] : one[OFFSET] + stop - one[START]]
            held = tokens[row, one[START] : stop]
            assert bytes(held[: len(expected)].astype(np.uint8)) == expected
            assert (labels[row, one[START] + len(expected) : stop] == -100).all()
            assert one is used[-1] or len(expected) == stop - one[START] or cut
            assert corpus.sources[one[SOURCE]] == source
            found += 1
    return found


def read_back(made, corpus, loader, **how):
    """Read batches until a thousand stretches were held against the texts."""
    found = 0
    while found < STRETCHES:
        before = found
        for batch in loader:
            found += check(made, corpus, batch, **how)
        assert found > before


def padded(records, *, left=False):
    """Pad as collators of transformers do."""
    length = max(len(one["input_ids"]) for one in records)
    ids, labels = np.zeros((len(records), length), np.int64), np.full((len(records), length), -100)
    for row, one in enumerate(records):
        size = len(one["input_ids"])
        place = slice(length - size, length) if left else slice(0, size)
        ids[row, place] = labels[row, place] = one["input_ids"]
    import torch

    return {"input_ids": torch.from_numpy(ids), "labels": torch.from_numpy(labels)}


def untagged(records):
    """Collate the tokens and labels of packed rows."""
    import torch

    return {name: torch.from_numpy(np.stack([one[name] for one in records])) for name in ("input_ids", "labels")}


def batches(loader):
    """Return batches as bytes."""
    return [{name: value.numpy().tobytes() for name, value in batch.items()} for batch in loader]


def logged_rows(folder, table):
    """Return the rows of a table of a log."""
    return load_run(folder).table(table).to_pylist()


def steps_of(folder):
    """Return the steps of a log."""
    return load_run(folder).table("steps")["step"].to_pylist()


def values(folder, name):
    """Return a number of a log by step."""
    return {row["step"]: row["value"] for row in logged_rows(folder, "values") if row["metric"] == name}


def kinds(folder):
    """Return the kinds of the events of a log."""
    return load_run(folder).table("events")["kind"].to_pylist()


def events(folder, *kinds):
    """Return steps and details of events of a log."""
    return [(row["step"], json.loads(row["detail"])) for row in logged_rows(folder, "events") if row["kind"] in kinds]


def trained_tokens(folder):
    """Return how often each token was trained on."""
    found = Counter()
    for row in logged_rows(folder, "tokens"):
        found[row["token"]] += row["count"]
    return found


def tiny_gpt2(positions, **more):
    """Return a tiny GPT-2 over bytes, with dropout."""
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {"vocab_size": 256, "n_positions": positions, "n_embd": 16, "n_layer": 1, "n_head": 2}
    config = transformers.GPT2Config(**{**sizes, "bos_token_id": 0, "eos_token_id": 0, **more})
    return transformers.GPT2LMHeadModel(config)


def bits(model):
    """Return weights and random state, to the bit."""
    import torch

    return [one.detach().numpy().tobytes() for one in model.parameters()], torch.get_rng_state().numpy().tobytes()


def block_of(page, word):
    """Return the Python of a page that holds a word, which a test of its library runs."""
    text = (Path(__file__).parents[3] / page).read_text(encoding="utf-8")
    return next(one for one in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if word in one)
