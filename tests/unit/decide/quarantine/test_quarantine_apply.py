"""`quarantine apply`: which shards are kept, what loaders get, what is said out loud."""

import datetime as dt
import json

import pytest
from click.testing import CliRunner
from made_manifest import make, shard
from quarantine_made import AUTHOR, digest

from dataaudit.cli import main
from dataaudit.decide.quarantine.changes import add, add_requests, lift
from dataaudit.decide.quarantine.list import load_quarantine, today
from dataaudit.manifest.load import load_manifest

MARKUP = "<script>alert(1)</script> ::error::x =cmd() | `a` $(b) \u202e [x]*?.jsonl"


def made(uri, **more):
    """Return a row of the table of shards with digests of its own."""
    return shard(uri, **{"sha256": digest(f"stored {uri}"), "rows_digest": digest(f"rows {uri}")} | more)


@pytest.fixture
def place(tmp_path):
    """A manifest of five shards whose files are there, an empty list, and a call of `apply`."""
    (tmp_path / "data").mkdir()
    lost = made("lost.jsonl", status="quarantined", reason="not_parquet", rows_digest=None)
    rows = [made("a.jsonl"), made("b.jsonl"), lost, made("v.jsonl", split="val"), made("c %23.jsonl")]
    for name in ("a.jsonl", "b.jsonl", "v.jsonl", "c #.jsonl"):
        (tmp_path / "data" / name).write_bytes(b"x" * 50)
    make(tmp_path / "m", rows, roots=tmp_path / "data")
    (tmp_path / "q.jsonl").touch()
    return tmp_path


def hold(place, *names, **more):
    """Put shards or documents on the list."""
    requests, _ = add_requests(names, load_manifest(place / "m"), reason="manual", metric=None, run=None)
    return add(place / "q.jsonl", requests, AUTHOR, **more).added


def apply(place, *options, expect=0, manifest="m"):
    """Run the command; return its JSON and the folder."""
    call = ["quarantine", "apply", place / "q.jsonl", "--manifest", place / manifest, "--out", place / "out", *options]
    result = CliRunner().invoke(main, [*map(str, call), "--json"])
    assert result.exit_code == expect, result.output
    return (json.loads(result.stdout) if result.stdout else result.stderr), place / "out"


def names(out, split="train"):
    """Return the names of the files that a list keeps."""
    return [line.rpartition("/")[2] for line in (out / f"{split}.txt").read_text().splitlines()]


def test_an_empty_list_keeps_all_that_was_read(place):
    """What the build could not read was not audited, so no loader gets it unless asked."""
    said, out = apply(place)
    assert (names(out), names(out, "val")) == (["a.jsonl", "b.jsonl", "c #.jsonl"], ["v.jsonl"])
    assert said["left_out_by"] == {"unread": 1}
    assert said["wrong_files"] == []
    assert apply(place, "--keep-unread")[0]["wrong_files"] == ["train/lost.jsonl"]


def test_a_held_shard_is_left_out_with_its_entry(place):
    """Of each split's list; the line says why."""
    [entry] = hold(place, "train/a.jsonl")
    said, out = apply(place)
    assert names(out) == ["b.jsonl", "c #.jsonl"]
    lines = [json.loads(line) for line in (out / "excluded.jsonl").read_text().splitlines()]
    assert [(line["uri"], line["why"], line["entries"]) for line in lines] == [
        ("a.jsonl", "quarantined", [entry.id]),
        ("lost.jsonl", "unread", []),
    ]
    assert said["splits"]["train"]["shards_left_out"] == 2


def test_lifted_and_expired_entries_hold_nothing(place):
    """On the day that is asked for."""
    hold(place, "a.jsonl")
    lift(place / "q.jsonl", ["train/a.jsonl"], "mended", AUTHOR)
    hold(place, "b.jsonl", until=AUTHOR.today)
    day = AUTHOR.today + dt.timedelta(days=1)
    assert names(apply(place, "--on", AUTHOR.today)[1]) == ["a.jsonl", "c #.jsonl"]
    assert names(apply(place, "--on", day)[1]) == ["a.jsonl", "b.jsonl", "c #.jsonl"]


def test_a_later_day_frees_nothing(place):
    """A label is no clock: what is in force today is left out, and the record says today."""
    now = today()
    hold(place, "b.jsonl", until=max(now, AUTHOR.today) + dt.timedelta(days=3))
    out = apply(place, "--on", "2099-01-01")[1]
    assert names(out) == ["a.jsonl", "c #.jsonl"]
    assert json.loads((out / "applied.json").read_text())["on"] in {now.isoformat(), today().isoformat()}
    assert len(load_quarantine(place / "q.jsonl", on=dt.date(2099, 1, 1)).entries) == 1


def test_a_repacked_shard_is_still_held(place):
    """Other bytes, another name, the same rows."""
    hold(place, "a.jsonl")
    make(place / "m2", [made("z.jsonl.zst", rows_digest=digest("rows a.jsonl")), made("b.jsonl")])
    said, out = apply(place, manifest="m2")
    assert names(out) == ["b.jsonl"]
    assert said["listed_under_another_digest"] == []


def test_a_changed_shard_is_not_held_and_that_is_said(place):
    """Its name is on the list under another digest; with --exclude-changed it is left out."""
    [entry] = hold(place, "a.jsonl")
    make(place / "m2", [made("a.jsonl", sha256=digest("x"), rows_digest=digest("y")), made("b.jsonl")])
    said, out = apply(place, manifest="m2")
    assert names(out) == ["a.jsonl", "b.jsonl"]
    assert said["listed_under_another_digest"] == [{"shard": "train/a.jsonl", "entry": entry.id}]
    assert "NOT left out" in said["warnings"][0]
    assert names(apply(place, "--exclude-changed", manifest="m2")[1]) == ["b.jsonl"]


def test_shards_without_documents_are_not_held_by_their_rows(place):
    """All of them have the digest of no rows."""
    make(
        place / "m2",
        [
            made("e.jsonl", documents=0, rows_digest=digest("none"), sha256=digest("e")),
            made("f.jsonl", documents=0, rows_digest=digest("none"), sha256=digest("f")),
        ],
    )
    requests, _ = add_requests(["e.jsonl"], load_manifest(place / "m2"), reason="x", metric=None, run=None)
    add(place / "q.jsonl", requests, AUTHOR)
    assert names(apply(place, manifest="m2")[1]) == ["f.jsonl"]


@pytest.mark.parametrize("option", [("--with-common",), ("--ngram-score", "0.1")])
def test_what_makes_a_leak_needs_documents_that_leaks_drop(place, option):
    """It was taken, and changed nothing."""
    hold(place, "a.jsonl")
    assert "Add --documents" in apply(place, *option, expect=2)[0]
    assert "Add it: --from overlap" in apply(place, *option, "--documents", "--from", "clusters", expect=2)[0]


def test_entries_of_documents_need_documents_and_that_is_said(place):
    """Lists of files cannot leave out a row."""
    hold(place, "a.jsonl:3")
    said, out = apply(place)
    assert names(out)[0] == "a.jsonl"
    assert "not applied: --documents writes them" in said["warnings"][0]


def test_origins_may_be_one_option_each(place):
    """The last one counted alone, so a drop list had no leaks."""
    for given in (["--from", "clusters,findings"], ["--from", "findings", "--from", "clusters"]):
        _, out = apply(place, "--documents", *given, expect=3)
        assert json.loads((out / "applied.json").read_bytes())["documents"]["from"] == ["clusters", "findings"]


def test_a_row_is_not_carried_over_bad_records(place):
    """With bad records a row is not the number of a document, so a repacked shard is another one."""
    make(place / "bad", [made("a.jsonl", bad=2)], roots=place / "data")
    requests, _ = add_requests(["a.jsonl:3"], load_manifest(place / "bad"), reason="x", metric=None, run=None)
    assert requests[0].target.rows_digest is None
    hold(place, "a.jsonl:4")
    make(place / "m2", [made("z.jsonl", rows_digest=digest("rows a.jsonl"), bad=2)])
    said, _ = apply(place, "--documents", "--from", "findings", manifest="m2", expect=3)
    assert said["documents"]["dropped"] == 0


def test_a_proposal_is_counted_and_changes_nothing(place):
    """Somebody has to accept it."""
    from dataaudit.decide.quarantine.changes import propose

    requests, _ = add_requests(["a.jsonl"], load_manifest(place / "m"), reason="x", metric=None, run=None)
    propose(place / "q.jsonl", requests, AUTHOR)
    said, out = apply(place)
    assert (names(out)[0], said["proposed_and_kept"]) == ("a.jsonl", 1)


def test_a_damaged_list_is_refused_unless_told(place):
    """Nothing is written: what the line holds back is not known."""
    hold(place, "a.jsonl")
    with (place / "q.jsonl").open("ab") as handle:
        handle.write(b'{"action":"add"')
    said, out = apply(place, expect=3)
    assert "line 2 (truncated)" in said
    assert not out.exists()
    assert "ignored, as asked" in apply(place, "--ignore-bad-lines")[0]["warnings"][0]


def test_an_absent_list_is_wrong_use(place):
    """A typing error must not give the whole corpus to a loader."""
    (place / "q.jsonl").unlink()
    said, out = apply(place, expect=2)
    assert "no quarantine list" in said
    assert not out.exists()


def test_a_list_that_leaves_nothing_exits_4(place):
    """A loader without files would wait or crash far from the cause."""
    hold(place, "a.jsonl", "b.jsonl", "v.jsonl", "4")
    assert apply(place, expect=4)[0]["exit_code"] == 4


def test_files_that_are_not_as_the_manifest_says_are_named(place):
    """Absent, or of another size; where the folder is not here, nothing can be said."""
    (place / "data/b.jsonl").write_bytes(b"")
    (place / "data/a.jsonl").unlink()
    assert apply(place)[0]["wrong_files"] == ["train/a.jsonl", "train/b.jsonl"]
    assert apply(place, "--root", "/nowhere/at/all")[0]["wrong_files"] == []


def test_equal_input_gives_equal_bytes(place):
    """Every file, whatever the time of day."""
    hold(place, "a.jsonl", "b.jsonl:2")
    options = (
        "--documents", "--rows", "--format", "list", "--format", "hf", "--format", "datatrove", "--on", "2026-11-22",
    )  # fmt: skip
    first = {path.name: path.read_bytes() for path in apply(place, *options, expect=0)[1].rglob("*") if path.is_file()}
    second = {path.name: path.read_bytes() for path in apply(place, *options, expect=0)[1].rglob("*") if path.is_file()}
    assert first == second
    assert len(first) == 9


def test_only_a_folder_of_ours_is_replaced(place):
    """Notes that somebody put beside the lists, and folders of others, stay."""
    _, out = apply(place, "--format", "hf")
    apply(place)
    assert sorted(path.name for path in out.iterdir()) == ["applied.json", "excluded.jsonl", "train.txt", "val.txt"]
    (out / "notes.md").write_text("mine")
    assert "did not write" in apply(place, expect=2)[0]
    assert (out / "notes.md").read_text() == "mine"


@pytest.mark.parametrize(
    ("root", "uri", "path"),
    [
        ("s3://bucket/data", "a%20b%23.jsonl", "s3://bucket/data/a b#.jsonl"),
        ("https://host/x/", "a b%23.jsonl", "https://host/x/a%20b%23.jsonl"),
        ("s3://", "bucket/a.jsonl", "s3://bucket/a.jsonl"),
        ("/data", "x.jsonl#copy=2", "/data/x.jsonl"),
    ],
)
def test_paths_are_what_opens_the_file(place, root, uri, path):
    """URIs are decoded for paths and object stores, and encoded for the web."""
    make(place / "m2", [made(uri)], roots=root)
    assert (apply(place, manifest="m2")[1] / "train.txt").read_text() == path + "\n"


@pytest.mark.parametrize(
    ("uri", "form"),
    [
        ("a%0Ab.jsonl", "list"),
        ("a%C2%85b.jsonl", "list"),
        ("a%0C.jsonl", "list"),
        ("a%0D.jsonl", "datatrove"),
        (" a.jsonl", "datatrove"),
        ("a::b.jsonl", "hf"),
    ],
)
def test_a_name_that_a_format_cannot_hold_is_refused(place, uri, form):
    """Written, it would be another file, or two."""
    make(place / "m2", [made(uri)])
    assert f"the format {form} cannot hold 1 of the names" in apply(place, "--format", form, manifest="m2", expect=2)[0]
    assert not (place / "out").exists()


@pytest.mark.parametrize(
    ("shard", "options", "said"),
    [
        *((made(uri), (), "leads out of its root") for uri in ("../x.jsonl", "/etc/passwd", "a/../../x")),
        (made("https://host/x.jsonl"), ("--root", ""), "leads out of its root"),
        *((made("a", split=split), (), "cannot be the name of a file") for split in ("../up", "a/b", "", "x" * 300)),
    ],
)
def test_no_name_leads_elsewhere(place, shard, options, said):
    """A manifest cannot make a loader read another file, nor fetch from somewhere; a split becomes a file's name."""
    make(place / "m2", [shard])
    assert said in apply(place, *options, manifest="m2", expect=2)[0]


def test_two_lists_never_become_one_file(place):
    """The list of a split `a.paths` has the name of datatrove's list of a split `a`."""
    make(place / "m2", [made("x.jsonl", split="a"), made("x.jsonl", split="a.paths")])
    assert (
        "two lists would be the file a.paths.txt"
        in apply(place, "--format", "list", "--format", "datatrove", manifest="m2", expect=2)[0]
    )


def test_shards_of_streamed_datasets_are_in_no_list_of_files(place):
    """They are counted, and held back by digest for loaders that stream."""
    make(place / "m2", [made("default/train/00000-of-00001")], roots="datasets:org/name@abc")
    said, out = apply(place, manifest="m2")
    assert "1 kept shard of streamed datasets" in said["warnings"][0]
    assert not (out / "train.txt").exists()


@pytest.mark.tables
def test_datasets_loads_what_is_kept_whatever_it_is_called(place):
    """`data_files.json` is given to `load_dataset` as it is; globs in names are literal."""
    datasets = pytest.importorskip("datasets")
    odd = "[ab]*?.jsonl"
    for name, text in ((odd, "kept"), ("a.jsonl", "held"), ("b1.jsonl", "decoy")):
        (place / "data" / name).write_text(json.dumps({"text": text}) + "\n")
    make(
        place / "m2",
        [made("a.jsonl"), made("%5Bab%5D*%3F.jsonl"), made("%5Bab%5D*%3F.jsonl#copy=2")],
        roots=place / "data",
    )
    hold(place, "a.jsonl")
    _, out = apply(place, "--format", "hf", manifest="m2")
    files = json.loads((out / "data_files.json").read_text())
    loaded = datasets.load_dataset("json", data_files=files, cache_dir=str(place / "cache"))
    assert loaded["train"]["text"][:] == ["kept", "kept"]


def test_hostile_names_are_shown_escaped(place):
    """Text and JSON of every command, for a name made to break a terminal or a CI runner."""
    make(place / "m2", [made(MARKUP.replace("?", "%3F") + "\x1b[31m\n::error::y"), made("b.jsonl")])
    for call in (
        ["add", place / "q.jsonl", "--manifest", place / "m2", "0", "--reason", "x", "--note", "\x1b[31m::error::"],
        ["list", place / "q.jsonl"],
        ["list", place / "q.jsonl", "--json"],
        ["apply", place / "q.jsonl", "--manifest", place / "m2", "--out", place / "out"],
        ["apply", place / "q.jsonl", "--manifest", place / "m2", "--out", place / "out", "--json"],
        ["lift", place / "q.jsonl", "sha256:" + digest("stored b.jsonl"), "--reason", "x"],
    ):
        result = CliRunner().invoke(main, ["quarantine", *map(str, call)])
        assert not set(result.output) & {"\x1b", "\u202e"}, call
        assert not any(line.lstrip().startswith("::") for line in result.output.splitlines())


def test_a_loader_asks_by_either_digest(place):
    """Read once; documents of bad shards by their bytes alone; without a digest there is no answer."""
    hold(place, "a.jsonl", "b.jsonl:2", "b.jsonl:5")
    quarantine = load_quarantine(place / "q.jsonl", on=AUTHOR.today)
    assert quarantine.holds(sha256=digest("stored a.jsonl"))
    assert quarantine.holds(sha256=digest("other"), rows_digest=digest("rows a.jsonl"))
    assert not quarantine.holds(sha256=digest("stored b.jsonl"), rows_digest=digest("rows b.jsonl"))
    assert quarantine.rows(sha256=digest("stored b.jsonl")) == {2, 5}
    assert quarantine.rows(rows_digest=digest("rows b.jsonl")) == {2, 5}
    with pytest.raises(ValueError, match="neither sha256 nor rows_digest"):
        quarantine.holds(sha256="", rows_digest=None)
