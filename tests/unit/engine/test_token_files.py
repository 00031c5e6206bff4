"""`dataaudit tokenize` and `dataaudit map`: what is written is what was audited, and what is not is found by name."""

import importlib.util
import json
import random
import shutil
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from lanes import sample, thinned
from made_tokens import Corpus, texts, write_flat, write_megatron

from dataaudit import api, cli
from dataaudit.base.sealing import key_id
from dataaudit.scan.corpus.token_files import map_path

PLANTED = ("missing", "extra", "duplicated", "truncated", "retokenized", "reordered")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus of 3,000 documents to train on, audited."""
    return Corpus(tmp_path_factory.mktemp("tokens"), 1000)


def call(*arguments):
    """Run the command line in this process."""
    return CliRunner().invoke(cli.main, [str(one) for one in arguments], env={"COLUMNS": "200"})


def tokenize(corpus, out, *more, format_="megatron", expect=0):
    """Write token files; return what the command printed."""
    done = call(
        "tokenize", corpus.manifest, "--out", out, "--format", format_, "--workers", 0, "--quiet", "--json", *more
    )
    assert done.exit_code == expect, done.output
    return json.loads(done.stdout) if not expect else done.output


def mapped(corpus, *files, expect=0):
    """Map token files, with options behind them; return what the command printed."""
    done = call("map", *files, "--manifest", corpus.manifest, "--workers", 0, "--quiet")
    assert done.exit_code == expect, done.output
    assert "Traceback" not in done.output
    return done.output


def map_(corpus, *files, expect=0):
    """Map token files, with options behind them; return the record."""
    return json.loads(mapped(corpus, *files, "--json", expect=expect))


def named(record, kind):
    """Return the documents that a record names for a kind of fault."""
    return [case["document"] for case in record["faults"][kind]["named"]]


def counts(record):
    """Return the documents of each kind of fault that there is."""
    return {kind: found["documents"] for kind, found in record["faults"].items() if found["documents"]}


def hold_back(corpus, path, *names):
    """Write a quarantine list of some shards and documents."""
    done = call("quarantine", "add", path, *names, "--manifest", corpus.manifest, "--reason", "manual")
    assert done.exit_code == 0, done.output
    return path


@pytest.fixture(scope="module")
def written(corpus):
    """What `tokenize` writes of it in both formats."""
    for format_ in ("megatron", "flat"):
        tokenize(corpus, corpus.folder / format_, format_=format_)
    return corpus


@pytest.mark.stores
@pytest.mark.parametrize(("format_", "write"), [("megatron", write_megatron), ("flat", write_flat)])
def test_the_files_are_those_that_a_slow_twin_writes(written, tmp_path, format_, write):
    """Byte for byte: tokens, end tokens, index."""
    twin = write(tmp_path / "twin.bin", [[*tokens, written.end] for _, tokens in written.documents()])
    own = written.folder / format_ / "train.bin"
    assert own.read_bytes() == twin.read_bytes()
    if format_ == "megatron":
        assert own.with_suffix(".idx").read_bytes() == twin.with_suffix(".idx").read_bytes()


@pytest.mark.filterwarnings("ignore")  # its own
@pytest.mark.skipif(
    not (importlib.util.find_spec("megatron") and importlib.util.find_spec("torch")), reason="megatron-core is not here"
)
def test_megatrons_own_reader_and_writer_agree(written, tmp_path):
    """Its reader gives the documents, and its writer makes the same bytes of them."""
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

    own = written.folder / "megatron/train"
    read = IndexedDataset(str(own))
    expected = [[*tokens, written.end] for _, tokens in written.documents()]
    assert [read[index].tolist() for index in range(len(read))] == expected
    builder = IndexedDatasetBuilder(str(tmp_path / "m.bin"), dtype=read.index.dtype)
    for tokens in expected:
        builder.add_document(torch.tensor(tokens), [len(tokens)])
    builder.finalize(str(tmp_path / "m.idx"))
    assert (tmp_path / "m.bin").read_bytes() == own.with_suffix(".bin").read_bytes()
    assert (tmp_path / "m.idx").read_bytes() == own.with_suffix(".idx").read_bytes()


@pytest.mark.parametrize("format_", sample(["flat", "megatron"], 2, part="stores"))
def test_a_thousand_stretches_lead_back_to_their_documents(written, format_):
    """Each token of a random stretch is, by the map, the token of a document of the file that was audited."""
    path = written.folder / format_ / "train.bin"
    tokens, rows = np.fromfile(path, "<u2"), pq.read_table(map_path(path)).to_pylist()
    shards, draw = list(written.texts), random.Random(5)
    starts = np.array([row["start"] for row in rows])
    for _ in range(1000):
        start = draw.randrange(len(tokens) - 1)
        stop = min(len(tokens), start + draw.randrange(1, 400))
        found = []
        for row in rows[int(np.searchsorted(starts, start, "right")) - 1 :]:
            if row["start"] >= stop:
                break
            whole = [*written.encode(written.texts[shards[row["shard"]]][row["row"]]), written.end]
            assert len(whole) == row["stop"] - row["start"]
            found += whole[max(0, start - row["start"]) : stop - row["start"]]
        assert found == tokens[start:stop].tolist()


def test_the_training_reader_takes_both_formats(written):
    """`TokenFile` reads what `tokenize` wrote, Megatron's too, as tokens and map are the same."""
    from dataaudit.training import TokenFile, open_manifest

    opened = open_manifest(written.manifest, require="verified", cache=written.folder / "cache")
    rows = [
        TokenFile(written.folder / name / "train.bin", opened, 64, shuffled=False)[7] for name in ("megatron", "flat")
    ]
    for name in ("input_ids", "labels", "tags"):
        assert np.array_equal(rows[0][name], rows[1][name])
    assert rows[0]["tags"][0][0] >= 0


@pytest.mark.stores
def test_workers_change_no_byte(written, tmp_path):
    """Two worker processes write what one process writes."""
    done = call(
        *("tokenize", written.manifest, "--out", tmp_path, "--format", "megatron"),
        *("--workers", 2, "--state", tmp_path / "state", "--quiet", "--tokenizer", written.folder / "tiny.json"),
    )
    assert done.exit_code == 0, done.output
    for name in ("train.bin", "train.idx", "train.bin.map.parquet"):
        assert (tmp_path / name).read_bytes() == (written.folder / "megatron" / name).read_bytes()


@pytest.mark.stores
def test_the_same_command_again_writes_nothing(written):
    """And one whose input differs replaces the file."""
    out = written.folder / "again"
    assert tokenize(written, out)["files"][0]["written"] is True
    before = (out / "train.bin").stat().st_mtime_ns
    assert tokenize(written, out)["files"][0]["written"] is False
    assert (out / "train.bin").stat().st_mtime_ns == before
    (out / "train.bin").write_bytes((out / "train.bin").read_bytes()[:-2])
    assert tokenize(written, out)["files"][0]["written"] is True
    assert tokenize(written, out, "--end-token", "none")["files"][0]["written"] is True
    assert (out / "train.bin").stat().st_size == 2 * sum(len(tokens) for _, tokens in written.documents())


@pytest.mark.stores
def test_what_a_list_holds_back_is_in_no_file(written, tmp_path):
    """Shards and single documents; and `map` names them when a file holds them."""
    listed = hold_back(written, tmp_path / "list.jsonl", "train/data/b.jsonl.gz", "train/data/a.jsonl:3")
    found = tokenize(written, tmp_path / "out", "--quarantine", listed)["files"][0]
    left = [
        (name, one) for name, one in written.documents() if "b.jsonl" not in name and name != "train/data/a.jsonl:3"
    ]
    assert (found["documents"], found["held_back"], found["empty"]) == (len(left), 1, 2)
    twin = write_megatron(tmp_path / "twin.bin", [[*tokens, written.end] for _, tokens in left])
    assert (tmp_path / "out/train.bin").read_bytes() == twin.read_bytes()
    map_(written, tmp_path / "out/train.bin", "--quarantine", listed)
    how = ("--quarantine", listed, "--out", tmp_path / "proof.json")
    assert counts(map_(written, written.folder / "megatron/train.bin", *how, expect=1)) == {"held_back": 1001}


def killed(corpus, out, function):
    """Run `tokenize` in a process that dies without a word when it calls a function; return its exit code."""
    program = (
        "import os, sys, dataaudit.engine.tokens_write as m\n"
        f"m.{function} = lambda *a, **k: os._exit(9)\n"
        f"sys.argv = ['dataaudit', 'tokenize', {str(corpus.manifest)!r}, '--out', {str(out)!r}, '--format', 'megatron',"
        " '--workers', '0', '--quiet']\nfrom dataaudit.cli import main\nmain()\n"
    )
    return subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=300).returncode


@pytest.mark.stores
@pytest.mark.parametrize("function", ["_copy", "write_index", "write_map"])
def test_a_killed_command_leaves_nothing_that_looks_whole_and_goes_on(written, tmp_path, function):
    """Whenever it dies there is no map, so nobody takes the file; the same command then ends with the same bytes."""
    assert killed(written, tmp_path, function) == 9
    assert not map_path(tmp_path / "train.bin").exists()
    assert (tmp_path / "train.bin").exists() == (function != "_copy")
    tokenize(written, tmp_path)
    for name in ("train.bin", "train.idx", "train.bin.map.parquet"):
        assert (tmp_path / name).read_bytes() == (written.folder / "megatron" / name).read_bytes()


def test_work_that_was_done_is_not_done_again(written, tmp_path, monkeypatch):
    """A run that is stopped between two parts goes on with the second."""
    from dataaudit.engine import tokens_encode as encoding

    real, seen = encoding.Encode.__call__, []

    def interrupted(self, unit):
        seen.append(unit.key)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return real(self, unit)

    monkeypatch.setattr(encoding.Encode, "__call__", interrupted)
    arguments = ("tokenize", written.manifest, "--out", tmp_path / "out", "--format", "megatron", "--quiet")
    how = ("--workers", 0, "--state", tmp_path / "state", "--tokenizer", written.folder / "tiny.json")
    assert call(*arguments, *how).exit_code == 130
    assert call(*arguments, *how).exit_code == 0
    assert len(seen) == 3  # the shard in Parquet is read in a child process
    assert seen[0] not in seen[1:]
    assert (tmp_path / "out/train.bin").read_bytes() == (written.folder / "megatron/train.bin").read_bytes()


def sealed(written, folder):
    """Return the options of a command that believes only state under a key, and the key's folder."""
    key = folder / "state.key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    return ("--state", folder / "state", "--state-key", key, "--tokenizer", written.folder / "tiny.json")


@pytest.mark.stores
def test_under_a_state_key_nothing_that_others_prepared_is_believed(written, tmp_path):
    """Both commands work in the folder of the key; what lies there without its seal is named and removed."""
    how = sealed(written, tmp_path)
    prepared = tmp_path / "plain"
    tokenize(written, tmp_path / "plain-out", "--state", prepared, *how[4:])
    keyed = f"keyed-{key_id(b'k' * 32)}"
    (tmp_path / "state").mkdir(mode=0o700)
    shutil.copytree(prepared, tmp_path / "state" / keyed)
    for path in (tmp_path / "state" / keyed / "tokens").rglob("*"):
        if path.is_file():
            path.write_bytes(bytes(path.stat().st_size))
    for _ in list((tmp_path / "state" / keyed / "tokens").glob("*/*")):
        assert "is damaged in" in tokenize(written, tmp_path / "out", *how, expect=1)
    tokenize(written, tmp_path / "out", *how)
    assert (tmp_path / "out/train.bin").read_bytes() == (written.folder / "megatron/train.bin").read_bytes()
    record = map_(written, tmp_path / "out/train.bin", *how)
    assert record["result"] == "proven"


@pytest.mark.parametrize("how", sample(["plain", "keyed"], 2, part="stores"))
def test_tokens_that_were_changed_in_the_state_folder_are_not_written(written, tmp_path, how):
    """Of the same size as well: they are not those that were encoded."""
    options = sealed(written, tmp_path)
    options = options if how == "keyed" else (*options[:2], *options[4:])
    tokenize(written, tmp_path / "first", *options)
    path = next(one for one in (tmp_path / "state").glob("**/tokens/*/*") if one.stat().st_size)
    path.write_bytes(path.read_bytes()[::-1])
    assert "is damaged in" in tokenize(written, tmp_path / "out", *options, expect=1)
    tokenize(written, tmp_path / "out", *options)
    assert (tmp_path / "out/train.bin").read_bytes() == (written.folder / "megatron/train.bin").read_bytes()


@pytest.mark.stores
@pytest.mark.parametrize("command", ["tokenize", "map"])
def test_under_a_state_key_no_open_scheduler_is_used(written, tmp_path, command):
    arguments = {
        "tokenize": ("tokenize", written.manifest, "--out", tmp_path / "o", "--format", "flat"),
        "map": ("map", written.folder / "flat/train.bin", "--manifest", written.manifest, "--out", tmp_path / "r.json"),
    }[command]
    done = call(*arguments, "--scheduler", "tcp://127.0.0.1:1", "--quiet", *sealed(written, tmp_path))
    assert (done.exit_code, "tcp://127.0.0.1:1 is an open port" in done.output) == (2, True)


def plant(corpus, seed, number):
    """Return documents with faults, and what should be named by kind: ``number`` of each.

    Documents that stand more than once, or are short, are left alone: of those nobody could say which it was. Those of
    "held back" are where they were; a list has to hold them.
    """
    documents, draw = corpus.documents(), random.Random(seed)
    once = {json.dumps(one) for _, one in documents}
    assert len(once) > len(documents) - 5
    places = [at for at in range(4, len(documents) - 4, 2) if len(documents[at][1]) > 12 and at not in range(4, 40)]
    places = [at for at in places if documents[at][0] != "train/data/b.jsonl.gz:20"]
    chosen = draw.sample([at for at in places if at % 8], 6 * number)
    kinds = (*PLANTED[:5], "held_back")
    planned = {at: kind for kind, some in zip(kinds, np.array_split(chosen, 6), strict=True) for at in some.tolist()}
    planned |= dict.fromkeys(draw.sample([at for at in places if at % 8 == 0], number), "reordered")
    expected = {kind: set() for kind in (*PLANTED, "held_back")}
    found, late = [], []
    for at, (name, tokens) in enumerate(documents):
        kind = planned.get(at)
        if kind in expected and kind != "extra":
            expected[kind].add(name)
        if kind == "extra":
            expected[kind].add(len(found) + 1)
            found += [tokens, [7 + at % 200, *tokens[3:], 9, 11]]
        elif kind == "duplicated":
            found += [tokens, tokens]
        elif kind == "truncated":
            found.append(tokens[: draw.randrange(8, len(tokens))])
        elif kind == "retokenized":
            text = corpus.tokenizer.decode(tokens, skip_special_tokens=False)
            found.append([one for letter in text for one in corpus.encode(letter)])
        elif kind == "reordered":
            late.append(tokens)
        elif kind != "missing":
            found.append(tokens)
    draw.shuffle(late)
    return [*found, *late], expected


@pytest.mark.parametrize(
    ("write", "ended", "number"),
    [(write_megatron, True, thinned(143, 40)), (write_megatron, False, 20), (write_flat, True, thinned(143, 40))],
)
def test_a_thousand_planted_faults_are_all_found_and_none_is_invented(corpus, tmp_path, write, ended, number):
    """Seven kinds in one file, each by name, in both formats, with end tokens and without."""
    documents, expected = plant(corpus, 11, number)
    path = write(tmp_path / "other.bin", [[*one, corpus.end] if ended else one for one in documents])
    listed = hold_back(corpus, tmp_path / "list.jsonl", *sorted(expected["held_back"]))
    record = map_(corpus, path, "--quarantine", listed, expect=1)
    kinds = (*PLANTED, "held_back")
    found = {kind: record["faults"][kind]["named"] for kind in kinds}
    seen = {kind: {case["document"] for case in found[kind]} for kind in kinds}
    seen["duplicated"] = {corpus_name(corpus, documents[case["at"]]) for case in found["duplicated"]}
    seen["extra"] = {case["at"] for case in found["extra"]}
    if write is write_flat:  # its documents are numbered by end tokens, of which one text holds one
        seen["extra"] = {at if at < split_at(corpus, documents) else at - 1 for at in seen["extra"]}
        seen["duplicated"] = expected["duplicated"]
    assert {kind: seen[kind] == expected[kind] for kind in kinds} == dict.fromkeys(kinds, True)
    assert {kind: record["faults"][kind]["documents"] for kind in kinds} == dict.fromkeys(kinds, number)
    pieces = int(write is write_flat)  # one text holds an end token: two documents there
    assert record["matched"] == len(corpus.documents()) + pieces - 4 * number


def corpus_name(corpus, tokens):
    """Return the name of the first document of these tokens."""
    return next(name for name, own in corpus.documents() if own == tokens)


def split_at(corpus, documents):
    """Return the place of the document that holds an end token."""
    return next(at for at, one in enumerate(documents) if corpus.end in one)


@pytest.mark.stores
def test_documents_that_swapped_their_places_are_named(corpus, tmp_path):
    """Fifty pairs, each of which trades places: exactly these hundred are in other order."""
    documents = corpus.documents()
    expected = set()
    for at in range(100, 2600, 50):
        documents[at], documents[at + 20] = documents[at + 20], documents[at]
        expected |= {documents[at][0], documents[at + 20][0]}
    path = write_megatron(tmp_path / "x.bin", [tokens for _, tokens in documents])
    record = map_(corpus, path, expect=1)
    assert set(named(record, "reordered")) == expected
    assert record["matched"] == len(documents)
    assert "what was audited, and nothing else" in mapped(corpus, path, "--any-order")


HELD_OUT_WAYS = {
    "as it was audited": lambda corpus, one: one,
    "with a token of beginning": lambda corpus, one: [corpus.end, *one],
    "in other tokens": lambda corpus, one: [
        number for letter in corpus.tokenizer.decode(one) for number in corpus.encode(letter)
    ],
    "its beginning": lambda corpus, one: one[: max(32, len(one) // 2)],
    "a few of its tokens": lambda corpus, one: one[:12],
}


@pytest.mark.parametrize("write", [write_megatron, write_flat])
def test_held_out_documents_in_a_training_file_are_the_worst_finding(corpus, tmp_path, write):
    """By name, with a word and an exit code of their own; of a few tokens nobody can say that."""
    held_out = [corpus.encode(text) for text in texts(1000, 3)]
    chosen = [at for at in range(1000) if len(held_out[at]) >= 40][::25]
    documents, ways = [tokens for _, tokens in corpus.documents()], len(HELD_OUT_WAYS)
    changes = list(HELD_OUT_WAYS.values())
    documents[700:700] = [changes[place % ways](corpus, held_out[at]) for place, at in enumerate(chosen)]
    path = write(tmp_path / "x.bin", [[*one, corpus.end] for one in documents])
    record = map_(corpus, path, expect=5)
    expected = [f"val/data/v.jsonl:{at}" for place, at in enumerate(chosen) if place % ways != ways - 1]
    assert named(record, "held_out") == expected
    assert counts(record) == {"held_out": len(expected), "extra": len(chosen) - len(expected)}
    output = mapped(corpus, path, expect=5)
    assert f"x.bin: {len(expected)} held-out documents in it" in output
    assert "\n  held out " in output


def test_a_file_of_a_held_out_split_is_proven_when_that_is_chosen_and_training_documents_in_it_are_named(
    corpus, tmp_path
):
    """They are of another split, which is no training on held-out documents."""
    held_out = [[*corpus.encode(text), corpus.end] for text in texts(1000, 3)]
    path = write_megatron(tmp_path / "v.bin", held_out)
    assert map_(corpus, path, "--split", "val")["result"] == "proven"
    write_megatron(path, [*held_out, corpus.documents()[1500][1]])
    record = map_(corpus, path, "--split", "val", expect=1)
    assert named(record, "other_split") == [corpus.documents()[1500][0]]
    assert counts(record) == {"other_split": 1}


@pytest.mark.stores
def test_a_copy_of_a_training_document_that_is_held_out_too_is_held_out(tmp_path):
    """The copy that the training shards do not explain is the worst that it can be."""
    folder = tmp_path / "own"
    corpus = Corpus(folder, 40)
    twin = "the same text stands in more than one place of this corpus"
    lines = (folder / "data/v.jsonl").read_text().splitlines()
    (folder / "data/v.jsonl").write_text("\n".join([*lines, json.dumps({"text": twin, "source": "v"})]) + "\n")
    api.build(corpus.config, corpus.manifest, base=folder, workers=0, isolate=False)
    documents = [tokens for _, tokens in corpus.documents()]
    path = write_megatron(tmp_path / "x.bin", documents)
    assert map_(corpus, path)["result"] == "proven"
    write_megatron(path, [*documents, corpus.encode(twin)])
    assert named(map_(corpus, path, expect=5), "held_out") == ["val/data/v.jsonl:40"]
    listed = hold_back(corpus, tmp_path / "list.jsonl", "train/data/a.jsonl:5")
    assert counts(map_(corpus, path, "--quarantine", listed, expect=5)) == {"held_out": 1, "held_back": 1}


@pytest.mark.stores
def test_held_out_shards_that_are_not_here_are_said_not_to_have_been_looked_for(corpus, tmp_path):
    """What is proven needs none of them; of what is not audited nobody knows whether it is held out."""
    root = tmp_path / "root"
    shutil.copytree(corpus.folder / "data", root / "data")
    (root / "data/v.jsonl").unlink()
    documents = [tokens for _, tokens in corpus.documents()]
    path = write_megatron(tmp_path / "x.bin", documents)
    assert map_(corpus, path, "--root", root)["result"] == "proven"
    write_megatron(path, [*documents, corpus.encode(texts(1000, 3)[7])])
    record = map_(corpus, path, "--root", root, expect=1)
    assert record["unread_splits"] == ["val"]
    assert record["faults"]["extra"]["documents"] == 1
    assert "documents of val: the shards cannot be read here" in mapped(corpus, path, "--root", root, expect=1)


@pytest.mark.stores
@pytest.mark.parametrize("token", [700, 100_257])
def test_end_tokens_beyond_the_vocabulary_are_taken_by_their_id(corpus, tmp_path, token):
    """Programs add tokens of their own behind it; the type of the file has to hold them."""
    dtype = "uint16" if token < 1 << 16 else "uint32"
    documents = [[token, *tokens, token] for _, tokens in corpus.documents()]
    path = write_flat(tmp_path / "x.bin", documents, dtype)
    assert map_(corpus, path, "--end-token", token, "--any-order")["result"] == "proven"
    path = write_megatron(tmp_path / "y.bin", documents, "uint16" if dtype == "uint16" else "int32")
    assert map_(corpus, path, "--end-token", token, "--begin-token", token)["result"] == "proven"
    for format_ in ("flat", "megatron"):
        out = tmp_path / format_
        tokenize(corpus, out, "--end-token", str(token), format_=format_)
        assert map_(corpus, out / "train.bin", "--end-token", token)["result"] == "proven"


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("70000", "--end-token 70000: x.bin has tokens of uint16, which end at 65,535"),
        ("4294967296", "no file has ids above 4,294,967,295"),
        ("²", "no such special token"),
        ("-1", "no such special token"),
    ],
)
def test_end_tokens_that_no_file_of_the_type_can_hold_are_refused(corpus, tmp_path, token, said):
    """Exit code 2 with the numbers."""
    path = write_flat(tmp_path / "x.bin", [[1, 2, corpus.end]], "uint16")
    assert said in mapped(corpus, path, "--dtype", "uint16", "--end-token", token, expect=2)


@pytest.mark.stores
def test_several_files_are_one_corpus(corpus, tmp_path):
    """Each holds some shards; together they are what was audited, and alone they are not."""
    documents = [[corpus.end, *tokens, corpus.end] for _, tokens in corpus.documents()]
    paths = [write_megatron(tmp_path / f"{at}.bin", documents[at * 1000 : (at + 1) * 1000]) for at in range(3)]
    assert map_(corpus, *paths)["result"] == "proven"
    record = map_(corpus, *paths[:2], expect=1)
    assert record["faults"]["missing"]["documents"] == len(documents) - 2000
    assert map_(corpus, paths[1], paths[0], paths[2], expect=1)["faults"]["reordered"]["documents"] == 1000


@pytest.mark.stores
@pytest.mark.parametrize(
    ("without", "said"),
    [(0, None), (3, "3 documents of x.bin end without token"), (3000, "no document of x.bin ends with token")],
)
def test_documents_without_an_end_token_are_counted(corpus, tmp_path, without, said):
    """The same documents, so it is no fault; a line and the record say that nothing tells them apart in training."""
    documents = [
        [corpus.end, *tokens] + [corpus.end] * (at >= without) for at, (_, tokens) in enumerate(corpus.documents())
    ]
    path = write_megatron(tmp_path / "x.bin", documents)
    (file,) = map_(corpus, path)["files"]
    assert file["ended"] == max(len(documents) - without, 0)
    output = mapped(corpus, path)
    assert (said in output) if said else ("end token" not in output)


@pytest.mark.stores
def test_a_copy_that_is_missing_or_too_many_is_the_one_that_was_taken(corpus, tmp_path):
    """Of a text that stands in three places, the place is told by what stands around it."""
    documents = corpus.documents()
    copies = [at for at, (_, one) in enumerate(documents) if one == documents[5][1]]
    assert len(copies) == 3
    for gone in copies:
        left = [tokens for at, (_, tokens) in enumerate(documents) if at != gone]
        record = map_(corpus, write_megatron(tmp_path / "x.bin", left), expect=1)
        assert named(record, "missing") == [documents[gone][0]]
        assert counts(record) == {"missing": 1}


@pytest.fixture(scope="module")
def spoiled(written, tmp_path_factory):
    """Return what makes a copy of Megatron's files with other bytes."""

    def make(name, change):
        folder = tmp_path_factory.mktemp("spoiled")
        for suffix in (".bin", ".idx"):
            shutil.copy(written.folder / "megatron" / f"train{suffix}", folder / f"x{suffix}")
        data = (folder / f"x{name}").read_bytes()
        (folder / f"x{name}").write_bytes(change(data))
        return folder / "x.bin"

    return make


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (".idx", lambda data: b"X" + data[1:], "is no index of Megatron"),
        (".idx", lambda data: b"", "is no index of Megatron"),
        (".idx", lambda data: data[:9] + b"\x02" + data[10:], "found version 2"),
        (".idx", lambda data: data[:17] + b"\x07" + data[18:], "with float32"),
        (".idx", lambda data: data[:17] + b"\x09" + data[18:], "with type 9"),
        (".idx", lambda data: data[:17] + b"\x04" + data[18:], "do not follow one another"),
        (".idx", lambda data: data[:-8], "it is damaged"),
        (".idx", lambda data: data[:18] + b"\xff" * 8 + data[26:], "it is damaged"),
        (".idx", lambda data: data[:34] + b"\xff\xff\xff\xff" + data[38:], "do not follow one another"),
        (".bin", lambda data: data[:-2], "It is cut, or the index is another file's"),
        (".bin", lambda data: b"", "is empty"),
    ],
)
def test_bad_files_are_one_clear_error(corpus, spoiled, name, change, said):
    """Wrong magic, version or type, a cut file, an empty one: exit code 2 and no traceback."""
    assert said in mapped(corpus, spoiled(name, change), expect=2)


@pytest.mark.stores
def test_bad_flat_files_are_one_clear_error(corpus, tmp_path):
    """Half a token, no file, a folder, an index instead of tokens."""
    (tmp_path / "x.bin").write_bytes(b"abc")
    (tmp_path / "y.idx").write_bytes(b"abc")
    for name, said in (
        ("x.bin", "no whole number of tokens"),
        ("gone.bin", "cannot be read"),
        ("", "cannot be read"),
        ("y.idx", "is an index"),
    ):
        assert said in mapped(corpus, tmp_path / name, expect=2)


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_a_file_of_another_tokenizer_is_not_what_was_audited(corpus, tmp_path, dtype):
    """Nothing is the same, and that is said; tokens that the vocabulary lacks are no error."""
    path = write_flat(tmp_path / "x.bin", [[9000 + at, 17, 40_000, corpus.end] for at in range(500)], "uint16")
    said = "none is the same: the files are of another corpus, tokenizer, type or end token"
    assert said in mapped(corpus, path, "--dtype", dtype, expect=1)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--format", "flat", "--end-token", "none"), "a flat file needs a token after each document"),
        (("--format", "megatron", "--dtype", "uint32"), "megatron files have uint16, int32"),
        (("--format", "megatron", "--end-token", "no such"), "no such special token"),
        (("--format", "megatron", "--split", "trian"), "no split `trian`"),
        (("--format", "megatron", "--tokenizer", "README.md"), "expected a name that ends in"),
    ],
)
def test_wrong_use_of_tokenize_says_what_to_do(corpus, tmp_path, more, said):
    """Exit code 2, and no file."""
    done = call("tokenize", corpus.manifest, "--out", tmp_path, "--workers", 0, "--quiet", *more)
    assert done.exit_code == 2
    assert said in done.output
    assert not list(tmp_path.glob("*.bin"))


def test_another_tokenizer_than_the_manifests_is_refused(corpus, tmp_path):
    """By its digest, whatever its name."""
    other = tmp_path / "tiny.json"
    other.write_text((corpus.folder / "tiny.json").read_text() + "\n")
    done = call(
        *("tokenize", corpus.manifest, "--out", tmp_path, "--format", "flat", "--tokenizer", other, "--workers", 0)
    )
    assert done.exit_code == 2
    assert "the manifest's tokenizer tiny.json has" in done.output


def test_a_shard_that_changed_since_the_audit_is_refused(corpus, tmp_path):
    """One letter of the same length: exit code 1, and nothing is written."""
    data = tmp_path / "data"
    shutil.copytree(corpus.folder / "data", data)
    (data / "a.jsonl").write_bytes((data / "a.jsonl").read_bytes().replace(b"shard", b"sharp", 1))
    arguments = ("--root", tmp_path, "--workers", 0, "--quiet")
    done = call("tokenize", corpus.manifest, "--out", tmp_path / "out", "--format", "flat", *arguments)
    assert done.exit_code == 1
    assert "train/data/a.jsonl: the bytes have changed since the build" in done.output
    assert not list((tmp_path / "out").glob("*"))


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [("rows_digest", "0" * 64, "does not give the documents that were audited"), ("tokens", 7, "7 were audited")],
)
def test_what_decodes_or_encodes_to_something_else_is_refused(corpus, tmp_path, monkeypatch, column, value, said):
    """The file has the audited bytes, but a reader or an encoder makes other documents or tokens of them."""
    from dataaudit.engine import tokens_encode as encoding

    real = encoding._rows
    monkeypatch.setattr(encoding, "_rows", lambda *given: [row | {column: value} for row in real(*given)])
    done = call("tokenize", corpus.manifest, "--out", tmp_path, "--format", "flat", "--workers", 0, "--quiet")
    assert done.exit_code == 1
    assert said in done.output
    assert not list(tmp_path.glob("*"))


def test_stored_tokens_that_are_cut_are_encoded_again(written, tmp_path):
    """The command says so and removes them; the next one ends with the same bytes."""
    state = tmp_path / "state"
    how = ("--state", state, "--tokenizer", written.folder / "tiny.json")
    tokenize(written, tmp_path / "one", *how)
    piece = next(path for path in (state / "tokens").glob("*/*") if path.stat().st_size > 100)
    piece.write_bytes(piece.read_bytes()[:-2])
    assert "is damaged" in tokenize(written, tmp_path / "two", *how, expect=1)
    assert not piece.exists()
    tokenize(written, tmp_path / "two", *how)
    assert (tmp_path / "two/train.bin").read_bytes() == (written.folder / "megatron/train.bin").read_bytes()


@pytest.mark.parametrize("split", ["../x", "/etc/x", "a/b", "", "..", "."])
def test_no_split_names_a_file_outside_of_the_folder(tmp_path, split):
    """Whoever made the manifest chose the names."""
    from dataaudit.base.errors import ConfigError
    from dataaudit.engine.tokens_write import file_of

    assert file_of(tmp_path, "train") == tmp_path / "train.bin"
    if split == "..":  # a name as any other, with `.bin` behind it
        assert file_of(tmp_path, split).parent == tmp_path
    else:
        with pytest.raises(ConfigError, match="has a name that no file can have"):
            file_of(tmp_path, split)
