"""What opens, and what is refused: every row of docs/reference/training-open.md is a test."""

import datetime as dt
import json
import os
import re
import tempfile
from pathlib import Path

import pytest
from forged import forge
from lanes import thinned
from made_manifest import make, shard
from training_world import FAILING, KEY, OTHER, PASSING, ROWS, World, row_of, rule

from dataaudit.base.errors import ConfigError, CorpusRefused, DataAuditError
from dataaudit.decide.quarantine.list import read
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.locate import encode_path
from dataaudit.manifest.signing import Seal
from dataaudit.manifest.trust import sign_manifest
from dataaudit.scan.corpus.storage.address import RemotePath

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/reference/training-open.md"
VALUES = re.compile(r"\b[0-9a-f]{16}(?:[0-9a-f]{48})?\b|(?<=sha256:)[0-9a-f]{12}\b|\d+(?= bytes)")
LIBRARY = re.compile(r"((?:documents to skip is not known|is not valid JSON): ).+")
"""What stands before the words of another library, which a version of it may change."""
DAY, OLD = dt.timedelta(days=1), "2020-01-01T00:00:00+00:00"
NOT_EVALUATED = rule(1, metric="exact_dup_rate", stat="rate", unit="ratio", comparator="<=")


def passed(policy=FAILING):
    return {"require": "passed", "policy": policy}


def signed(world, **more):
    return {"require": "signed", "public_key": world.public} | more


def of_list(world):
    return {"quarantine": world.list}


def of_applied(world):
    return {"applied": world.applied}


def other_world(world, *rows):
    """Make another world, of these further rows; return it."""
    folder = world.folder / "other"
    folder.mkdir()
    return World(folder, *rows)


def of_other_rows(world, *rows):
    """Put the manifest of further rows in the place of the world's own."""
    other = other_world(world, *rows)
    world.manifest.rename(world.folder / "own")
    other.manifest.rename(world.manifest)


def gate_json(world):
    (world.manifest / "gate.json").write_text(json.dumps({"passed": True, "exit_code": 0}))


def edited_verdict(world):
    """The words of a verdict that passed below the signature of a verdict that failed."""
    passing, failing = (json.loads(world.sign(policy=policy).read_bytes()) for policy in (PASSING, FAILING))
    world.signature.write_text(json.dumps(failing | {"payload": passing["payload"]}))


def verdict_elsewhere(world):
    world.signature.write_bytes(other_world(world, row_of("d.jsonl", b"{}\n")).sign().read_bytes())


def run_changed(world):
    world.sign()
    world.edit(hosts=["elsewhere"])


def bad_line(world, *names):
    """The last line of the list, which is cut, cannot be read."""
    data = world.hold(*names or ["0"]).read_bytes()
    world.list.write_bytes(data[:-20])


def lost_line(world):
    lines = read(world.hold("0")).lines
    world.edit(quarantine={"digest": lines[0], "lines": lines, "on": "2026-11-21"})
    world.list.write_bytes(b"")


def longer(world):
    with (world.data / "b.jsonl").open("ab") as file:
        file.write(b"\n")


def other_bytes(world):
    path = world.data / "b.jsonl"
    path.write_bytes(path.read_bytes().replace(b"b 3", b"B 3"))


def gone(world):
    path = world.data / "a.jsonl"
    path.unlink()
    return path


def no_utf8(world):
    name = os.fsencode(world.folder) + b"/\xff"
    os.mkdir(name)
    return {"root": os.fsdecode(name)}


CASES = {
    "it breaks a rule of the policy": (None, passed()),
    "a `gate.json` in its folder says that it passed": (gate_json, passed()),
    "a required rule could not be evaluated": (None, passed(NOT_EVALUATED)),
    "a number of a table was changed": (lambda world: world.edit_table("shards", "tokens", 99), {}),
    "a table is cut": (lambda world: world.cut(world.manifest / "metrics.parquet"), {}),
    "a number in `manifest.json` was changed": (World.edit_core, {}),
    "`manifest.json` is cut": (lambda world: (world.manifest / "manifest.json").write_text("{"), {}),
    "the folder has no `manifest.json`": (lambda world: (world.manifest / "manifest.json").unlink(), {}),
    "the build is older than `max_age`": (lambda world: world.edit(finished=OLD), {"max_age": DAY}),
    "the end of the build is no time": (lambda world: world.edit(finished="yesterday"), {"max_age": DAY}),
    "the signed verdict is older than `max_age`": (
        lambda world: world.sign(time=OLD),
        lambda world: signed(world, max_age=30 * DAY),
    ),
    "the signed verdict is of tomorrow": (
        lambda world: world.sign(time="2999-01-01T00:00:00+00:00"),
        lambda world: signed(world, max_age=DAY),
    ),
    "nobody signed": (None, signed),
    "the verdict is not signed": (lambda world: world.sign(sealed=False), signed),
    "another key signed": (lambda world: world.sign(OTHER), signed),
    "the verdict was edited": (edited_verdict, signed),
    "the signed verdict is FAILED": (lambda world: world.sign(policy=FAILING), signed),
    "the signed verdict is of another manifest": (verdict_elsewhere, signed),
    "`manifest.json` was changed beside its core after it was signed": (run_changed, signed),
    "the signed verdict is by another policy": (World.sign, lambda world: signed(world, policy=FAILING)),
    "every shard is held": (lambda world: world.hold("0", "1", "3"), of_list),
    "a line of the list cannot be read": (bad_line, of_list),
    "a line of the list is lost that the build saw": (lost_line, of_list),
    "the list that the policy names holds a shard back": (
        lambda world: world.hold("0"),
        lambda world: passed(PASSING | {"quarantine_list": str(world.list)}),
    ),
    "there is no list": (None, lambda world: {"quarantine": world.folder / "none.jsonl"}),
    "the applied list is of another manifest": (
        lambda world: other_world(world, row_of("d.jsonl", b"{}\n")).apply().rename(world.applied),
        of_applied,
    ),
    "the list was added to since it was applied": (
        lambda world: world.apply() and world.hold("0"),
        lambda world: of_list(world) | of_applied(world),
    ),
    "the list was applied without `--documents`": (lambda world: world.apply(documents=False), of_applied),
    "the drop list is cut": (lambda world: world.cut(world.apply() / "documents.parquet"), of_applied),
    "the drop list names a row that its shard does not have": (lambda world: world.edit_drops(row=ROWS), of_applied),
    "a file is absent": (gone, {}),
    "many files are absent": (
        lambda world: of_other_rows(world, *(row_of(f"m{number}.jsonl", b"{}\n") for number in range(7))),
        lambda world: {"root": world.data},
    ),
    "a file is longer": (longer, {}),
    "a file has other bytes of the same size": (other_bytes, {"check": "sample"}),
    "a file cannot be opened": (lambda world: gone(world).symlink_to("a.jsonl"), {}),
    "a folder lies in a file's place": (lambda world: gone(world).mkdir(), {}),
    "the manifest does not say where the files lie": (lambda world: world.edit(roots={}), {}),
    "the files lie elsewhere now": (lambda world: world.data.rename(world.folder / "elsewhere"), {}),
    "a URI leads out of its root": (
        lambda world: of_other_rows(world, row_of("../d.jsonl", b"{}\n")),
        lambda world: {"root": world.data},
    ),
    "a path is not UTF-8": (None, no_utf8),
    "a split is not known": (None, {"splits": ["trian"]}),
    "whose signature it has to be is not said": (None, {"require": "signed"}),
    "by which policy is not said": (None, {"require": "passed"}),
    "a policy is given and not asked for": (None, {"policy": PASSING}),
}
"""By what is wrong: what spoils a world, and how it is opened; the page names the error."""


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def first_line(case, folder):
    """Return the error of a case and the first line of what it says, without what differs between two runs."""
    spoil, how = CASES[case]
    world = World(folder)
    if spoil:
        spoil(world)
    with pytest.raises(DataAuditError) as caught:
        world.open(**how(world) if callable(how) else how)
    assert caught.value.hint, "no way out is said"
    line = str(caught.value).partition("\n")[0]
    for name, path in (("DIR", world.manifest), ("ROOT", world.data), ("LIST", world.list), ("FOLDER", world.applied)):
        line = line.replace(str(path), name)
    line = LIBRARY.sub(r"\1...", line.replace(f"{world.folder}/", ""))
    return type(caught.value).__name__, VALUES.sub("...", line)


def row(case, folder):
    """Return the row of the page."""
    kind, line = first_line(case, folder)
    mark = "``" if "`" in line else "`"
    return f"| {case} | `{kind}` | {mark}{line}{mark} |"


@pytest.mark.torch
@pytest.mark.parametrize("case", CASES)
def test_what_may_not_be_trained_on_is_refused_with_the_words_of_the_page(case, tmp_path):
    """The reason on the first line, the way out on the second."""
    assert row(case, tmp_path) in PAGE.read_text().splitlines()


def test_the_page_has_these_cases_and_no_others():
    """One row each."""
    rows = re.findall(r"^\| (.+?) \| `\w+` \| `.*` \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == list(CASES)


def test_what_passed_opens_and_says_who_said_so(world, tmp_path):
    """By a policy that is judged now, by a signature, or by its digests alone."""
    assert world.open().verdict is None
    judged = world.open(require="passed", policy=PASSING).verdict
    assert (judged.policy, judged.version, judged.signer, judged.at) == ("enough", "3", "", "")
    world.sign()
    signed = world.open(require="signed", public_key=world.public, policy=PASSING, max_age=100_000 * DAY).verdict
    assert (signed.policy, signed.version, signed.digest) == ("enough", "3", judged.digest)
    assert (signed.signer, signed.at) == (f"key {KEY.public.id}", "2026-11-21T12:00:00+00:00")
    elsewhere = world.signature.rename(tmp_path / "signed.json")
    assert world.open(require="signed", public_key=world.public, signature=elsewhere).verdict == signed


def test_a_policy_is_a_file_a_ready_one_or_what_it_says(world, tmp_path):
    """And a baseline is what rules of change compare with."""
    (tmp_path / "policy.yaml").write_text(json.dumps(PASSING))
    assert world.open(require="passed", policy=tmp_path / "policy.yaml").verdict.policy == "enough"
    with pytest.raises(CorpusRefused, match="does not pass the policy strict: "):
        world.open(require="passed", policy="strict")
    with pytest.raises(CorpusRefused) as raised:
        world.open(require="passed", policy="strict")
    assert "--policy strict` says" in raised.value.hint
    change = rule(0, change=0.1, comparator="<=")
    del change["rules"][0]["budget"]
    with pytest.raises(CorpusRefused, match="not evaluated: documents"):
        world.open(require="passed", policy=change)
    assert world.open(require="passed", policy=change, baseline=world.manifest).verdict.policy == "enough"


def test_a_signed_verdict_is_wrong_use_where_none_is_asked_for(tmp_path):
    """It would be taken for a check that was made."""
    with pytest.raises(ConfigError, match=r"^signature is of signed verdicts"):
        World(tmp_path).open(signature="x")


def test_an_identity_without_a_name_is_nobody(world):
    """A variable that is not set asks for a signature all the same."""
    with pytest.raises(CorpusRefused, match="it is not signed"):
        world.open(require="passed", policy=PASSING, identity="", issuer="")


def test_a_manifest_that_was_signed_itself_opens_with_a_policy_judged_now(world):
    """An attestation says whose a manifest is, not that it is good: without a policy it opens nothing."""
    with pytest.raises(CorpusRefused, match=r"it is not signed, there is no attestation.json"):
        world.open(require="passed", policy=PASSING, public_key=world.public)
    sign_manifest(load_manifest(world.manifest), Seal(key=KEY))
    assert world.open(require="passed", policy=PASSING, public_key=world.public).verdict.policy == "enough"
    assert world.open(require="verified", public_key=world.public).verdict is None
    assert world.open(require="signed", policy=PASSING, public_key=world.public).verdict.policy == "enough"
    with pytest.raises(CorpusRefused, match="does not pass"):
        world.open(require="signed", policy=FAILING, public_key=world.public)
    with pytest.raises(CorpusRefused, match="no signed verdict at"):
        world.open(require="signed", public_key=world.public)


def test_a_signed_verdict_answers_for_the_rules_and_the_rest_is_asked_today(world, tmp_path):
    """A list that holds more back since, a signature that is gone, a record of token files that proves nothing."""
    how = {"require": "signed", "public_key": world.public}
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps(PASSING | {"quarantine_list": "list.jsonl"}))
    world.sign_by(policy)
    assert world.open(policy=policy, **how).verdict.signer
    world.hold("train/a.jsonl")
    with pytest.raises(CorpusRefused, match=r"list\.jsonl holds back"):
        world.open(policy=policy, **how)
    assert world.open(**how).verdict.signer
    policy.write_text(json.dumps(PASSING | {"require_signature": True}))
    sign_manifest(load_manifest(world.manifest), Seal(key=KEY))
    world.sign_by(policy)
    assert world.open(policy=policy, **how).verdict.signer
    (world.manifest / "attestation.json").unlink()
    with pytest.raises(CorpusRefused, match="it is not signed"):
        world.open(policy=policy, **how)


@pytest.mark.parametrize("how", [{"require": "passed"}, {"require": "signed"}, {"require": "verified", "policy": None}])
def test_a_forged_manifest_with_an_old_signature_does_not_open(world, how):
    """Digests, id and bytes fit; the signature is of what was there before."""
    sign_manifest(load_manifest(world.manifest), Seal(key=KEY))
    forge(world.manifest, core=lambda core: core["dataset"].update(version="2"))
    assert world.open(require="passed", policy=PASSING).verdict.policy == "enough"
    with pytest.raises(CorpusRefused, match="the signature is of another manifest"):
        world.open(**{"policy": PASSING, "public_key": world.public} | how)


def test_a_baseline_has_to_be_signed_as_the_manifest_is(world, tmp_path):
    """Else numbers of change are led by it."""
    sign_manifest(load_manifest(world.manifest), Seal(key=KEY))
    make(tmp_path / "older", [shard("a.jsonl")])
    with pytest.raises(CorpusRefused, match="older is not believed: it is not signed"):
        world.open(require="passed", policy=PASSING, public_key=world.public, baseline=tmp_path / "older")


def test_both_a_key_and_an_identity_or_half_of_one_are_wrong_use(world):
    """Anybody can have an identity from some other issuer."""
    for how in ({"identity": "a"}, {"issuer": "b"}, {"identity": "a", "issuer": "b", "public_key": world.public}):
        for require, what in (("verified", "a signature"), ("signed", "require='signed'")):
            with pytest.raises(
                ConfigError, match=f"^{what} needs either public_key=FILE or identity=WHO with issuer=URL"
            ):
                world.open(require=require, **how)
    for how in ({"require": "believed"}, {"check": "none"}, {"baseline": world.manifest}, {"splits": []}):
        with pytest.raises(ConfigError):
            world.open(**how)
    with pytest.raises(ConfigError, match=r"^root: no split `vall` \(did you mean `val`\?\)"):
        world.open(root={"vall": world.data})


def test_an_identity_has_a_default_file_of_its_own(world):
    """And an age is a timedelta."""
    world.sign()
    with pytest.raises(CorpusRefused, match=r"^no signed verdict at .*/m\.verdict\.sigstore\.json\n"):
        world.open(require="signed", identity="a@example.org", issuer="https://example.org")
    with pytest.raises(ConfigError, match="max_age: expected a timedelta, found 30"):
        world.open(max_age=30)


def test_no_byte_of_what_was_signed_can_change(world):
    """Neither of `manifest.json` nor of the signed verdict."""
    world.sign()
    for path in (world.signature, world.manifest / "manifest.json"):
        whole = path.read_bytes()
        for place in range(0, len(whole), len(whole) // thinned(100, 12)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(CorpusRefused):
                world.open(**signed(world))
        path.write_bytes(whole)
    assert world.open(**signed(world)).verdict.policy == "enough"


def test_damaged_lines_are_passed_over_when_that_is_allowed(world):
    """What the others hold is held."""
    bad_line(world, "0", "1")
    corpus = world.open(quarantine=world.list, ignore_bad_lines=True)
    assert corpus.table["held"].to_pylist() == ["quarantined", "", "", "", "not chosen"]


def test_held_out_splits_are_trained_on_when_they_are_named(world):
    """Only files of chosen splits are needed."""
    assert world.open().splits == ("train",)
    assert set(world.open(splits=["val", "train"]).table["held"].to_pylist()) == {""}
    (world.data / "v.jsonl").unlink()
    assert world.open().table["held"].to_pylist().count("") == 4
    with pytest.raises(CorpusRefused, match=r"val/v\.jsonl \(absent\)"):
        world.open(splits="val")


def test_the_file_of_a_held_shard_may_be_absent(world):
    """Held shards keep their ordinals, and copies are held together."""
    for name in ("b.jsonl", "v.jsonl"):
        (world.data / name).unlink()
    corpus = world.open(quarantine=world.hold("train/b.jsonl"), check="all")
    assert corpus.table["held"].to_pylist() == ["", "quarantined", "quarantined", "", "not chosen"]
    assert corpus.table["path"].to_pylist() == [str(world.data / "a.jsonl"), "", "", str(world.data / "c.jsonl"), ""]
    assert corpus.quarantine_digest.startswith("sha256:")
    with pytest.raises(CorpusRefused, match=r"^train/b\.jsonl has no file to open: quarantined$"):
        corpus.path(1)


def test_what_the_build_did_not_read_is_held(tmp_path):
    """It was not audited."""
    world = World(
        tmp_path, row_of("z.jsonl", b"", status="quarantined", reason="io_error", sha256="", rows_digest=None)
    )
    assert world.open().table["held"].to_pylist() == ["", "", "", "", "unread", "not chosen"]


def test_sizes_do_not_show_other_bytes_and_hashes_do(world):
    """Which files were hashed is said."""
    assert world.open(check="all").notes == ("4 files, 1.7 kB: every byte hashed, as the manifest says",)
    [said] = world.open(check="sample").notes
    assert said.startswith("4 files: of the size that the manifest says; 4, 1.7 kB, hashed: train/a.jsonl, ")
    other_bytes(world)
    assert world.open().notes == ("4 files: of the size that the manifest says; no byte was read",)
    with pytest.raises(CorpusRefused, match=r"^2 of 4 files .*: train/b\.jsonl \(other bytes of the same size\), "):
        world.open(check="all")


def test_a_sample_is_bounded_and_the_same_each_time(world, monkeypatch):
    """By files and by bytes, in the order of a hash."""
    monkeypatch.setattr("dataaudit.training.checks.SAMPLE_FILES", 2)
    first, again = world.open(check="sample").notes, world.open(check="sample").notes
    assert first == again
    assert "; 2, " in first[0]
    monkeypatch.setattr("dataaudit.training.checks.SAMPLE_BYTES", 10)
    assert world.open(check="sample").notes[0].endswith("; 0, 0 B, hashed: none")


def test_a_file_that_may_not_be_read_is_known_before_it_is_opened(world, monkeypatch):
    """By its mode: nothing is read of it when sizes are asked for alone."""
    monkeypatch.setattr("os.access", lambda path, mode: not path.endswith("c.jsonl"))
    with pytest.raises(CorpusRefused, match=r"train/c\.jsonl \(it may not be read\)"):
        world.open()


def test_files_that_were_moved_are_found_below_another_root(world):
    """Of all splits or of one; the recorded root holds for the others."""
    (world.folder / "new").mkdir()
    (world.data / "v.jsonl").rename(world.folder / "new/v.jsonl")
    corpus = world.open(splits=["train", "val"], root={"val": world.folder / "new"}, check="all")
    assert corpus.path(4) == str(world.folder / "new/v.jsonl")
    assert corpus.path(0) == str(world.data / "a.jsonl")


def test_rows_of_a_streamed_dataset_have_no_files_and_it_is_said(tmp_path):
    """No root is needed for them."""
    world = World(tmp_path, row_of("hub/train", b"", split="hub", format="datasets"))
    world.edit(roots={"train": str(world.data), "val": str(world.data), "hub": "datasets:org/name"})
    corpus = world.open(splits=["hub", "train"], check="all")
    assert corpus.notes[1:] == ("1 shard of streamed datasets: no digest of a file to hold them to",)
    with pytest.raises(CorpusRefused, match="its rows are streamed"):
        corpus.path(0)


def test_a_shard_that_changed_since_it_was_listed_is_not_held_and_it_is_said(world, tmp_path):
    """Its rows are others, so the entry says nothing of them."""
    held = world.hold("train/a.jsonl").rename(tmp_path / "older.jsonl")
    path = tmp_path / "next"
    path.mkdir()
    later = World(path)
    rows = [row_of("a.jsonl", b"{}\n"), *later.rows[1:]]
    (later.data / "a.jsonl").write_bytes(b"{}\n")
    make(later.folder / "n", rows, roots=later.data)
    later.manifest = later.folder / "n"
    [_, note] = later.open(quarantine=held).notes
    assert note.startswith("train/a.jsonl is listed under another digest (")


def test_names_from_the_data_are_harmless_in_messages(tmp_path):
    """What could steer a terminal is shown as an escape."""
    for uri, says in (
        ("\x1b[31mz\u202e.jsonl", "no build writes the URI '\\x1b[31mz\\u202e.jsonl'"),
        (encode_path("\x1b[31mz\u202e.jsonl"), "train/%1B[31mz%E2%80%AE.jsonl (absent)"),
    ):
        place = tmp_path / str(len(uri))
        place.mkdir()
        world = World(place, row_of(uri, b"{}\n"))
        with pytest.raises(CorpusRefused) as caught:
            world.open()
        assert caught.value.message.isprintable()
        assert says in caught.value.message


def test_remote_files_are_addressed_and_asked_for(tmp_path, monkeypatch):
    """By size and by digest; the path is one that the readers know as remote."""
    world, asked = World(tmp_path), []

    def open_binary(path, **_):
        asked.append(path)
        return (world.data / path.rpartition("/")[2]).open("rb")

    class Stat:
        def __init__(self, path):
            self.size = (world.data / path.rpartition("/")[2]).stat().st_size

    monkeypatch.setattr("dataaudit.training.checks.open_binary", open_binary)
    monkeypatch.setattr("dataaudit.training.checks.stat_file", Stat)
    corpus = world.open(root="s3://bucket/corpus", check="all")
    assert corpus.table["path"].to_pylist()[0] == "s3://bucket/corpus/a.jsonl"
    assert {type(path) for path in asked} == {RemotePath} == {type(corpus.path(0))}
    assert sorted(asked) == [f"s3://bucket/corpus/{name}.jsonl" for name in "abc"]


if __name__ == "__main__":  # the rows of the page
    for one in CASES:
        with tempfile.TemporaryDirectory() as made:
            print(row(one, Path(made)))
