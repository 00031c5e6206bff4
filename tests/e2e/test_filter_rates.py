"""Reject rates of a build: every rule, with documents on both sides of it."""

import json

import pytest
from filter_cases import CASES
from reference import filters as twin
from running import build, metric

pytestmark = pytest.mark.builds

LIMITS = {"short_line_chars": 30, "least_words": 5, "most_word_chars": 1000}


def test_rates_of_a_build_are_those_of_plain_python(tmp_path):
    """Two shards, a source for every rule; rates of rules, sets and all, and the columns of the shards."""
    texts = [(rule, text) for rule, sides in CASES.items() for side in sides for text in side]
    for name, part in (("a", texts[::2]), ("b", texts[1::2])):
        lines = [json.dumps({"text": text, "source": source}) for source, text in part]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    runs = [{"text": "ha " * 60, "source": "runs"}, {"text": "ha " * 5, "source": "runs"}]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, runs)) + "\n", encoding="utf-8")
    _, manifest = build("a.jsonl", "b.jsonl", "c.jsonl", manifest=tmp_path / "m", cwd=tmp_path)
    documents = [text for _, text in texts] + [run["text"] for run in runs]
    rejecting = {text: twin.rejecting_rules(twin.filter_counts(text, **LIMITS)) for text in documents}
    for rule in CASES:
        expected = sum(rule in rejecting[text] for text in documents) / len(documents)
        assert metric(manifest, "filter_reject_rate", "rate", rule=rule) == pytest.approx(expected, rel=1e-11)
        own = [text for source, text in texts if source == rule]
        share = sum(rule in rejecting[text] for text in own) / len(own)
        assert 0 < share < 1
        assert metric(manifest, "filter_reject_rate", "rate", rule=rule, source=rule) == pytest.approx(share, rel=1e-11)
    assert metric(manifest, "filter_reject_rate", "rate", rule="repeated_ngrams", source="runs") == 0.5
    c4 = sum(any(rule.startswith("c4.") for rule in rejecting[text]) for text in documents) / len(documents)
    assert metric(manifest, "filter_reject_rate", "rate", rule="c4") == pytest.approx(c4, rel=1e-11)
    shards = manifest.table("shards").to_pylist()
    for shard, part in zip(shards, (texts[::2], texts[1::2]), strict=False):
        found = {row["rule"]: row["documents"] for row in shard["filters"]}
        assert found["c4.curly_bracket"] == sum("c4.curly_bracket" in rejecting[text] for _, text in part)
        assert shard["filter_reject_rate"] is not None
