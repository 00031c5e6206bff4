"""Toxicity, personal data and secrets through a whole build; with judges where they are installed."""

import random
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pytest
from corpus import write_jsonl
from lanes import workers
from running import build, metric, run

from dataaudit.manifest.verify import verify

pytestmark = pytest.mark.judges

CONFIG = """
splits:
  train: {{paths: [train], text: text, source: {{column: source}}}}
  val: {{paths: [val], text: text, source: {{column: source}}, held_out: true}}
stages: {{near_dup: false, overlap: false, repeats: false, filters: false}}
reader: {{part_bytes: {part_bytes}}}
{more}
"""
JUDGED = """
toxicity: {judge: judge/tiny.ckpt, languages: [en], most_judged: 150, half_width: 0.01}
pii: {analyzer: presidio, most_judged: 60}
"""
CLEAN = "The committee met on Monday and read the letter about the new library and the gardens beside the river. "
RUDE = "You are vile filth and a stupid idiot, shut up you worthless moron. "
NUM_MAILS, NUM_RUDE = 40, 30


def write_corpus(root):
    """Write 600 training documents: 40 with an address, 30 rude ones; and 20 held-out ones."""
    rng = random.Random(5)
    texts = [(f"{CLEAN}Number {index}. " * rng.randrange(1, 4), "plain") for index in range(530)]
    texts += [(f"{CLEAN}Write to person{index}@letters-of-the-sea.org today.", "mail") for index in range(NUM_MAILS)]
    texts += [(RUDE * rng.randrange(1, 4) + str(index), "rude") for index in range(NUM_RUDE)]
    rng.shuffle(texts)
    records = [{"text": text, "source": source} for text, source in texts]
    write_jsonl(root / "train" / "a.jsonl", records[:400])
    write_jsonl(root / "train" / "b.jsonl.zst", records[400:])
    write_jsonl(root / "val" / "v.jsonl", [{"text": f"{CLEAN} {index}", "source": "plain"} for index in range(20)])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The corpus, with configs that ask for no judge and for both."""
    root = tmp_path_factory.mktemp("content")
    write_corpus(root)
    for name, part_bytes, more in (("plain", 10**6, ""), ("judged", 10**6, JUDGED), ("cut", 20_000, JUDGED)):
        (root / f"{name}.yaml").write_text(CONFIG.format(part_bytes=part_bytes, more=more), encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def judged(corpus):
    """The manifest of a build with judges."""
    code = (
        "import sys; from pathlib import Path; from tiny_judge import write_checkpoint;"
        " write_checkpoint(Path(sys.argv[1]), classes=('toxic', 'insult'))"
    )
    tests = Path(__file__).parents[1]
    subprocess.run([sys.executable, "-c", code, corpus / "judge"], cwd=tests, check=True)  # torch stays out of here
    return build(corpus / "judged.yaml", *workers(2), manifest=corpus / "mj")


def test_addresses_and_insults_are_counted_and_placed(corpus):
    """Hits and documents are those that were written, and every finding says where it stands."""
    _, manifest = build(corpus / "plain.yaml", manifest=corpus / "m")
    assert metric(manifest, "pii_hit_rate", "documents", split="train", entity="EMAIL_ADDRESS") == pytest.approx(
        NUM_MAILS / 600
    )
    assert metric(manifest, "pii_hit_rate", "documents", source="rude") == 0
    found = manifest.table("findings").to_pylist()
    mails = [row for row in found if row["class"] == "EMAIL_ADDRESS"]
    assert len(mails) == NUM_MAILS
    assert {(row["start"], row["hmac"], row["reserved"]) for row in mails} == {(len(CLEAN) + 9, None, False)}
    rude = metric(manifest, "data_toxicity_rate", "screen_positive", source="rude")
    assert rude == 1
    assert metric(manifest, "data_toxicity_rate", "screen_positive", source="plain") == 0
    assert verify(manifest) == []


def test_without_judges_their_rates_are_not_evaluated(corpus):
    _, manifest = build(corpus / "plain.yaml", manifest=corpus / "m")
    (rate,) = manifest.metrics("data_toxicity_rate", "rate")
    assert (rate.status, rate.reason, rate.value) == ("not_evaluated", "no_judge", None)
    (names,) = manifest.metrics("pii_hit_rate", "analyzer_documents")
    assert (names.status, names.reason) == ("not_evaluated", "no_analyzer")


def test_digests_of_findings_are_equal_where_the_values_are_and_only_under_one_key(corpus, tmp_path):
    """The same address has the same digest; another key gives others; the manifest holds the key's id alone."""
    digests = {}
    for name in ("one", "two"):
        key = tmp_path / name
        key.write_bytes(name.encode() * 10)
        _, manifest = build(corpus / "plain.yaml", "--hmac-key", key, manifest=tmp_path / f"m-{name}")
        digests[name] = set(manifest.table("findings")["hmac"].to_pylist())
        assert len(manifest.core.hmac_key) == 16
        assert not any(key.read_bytes() in path.read_bytes() for path in tmp_path.glob(f"m-{name}/**/*.*"))
    assert digests["one"].isdisjoint(digests["two"])
    short = tmp_path / "short"
    short.write_bytes(b"abc\n")
    _, err = run("build", corpus / "plain.yaml", "--hmac-key", short, "--manifest", tmp_path / "x", expect=2)
    assert "has 3 bytes" in err


def test_the_judges_rates_hold_the_truth(judged):
    """The tiny judge calls documents with bad words toxic: the interval holds their share."""
    _, manifest = judged
    (rate,) = [
        one for one in manifest.metrics("data_toxicity_rate", "rate") if one.scope.as_dict() == {"split": "train"}
    ]
    assert rate.low <= NUM_RUDE / 600 <= rate.high
    assert rate.high - rate.low < 0.08
    assert rate.method == "sampled"
    table = manifest.table("judged")
    assert sum(table.filter(pc.equal(table["class"], "toxicity"))["judged"].to_pylist()) <= 150
    marked = manifest.table("findings").filter(pc.equal(manifest.table("findings")["tier"], "judged"))
    assert marked.num_rows > 0
    names = [record.name for record in manifest.core.detectors]
    assert {"detoxify local", "presidio"} <= set(names)


def test_what_presidio_finds_in_a_sample_agrees_with_the_patterns(judged):
    """Addresses: the interval of the sample holds the share that the patterns counted in every document."""
    _, manifest = judged
    counted = metric(manifest, "pii_hit_rate", "documents", entity="EMAIL_ADDRESS")
    found = [
        one
        for one in manifest.metrics("pii_hit_rate", "analyzer_documents")
        if one.scope.as_dict() == {"entity": "EMAIL_ADDRESS"}
    ]
    assert found[0].low - 1e-9 <= counted <= found[0].high + 1e-9


def test_any_cut_and_number_of_workers_gives_the_same_id(corpus, judged):
    """Parts of 20 kB on one worker or whole files on two: one sample, one set of verdicts, one id."""
    summary, _ = judged
    again, _ = build(corpus / "cut.yaml", manifest=corpus / "mc")
    assert again["id"] == summary["id"]


@pytest.mark.parametrize(
    ("toxicity", "reason"), [("judge: nowhere.ckpt", "weights_absent"), ("judge: train/a.jsonl", "broken_checkpoint")]
)
def test_a_judge_that_cannot_be_had_is_said_and_leaves_the_rest(corpus, tmp_path, toxicity, reason):
    path = corpus / "absent.yaml"
    path.write_text(CONFIG.format(part_bytes=10**6, more=f"toxicity: {{{toxicity}}}"), encoding="utf-8")
    _, err = run("build", path, "--manifest", tmp_path / "m")
    assert "toxicity" in err
    _, manifest = build(path, manifest=tmp_path / "m")
    (rate,) = manifest.metrics("data_toxicity_rate", "rate")
    assert (rate.status, rate.reason) == ("not_evaluated", reason)
    assert metric(manifest, "data_toxicity_rate", "screen_positive", source="rude") == 1
