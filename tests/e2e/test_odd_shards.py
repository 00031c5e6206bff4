"""A shard that is not like the others of its source is named, with what it has; clean shards are not."""

import json

import pytest
from odd_shards import CLEAN, DAMAGED, documents
from running import build

from dataaudit import failing, gate, load
from dataaudit.base.render.line import PLAIN, spell
from dataaudit.decide.gate.verdict import State
from dataaudit.present.report.highlights import odd_shards

BAD = {State.FAILED, State.WARNED}
RULES = ("odd-language", "odd-encoding")
CONFIG = """
splits:
  train:
    paths: ["data/*/*.jsonl"]
    text: text
    source: {column: source}
stages: {near_dup: false, repeats: false, toxicity: false, pii: false, secrets: false, histogram: false, filters: false,
  exact_dup: false, overlap: false}
"""
ODD = {
    **{kind: ("en", kind, "odd-encoding") for kind in DAMAGED},
    "polish-in-python": ("python", "pl", "odd-language"),
    "russian-in-english": ("en", "ru", "odd-language"),
    "english-in-french": ("fr", "en", "odd-language"),
    "html-in-python": ("python", "html", "odd-encoding"),
}
"""By name: the kind of a source's shards, that of its odd shard, the rule that names it."""
WORDS = {
    "mojibake": "documents with mojibake 1",
    "replacement": "documents with replacement characters 1",
    "utf-16": "documents with control characters 1",
    "zero-width": "documents with invisible characters 1",
    "quoted-printable": "documents with escapes left in 1",
    "entities": "documents with entities left in 1",
    "html": "documents of markup 1",
    "base64": "documents of base64 1",
    "empty": "documents without words 1",
    "dashes": "documents without words 1",
    "polish-in-python": "documents in a language unusual in its source 1",
}
"""What the report has for a reason."""
NOT_ODD = {
    **{kind: ("en", kind) for kind in CLEAN},
    **{
        f"{kind}-in-python": ("python", kind)
        for kind in ("generics", "minified", "digests", "tables", "documented", "locked")
    },
    "french": ("fr", "fr"),
    "german": ("de", "de"),
    "russian": ("ru", "ru"),
    "html": ("html", "html"),
    "base64": ("base64", "base64"),
    "mojibake": ("mojibake", "mojibake"),
}
"""The same of shards that are clean, or no worse than their source."""


def _write(root, cases, shards):
    for name, (kind, other, *_) in cases.items():
        folder = root / "data" / name
        folder.mkdir(parents=True)
        for number in range(shards):
            texts = documents(other if number == 1 else kind, f"{name} {number}")
            lines = [json.dumps({"text": text, "source": name}) for text in texts]
            (folder / f"{number}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (root / "config.yaml").write_text(CONFIG, encoding="utf-8")


def _named(folder, policy):
    """Return the rules about odd shards that each shard breaks, and the shards of the list of what failed."""
    verdict, found = gate(folder, policy, fail_on="warn"), {}
    for result in verdict.rules:
        for case in result.cases:
            if case.state in BAD and case.rule in RULES:
                found.setdefault(case.shard_uri, set()).add(case.rule)
    listed = {
        f"{one.split}/{one.shard}": one.kind for one in failing(folder, verdict) if one.rule in RULES and one.shard
    }
    assert listed.keys() == found.keys()
    assert all("documents" in kind for kind in listed.values())
    return found


@pytest.mark.builds
@pytest.mark.parametrize("shards", [3, 6])
def test_odd_shards_are_named_by_ready_policies(tmp_path, shards):
    """Of three shards or six: each by the rule for it, and in the list of what failed."""
    _write(tmp_path, ODD, shards)
    build("config.yaml", manifest=tmp_path / "m", cwd=tmp_path)
    expected = {f"train/data/{name}/1.jsonl": rule for name, (*_, rule) in ODD.items()}
    for policy in ("canary", "release-gate", "strict"):
        found = _named(tmp_path / "m", policy)
        assert found.keys() == expected.keys(), policy
        assert all(expected[name] in rules for name, rules in found.items())
    said = {
        one.name: " ".join(spell(text, PLAIN) for text in one.reasons) for one in odd_shards(load(tmp_path / "m"), {})
    }
    for name, words in WORDS.items():
        assert words in said[f"train/data/{name}/1.jsonl"]


@pytest.mark.builds
@pytest.mark.parametrize("shards", [3, 6])
def test_clean_shards_are_not_accused(tmp_path, shards):
    """Tables, mathematics, code with generics, Markdown with some HTML, French prose and others."""
    _write(tmp_path, NOT_ODD, shards)
    build("config.yaml", manifest=tmp_path / "m", cwd=tmp_path)
    for policy in ("canary", "release-gate", "strict"):
        assert _named(tmp_path / "m", policy) == {}


DENSE = """
splits: {train: {paths: ["data/*/*.jsonl"], text: text, source: {column: source}}}
stages: {near_dup: false, repeats: false, toxicity: false, pii: false, secrets: false, histogram: false, filters: false,
  exact_dup: false, overlap: false, language: false, encoding_faults: false}
"""
SOME = ("emoji", "gaps", "markdown", "paths", "placeholders", "of-tags", "units", "capitals", "short", "math")
"""Text that every tenth document of one shard is."""
OTHER = ("base64", "utf-16", "hexadecimal", "pl", "mojibake-russian")
"""What a shard of prose must not be."""


@pytest.mark.builds
def test_bytes_per_token_accuse_other_texts_and_no_mixture(tmp_path):
    """Of twenty even sources with a tenth of other text in a shard none is named, of five with a whole shard all."""
    cases = {f"clean{number}": (SOME[number % len(SOME)], 4) for number in range(20)}
    cases |= {f"odd-{kind}": (kind, 40) for kind in OTHER}
    for name, (kind, number) in cases.items():
        (tmp_path / "data" / name).mkdir(parents=True)
        for shard in range(6):
            texts = documents("en", f"{name} {shard}")
            if shard == 1:
                texts[:number] = documents(kind, name, number)
            lines = [json.dumps({"text": text, "source": name}) for text in texts]
            (tmp_path / "data" / name / f"{shard}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "config.yaml").write_text(DENSE, encoding="utf-8")
    build("config.yaml", manifest=tmp_path / "m", cwd=tmp_path)
    for policy, rule in (("canary", "odd-bytes-per-token"), ("release-gate", "odd-shards")):
        verdict = gate(tmp_path / "m", policy, fail_on="warn")
        found = {
            case.shard_uri for one in verdict.rules for case in one.cases if case.rule == rule and case.state in BAD
        }
        assert found == {f"train/data/odd-{kind}/1.jsonl" for kind in OTHER}
