"""A set that a model knows by heart scores above one that it does not; scores are what the papers define."""

import math
import random
import zlib
from dataclasses import replace

import numpy as np
import pytest
from probe_world import Memory, sentence, tiny
from reference.probes import cross_entropy

torch = pytest.importorskip("torch", reason="models are of torch")
from dataaudit import ConfigError  # noqa: E402
from dataaudit.probes import Cloze, Contamination, ProbeModel, ProbeSuite, Tokenizer  # noqa: E402
from dataaudit.probes.contamination import named_sets  # noqa: E402
from dataaudit.probes.corpus import Corpus  # noqa: E402

pytestmark = pytest.mark.torch
BYTES = Tokenizer.of_bytes(256)


def texts(seed, number=14):
    draw = random.Random(seed)
    return tuple(BYTES.encode(sentence(draw, draw.randrange(6, 12))) for _ in range(number))


@pytest.mark.parametrize("seed", range(5))
def test_a_contaminated_set_scores_above_a_clean_one(seed):
    seen, unseen = texts(2 * seed), texts(2 * seed + 1)
    probe = Contamination(sets={"held_out": unseen, "seen": seen, "other": texts(100 + seed)})
    report = ProbeSuite([probe]).run(ProbeModel(Memory(seen), BYTES, context=256), 1)
    assert report.get("codec_score", set="seen").low > report.get("codec_score", set="held_out").high
    for metric in ("codec_score", "zlib_ratio", "min_k_prob"):
        assert report.get(metric, "p", set="seen", versus="held_out").value < 0.001
        assert report.get(metric, "auc", set="seen", versus="held_out").low > 0.8
    assert report.get("codec_score", "p", set="other", versus="held_out").value > 0.01


def test_scores_are_a_recomputation():
    rows, module = texts(0, 5), tiny().eval()
    report = ProbeSuite([Contamination(sets={"x": rows})]).run(ProbeModel(module, BYTES, context=512), 1)

    def losses(before, ids):
        with torch.no_grad():
            logits = module(torch.tensor([[*before, *ids]]))[0].double().tolist()
        start = len(before)
        return [cross_entropy(logits[start + at - 1], ids[at]) for at in range(len(ids))]

    plain, bits, published, least, falls = [row.tolist() for row in rows], [], [], [], 0
    for at, row in enumerate(plain):
        alone, after = losses([256], row), losses([256, *plain[(at + 1) % 5], 256], row)
        size = len(zlib.compress(bytes(row)))
        bits.append((math.fsum(alone) / math.log(2), 8 * size))
        published.append(size / np.mean(alone))
        least.append(-np.mean(sorted(alone)[-int(0.2 * len(alone)) :]))
        falls += np.mean(after) > np.mean(alone)
    assert report.get("codec_score", set="x").value == falls / 5
    assert report.get("zlib_ratio", "bits", set="x").value == pytest.approx(np.sum(bits, 0)[0] / np.sum(bits, 0)[1])
    assert report.get("zlib_ratio", "published", set="x").value == pytest.approx(np.mean(published))
    assert report.get("min_k_prob", set="x").value == pytest.approx(np.mean(least))


def test_the_sets_of_a_manifest_leave_leaks_out_and_match_sources(world):
    probe = Contamination.of(world.corpus, samples=20)
    assert set(probe.sets) == {"train", "held_out"}
    planted = {bytes(row[:-1]).decode() for row in (own.astype(np.uint8) for own in probe.sets["held_out"])}
    assert planted.isdisjoint(world.held_out["web"][:3])


def test_named_sets_are_read_or_refused(tmp_path):
    good = tmp_path / "a.jsonl"
    good.write_text('{"text": "one text here"}\n\n{"text": "two"}\n')
    assert named_sets([f"quiz={good}"])[0].texts == ("one text here", "two")
    bad = tmp_path / "b.jsonl"
    bad.write_text('{"question": "?"}\n')
    for option, words in (
        ("quiz", "expected NAME=FILE"),
        (f"train={good}", "other than train"),
        (f"x={tmp_path / 'none'}", "cannot be read"),
        (f"x={bad}", "an object with `text`"),
    ):
        with pytest.raises(ConfigError, match=words):
            named_sets([option])
    with pytest.raises(ConfigError, match="a name of its own"):
        named_sets([f"quiz={good}", f"quiz={good}"])  # the second took the place of the first


@pytest.mark.parametrize("name", ["final", "a.xml", "eval"])
def test_lines_of_a_file_that_is_no_json_are_texts(tmp_path, name):
    """Whatever ended in the letter l was taken for JSON lines."""
    (tmp_path / name).write_text("one text here\ntwo\n")
    assert named_sets([f"quiz={tmp_path / name}"])[0].texts == ("one text here", "two")


@pytest.mark.parametrize("samples", [0, 1])
def test_a_set_of_fewer_than_two_samples_is_not_evaluated(samples):
    """A lone sample was scored after itself; and the reason of a set without any was that the reference is absent."""
    probe = Contamination(sets={"held_out": texts(0, 4), "train": texts(1, samples)})
    report = ProbeSuite([probe]).run(ProbeModel(tiny().eval(), BYTES, context=64), 1)
    assert [(own.scope["set"], own.reason) for own in report.not_evaluated] == [("train", "few_samples")]


def test_a_reference_that_is_absent_leaves_the_test_out():
    report = ProbeSuite([Contamination(sets={"x": texts(0, 4)})]).run(ProbeModel(tiny().eval(), BYTES, context=64), 1)
    assert {number.reason for number in report.not_evaluated} == {"no_reference"}


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"leaks_unknown": "overlap_not_built"}, "looked for no leaks"),
        ({"leaks_sampled": True}, "of a sample"),
        ({}, ""),
    ],
)
def test_leaks_that_nobody_looked_for_are_a_note(world, monkeypatch, known, words):
    """What held-out text is compared with may have been trained on, and nothing was said of it."""
    sample = Corpus.sample
    monkeypatch.setattr(Corpus, "sample", lambda *own, **more: replace(sample(*own, **more), **known))
    probes = [Contamination.of(world.corpus, samples=4), Cloze.of(world.corpus, items=2)]
    report = ProbeSuite(probes).run(ProbeModel(tiny().eval(), world.tokenizer, context=64), 1)
    noted = [note.partition(":")[0] for note in report.notes if "leak" in note and words in note]
    assert noted == (["contamination", "cloze"] if words else [])
