"""What a corpus says once it is open: the shared table, twins, documents to skip, rules of columns, resuming."""

import datetime as dt
import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_manifest import make
from training_world import PASSING, World, lines, row_of

from dataaudit.base.errors import ConfigError, CorpusRefused, DataAuditError, QuarantineError
from dataaudit.decide.quarantine.applied import FORM
from dataaudit.decide.quarantine.entry import digest_of
from dataaudit.runlog.reader import load_run
from dataaudit.scan.corpus.loss import LossLog
from dataaudit.scan.corpus.readers import END, Part, PartStats, ReadRequest, read_part
from dataaudit.training import Documents, Encoder, PackedDocuments, TokenFile, TrainingMonitor, write_tokens
from dataaudit.training.attribution.run_facts import reported_of
from dataaudit.training.corpus import METRICS, SCHEMA, listed_places, rows_in, share

ROOT = Path(__file__).parents[3]
ALLOWED = ("numpy", "pyarrow", "pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection")
ALLOWED += ("yaml", "_yaml", "orjson", "rfc8785", "dataaudit")
ALONE = f"""
import sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in {ALLOWED!r} and not top.startswith("_"):
            raise ModuleNotFoundError(f"no module {{name}}", name=name)

hidden = [one for one in sys.modules if one.partition(".")[0] in ("click", "cryptography", "rich", "numba", "torch")]
assert not hidden, hidden
sys.meta_path.insert(0, Hide())
from dataaudit.training import open_manifest

folder, policy, key, cache = sys.argv[1:]
corpus = open_manifest(folder, require="verified", cache=cache)
print(corpus, open_manifest(folder, require="passed", policy=policy, cache=cache).verdict.policy, corpus.fields(0).text)
for how in ({{"require": "passed", "policy": "strict"}}, {{"require": "signed", "public_key": key}}):
    try:
        open_manifest(folder, cache=cache, **how)
    except Exception as error:
        print(type(error).__name__, error)
"""
MAPPED = """
import sys, pickle, pyarrow as pa
import dataaudit.training  # constants of modules are no copy of a table
before = pa.total_allocated_bytes()
corpus = pickle.loads(bytes.fromhex(sys.argv[1]))
copied = pa.total_allocated_bytes() - before
print(copied, corpus.table.num_rows, corpus.dropped(0).tolist(), corpus.drops.flags.owndata)
"""


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_the_table_has_a_row_a_shard_by_its_ordinal(tmp_path):
    """And the numbers that attribution shows, as the manifest has them."""
    corpus = World(tmp_path).open()
    assert corpus.table.schema.equals(SCHEMA)
    assert corpus.table["shard"].to_pylist() == [0, 1, 2, 3, 4]
    assert corpus.table["uri"].to_pylist() == ["a.jsonl", "b.jsonl", "b.jsonl#copy=2", "c.jsonl", "v.jsonl"]
    assert corpus.table["tokens"].to_pylist() == [100] * 5
    assert set(METRICS) < set(corpus.table.column_names)
    assert (corpus.dataset, corpus.sources) == ("made@1.0.0", ("code", "v", "web"))
    assert repr(corpus) == f"<Corpus made@1.0.0: 4 of 5 shards; {corpus.id}>"


def test_twins_are_named_by_the_lowest_ordinal_of_equal_bytes(tmp_path):
    """What was not read has no digest, and so no twin."""
    unread = [row_of(f"y{n}.jsonl", b"", status="skipped", reason="x", sha256="", rows_digest=None) for n in range(2)]
    corpus = World(tmp_path, *unread, row_of("z.jsonl", lines("a"))).open(
        quarantine=None, check="size", root=_copy(tmp_path)
    )
    assert corpus.table["twin_of"].to_pylist() == [0, 1, 1, 3, 4, 5, 0, 7]


def _copy(folder):
    (folder / "data/z.jsonl").write_bytes(lines("a"))
    return folder / "data"


@pytest.mark.torch
def test_it_is_pickled_as_paths_and_a_worker_maps_the_same_memory(world):
    """A few hundred bytes, and nothing of the tables is copied into the worker."""
    corpus = world.open(quarantine=world.hold("train/a.jsonl:3", "train/a.jsonl:7"))
    data = pickle.dumps(corpus)
    assert len(data) < 1500
    said = subprocess.run([sys.executable, "-c", MAPPED, data.hex()], capture_output=True, text=True, check=True).stdout
    assert said.split("\n")[0] == "0 5 [3, 7] False"
    assert pickle.loads(data) == corpus


def test_the_file_is_written_once_and_anew_when_it_was_damaged(world, tmp_path):
    """Processes that open the same corpus share it; its name is the digest of its bytes."""
    corpus = world.open()
    inode = corpus.file.stat().st_ino
    assert world.open().file.stat().st_ino == inode
    whole = corpus.file.read_bytes()
    corpus.file.write_bytes(whole[:-100])
    assert world.open().file.read_bytes() == whole
    assert len(list((tmp_path / "cache").iterdir())) == 2
    corpus.file.unlink()
    with pytest.raises(ConfigError, match=r"cannot be read: .*\n  Open the manifest again"):
        pickle.loads(pickle.dumps(corpus))


def counting(tokens, name="mine"):
    """Return an encoder of so many tokens a document; the audit of these counted ten."""
    return Encoder(encode=lambda _: [1] * tokens, name=name, vocab=2)


@pytest.mark.parametrize("tokens", [9, 10, 11, 12, 13])
def test_an_encoder_that_counts_as_the_audit_did_is_the_manifests(world, tmp_path, tokens):
    """Up to two special tokens a document aside; by the file that was written of it, too."""
    corpus, again = world.open(), world.open()
    assert corpus.tokenizer == ""
    write_tokens(Documents(corpus, "train", counting(tokens)), tmp_path / "t.bin")
    TokenFile(tmp_path / "t.bin", again, context=4)
    same = tokens in (10, 11, 12)
    assert corpus.tokenizer == again.tokenizer == (corpus.digests["tokenizer"] if same else "mine")


def test_several_encoders_and_shards_that_lack_documents_are_not_the_manifests_unless_that_is_known(world):
    """An encoder that nobody knows to be the manifest's stands in the log by its name: its ids are not compared."""
    corpus = world.open(quarantine=world.hold("train/a.jsonl:3", "train/b.jsonl:3", "train/c.jsonl:3"))
    Documents(corpus, "train", counting(10))
    assert corpus.tokenizer == "mine"
    corpus = world.open()
    Documents(corpus, "train", counting(9, "mine of nine"))
    Documents(corpus, "train", counting(10, "another"))
    assert corpus.tokenizer == "another, mine of nine"
    corpus = world.open()
    for name in ("mine", "another"):
        Documents(corpus, "train", counting(10, name))
    assert corpus.tokenizer == corpus.digests["tokenizer"]


@pytest.mark.torch
@pytest.mark.parametrize("tokenizer", ["", "bytes"])
def test_documents_that_are_opened_after_the_log_say_whose_ids_they_are(tmp_path, tokenizer):
    corpus = World(tmp_path).open()
    with TrainingMonitor(tmp_path / "run", corpus, tokenizer=tokenizer) as monitor:
        rows = PackedDocuments(Documents(corpus, "train", counting(9)), 8)
        for row in range(2):
            one = rows[row]
            monitor.batch(one["tags"][None], losses=np.ones((1, 8)))
            monitor.step(1.0)
    assert reported_of(load_run(tmp_path / "run").table("events"))["tokenizer"] == (tokenizer or "mine")


def test_a_run_says_whose_ids_it_reads_unless_it_is_told_otherwise(tmp_path):
    """An encoder that has the digest of the manifest's tokenizer in its name is that."""
    corpus = World(tmp_path).open()
    Documents(corpus, "train", counting(9, f"mine {corpus.digests['tokenizer']}"))
    for tokenizer, expected in (("", corpus.digests["tokenizer"]), ("bytes", "bytes")):
        with TrainingMonitor(tmp_path / f"run{tokenizer}", corpus, tokenizer=tokenizer):
            pass
        assert reported_of(load_run(tmp_path / f"run{tokenizer}").table("events"))["tokenizer"] == expected


@pytest.mark.torch
def test_many_may_open_it_at_once(world, tmp_path):
    """Each file appears whole, and once."""
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda _: world.open(), range(16)))
    assert len(set(opened)) == 1
    assert {path.suffix for path in (tmp_path / "cache").iterdir()} == {".arrow"}
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_cache_folder_that_cannot_be_made_is_wrong_use(world, tmp_path, monkeypatch):
    """Named or not."""
    with pytest.raises(ConfigError, match=r"the cache folder .* cannot be made: "):
        world.open(cache=world.list / "cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert world.open(cache=None).file.parent == tmp_path / "home/dataaudit/corpora"
    monkeypatch.setattr("dataaudit.training.corpus.private_folder", lambda *_: None)
    with pytest.raises(ConfigError, match="cache=FOLDER"):
        world.open(cache=None)
    with pytest.raises(ConfigError, match="cannot be written: "):
        share(pa.table({"place": [1]}), "drops", world.list)


def test_documents_that_the_list_names_are_skipped(world):
    """Of both listings of a file: an entry goes by its digest."""
    corpus = world.open(quarantine=world.hold("train/b.jsonl:4", "train/c.jsonl:9"))
    assert [corpus.dropped(shard).tolist() for shard in range(5)] == [[], [4], [4], [9], []]
    assert corpus.drops.tolist() == [(1 << 40) + 4, (2 << 40) + 4, (3 << 40) + 9]
    assert corpus.drops.dtype == np.int64
    assert world.open().drops.tolist() == []


def test_an_applied_list_skips_its_documents_and_holds_its_shards(world):
    """With the list or without it."""
    world.hold("train/a.jsonl", "train/b.jsonl:4")
    world.apply()
    for how in ({}, {"quarantine": world.list}):
        corpus = world.open(applied=world.applied, **how)
        assert corpus.table["held"].to_pylist() == ["quarantined", "", "", "", "not chosen"]
        assert corpus.dropped(1).tolist() == [4]
        assert corpus.digests["applied"].startswith("sha256:")


def test_what_a_drop_list_is_known_to_lack_is_said(world):
    """As `quarantine apply` said when it was written."""
    _edit(world.apply(), lambda record: record["documents"].update(incomplete=["3 documents"]))
    assert world.open(applied=world.applied).notes[1:] == ("the drop list lacks 3 documents",)


def test_what_an_applied_list_left_out_stays_held_when_an_entry_has_ended(world):
    """Its documents are in no drop list."""
    world.hold("train/a.jsonl")
    folder = world.apply(on=dt.date(2026, 11, 22))
    world.list.write_bytes(b"")
    assert world.open(applied=folder).table["held"].to_pylist()[0] == "quarantined"


@pytest.mark.parametrize("wrong", [{"row": -1}, {"row": 1 << 41}, {"shard": -1}, {"shard": 9}, {"sha256": "ab" * 32}])
def test_a_drop_list_of_other_documents_is_refused(world, wrong):
    """Of a shard, a row or bytes that the manifest does not have."""
    world.edit_drops(**wrong)
    with pytest.raises(CorpusRefused, match="names documents that the manifest does not have"):
        world.open(applied=world.applied)


@pytest.mark.parametrize("name", ["applied.json", "excluded.jsonl", "documents.parquet"])
@pytest.mark.parametrize("data", [None, b"", b"{}", b"[]\n", b"\xff"])
def test_a_damaged_folder_of_an_applied_list_is_an_error(world, name, data):
    """Never a list that holds nothing."""
    world.hold("train/a.jsonl")
    path = world.apply() / name
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    with pytest.raises(DataAuditError) as caught:
        world.open(applied=world.applied)
    assert name in caught.value.message


SPOILED = {
    "a drop list without its last document": lambda folder: _drop_one(folder / "documents.parquet"),
    "no drop list": lambda folder: (folder / "documents.parquet").unlink(),
    "shards that are not excluded": lambda folder: (folder / "excluded.jsonl").write_bytes(b""),
    "a cut list of paths": lambda folder: os.truncate(folder / "train.txt", 3),
    "another list of paths": lambda folder: (folder / "train.txt").write_text("/held.jsonl\n"),
    "a list of paths under another name": lambda folder: (folder / "train.txt").rename(folder / "training.txt"),
    "lists of two splits swapped": lambda folder: _swap(folder / "train.txt", folder / "val.txt"),
    "rows of a shard added": lambda folder: (folder / "rows" / "000004.txt").write_bytes(b"1\n"),
    "rows of a shard taken away": lambda folder: next((folder / "rows").iterdir()).unlink(),
    "rows of a shard emptied": lambda folder: next((folder / "rows").iterdir()).write_bytes(b""),
    "a file of another list": lambda folder: (folder / "more.txt").write_bytes(b""),
    "a link to the same bytes": lambda folder: _link(folder / "documents.parquet"),
    "a folder behind a link": lambda folder: _link(folder / "rows"),
    "a pipe": lambda folder: os.mkfifo(folder / "pipe"),
    "a digest left out": lambda folder: _edit(folder, lambda record: record["files"].pop("excluded.jsonl")),
    "a name outside": lambda folder: _edit(
        folder, lambda record: record["files"].update({"../m/manifest.json": "sha256:0"})
    ),
    "digests that are none": lambda folder: _edit(folder, lambda record: record["files"].update({"train.txt": 3})),
}
"""What may become of a folder of `quarantine apply` between two hands."""


def _drop_one(path):
    table = pq.read_table(path)
    pq.write_table(table.slice(0, table.num_rows - 1), path, store_schema=True)


def _swap(first, second):
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)


def _link(path):
    path.rename(path.parent.parent / "moved")
    path.symlink_to(path.parent.parent / "moved")


def _edit(folder, change):
    record = json.loads((folder / "applied.json").read_bytes())
    change(record)
    (folder / "applied.json").write_text(json.dumps(record))


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_no_file_of_an_applied_list_can_become_another(world, spoil):
    """The record has the digests of all, and the run log that of the record."""
    world.hold("train/a.jsonl", "train/b.jsonl:4", "train/c.jsonl:2")
    folder = world.apply(rows=True)
    assert world.open(applied=folder).digests["applied"] == digest_of((folder / "applied.json").read_bytes())
    spoil(folder)
    with pytest.raises(CorpusRefused, match="is not as it was written, so which documents to skip is not known"):
        world.open(applied=folder)


def test_a_folder_of_an_older_version_is_written_again(world):
    """It has no digests."""
    older = {"schema": FORM | {"version": 1}}
    _edit(world.apply(), lambda record: record.update(older, files=sorted(record["files"])))
    with pytest.raises(QuarantineError, match=r"expected .*'version': 2.*, found .*'version': 1") as caught:
        world.open(applied=world.applied)
    assert "Write it again" in caught.value.hint
    assert world.apply()
    assert world.open(applied=world.applied)


def test_the_rule_of_a_shard_gives_the_rows_and_sources_of_the_audit(world):
    """A column, or a pattern in the URI; text by its dotted path."""
    corpus = world.open(splits=["train", "val"])
    request = ReadRequest(
        path=corpus.path(1),
        format="jsonl",
        compression="none",
        part=Part(0, END),
        fields=corpus.fields(1),
        batch_bytes=64,
    )
    batches = list(read_part(request, LossLog(), PartStats()))
    assert sum(len(batch.rows) for batch in batches) == 10
    assert (corpus.fields(4).text, corpus.fields(4).source_constant) == ("text", "v")
    assert (corpus.fields(0).text, corpus.fields(0).source_column) == ("body.text", "from")


def test_a_manifest_without_columns_in_its_config_says_so(world, tmp_path):
    """Only when a rule is asked for."""
    world.manifest = tmp_path / "n"
    make(world.manifest, world.rows, roots=world.data)
    with pytest.raises(ConfigError, match="does not say which columns of split train were read"):
        world.open().fields(0)


def test_a_split_that_was_not_opened_is_opened_apart_and_nobody_is_asked_to_train_on_it(world):
    with pytest.raises(ConfigError, match="the split `val` is not among those that were opened: train") as raised:
        Documents(world.open(), "val", counting(9))
    hint = "For a loader of its own, as of held-out data, open it apart: open_manifest(..., splits=['val'])."
    assert raised.value.hint == hint


def test_a_resumed_run_is_held_to_the_corpus_that_it_began_with(world):
    """What differs is named; what is allowed by name may differ."""
    state = json.loads(json.dumps(world.open().state()))
    world.open().compare(state)
    other = world.open(quarantine=world.hold("train/c.jsonl"), splits=["train", "val"])
    with pytest.raises(CorpusRefused) as caught:
        other.compare(state)
    assert str(caught.value).startswith("the checkpoint is of another corpus: quarantine was none, is sha256:")
    assert "splits was train, is train,val" in str(caught.value)
    assert "allow=('quarantine', 'splits')" in str(caught.value)
    with pytest.raises(CorpusRefused, match=r"corpus: splits was train, is train,val\n"):
        other.compare(state, allow=["quarantine"])
    other.compare(state, allow=("quarantine", "splits"))


@pytest.mark.parametrize(
    "name", ["manifest", "policy", "quarantine", "applied", "tokenizer", "config", "held", "splits", "library"]
)
def test_every_part_of_the_state_is_compared(tmp_path, name):
    """And allowed by its own name alone."""
    corpus = World(tmp_path).open(require="passed", policy=PASSING)
    state = corpus.state() | {name: "another"}
    with pytest.raises(CorpusRefused, match=f": {name} was another, is "):
        corpus.compare(state, allow=set(state) - {name})
    corpus.compare(state, allow=name)


def test_a_list_that_says_less_since_an_entry_ended_is_noticed(world, monkeypatch):
    """Its digest is the same; what it leaves out is not."""
    world.hold("train/a.jsonl", until=dt.date(2026, 11, 21))
    days = iter([dt.date(2026, 11, 21), dt.date(2026, 11, 22)])
    monkeypatch.setattr("dataaudit.decide.quarantine.list.today", lambda: next(days))
    before, after = (world.open(quarantine=world.list) for _ in range(2))
    assert before.quarantine_digest == after.quarantine_digest
    with pytest.raises(
        CorpusRefused, match=r"^the checkpoint is of another corpus: held was sha256:\S+, is sha256:\S+\n"
    ):
        after.compare(before.state())
    after.compare(before.state(), allow="held")


def test_what_is_no_state_and_an_unknown_name_are_wrong_use(tmp_path):
    """A checkpoint of something else is not taken for an equal one."""
    corpus = World(tmp_path).open()
    for state in ({}, {"manifest": corpus.id}, [], corpus.state() | {"more": ""}):
        with pytest.raises(ConfigError, match="expected the state of a corpus"):
            corpus.compare(state)
    with pytest.raises(ConfigError, match="no `quarantin`"):
        corpus.compare(corpus.state(), allow=["quarantin"])


@given(st.sets(st.tuples(st.integers(0, 6), st.integers(0, 2**40 - 1) | st.integers(0, 5))))
def test_rows_of_a_shard_are_found_among_the_places(places):
    """As looking at every place finds them."""
    ordered = sorted(places)
    shards, rows = [place[0] for place in ordered], [place[1] for place in ordered]
    half = len(ordered) // 2
    table = pa.table({"shard": pa.array(shards, pa.int32()), "row": pa.array(rows, pa.int64())})
    listed = listed_places([table.slice(half), table.slice(0, half), table.slice(0, 1)])
    assert listed.tolist() == [shard * 2**40 + row for shard, row in ordered]
    for shard in range(8):
        assert rows_in(listed, shard).tolist() == [row for one, row in ordered if one == shard]


def test_opening_needs_few_libraries(world, tmp_path):
    """Neither torch nor the command line nor anything that scans; a signature asks for cryptography by name."""
    world.sign()
    (tmp_path / "policy.yaml").write_text(json.dumps(PASSING))
    command = [sys.executable, "-c", ALONE, world.manifest, tmp_path / "policy.yaml", world.public, tmp_path / "cache"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    opened, refused, *signed = done.stdout.splitlines()
    assert opened == f"{world.open()} enough body.text"
    assert refused.startswith("CorpusRefused the manifest does not pass the policy strict: ")
    assert signed[-2:] == [
        "ConfigError to check a signature the module cryptography is needed",
        "  pip install cryptography",
    ]
