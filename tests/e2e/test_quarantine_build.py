"""A build under a quarantine list: what is held back leaves every number as if it had not been in the corpus."""

import json
import shutil

import pyarrow.compute as pc
import pytest
from corpus import CONFIG as SPLITS
from corpus import documents, question, write_jsonl
from forged import forge
from running import build, metric, run

from dataaudit.decide.quarantine.list import read
from dataaudit.manifest.metric import Scope
from dataaudit.manifest.verify import verify
from dataaudit.runlog.reader import load_run
from dataaudit.training.documents import Documents, byte_encoder
from dataaudit.training.monitor import TrainingMonitor
from dataaudit.training.opening import open_manifest
from dataaudit.training.packing import ROW, SHARD, PackedDocuments

pytestmark = pytest.mark.builds

CONFIG = f"""{SPLITS}
protected:
  quiz: {{paths: ["eval/quiz.jsonl"], question: question, answer: answer}}
reader: {{max_bad_records: 0.5, part_bytes: 20000}}
stages: {{language: false, toxicity: false}}
"""
OF_FILES = {"size", "sha256", "rows_digest", "rows", "held_back_documents", "schema_fingerprint"}
"""Columns of the table of shards that are of the file, not of its documents."""


def corpus():
    """Return {name: lines}: exact and near duplicates, repeats, secrets, leaks of a split and of a question."""
    texts = list(dict.fromkeys(text.strip() for text in documents(400, seed=3)))
    train, val = texts[:150], texts[150:165]
    train[70] = train[3]
    train[71] = train[4] + " And a few more words at its end."
    train[72] = train[5] + " Again, a few more words at its end."
    train[80] = f"Before. {val[2]} After."
    train[81] = f"Before it. {val[6]} After it."
    train[90] = f"{question(1)} Seven of them. {train[90]}"
    train[91] = f"{question(1)} Seven of them. {train[91]}"
    train[100] += " mail ana.smith@example.com or bo@example.net, key AKIAQ3EGRZ7WXQ5NPLMT"
    train[101] += " mail cy.brown@firm.com, key AKIAQ3EGRZ7WXQ5NPLMV"
    lines = [{"text": text, "source": f"s{index % 3}"} for index, text in enumerate(train)]
    lines[120]["source"] = "alone"
    shards = {"train/a.jsonl": lines[:60], "train/b.jsonl": lines[60:110], "train/c.jsonl": lines[110:]}
    return shards | {"val/v.jsonl": [{"text": text, "source": "v"} for text in val]}


def write(folder, shards):
    """Write a corpus with its config."""
    for name, lines in shards.items():
        write_jsonl(folder / "data" / name, lines)
    write_jsonl(folder / "eval/quiz.jsonl", [{"question": question(n), "answer": "seven"} for n in (1, 2)])
    (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
    return folder


def facts(manifest, *, rows=None, shards=None):
    """Return metrics and tables as plain values; names of rows and shards of the smaller corpus as in the larger one.

    Args:
        manifest: The manifest.
        rows: Records of the larger corpus that are left, by ordinal of the larger corpus.
        shards: Ordinals of the larger corpus that are left.
    """
    ordinal = (lambda number: number) if shards is None else (lambda number: shards[number])

    def place(row):
        if "shard" not in row or row["shard"] is None:
            return row
        row = row | {"shard": ordinal(row["shard"])}
        if rows is not None and "row" in row and row["shard"] in rows:
            row |= {"row": rows[row["shard"]][row["row"]]}
        return row

    found = {}
    for name in manifest.core.tables:
        kept = [place(row) for row in manifest.table(name).to_pylist()]
        if name == "shards":
            kept = [{key: value for key, value in row.items() if key not in OF_FILES} for row in kept]
            kept = [row for row in kept if row["status"] != "skipped"]
        if name == "ledger":
            kept = [row for row in kept if row["reason"] != "quarantine_list"]
        if name == "metrics":
            kept = [row for row in kept if row["metric"] not in {"coverage_unread_bytes", "held_back_shards"}]
            for row in kept:
                row["scope"] = place(row["scope"])
        found[name] = sorted(kept, key=lambda row: json.dumps(row, sort_keys=True, default=str))
    return found


def without(shards, gone):
    """Return a corpus without some records, and what is left, by name."""
    left = {name: [row for row in range(len(lines)) if row not in gone.get(name, ())] for name, lines in shards.items()}
    return {name: [shards[name][row] for row in rows] for name, rows in left.items()}, left


GONE = {"train/a.jsonl": {3, 5, 59}, "train/b.jsonl": {0, 11, 20, 30, 40}, "train/c.jsonl": {10}, "val/v.jsonl": {6, 9}}
"""One of a pair of each kind of what joins documents, the only document of a source, held-out documents."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The corpus, its folder, and its manifest without a list."""
    folder = write(tmp_path_factory.mktemp("whole"), corpus())
    return folder, build("config.yaml", manifest=folder / "all", cwd=folder)[1]


def hold(folder, *places, file="q.jsonl"):
    """Hold shards or documents back."""
    run("quarantine", "add", file, "--manifest", "all", *places, "--reason", "spam", "--who", "ana", cwd=folder)


def test_documents_held_back_leave_every_number_as_if_they_had_not_been_there(whole, tmp_path):
    """Duplicates, leaks, repeats, findings, sources, histograms: every table and metric of a corpus without them."""
    folder, before = whole
    hold(folder, *(f"data/{name}:{row}" for name, rows in GONE.items() for row in rows), file="documents.jsonl")
    summary, held = build(
        "config.yaml", "--quarantine", "documents.jsonl", manifest=folder / "documents", cwd=folder, expect=0
    )
    smaller, left = without(corpus(), GONE)
    clean = build("config.yaml", manifest=tmp_path / "m", cwd=write(tmp_path, smaller))[1]
    rows = {number: left[name] for number, name in enumerate(corpus())}
    one, other = facts(held), facts(clean, rows=rows)
    for name in one:
        assert one[name] == other[name], name
    assert one["metrics"] != facts(before)["metrics"]
    assert metric(held, "coverage_unread_bytes", "bytes") == 0
    ledger, number = held.core.ledger.documents, sum(map(len, GONE.values()))
    assert (ledger.held_back, ledger.planned) == (number, before.core.ledger.documents.planned)
    assert summary["ledger"]["documents"]["held_back"] == number
    assert metric(held, "held_back_shards", "documents") == number
    assert {one.sha256: set(one.rows) for one in held.core.quarantine} == {
        row["sha256"]: GONE[row["uri"].removeprefix("data/")] for row in before.table("shards").to_pylist()
    }
    assert verify(held) == []


def test_a_shard_held_back_leaves_every_number_as_if_it_had_not_been_there(whole, tmp_path):
    """It stands in the table of shards and in the ledger: skipped, by the list; no byte counts as unread, exit 0."""
    folder, _ = whole
    hold(folder, "train/data/train/b.jsonl", file="shards.jsonl")
    _, held = build("config.yaml", "--quarantine", "shards.jsonl", manifest=folder / "shards", cwd=folder, expect=0)
    smaller = {name: lines for name, lines in corpus().items() if name != "train/b.jsonl"}
    clean = build("config.yaml", manifest=tmp_path / "m", cwd=write(tmp_path, smaller))[1]
    one, other = facts(held), facts(clean, shards=[0, 2, 3])
    for name in one:
        assert one[name] == other[name], name
    row = held.table("shards").to_pylist()[1]
    assert (row["status"], row["reason"], row["documents"]) == ("skipped", "quarantine_list", 0)
    assert len(row["sha256"]) == 64
    ledger = held.core.ledger
    assert (ledger.shards.skipped, ledger.listed_shards, ledger.listed_bytes) == (1, 1, row["size"])
    assert [one.rows for one in held.core.quarantine] == [None]
    listed = read(folder / "shards.jsonl")
    assert (held.run.quarantine.digest, held.run.quarantine.lines) == (listed.digest, listed.lines)
    assert verify(held) == []
    out, _ = run("show", "shards", "--section", "coverage", cwd=folder)
    assert "All 3 planned shards were read. The quarantine list holds back 1 shard" in " ".join(out.split())
    assert metric(held, "coverage_unread_bytes", "bytes") == metric(clean, "coverage_unread_bytes", "bytes") == 0


def test_a_shard_packed_anew_is_held_back_still(whole, tmp_path):
    """Its rows are the same: it is read once, then left out; so are single documents of one without bad records."""
    folder, _ = whole
    hold(folder, "data/train/b.jsonl", "data/train/a.jsonl:3", "data/val/v.jsonl:6", file="anew.jsonl")
    shards = corpus()
    packed = write(tmp_path / "packed", {f"{name}.gz": lines for name, lines in shards.items()})
    call = ("config.yaml", "--quarantine", folder / "anew.jsonl")
    _, held = build(*call, manifest=packed / "m", cwd=packed)
    gone = {"train/a.jsonl": {3}, "val/v.jsonl": {6}}
    smaller, left = without({name: lines for name, lines in shards.items() if name != "train/b.jsonl"}, gone)
    clean = build("config.yaml", manifest=tmp_path / "m", cwd=write(tmp_path, smaller))[1]
    one = facts(held)
    other = facts(clean, rows={0: left["train/a.jsonl"], 3: left["val/v.jsonl"]}, shards=[0, 2, 3])
    assert [row["reason"] for row in held.table("shards").to_pylist()] == ["", "quarantine_list", "", ""]
    for name in set(one) - {"shards"}:
        assert one[name] == other[name], name
    again = build(*call, manifest=packed / "again", cwd=packed)[1]
    assert again.id == held.id
    fresh = build(*call, "--fresh", "--state", tmp_path / "state", manifest=packed / "fresh", cwd=packed)[1]
    assert fresh.id == held.id


def test_a_row_of_a_shard_that_has_changed_is_another_document(whole, tmp_path):
    """An entry holds nothing back under another digest: its row may be anything now."""
    folder, _ = whole
    hold(folder, "data/train/a.jsonl:3", "data/train/b.jsonl", file="stale.jsonl")
    shards = corpus()
    changed = shards | {"train/a.jsonl": shards["train/a.jsonl"][1:], "train/b.jsonl": shards["train/b.jsonl"][1:]}
    call = {"cwd": write(tmp_path, changed)}
    held = build("config.yaml", "--quarantine", folder / "stale.jsonl", manifest=tmp_path / "held", **call)[1]
    clean = build("config.yaml", manifest=tmp_path / "clean", **call)[1]
    assert facts(held) == facts(clean)


@pytest.mark.parametrize(
    ("places", "says"),
    [
        (["data/val/v.jsonl"], "the split `val` would vanish: the quarantine list holds back all of it (1 shard)"),
        ([f"data/val/v.jsonl:{row}" for row in range(15)], "the split `val` would vanish"),
    ],
)
def test_a_split_that_would_vanish_is_an_error(whole, tmp_path, places, says):
    """Whole, or document by document: its numbers would be gone without a word."""
    folder, _ = whole
    hold(folder, *places, file=tmp_path / "val.jsonl")
    call = ("build", "config.yaml", "--quarantine", tmp_path / "val.jsonl", "--manifest", tmp_path / "m")
    _, err = run(*call, cwd=folder, expect=2)
    assert says in err
    assert not (tmp_path / "m").exists()


def test_a_list_with_a_line_that_was_changed_is_refused(whole, tmp_path):
    """What that line left out is not known: exit 3, nothing is published."""
    folder, _ = whole
    path = tmp_path / "q.jsonl"
    hold(folder, "data/train/a.jsonl:3", "data/train/a.jsonl:4", file=path)
    path.write_bytes(path.read_bytes().replace(b'"row":3', b'"row":5'))
    call = ("build", "config.yaml", "--quarantine", path, "--manifest", tmp_path / "m")
    assert "line 1 (id_mismatch)" in run(*call, cwd=folder, expect=3)[1]
    assert not (tmp_path / "m").exists()
    assert "no quarantine list" in run("build", "config.yaml", "--quarantine", "no", *call[4:], cwd=folder, expect=2)[1]


def test_a_list_of_paths_is_not_taken_for_data(whole, tmp_path):
    """What `quarantine apply` writes is text: its lines would become documents."""
    folder, _ = whole
    hold(folder, "data/train/b.jsonl", file=tmp_path / "q.jsonl")
    run("quarantine", "apply", tmp_path / "q.jsonl", "--manifest", "all", "--out", tmp_path / "clean", cwd=folder)
    for given in (tmp_path / "clean", tmp_path / "clean/train.txt"):
        said = run("build", given, "--manifest", tmp_path / "m", cwd=folder, expect=2)[1]
        assert "holds lists of paths that `quarantine apply` wrote, no data" in said


RULE = {"name": "documents", "metric": "documents", "stat": "count", "unit": "documents", "budget": 10**6}


def gate(folder, manifest, *more, expect, name="p.yaml", **keys):
    """Judge by a policy that everything passes, unless keys say otherwise; return what is said on stderr."""
    policy = {"policy": "p", "version": "1", "rules": [RULE], **keys}
    (folder / name).write_text(json.dumps(policy), encoding="utf-8")
    return run("gate", manifest, "--policy", name, *more, cwd=folder, expect=expect)[1]


def test_what_is_held_back_is_a_number_that_a_policy_can_limit(whole, tmp_path):
    """In all and by split, with the shards as evidence; 0 of a build without a list, whose records name none."""
    folder, before = whole
    path = folder / "counted.jsonl"
    hold(folder, "data/train/b.jsonl", "data/train/a.jsonl:3", "data/val/v.jsonl:6", "data/val/v.jsonl:9", file=path)
    _, held = build("config.yaml", "--quarantine", path, manifest=folder / "counted", cwd=folder)
    for stat, numbers in {"shards": (1, 1, 0), "documents": (3, 1, 2)}.items():
        scopes = (Scope(), Scope(split="train"), Scope(split="val"))
        assert tuple(held.metrics("held_back_shards", stat, scope)[0].value for scope in scopes) == numbers
    assert before.metrics("held_back_shards") == []
    few = {"name": "few", "metric": "held_back_shards", "stat": "documents", "unit": "documents", "budget": 1}
    few["scope"] = {"per": "split"}
    none = {"name": "none", "metric": "held_back_shards", "stat": "shards", "unit": "shards", "budget": 0}
    grown = {"name": "grown", "metric": "held_back_shards", "stat": "shards", "unit": "shards", "change": 0}
    grown["direction"] = "up"
    rules = {"rules": [few, none, grown], "name": "counted.yaml"}
    gate(folder, "all", "--baseline", "all", expect=0, **rules)
    out = tmp_path / "gate.json"
    gate(folder, "counted", "--baseline", "all", "--out", out, expect=1, **rules)
    cases = {
        (case["rule"], case["scope"]["split"]): (case["judged"], [one["uri"] for one in case["evidence"]])
        for result in json.loads(out.read_bytes())["verdict"]["rules"]
        for case in result["cases"]
    }
    assert cases == {
        ("few", "val"): (2, ["val/data/val/v.jsonl"]),
        ("none", None): (1, ["train/data/train/b.jsonl"]),
        ("grown", None): (1, ["train/data/train/b.jsonl"]),
        ("coverage", None): (0, []),
    }
    gate(folder, "all", "--baseline", "counted", expect=0, **rules)
    key = "\n# quarantine_list: quarantine.jsonl\n"
    assert [key in run("policy", "draft", name, cwd=folder)[0] for name in ("all", "counted")] == [False, True]
    shutil.copytree(folder / "counted", tmp_path / "forged")
    records = held.table("metrics")
    forge(tmp_path / "forged", {"metrics": records.filter(pc.not_equal(records["metric"], "held_back_shards"))})
    for call in (("verify", tmp_path / "forged"), ("gate", tmp_path / "forged", "--policy", "counted.yaml")):
        said = "".join(run(*call, cwd=folder, expect=1))
        assert "held_back_shards.shards is absent, its tables determine 1" in " ".join(said.split())


def test_what_is_held_back_is_not_released(whole):
    """A manifest built before an entry was added; one that was built under the list; one under a list since cut off."""
    folder, _ = whole
    path = folder / "released.jsonl"
    hold(folder, "data/train/b.jsonl", "data/train/a.jsonl:3", file=path)
    listed = ("--quarantine-list", path)
    assert gate(folder, "all", expect=0) == ""
    said = gate(folder, "all", *listed, expect=1)
    assert "holds back 1 shard and 1 document that the manifest releases" in said
    assert "train/data/train/b.jsonl" in said
    assert "train/data/train/a.jsonl:3" in said
    build("config.yaml", "--quarantine", path, manifest=folder / "released", cwd=folder)
    assert gate(folder, "released", *listed, expect=0) == ""
    hold(folder, "data/train/a.jsonl:4", file=path)
    assert "1 document that the manifest releases" in gate(folder, "released", *listed, expect=1)
    build("config.yaml", "--quarantine", path, manifest=folder / "later", cwd=folder)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    for more in (["later"], ["released", "--baseline", "later"]):
        assert "1 line(s) are lost that the" in gate(folder, *more, *listed, expect=3)
    apply = ("quarantine", "apply", path, "--manifest", "later", "--out", "left")
    assert "1 line(s) are lost that the manifest sha256:" in run(*apply, cwd=folder, expect=3)[1]
    again = ("build", "config.yaml", "--quarantine", path, "--manifest", "later")
    assert "1 line(s) are lost that the manifest before sha256:" in run(*again, cwd=folder, expect=3)[1]
    pointer = json.loads((folder / "later/manifest.json").read_text())
    pointer["run"]["quarantine"]["lines"] = []
    (folder / "later/manifest.json").write_text(json.dumps(pointer))
    assert "1 line(s) are lost that the manifest sha256:" in gate(folder, "later", *listed, expect=3)
    pointer["run"]["quarantine"] = None
    (folder / "later/manifest.json").write_text(json.dumps(pointer))
    for call in (("verify", "later"), ("gate", "later", "--policy", "p.yaml", *listed)):
        said = "".join(run(*call, cwd=folder, expect=1))
        assert "the core names what a quarantine list held back" in said


def test_training_leaves_out_what_the_build_left_out(whole, tmp_path):
    """By the manifest alone, whoever names a list or none: no tag of a batch names such a row, and the log says so."""
    folder, _ = whole
    gone = {(0, 3), (0, 59), (2, 10)}
    rows = [f"data/train/{'abc'[shard]}.jsonl:{row}" for shard, row in gone]
    hold(folder, "data/train/b.jsonl", *rows, file="t.jsonl")
    build("config.yaml", "--quarantine", "t.jsonl", manifest=folder / "trained", cwd=folder)
    run("quarantine", "lift", "t.jsonl", "train/data/train/a.jsonl:3", "--reason", "fine", cwd=folder)
    for more in ({}, {"quarantine": folder / "t.jsonl"}):
        corpus = open_manifest(folder / "trained", require="verified", cache=tmp_path / "cache", **more)
        held = Documents(corpus, "train", byte_encoder(end=0))
        rows = PackedDocuments(held, 512, seed=3, order="sequential")
        seen = {(int(tag[SHARD]), int(tag[ROW])) for row in rows for tag in row["tags"] if tag[SHARD] >= 0}
        assert {shard for shard, _ in seen} == {0, 2}
        assert len(seen) > 80
        assert not seen & gone
    [said] = [note for note in corpus.notes if "left out" in note]
    assert said == "1 shard and 3 documents left out, as the quarantine list of the build said: nobody audited them"
    with TrainingMonitor(tmp_path / "log", corpus):
        pass
    events = load_run(tmp_path / "log").table("events").to_pylist()
    assert said in json.loads(events[0]["detail"])["notes"]


def test_the_corpus_holds_what_the_list_is_to_leave_out(whole):
    """Else these tests would say nothing: shards are cut into parts, and every table has rows."""
    _, before = whole
    assert before.run.parts_planned > 4
    joined = {"clusters", "findings", "histogram", "near_sources", "overlap", "pairs", "sources"}
    assert joined <= {name for name in before.core.tables if before.table(name).num_rows}


def test_a_build_over_what_it_cannot_know_the_list_of_says_so(whole, tmp_path):
    """Over a damaged manifest, and over one with a list when none is given; else nothing is said."""
    folder, _ = whole
    hold(folder, "data/train/b.jsonl", file=tmp_path / "q.jsonl")
    call = ("build", "config.yaml", "--manifest", tmp_path / "m", "--quiet")
    listed = (*call, "--quarantine", tmp_path / "q.jsonl")
    for given, words in ((listed, ""), (listed, ""), (call, "no list is given now: nothing is held back"), (call, "")):
        said = run(*given, cwd=folder)[1]
        assert words in " ".join(said.split())
        assert bool(words) == ("list" in said), said
    (tmp_path / "m" / "manifest.json").write_text("{")
    said = " ".join(run(*listed, cwd=folder)[1].split())
    assert "the manifest that is replaced cannot be read" in said
    assert "which lines of one have been lost since, is unknown" in said
