"""Whole builds in this process, on a runner without a cluster: identity over damage, reruns and encoders."""

import contextlib
import errno
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from made_build import HereRunner, Notes, write_file
from packed import entries, flip, packs

from dataaudit.base.errors import ClusterError, ExitCode
from dataaudit.engine import build as module
from dataaudit.engine import job, join, second_pass
from dataaudit.engine.build import build
from dataaudit.engine.inputs import prepare
from dataaudit.engine.job import BuildOptions
from dataaudit.engine.store_entries import PACKS, Item, read_pack, write_pack
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.verify import verify
from dataaudit.metrics.relations import contradictions
from dataaudit.scan import annotators as token_annotator
from dataaudit.scan.corpus.loss import Reason, ShardUnreadable
from dataaudit.scan.corpus.tokens import Risks, TokenBatch

GOOD = [{"text": f"document {number % 30}", "source": "ab"[number % 2]} for number in range(50)]
DIFFERS = {"text": "DIFFERS", "source": "a"}


class FakeEncoder:
    """A token is a character; by the fast path every DIFFERS is noticed by the sample."""

    def __init__(self, force_reference):
        self.force_reference = force_reference

    def encode(self, texts, keys):
        """Encode a batch."""
        held = texts.to_pylist()
        offsets = np.concatenate([[0], np.cumsum([len(text) for text in held])]).astype(np.int64)
        differing = 0 if self.force_reference else sum(text == "DIFFERS" for text in held)
        return TokenBatch(
            offsets=offsets,
            ids=np.zeros(offsets[-1], dtype=np.uint32),
            sampled=differing,
            differing=differing,
            by_reference=np.full(len(held), self.force_reference),
        )


@pytest.fixture
def runners(monkeypatch):
    """Builds run here; the list collects the runner of each."""
    made = []

    def here(*_, **__):
        made.append(HereRunner(reverse=len(made) % 2 == 1))
        return contextlib.nullcontext(made[-1])

    monkeypatch.setattr(module, "open_runner", here)
    monkeypatch.setattr(job, "inspect_risks", lambda *_, **__: Risks(supported=True, reason="ok"))
    monkeypatch.setattr(token_annotator, "load_once", lambda file, risks, force, seed: FakeEncoder(force))
    return made


@pytest.fixture
def corpus(tmp_path):
    """Twins, a held-out shard, an empty one, and a config that cuts them small."""
    lines = "".join(json.dumps(record) + "\n" for record in GOOD).encode()
    for name in ("train/a", "train/b", "val/c"):
        write_file(tmp_path / f"{name}.jsonl", lines)
    write_file(tmp_path / "train" / "empty.jsonl", b"")
    write_config(tmp_path)
    return tmp_path


def write_config(root, reader="{part_bytes: 1024}"):
    """Write a config."""
    text = (
        "splits:\n  train: {paths: [train], text: text, source: {column: source}}\n"
        f"  val: {{paths: [val], text: text, source: {{column: source}}, held_out: true}}\nreader: {reader}\n"
    )
    write_file(root / "c.yaml", text.encode())


def run(root, *, state="state", **options):
    """Build; return the result and the manifest."""
    given = prepare([str(root / "c.yaml")], root, tokenizer=None, text=None, reference=None, note=lambda _: None)
    result = build(
        given.config,
        given.base,
        root_at_base=True,
        progress=Notes(),
        options=BuildOptions(target=root / "m", state=root / state, **options),
    )
    manifest = load_manifest(root / "m")
    assert verify(manifest) == []
    return result, manifest


def stored(root, kind, *, rows=False):
    """Return the stored files of a kind."""
    found = sorted(path for path in (root / "state" / "partials" / kind).rglob("*") if path.is_file())
    return [path for path in found if ("." in path.name) == rows and not path.name.endswith(".files")]


def test_a_build_in_this_process_is_a_build(corpus, runners):
    """Twins are read once and counted twice; a rerun reads nothing and has the same id."""
    first, manifest = run(corpus)
    assert first.exit_code == ExitCode.PASS
    assert manifest.core.totals.documents == 150
    (whole,) = [record for record in manifest.metrics("exact_dup_rate", "documents") if not record.scope.as_dict()]
    assert whole.value == 120
    again, _ = run(corpus)
    assert (again.id, again.scanned) == (first.id, 0)


@pytest.mark.stores
def test_one_damaged_entry_costs_one_part(corpus, runners):
    """What else is in its pack is put into another one; the message names the pack."""
    first, _ = run(corpus)
    victim = entries(corpus / "state", "lengths")[0]
    pack = Path(victim.path)
    flip(victim)
    again, manifest = run(corpus)
    assert (again.id, again.scanned) == (first.id, 1)
    assert [note for note in manifest.run.notes if pack.name in note]
    assert pack not in packs(corpus / "state")


@pytest.mark.stores
def test_merging_keyed_rows_changes_nothing(corpus, runners, monkeypatch):
    """With every family that runs by default; spans recur."""
    span = " ".join(f"w{number}" for number in range(70))
    lines = [{"text": f"{number} {span} {number % 5}", "source": "a"} for number in range(40)]
    write_file(corpus / "train" / "spans.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())
    first, manifest = run(corpus)
    assert len(manifest.table("hotspots"))
    monkeypatch.setattr(join, "MOST_FILES", 2)
    monkeypatch.setattr(join, "_GROUP_PARTS", 3)
    again, _ = run(corpus, state="other")
    assert again.id == first.id
    assert {name for name, _ in runners[0].ran} ^ {name for name, _ in runners[1].ran} == {"link-merge"}


@pytest.mark.stores
@pytest.mark.parametrize("harm", ["cut", "gone", "zeros"])
def test_any_number_of_damaged_files_costs_a_rescan(corpus, runners, harm):
    """A power cut that emptied half of the state folder changes no number and needs no second command."""
    first, _ = run(corpus)
    for path in [*packs(corpus / "state"), *stored(corpus, "link-exact")[:4]]:
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2] if harm == "cut" else bytes(len(data)))
        if harm == "gone":
            path.unlink()
    again, _ = run(corpus)
    assert again.id == first.id
    assert again.scanned


@pytest.mark.stores
def test_a_flipped_bit_in_every_file_costs_one_build_and_one_message(corpus, runners):
    """All damage is looked for when some is met; the message is true and names files."""
    first, _ = run(corpus)
    for path in (path for path in (corpus / "state" / "partials").rglob("*") if path.is_file()):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    again, manifest = run(corpus)
    assert again.id == first.id
    (note,) = [note for note in manifest.run.notes if "damaged" in note]
    number, rest = note.split(maxsplit=1)
    assert int(number) > 1
    assert rest.startswith("absent or damaged files of the state folder, computed again: partials/")
    assert run(corpus)[1].run.notes == ()


@pytest.mark.stores
def test_keyed_rows_of_another_part_are_not_counted(corpus, runners):
    """Two whole files that have changed places are found out, and both parts are read again."""
    write_file(corpus / "train" / "b.jsonl", b'{"text": "other", "source": "a"}\n' * 7)
    first, _ = run(corpus)
    pack = Path(entries(corpus / "state", "exact_dup", "keys")[0].path)
    items = {stored.name: Item.at(stored) for stored in read_pack(pack)}
    one, other, *_ = (items[stored.name] for stored in entries(corpus / "state", "exact_dup", "keys"))
    assert one.pieces != other.pieces
    items |= {one.name: one._replace(pieces=other.pieces), other.name: other._replace(pieces=one.pieces)}
    pack.unlink()
    write_pack(corpus / "state" / "partials" / PACKS, items.values())
    for path in (corpus / "state" / "partials" / "link-exact").rglob("*"):
        if path.is_file():
            path.unlink()
    again, manifest = run(corpus)
    assert again.id == first.id
    assert any("1 absent or damaged file of" in note for note in manifest.run.notes)
    assert again.scanned == 2


@pytest.mark.stores
def test_what_is_damaged_when_it_is_published_is_computed_again(corpus, runners, monkeypatch):
    """Signatures that are copied then: the same build mends them."""
    with (corpus / "c.yaml").open("a") as config:
        config.write("stages: {near_dup: {signatures: true}}\n")
    publish, harmed = module.publish_build, []

    def late(job, *more):
        if not harmed:
            harmed.append(stored(corpus, "link-near-signatures", rows=True)[0])
            harmed[0].write_bytes(b"damaged")
        return publish(job, *more)

    first, _ = run(corpus)
    monkeypatch.setattr(module, "publish_build", late)
    again, manifest = run(corpus)
    assert harmed
    assert harmed[0].read_bytes() != b"damaged"
    assert again.id == first.id
    assert any("damaged" in note for note in manifest.run.notes)


@pytest.mark.stores
def test_the_cut_does_not_change_an_identity_with_losses(corpus, runners):
    """Bad records, with places, and a shard with too many of them: any cut gives one id."""
    bad = b"".join(
        b"not json\n"
        if number % 7 == 0
        else b'{"text": "a text of some words, so that bad lines hold few of the bytes"}\n'
        for number in range(400)
    )
    write_file(corpus / "train" / "bad.jsonl", bad)
    write_file(corpus / "val" / "hopeless.jsonl", b"no\n" * 900)
    found = set()
    for part_bytes in (1024, 1500, 10**6):
        write_config(corpus, f"{{part_bytes: {part_bytes}, max_bad_records: 0.2}}")
        result, manifest = run(corpus)
        assert result.exit_code == ExitCode.NOT_EVALUATED
        assert manifest.core.ledger.documents.bad == 58
        found.add(result.id)
    assert len(found) == 1


@pytest.mark.stores
def test_the_encoder_that_is_taken_depends_on_the_corpus_alone(corpus, runners):
    """A sampled difference anywhere that is read sends all to the reference: first build, rerun and --fresh."""
    write_file(corpus / "train" / "zz.jsonl", (json.dumps(DIFFERS) + "\n").encode() * 200)
    first, manifest = run(corpus)
    assert manifest.core.tokenizer.encoder_reason == "sample_difference"
    counted = manifest.core.tokenizer.counted_by
    assert (counted["gigatoken"].documents, counted["reference"].documents) == (0, manifest.core.totals.documents)
    again, _ = run(corpus)
    assert (again.id, again.scanned) == (first.id, 0)
    assert run(corpus, fresh=True)[0].id == first.id
    assert run(corpus, state="another")[0].id == first.id


@pytest.mark.stores
def test_a_difference_in_a_shard_that_is_not_read_decides_nothing(corpus, runners):
    """Otherwise a rerun, which does not read that shard again, would have another id."""
    hopeless = (json.dumps(DIFFERS) + "\nno json\n").encode() * 100
    write_file(corpus / "train" / "zz.jsonl", hopeless)
    first, manifest = run(corpus)
    assert manifest.core.tokenizer.encoder_reason == "ok"
    assert [row["reason"] for row in manifest.table("shards").to_pylist()].count("too_many_bad_records") == 1
    again, _ = run(corpus)
    assert (again.id, again.scanned) == (first.id, 0)


@pytest.mark.stores
def test_fresh_computes_everything_and_finds_the_same(corpus, runners):
    """Scan and link run again; the id does not change."""
    first, _ = run(corpus)
    fresh, _ = run(corpus, fresh=True)
    assert (fresh.id, fresh.scanned) == (first.id, fresh.planned)
    near = {f"link-near-{name}" for name in ("classes", "bands", "pairs", "verify")}
    overlap, repeats = (
        {"link-overlap-grams", "link-overlap-matches"},
        {"link-repeats-fingerprints", "link-repeats-ranges"},
    )
    first_steps = {"hash", "peek", "protect", "scan"}
    ran = {name for name, _ in runners[-1].ran}
    assert ran >= {*first_steps, "link-exact", "second-pass", "partials", *near, *overlap, *repeats}


@pytest.mark.stores
@pytest.mark.parametrize("name", ["train/x", "train/y", "val/v"])
def test_a_shard_that_cannot_be_read_again_is_quarantined_and_the_others_go_on(corpus, runners, monkeypatch, name):
    """A second reading may need what the first did not; nothing of the shard stays in any number, whatever it was."""
    rng = random.Random(1)
    words = [f"word{number}" for number in range(200)]
    texts = [" ".join(rng.choices(words, k=60)) for _ in range(12)]
    for other in ("train/x", "train/y", "val/v"):
        records = [{"text": f"{text} {other} {number % 2}", "source": "a"} for number, text in enumerate(texts * 2)]
        write_file(corpus / f"{other}.jsonl", "".join(json.dumps(one) + "\n" for one in records).encode())
    plain = second_pass._read_again

    def read(unit, settings):
        if name in str(unit.request.path):
            raise ShardUnreadable(Reason.OUT_OF_MEMORY, "on the way")
        return plain(unit, settings)

    monkeypatch.setattr(second_pass, "_read_again", read)
    result, manifest = run(corpus)
    assert result.exit_code == ExitCode.NOT_EVALUATED
    shards = {row["uri"]: row for row in manifest.table("shards").to_pylist()}
    lost = shards.pop(f"{name}.jsonl")
    assert (lost["status"], lost["reason"]) == ("quarantined", "out_of_memory")
    assert {row["status"] for row in shards.values()} == {"ok"}
    assert contradictions(manifest) == []
    assert f"the first of {name}.jsonl: out_of_memory on the way; quarantined" in " ".join(manifest.run.notes)
    assert run(corpus)[0].id == result.id
    monkeypatch.setattr(second_pass, "_read_again", plain)
    (corpus / f"{name}.jsonl").write_bytes(b"\xff")
    without = run(corpus)[1]
    for metric in ("near_dup_rate", "exact_dup_rate", "train_val_overlap", "doc_repeat_hotspots"):
        assert manifest.metrics(metric) == without.metrics(metric)


@pytest.mark.stores
def test_a_disk_that_fills_up_ends_the_build_and_blames_no_shard(corpus, runners, monkeypatch):
    """The outcome tells of the state folder; with space again, the same command ends as if nothing was."""
    expected, _ = run(corpus, state="another")
    shutil.rmtree(corpus / "m")
    real, written = join.write_keyed, []

    def full(*arguments):
        written.append(arguments)
        if len(written) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*arguments)

    seen = []

    class Watching(HereRunner):
        def run(self, name, function, units, on_outcome):
            for index, unit in enumerate(units):
                outcome = function(unit)
                if outcome.fault:
                    raise ClusterError(*outcome.fault)
                seen.append(outcome.reason)
                on_outcome(index, outcome)

    monkeypatch.setattr(module, "open_runner", lambda *_, **__: contextlib.nullcontext(Watching()))
    monkeypatch.setattr(join, "write_keyed", full)
    with pytest.raises(ClusterError, match="No space left"):
        run(corpus)
    assert set(seen) == {None}
    assert not (corpus / "m").exists()
    monkeypatch.setattr(join, "write_keyed", real)
    assert run(corpus)[0].id == expected.id
