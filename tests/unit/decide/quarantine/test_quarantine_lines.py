"""Lines as a set: pinned ids, lost lines, branches that are merged."""

import datetime as dt
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from quarantine_made import AUTHOR, NOW, TODAY, asked, entry, target

from dataaudit.base.errors import QuarantineDamaged
from dataaudit.decide.quarantine.changes import add, lift
from dataaudit.decide.quarantine.entry import parse
from dataaudit.decide.quarantine.list import Standing, fold, load_quarantine, read


def built_with(seen, left_out=()):
    """Return what counts of a manifest that was built with a list, of which it left entries out."""
    core = SimpleNamespace(quarantine=[SimpleNamespace(**digests_of(one.target)) for one in left_out])
    return SimpleNamespace(id="m", core=core, run=SimpleNamespace(quarantine=SimpleNamespace(lines=seen.lines)))


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


def refusal(path, manifest):
    """Return why a list is refused that a manifest's build saw; nothing when no line is lost."""
    try:
        read(path).check_seen(manifest, "list")
    except QuarantineDamaged as error:
        return f"{int(error.exit_code)}: {error}"
    return ""


def test_a_lost_line_shows_against_the_ids_that_somebody_saw():
    """The first, one in the middle, the last. Alone the file looks whole: who knew its lines can tell."""
    lines = [entry(), entry(name="b"), entry(name="c")]
    whole = contents(lines)
    whole.check_seen(built_with(whole), "list")
    for gone in lines:
        short = contents([one for one in lines if one is not gone])
        short.check("list")
        with pytest.raises(QuarantineDamaged, match=r"list: 1 line\(s\) are lost that the manifest m names") as caught:
            short.check_seen(built_with(whole), "list")
        assert gone.id in str(caught.value)


def test_a_lift_does_not_stand_for_the_line_that_it_names():
    """Who takes a line out cannot say in another one that it is over."""
    first = entry()
    with pytest.raises(QuarantineDamaged, match=r"1 line\(s\) are lost"):
        contents([entry("lift", lifts=(first.id,))]).check_seen(built_with(contents([first])), "list")


@pytest.mark.parametrize("other", [target("b"), target("a"), target("a", 4), target("b", rows_digest=None)])
def test_what_a_build_left_out_is_looked_for_where_its_lines_are_gone(other):
    """Pinned ids can be taken out of `run` without a trace; what is left out stands in the core."""
    first = entry(target=target("a", 3))
    second = entry(target=other)
    whole, short = contents([first, second]), contents([first])
    seen = built_with(short, left_out=(first, second))
    whole.check_seen(seen, "list")
    with pytest.raises(QuarantineDamaged, match=r"1 line\(s\) are lost that the manifest m names") as caught:
        short.check_seen(seen, "list")
    assert second.target.sha256 in str(caught.value)


def test_entries_without_one_of_the_digests_are_told_apart(tmp_path):
    """What is absent in two of them is nothing that they share."""
    one, other = (entry(target=target(name, rows_digest=None)) for name in "ab")
    path = tmp_path / "list.jsonl"
    path.write_bytes(lines_of(one))
    assert other.target.sha256 in refusal(path, built_with(contents([]), left_out=(one, other)))


def test_a_lifted_bad_line_excuses_no_lost_line(tmp_path):
    """Dust that somebody passed over years ago, and a changed line that somebody lifts, hide nothing of a pin."""
    path = tmp_path / "list.jsonl"
    path.write_bytes(b"dust\n" + lines_of(entry()))
    lift(path, [read(path).bad[0].id], "dust", AUTHOR)
    added = add(path, [asked("b"), asked("c", 3)], AUTHOR).added
    lines = path.read_bytes().splitlines(keepends=True)
    manifest = built_with(read(path), left_out=added)
    assert refusal(path, manifest) == ""
    for gone in (3, 4):
        path.write_bytes(b"".join(line for index, line in enumerate(lines) if index != gone))
        assert added[gone - 3].id in refusal(path, manifest)
    path.write_bytes(b"".join([*lines[:4], lines[4].replace(b'"row":3', b'"row":4')]))
    [spoiled] = read(path).bad
    lift(path, [spoiled.id], "spoiled", AUTHOR)
    assert len(load_quarantine(path, on=TODAY).entries) == 2
    assert added[1].id in refusal(path, manifest)


def test_a_list_that_is_cut_in_the_middle_of_a_line_is_never_taken_for_a_shorter_one(tmp_path):
    """At every byte: a line that cannot be read, or ids that are gone. Once lifted, the ids are gone still."""
    path = tmp_path / "list.jsonl"
    added = add(path, [asked("a"), asked("b", 3)], AUTHOR).added
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    manifest = built_with(read(path), left_out=added)
    for size in {*range(0, len(whole) - 1, 97), first - 1, first, first + 1, len(whole) - 2}:
        path.write_bytes(whole[:size])
        with pytest.raises(QuarantineDamaged, match=r"cannot be read|are lost that the manifest before m names"):
            load_quarantine(path, on=TODAY, seen_by=manifest)
    path.write_bytes(whole[:-1])
    assert len(load_quarantine(path, on=TODAY, seen_by=manifest).entries) == 2
    path.write_bytes(whole[: first + 30])
    lift(path, [read(path).bad[0].id], "killed-writer", AUTHOR)
    assert added[1].id in refusal(path, manifest)


def test_both_branches_of_a_merge_count(tmp_path):
    """What either leaves out is left out, both are pinned, and the loss of either shows."""
    path = tmp_path / "list.jsonl"
    base = entry()
    left, right = (entry(name=name) for name in "bc")
    path.write_bytes(lines_of(base, left, right))
    loaded = load_quarantine(path, on=TODAY)
    assert loaded.lines == tuple(sorted((base.id, left.id, right.id)))
    assert all(loaded.holds(sha256=one.target.sha256) for one in (base, left, right))
    for seen, left_out in ((read(path), ()), (contents([]), (base, left, right))):
        manifest = built_with(seen, left_out=left_out)
        for kept, lost in ((left, right), (right, left)):
            path.write_bytes(lines_of(base, kept))
            said = refusal(path, manifest)
            assert "3: list: 1 line(s) are lost" in said
            assert (lost.target.sha256 if left_out else lost.id) in said
        path.write_bytes(lines_of(right, left, base))
        assert refusal(path, manifest) == ""
    lift(path, ["train/b"], "mended", AUTHOR)
    assert refusal(path, built_with(contents([base, left, right]))) == ""


@st.composite
def histories(draw):
    """Lists that grew in two branches which were merged by union."""
    branches = [[], []]
    for step in range(draw(st.integers(1, 10))):
        mine, when = draw(st.sampled_from([0, 1])), NOW + dt.timedelta(seconds=step)
        if draw(st.booleans()) and draw(st.booleans()):
            known = {one.id for one in branches[mine]}
            branches[mine] += [one for one in branches[1 - mine] if one.id not in known]
        open_ = fold(branches[mine], TODAY).standing(Standing.HELD, Standing.PROPOSED)
        if open_ and draw(st.booleans()):
            made = entry("lift", lifts=(draw(st.sampled_from(open_)).id,), when=when)
        else:
            made = entry(draw(st.sampled_from(["add", "propose"])), draw(st.sampled_from("abcd")), when=when)
        branches[mine].append(made)
    known = {one.id for one in branches[0]}
    return [*branches[0], *(one for one in branches[1] if one.id not in known)]


@settings(max_examples=examples(150))
@given(histories(), st.data())
def test_any_merge_of_a_list_means_the_same(lines, data):
    """Order and repeated lines change neither what is in force nor what is pinned."""
    more = data.draw(st.lists(st.sampled_from(lines), max_size=3))
    mixed = data.draw(st.permutations([*lines, *more]))
    one, other = contents(lines), contents(mixed)
    assert one.lines == other.lines
    other.check_seen(built_with(one), "list")
    assert {r.entry.id: r.standing for r in fold(lines, TODAY).records} == {
        r.entry.id: r.standing for r in fold(mixed, TODAY).records
    }


@settings(max_examples=examples(150))
@given(histories(), st.data())
def test_no_pinned_line_goes_unseen(lines, data):
    """Any lines, one or many, that are taken away."""
    gone = set(data.draw(st.lists(st.sampled_from([one.id for one in lines]), min_size=1, max_size=len(lines))))
    rest = contents([one for one in lines if one.id not in gone])
    with pytest.raises(QuarantineDamaged):
        rest.check_seen(built_with(contents(lines)), "list")
