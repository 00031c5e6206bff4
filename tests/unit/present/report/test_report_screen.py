"""The one screen of `show` and `build`: what is on it, in which order, and that it is never more than one screen."""

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import made_manifest
import pytest
from click.testing import CliRunner
from hostile_manifest import make_hostile
from hypothesis import given
from hypothesis import strategies as st
from made_counts import docs, records, screened
from made_manifest import make, shard

from dataaudit import cli
from dataaudit.base.errors import ConfigError
from dataaudit.base.render.line import cells, shortened
from dataaudit.manifest.core import StageRecord
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Metric, Scope, count, ratio
from dataaudit.metrics.registry import FAMILIES
from dataaudit.metrics.shown import Highlight, Kind
from dataaudit.present.report import show as screens
from dataaudit.present.report.highlights import highlights, round_robin
from dataaudit.present.report.show import SECTIONS, build_summary, show_manifest

DEMO = Path(__file__).parents[4] / "manifests/demo"
CLUSTERS = [("exact", 1, 0, 0, True), ("exact", 1, 9, 0, False)]
PLANTED = {
    "a shard copied": "1.0000 of shard 1",
    "held-out documents in training": "25 of 117 documents of val in training (0.2137), most in shard 10",
    "a shard cut off": "1 of 19 shards not read, truncated_stream (190.0 kB), in shard 13",
    "three broken lines": "3 bad records left out, 186 B, in shard 14",
    "a source off its declared share": "-0.1903 for handbook",
    "a stuck shard": "gopher_repetition rejects 0.9647, median 0.3576, in shard 12",
    "documents rewritten": "583 near-duplicates of an earlier document (0.0450), 0.2560 of code",
    "a quiz": "10 of 16 items of quiz in training, 6 word for word, in shard 5",
    "a repeated sentence": "9 repeated spans, one in 300 documents (0.0234), mostly of manual",
    "insults": "0.2375 toxic (no interval: screen not judged), of 0.0298 screened, in messages",
    "an address book": "0.0294 of documents hold personal data",
    "tokens for access": "7 secrets confirmed, in 7 documents, most in shard 7",
}
"""What `pipelines/demo_corpus.py` planted, and how the screen says it."""


def shown(folder, **more):
    """Return the lines of the screen."""
    return show_manifest(folder, as_json=False, **more).splitlines()


def everything_wrong(folder):
    """Publish a manifest of which every kind stands out, several of them many times."""
    shards = [shard(f"t{index}.jsonl", documents=100, tokens=1000) for index in range(8)]
    shards[0] |= {"secret_hits": 3, "secrets_validated": 2}
    shards.append(shard("far.jsonl", bytes_per_token=1.25, exact_dup_rate=0.9, documents=100))
    shards.append(shard("v.jsonl", split="val"))
    shards += [shard(f"{index:02}.bin", status="quarantined", reason="x", size=900 + index) for index in range(40)]
    shards.append(shard("part.jsonl", status="partial", reason="invalid_json", bad=3))
    ledger = [(10 + index, f"reason_{index % 20:02}", "", -1, 900 + index) for index in range(40)]
    spot = {
        "hotspot": 1,
        "hash": "00" * 8,
        "words": 61,
        "documents": 40,
        "occurrences": 50,
        "tokens": 99,
        "variants": 1,
        "shards": [{"shard": 0, "documents": 9, "occurrences": 9}],
        "sources": [{"source": "web", "documents": 1, "occurrences": 1}],
    }
    found = docs(90, "EMAIL_ADDRESS.validated") + docs(10, "secrets:AWS_KEY.validated")
    return make(
        folder,
        shards,
        ledger=[*ledger, (50, "invalid_json", "", 3, 9)],
        clusters=CLUSTERS,
        mixture={"web": 1, "absent": 9},
        odd=True,
        tables={"hotspots": [spot]},
        metrics=[*_wrong_metrics(), *records(found)],
    )


def _wrong_metrics():
    whole, near, leak, set_ = Scope(), "near_dup_rate", "train_val_overlap", "benchmark_contamination"
    yield ratio("exact_dup_rate", "rate", 90, 900, scope=whole, unit="ratio", version="1")
    for scope in (whole, Scope(split="train"), Scope(split="val"), Scope(source="web")):
        yield ratio(near, "rate", 9, 20, scope=scope, unit="ratio", version="1")
        yield count(near, "documents", 9, scope=scope, unit="documents", n=20, version="1")
    yield count(near, "truncated_pairs", 3, scope=whole, unit="pairs", n=50, version="1")
    yield count(near, "undecided", 3, scope=whole, unit="documents", n=20, version="1")
    for name in (f"held{index:03}" for index in range(50)):
        yield count(leak, "documents", 8, scope=Scope(set=name), unit="documents", n=8, version="1")
        yield ratio(leak, "ngram", 0, 8, scope=Scope(set=name), unit="ratio", version="1")
        yield ratio(leak, "near_dup", 3, 8, scope=Scope(set=name), unit="ratio", version="1")
    for name in (f"quiz{index:03}" for index in range(300)):
        yield count(set_, "items", 9, scope=Scope(set=name), unit="items", n=9, version="1")
        for rule in ("verbatim", "similar"):
            scope = Scope(set=name, entity="question", rule=rule)
            yield ratio(set_, "rate", 3, 6, scope=scope, unit="ratio", version="1")
    for stat, value in (("kl", 0.3), ("js", 0.05), ("kl_bias", 0.01), ("kl_excess", 0.29)):
        yield Metric(metric="token_kl_drift", stat=stat, scope=Scope(split="train"), unit="nats", value=value, n=9)
    for stat, value, n in (
        ("hotspots", 1, 9),
        ("documents", 30, 100),
        ("tokens", 250, 1000),
        ("floor", 20, 20),
        ("below_floor", 7, 50),
    ):
        yield count("doc_repeat_hotspots", stat, value, scope=whole, unit="documents", n=n, version="1")
    yield ratio("doc_repeat_hotspots", "token_share", 250, 1000, scope=whole, unit="ratio", version="1")
    yield from screened({"web": (900, 800, 0.6)})
    yield Metric(
        metric="data_toxicity_rate",
        stat="rate",
        unit="ratio",
        value=None,
        method="sampled",
        status="not_evaluated",
        reason="weights_absent",
    )


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """A manifest with everything wrong."""
    made, patch = tmp_path_factory.mktemp("wrong") / "m", pytest.MonkeyPatch()
    with patch.context() as patched:
        slow = made_manifest._TOKENIZER.model_copy(update={"encoder_reason": "sample_difference"})
        patched.setattr(made_manifest, "_TOKENIZER", slow)
        everything_wrong(made)
    return made


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """The demo with a hostile text in every name."""
    return make_hostile(tmp_path_factory.mktemp("hostile") / "m")


def _one_screen(lines, width):
    assert len(lines) <= screens.LINES, "\n".join(lines)
    wide = [line for line in lines if cells(line) > width]
    assert wide == []


@pytest.mark.tables
@pytest.mark.parametrize("columns", [72, 80, 100, 120, 160])
@pytest.mark.parametrize("name", ["demo", "hostile", "wrong"])
def test_it_is_never_more_than_one_screen(request, monkeypatch, name, columns):
    """Whatever the corpus, at most 24 lines, none wider than the terminal; a build ends with as much."""
    folder = DEMO if name == "demo" else request.getfixturevalue(name)
    monkeypatch.setenv("COLUMNS", str(columns))
    _one_screen(shown(folder), columns)
    result = SimpleNamespace(manifest=load_manifest(folder), exit_code=3, planned=4, scanned=1)
    ended = build_summary(result, as_json=False).splitlines()
    _one_screen(ended, columns)
    assert any(line.startswith("Exit code 3") for line in ended)


@pytest.mark.parametrize("columns", [80, 100])
def test_the_demos_planted_faults_are_on_it_or_counted(monkeypatch, columns):
    """Each of the twelve, the worst first; what there is no room for is counted."""
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = shown(DEMO)
    text = " ".join(" ".join(lines).split())
    missing = [fault for fault, words in PLANTED.items() if words not in text]
    left = [int(line.split()[1]) for line in lines if line.startswith("  and ")]
    assert len(missing) <= sum(left)
    assert missing == [] or columns < 100


def test_every_kind_is_found_in_its_order_and_none_hides_the_others(wrong):
    """Every kind has its turn, a second thing of it if it is grave, before others; what is left out is counted."""
    manifest = load_manifest(wrong)
    found = highlights(manifest)
    kinds = [one.kind for one in found]
    assert set(Kind) - set(kinds) == {Kind.NOTHING_READ, Kind.UNCONFIRMED}
    assert kinds == sorted(kinds)
    for before, after in pairwise(found):
        assert before.kind < after.kind or before.size >= after.size
    lines = shown(wrong)
    listed = [line.split()[0] for line in lines if line.startswith("  ") and line.split()[0] in SECTIONS]
    firsts = round_robin(found)[: len(set(kinds)) + 2]
    assert {found[index].kind for index in firsts} == set(kinds)
    (left,) = (line for line in lines if line.startswith("  and "))
    assert re.match(rf"  and {len(found) - len(listed)} more: leaks 34\d, coverage 1\d, ", left)


def test_json_has_all_of_them_and_names_sections_that_exist(wrong):
    """Programs get every one, worst first, for `show` and for `build`."""
    listed = json.loads(show_manifest(wrong, as_json=True))["stands_out"]
    result = SimpleNamespace(manifest=load_manifest(wrong), exit_code=0, planned=4, scanned=1)
    assert json.loads(build_summary(result, as_json=True))["stands_out"] == listed
    assert [one["kind"] for one in listed[:2]] == ["secrets", "unread"]
    assert len(listed) > 350
    assert {one["section"] for one in listed} <= set(SECTIONS)
    assert all(one["text"] for one in listed)


def test_nothing_is_said_to_stand_out_only_of_what_was_looked_for(tmp_path, monkeypatch):
    """A stage that is off is named, as nothing of it could be found."""
    make(tmp_path / "m", [shard("a.jsonl")])
    text = "\n".join(shown(tmp_path / "m"))
    assert "Nothing stands out of what was looked for." in text
    assert "as no split is held out: overlap; as the stages are off: exact_dup, near_dup" in " ".join(text.split())
    manifest = load_manifest(tmp_path / "m")
    stages = tuple(
        StageRecord(name=name, version="1", parameters={}) for name in (one.stage_name for one in FAMILIES) if name
    )
    full = replace(manifest, core=manifest.core.model_copy(update={"stages": stages}))
    whole = screens.screen(full, 100)
    assert "Nothing stands out.\n" in whole
    assert "Not looked for" not in whole


CORPORA = {
    "no shard": [],
    "nothing read": [shard(f"{index}.bin", status="skipped", reason="unknown_format") for index in range(99)],
    "held out only": [shard("v.jsonl", split="val"), shard("t.jsonl", split="test")],
    "many splits": [shard(f"{index}.jsonl", split=f"split\u65e5\u672c{index:03}" * 9) for index in range(300)],
    "many sources": [shard("a.jsonl", documents=500, sources={f"s{index}" * 30: index for index in range(400)})],
    "long numbers": [shard("a.jsonl", documents=10**15, tokens=2 * 10**15, size=10**15)],
    "long names": [shard("x" * 5000 + ".jsonl", status="quarantined", reason="not_parquet"), shard("\u65e5" * 900)],
}


@pytest.mark.parametrize("columns", [72, 100])
@pytest.mark.parametrize("corpus", CORPORA)
def test_odd_corpora_have_one_screen(tmp_path, monkeypatch, corpus, columns):
    """Nothing at all, nothing read, no training data, very many or very long names."""
    monkeypatch.setenv("COLUMNS", str(columns))
    folder = tmp_path / ("d" * 80) / "m"
    rows = CORPORA[corpus]
    lost = [(index, "unknown_format", "", -1, 50) for index, row in enumerate(rows) if row["status"] == "skipped"]
    make(folder, rows, ledger=lost, dataset="n" * 500, mixture={f"s{index}" * 30: 1 for index in range(400)})
    lines = shown(folder)
    _one_screen(lines, columns)
    assert load_manifest(folder).id in lines[1]
    if not any(row["documents"] for row in rows):
        assert any("No document was read" in line for line in lines)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=400)


@given(
    found=st.lists(
        st.builds(
            Highlight,
            kind=st.sampled_from(Kind),
            part=st.sampled_from(sorted(SECTIONS)),
            size=st.floats(0, 1e9),
            text=NAMES.map(lambda name: f"{shortened(name, 24)} 0.5000 of 1,000 documents"),
            place=NAMES,
            shard=st.none() | st.integers(0, 10**6),
        ),
        min_size=1,
        max_size=40,
    ),
    width=st.integers(72, 160),
    room=st.integers(5, 15),
)
def test_any_list_fits_its_room(found, width, room):
    """Names of whatever script and length: no line too many, none too wide, and none is lost uncounted."""
    lines = screens._listed(found, width, room)
    assert len(lines) <= room
    assert all(cells(line) <= width for line in lines)
    firsts = [line for line in lines if not line.startswith("   ") and not line.startswith("  and ")]
    left = [int(line.split()[1].replace(",", "")) for line in lines if line.startswith("  and ")]
    assert len(firsts) + sum(left) == len(found)


def test_all_is_every_section_and_a_section_is_its_part(wrong):
    """The parts are those of the whole text, in its order; an empty one says so."""
    whole = show_manifest(DEMO, whole=True, as_json=False)
    place = 0
    for name in SECTIONS:
        part = show_manifest(DEMO, part=name, as_json=False)
        if name == "notes" or (name == "drift" and "Drift" not in whole):
            assert f"Nothing of {name}" in part
            continue
        body = part.split("\n", 2)[2]
        assert body in whole[place:], name
        place = whole.index(body, place)
    assert "quiz299" in show_manifest(wrong, part="leaks", as_json=False)


def test_a_wrong_section_names_the_nearest():
    """And all of them; the options that exclude each other are wrong use."""
    for wrong, said in (
        ("secret", r"no section `secret` \(did you mean `secrets`\?\)"),
        ("xyzzy", "no section `xyzzy`\n"),
    ):
        with pytest.raises(ConfigError, match=said) as caught:
            show_manifest(DEMO, part=wrong, as_json=False)
        assert caught.value.hint == f"The parts: {', '.join(SECTIONS)}."
    for wrong_use in (["--all", "--section", "pii"], ["--metric", "tokens", "--all"], ["--section", "pii", "--json"]):
        assert CliRunner().invoke(cli.main, ["show", str(DEMO), *wrong_use]).exit_code == 2


def test_the_report_lists_the_same_things_in_the_same_order():
    """The first screen of the page and that of the terminal speak of the same areas, gravest first."""
    from dataaudit.present.report.page import page_of

    manifest = load_manifest(DEMO)
    found = highlights(manifest)
    areas = [one.area for one in found]
    page = page_of(manifest)
    assert list(dict.fromkeys(one.section for one in page.findings)) == list(dict.fromkeys(areas))
    assert {one.section for one in page.findings if one.tone == "bad"} == {
        area for area, one in zip(areas, found, strict=True) if one.kind.grave
    }
