"""Lines as a graph: heads, lost lines, pinned heads, lists of version 1, branches that are merged."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from quarantine_made import AUTHOR, NOW, TODAY, asked, entry, first_version, target

from dataaudit.errors import QuarantineDamaged, QuarantineError
from dataaudit.quarantine.changes import accept, add, dismiss, lift, propose
from dataaudit.quarantine.entry import parse
from dataaudit.quarantine.list import Standing, fold, load_quarantine, read


def built_with(seen, held=()):
    """Return what counts of a manifest that was built with a list, of which it held entries back."""
    core = SimpleNamespace(quarantine=[SimpleNamespace(**digests_of(one.target)) for one in held])
    return SimpleNamespace(id="m", core=core, run=SimpleNamespace(quarantine=SimpleNamespace(heads=seen.heads)))


def digests_of(target):
    """Return the digests that name a target."""
    rows = None if target.row is None else (target.row,)
    return {"sha256": target.sha256, "rows_digest": target.rows_digest, "rows": rows}


def lines_of(*entries):
    """Return the bytes of a file."""
    return b"".join(one.line + b"\n" for one in entries)


def contents(entries):
    """Return the contents of a file."""
    return parse(lines_of(*entries), "list")


def test_each_line_of_a_writer_names_the_one_before(tmp_path):
    """One head, whatever was done."""
    path = tmp_path / "list.jsonl"
    change = add(path, [asked("a"), asked("b")], AUTHOR)
    assert [one.after for one in change.added] == [(), (change.added[0].id,)]
    proposed = propose(path, [asked("c")], AUTHOR).added[0]
    accepted = accept(path, None, AUTHOR).added[0]
    lifted = lift(path, ["train/a"], "mended", AUTHOR).added[0]
    assert [one.after[0] for one in (proposed, accepted, lifted)] == [change.added[1].id, proposed.id, accepted.id]
    assert read(path).heads == (lifted.id,)


def test_the_first_line_of_version_2_names_every_line_of_version_1(tmp_path):
    """From then on none of them can go unseen."""
    path = tmp_path / "list.jsonl"
    old = [first_version(entry(name=name)) for name in "abc"]
    path.write_bytes(lines_of(*old))
    assert read(path).heads == tuple(sorted(one.id for one in old))
    new = add(path, [asked("d")], AUTHOR).added[0]
    assert new.after == tuple(sorted(one.id for one in old))
    path.write_bytes(lines_of(old[0], old[2], new))
    with pytest.raises(QuarantineDamaged, match=r"1 line\(s\) are lost that later ones name"):
        load_quarantine(path)


def test_a_lost_line_can_be_dismissed_by_somebody(tmp_path):
    """By its id; one that is there, or that nobody names, cannot."""
    path = tmp_path / "list.jsonl"
    first, second = add(path, [asked("a"), asked("b")], AUTHOR).added
    path.write_bytes(lines_of(second))
    assert read(path).lost == (first.id,)
    for wrong in (second.id, "sha256:" + "0" * 64):
        with pytest.raises(QuarantineError, match="no line of it names"):
            dismiss(path, [wrong], "looked", AUTHOR)
    dismiss(path, [first.id], "looked", AUTHOR)
    assert (read(path).lost, len(load_quarantine(path, on=TODAY).entries)) == ((), 1)


def test_a_lost_tail_shows_against_heads_that_somebody_saw():
    """Alone the file looks whole: only who knew its heads can tell."""
    first = entry()
    second = entry("lift", lifts=(first.id,), after=(first.id,))
    whole, short = contents([first, second]), contents([first])
    short.check("list")
    whole.check_seen(built_with(whole), "list")
    with pytest.raises(QuarantineDamaged, match=r"list: 1 line\(s\) are lost that the manifest m names") as caught:
        short.check_seen(built_with(whole), "list")
    assert second.id in str(caught.value)


@pytest.mark.parametrize("other", [target("b"), target("a"), target("a", 4)])
def test_what_a_build_held_back_is_looked_for_where_its_heads_are_gone(other):
    """Heads can be taken out of `run` without a trace; what is held back stands in the core."""
    first = entry(target=target("a", 3))
    second = entry(target=other, after=(first.id,))
    whole, short = contents([first, second]), contents([first])
    seen = built_with(short, held=(first, second))
    whole.check_seen(seen, "list")
    with pytest.raises(QuarantineDamaged, match=r"1 line\(s\) are lost that the manifest m names") as caught:
        short.check_seen(seen, "list")
    assert second.target.sha256 in str(caught.value)


def seen_after(path, manifest):
    """Return what is said of a list that a manifest's build saw; nothing when nothing is lost."""
    try:
        read(path).check_seen(manifest, "list")
    except QuarantineDamaged as error:
        return str(error)
    return ""


def test_a_dismissed_line_excuses_what_it_holds_and_nothing_else(tmp_path):
    """Dust that somebody passed over years ago does not end the look at what a build held back."""
    path = tmp_path / "list.jsonl"
    path.write_bytes(b"dust\n" + lines_of(entry()))
    dismiss(path, [1], "dust", AUTHOR)
    held = add(path, [asked("b"), asked("c", 3)], AUTHOR).added
    lines = path.read_bytes().splitlines(keepends=True)
    manifest = built_with(contents([]), held=held)
    assert seen_after(path, manifest) == ""
    for gone in (3, 4):
        path.write_bytes(b"".join(line for index, line in enumerate(lines) if index != gone))
        assert held[gone - 3].target.sha256 in seen_after(path, manifest)
    spoiled = lines[4].replace(b'"row":3', b'"row":4')
    path.write_bytes(b"".join([*lines[:4], spoiled]))
    assert held[1].target.sha256 in seen_after(path, manifest)
    dismiss(path, [5], "spoiled", AUTHOR)
    assert seen_after(path, manifest) == ""


def test_entries_without_one_of_the_digests_are_told_apart(tmp_path):
    """What is absent in two of them is nothing that they share."""
    one, other = (entry(target=target(name, rows_digest=None)) for name in "ab")
    path = tmp_path / "list.jsonl"
    path.write_bytes(lines_of(one))
    assert other.target.sha256 in seen_after(path, built_with(contents([]), held=(one, other)))


def test_a_lost_line_that_was_dismissed_excuses_one_entry(tmp_path):
    """What it held back is not known, but a line holds back one thing."""
    path = tmp_path / "list.jsonl"
    first, second, third = add(path, [asked("a"), asked("b"), asked("c")], AUTHOR).added
    path.write_bytes(lines_of(second, third))
    dismiss(path, [first.id], "looked", AUTHOR)
    manifest = built_with(contents([]), held=(first, second, third))
    assert seen_after(path, manifest) == ""
    kept = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([kept[0], kept[2]]))
    assert "2 line(s) are lost that the manifest m names" in seen_after(path, manifest)


def test_a_list_that_is_cut_in_the_middle_of_a_line_is_never_taken_for_a_shorter_one(tmp_path):
    """At every byte: a line that cannot be read, or heads that are gone. Once dismissed, the heads are gone still."""
    path = tmp_path / "list.jsonl"
    held = add(path, [asked("a"), asked("b", 3)], AUTHOR).added
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    manifest = built_with(read(path), held=held)
    for size in {*range(0, len(whole) - 1, 97), first - 1, first, first + 1, len(whole) - 2}:
        path.write_bytes(whole[:size])
        with pytest.raises(QuarantineDamaged, match=r"cannot be read|are lost that the manifest before m names"):
            load_quarantine(path, on=TODAY, seen_by=manifest)
    path.write_bytes(whole[:-1])
    assert len(load_quarantine(path, on=TODAY, seen_by=manifest).entries) == 2
    path.write_bytes(whole[: first + 30])
    dismiss(path, [2], "killed-writer", AUTHOR)
    assert held[1].id in seen_after(path, manifest)


def test_both_branches_of_a_fork_count(tmp_path):
    """Two heads: what either holds back is held back, both are pinned, and the loss of either shows."""
    path = tmp_path / "list.jsonl"
    base = entry()
    left, right = (entry(name=name, after=(base.id,)) for name in "bc")
    path.write_bytes(lines_of(base, left, right))
    loaded = load_quarantine(path, on=TODAY)
    assert loaded.heads == tuple(sorted((left.id, right.id)))
    assert all(loaded.holds(sha256=one.target.sha256) for one in (base, left, right))
    for heads, held in ((read(path), ()), (contents([]), (base, left, right))):
        manifest = built_with(heads, held=held)
        for kept, lost in ((left, right), (right, left)):
            path.write_bytes(lines_of(base, kept))
            said = seen_after(path, manifest)
            assert "1 line(s) are lost" in said
            assert (lost.target.sha256 if held else lost.id) in said
        path.write_bytes(lines_of(base, left, right))
        assert seen_after(path, manifest) == ""
    joined = lift(path, ["train/b"], "mended", AUTHOR).added[0]
    assert joined.after == loaded.heads
    assert seen_after(path, built_with(contents([base, left, right]))) == ""


def test_a_line_of_version_1_says_nothing_of_what_it_comes_after():
    """And one of version 2 has to."""
    new, old = entry(), first_version(entry())
    assert b'"after":[]' in new.line
    assert b"after" not in old.line
    for one, after in ((new, None), (old, ()), (new, ("sha256:" + "1" * 64, "sha256:" + "0" * 64))):
        with pytest.raises(ValueError, match="after"):
            replace(one, after=after)


@st.composite
def histories(draw):
    """Lists that grew in branches which were merged, by union, in any order, with lines of version 1 at first."""
    old = [
        first_version(entry(name=name, when=NOW - dt.timedelta(seconds=index)))
        for index, name in enumerate(draw(st.lists(st.sampled_from("abcd"), max_size=3)))
    ]
    branches = [list(old), list(old)]
    for step in range(draw(st.integers(1, 10))):
        mine = draw(st.sampled_from([0, 1]))
        if draw(st.booleans()) and draw(st.booleans()):
            known = {one.id for one in branches[mine]}
            branches[mine] += [one for one in branches[1 - mine] if one.id not in known]
        heads, when = contents(branches[mine]).heads, NOW + dt.timedelta(seconds=step)
        open_ = fold(branches[mine], TODAY).standing(Standing.HELD, Standing.PROPOSED)
        if open_ and draw(st.booleans()):
            made = entry("lift", lifts=(draw(st.sampled_from(open_)).id,), after=heads, when=when)
        else:
            made = entry(
                draw(st.sampled_from(["add", "propose"])), draw(st.sampled_from("abcd")), after=heads, when=when
            )
        branches[mine].append(made)
    known = {one.id for one in branches[0]}
    return [*branches[0], *(one for one in branches[1] if one.id not in known)]


@settings(max_examples=examples(150))
@given(histories(), st.data())
def test_any_merge_of_a_list_means_the_same(lines, data):
    """Order and repeated lines change neither what holds nor the heads, and nothing is taken for lost."""
    more = data.draw(st.lists(st.sampled_from(lines), max_size=3))
    mixed = data.draw(st.permutations([*lines, *more]))
    one, other = contents(lines), contents(mixed)
    assert (one.heads, one.lost) == (other.heads, other.lost) == (one.heads, ())
    assert {r.entry.id: r.standing for r in fold(lines, TODAY).records} == {
        r.entry.id: r.standing for r in fold(mixed, TODAY).records
    }


@settings(max_examples=examples(150))
@given(histories(), st.data())
def test_no_line_goes_unseen(lines, data):
    """Any lines, one or many, that are taken away: another line names one of them, or the pinned heads do."""
    gone = set(data.draw(st.lists(st.sampled_from([one.id for one in lines]), min_size=1, max_size=len(lines))))
    rest = contents([one for one in lines if one.id not in gone])

    def look():
        rest.check("list")
        rest.check_seen(built_with(contents(lines)), "list")

    with pytest.raises(QuarantineDamaged):
        look()
