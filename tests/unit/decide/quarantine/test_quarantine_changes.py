"""Changes of a list: nothing twice, lifts by name, proposals and their fate, who and when."""

import datetime as dt

import pytest
from quarantine_made import AUTHOR, NOW, asked, digest, target

from dataaudit.base.errors import ConfigError, QuarantineError
from dataaudit.decide.quarantine import changes
from dataaudit.decide.quarantine.changes import AddRequest, Author, accept, add, add_requests, lift, propose
from dataaudit.decide.quarantine.list import fold, read, short_id

LATER = Author(who="bo@example.org", now=NOW + dt.timedelta(days=3))


@pytest.fixture
def path(tmp_path):
    """Where a list may be."""
    return tmp_path / "q.jsonl"


def states(path, on=AUTHOR.today):
    """Return the states of all additions and proposals, in order."""
    return [record.standing.value for record in fold(read(path).entries, on).records]


def test_the_same_again_adds_nothing_and_names_the_entry(path):
    """Same target, reason and evidence, still in force; by somebody else, later, with other words."""
    first = add(path, [asked("a", metric="exact_dup_rate", value=0.5)], AUTHOR)
    again = add(path, [asked("a", metric="exact_dup_rate", value=0.5)], LATER)
    assert (again.added, again.known) == ((), first.added)
    assert len(read(path).entries) == 1


@pytest.mark.parametrize(
    "other",
    [asked("b"), asked("a", reason="other"), asked("a", run="7"), asked("a", row=0), asked("a", metric="x", value=1)],
)
def test_another_target_reason_or_evidence_is_another_entry(path, other):
    """Each is a decision of its own."""
    add(path, [asked("a")], AUTHOR)
    assert len(add(path, [other], AUTHOR).added) == 1


def test_a_longer_hold_is_added_and_a_shorter_one_is_known(path):
    """The one in force has to last at least as long as what is asked for."""
    day = AUTHOR.today
    add(path, [asked("a")], AUTHOR, until=day)
    assert add(path, [asked("a")], AUTHOR, until=day).added == ()
    assert len(add(path, [asked("a")], AUTHOR, until=day + dt.timedelta(days=9)).added) == 1
    assert len(add(path, [asked("a")], AUTHOR).added) == 1
    assert add(path, [asked("a")], AUTHOR, until=day).added == ()


def test_what_was_lifted_or_has_expired_is_added_again(path):
    """Only what is in force counts as known."""
    [first] = add(path, [asked("a")], AUTHOR, until=AUTHOR.today).added
    assert len(add(path, [asked("a")], LATER).added) == 1
    lift(path, [short_id(first)], "mended", AUTHOR)
    lift(path, ["train/a"], "mended", AUTHOR)
    assert len(add(path, [asked("a")], LATER).added) == 1


def test_an_entry_that_would_be_over_already_is_refused(path):
    """Yesterday is a slip of the pen."""
    with pytest.raises(QuarantineError, match="would be over already"):
        add(path, [asked("a")], AUTHOR, until=AUTHOR.today - dt.timedelta(days=1))


@pytest.mark.parametrize(
    "name", ["train/a", "a", f"sha256:{digest('stored a')}", digest("stored a"), f"rows:{digest('rows a')}"]
)
def test_a_lift_by_target_ends_all_its_open_entries_in_one_line(path, name):
    """Under any of its names; documents of the shard stay."""
    add(path, [asked("a"), asked("a", reason="other"), asked("a", row=3), asked("b")], AUTHOR)
    change = lift(path, [name], "mended", AUTHOR)
    assert [len(one.lifts) for one in change.added] == [2]
    assert states(path) == ["lifted", "lifted", "held", "held"]


def test_a_lift_by_id_ends_that_entry_alone(path):
    """With or without `sha256:`, by its beginning."""
    first, second = add(path, [asked("a"), asked("a", reason="other")], AUTHOR).added
    lift(path, [second.id[:20]], "mended", AUTHOR)
    assert states(path) == ["held", "lifted"]
    lift(path, [short_id(first)], "mended", AUTHOR)
    assert states(path) == ["lifted", "lifted"]
    again = lift(path, ["train/a"], "mended", AUTHOR)
    assert (again.added, len(again.known)) == ((), 2)


@pytest.mark.parametrize("name", ["train/none", "abcdef0123", "train/a:3", ""])
def test_a_name_that_means_nothing_is_an_error_and_changes_nothing(path, name):
    """A lift with a typing error must not look as if it had worked."""
    add(path, [asked("a")], AUTHOR)
    before = path.read_bytes()
    with pytest.raises(QuarantineError, match="no entry"):
        lift(path, ["train/a", name], "mended", AUTHOR)
    assert path.read_bytes() == before


def test_a_document_is_named_by_shard_and_row(path):
    """The shard itself stays free."""
    [one] = add(path, [asked("a", row=3)], AUTHOR).added
    assert (one.target.kind, one.target.row) == ("document", 3)
    lift(path, ["train/a:3"], "mended", AUTHOR)
    assert states(path) == ["lifted"]


def test_a_proposal_holds_nothing_until_it_is_accepted(path):
    """The addition carries its reason and evidence; a second acceptance says so."""
    [proposed] = propose(path, [asked("a", rule="dups", value=0.5)], AUTHOR).added
    assert states(path) == ["proposed"]
    [added] = accept(path, [short_id(proposed)], LATER).added
    assert (added.accepts, added.evidence, added.who) == (proposed.id, proposed.evidence, "bo@example.org")
    assert states(path) == ["accepted", "held"]
    assert accept(path, [short_id(proposed)], LATER).known == (added,)
    assert accept(path, None, LATER).added == ()
    with pytest.raises(QuarantineError, match=f"quarantine lift {path} {short_id(added)}"):
        lift(path, [short_id(proposed)], "mended", LATER)
    lift(path, [short_id(added)], "mended", LATER)
    assert lift(path, [short_id(proposed)], "mended", LATER).known == (proposed,)


def test_a_proposal_that_was_turned_down_is_not_made_again_with_the_same_numbers(path):
    """The gate runs every night; somebody has looked at this shard."""
    seen = asked("a", rule="dups", value=0.5, manifest="sha256:" + "1" * 64)
    propose(path, [seen], AUTHOR)
    for other in (seen, asked("a", rule="dups", value=0.6)):
        assert propose(path, [other], LATER).added == ()
    lift(path, ["train/a"], "looked-fine", AUTHOR)
    assert propose(path, [asked("a", rule="dups", value=0.5, manifest="sha256:" + "2" * 64)], LATER).added == ()
    assert len(propose(path, [asked("a", rule="dups", value=0.6)], LATER).added) == 1


def test_what_is_held_already_is_not_proposed(path):
    """By the same rule and reason; another rule may still say something new."""
    propose(path, [asked("a", rule="dups")], AUTHOR)
    accept(path, None, AUTHOR)
    assert propose(path, [asked("a", rule="dups", value=0.9)], LATER).added == ()
    assert len(propose(path, [asked("a", rule="drift")], LATER).added) == 1


def test_a_digest_has_no_number_to_be_evidence():
    """The metric was taken, and stood in no entry."""
    with pytest.raises(ConfigError, match="is a digest, and no number is looked up for it"):
        add_requests([f"sha256:{digest('a')}"], None, reason="x", metric="exact_dup_rate", run=None)


def test_only_an_open_proposal_can_be_accepted(path):
    """One that was turned down stays so until the gate or a person says more."""
    [proposed] = propose(path, [asked("a")], AUTHOR).added
    lift(path, [short_id(proposed)], "no", AUTHOR)
    with pytest.raises(QuarantineError, match="is lifted, no open proposal"):
        accept(path, [short_id(proposed)], AUTHOR)


def test_a_bad_line_is_lifted_by_its_id(path):
    """With or without `sha256:`, by its beginning; the same again adds nothing, and the other stays."""
    add(path, [asked("a")], AUTHOR)
    with path.open("ab") as handle:
        handle.write(b"{half a line\n{another\n")
    first, second = read(path).bad
    for name in ("0" * 12, "line 2", "2"):
        with pytest.raises(QuarantineError, match="no entry"):
            lift(path, [name], "killed-writer", AUTHOR)
    change = lift(path, [first.id[7:19], "train/a"], "killed-writer", AUTHOR)
    assert [len(one.lifts) for one in change.added] == [2]
    assert (change.bad, read(path).bad, len(read(path).passed_over)) == ((second,), (second,), 1)
    assert lift(path, [first.id], "killed-writer", AUTHOR).added == ()
    assert states(path) == ["lifted"]


def test_a_beginning_of_a_bad_line_and_of_an_entry_is_refused(path, monkeypatch):
    """Six digits may be the beginning of both."""
    add(path, [asked("a")], AUTHOR)
    with path.open("ab") as handle:
        handle.write(b"{half a line\n")
    monkeypatch.setattr(changes, "starting", lambda _, ids: [*ids])
    with pytest.raises(QuarantineError, match="is the beginning of several lines"):
        lift(path, ["abcdef"], "killed-writer", AUTHOR)


def test_a_clock_that_stands_still_repeats_no_line(path):
    """The line is there and lifted, so that it would leave nothing out again: each addition is another line."""
    for _ in range(3):
        assert len(add(path, [asked("a")], AUTHOR).added) == 1
        lift(path, ["train/a"], "mended", AUTHOR)
    assert len(add(path, [asked("a")], AUTHOR).added) == 1
    assert states(path) == ["lifted"] * 3 + ["held"]


def test_a_change_of_a_damaged_list_goes_through_and_names_the_lines(path):
    """A shard can be held back at once; nobody has to mend the file first."""
    add(path, [asked("a")], AUTHOR)
    with path.open("ab") as handle:
        handle.write(b"{half a line\n")
    assert [line.number for line in add(path, [asked("b")], AUTHOR).bad] == [2]


@pytest.mark.parametrize("words", [{"note": "x" * 2001}, {"who": ""}, {"note": "\udcff"}])
def test_what_no_entry_can_hold_is_an_error(path, words):
    """Too long, empty, or no Unicode."""
    with pytest.raises(QuarantineError, match="no entry can hold this"):
        add(path, [asked("a")], Author(**{"who": "ana", "now": NOW} | words))
    assert not path.exists() or path.read_bytes() == b""


def test_two_names_of_one_target_are_one_entry(path):
    """The same place twice on a command line."""
    assert len(add(path, [asked("a"), asked("a"), AddRequest(target=target("a"), reason="manual")], AUTHOR).added) == 1


def test_an_acceptance_that_would_be_over_already_is_refused(path):
    """Else the proposal would be used up and nothing held back."""
    propose(path, [asked("a")], AUTHOR)
    with pytest.raises(QuarantineError, match="would be over already"):
        accept(path, None, AUTHOR, until=AUTHOR.today - dt.timedelta(days=1))
    assert states(path) == ["proposed"]


def test_what_was_accepted_and_is_over_is_proposed_again(path):
    """Nobody turned it down: its day has come."""
    propose(path, [asked("a", value=0.9)], AUTHOR)
    accept(path, None, AUTHOR, until=AUTHOR.today)
    assert len(propose(path, [asked("a", value=0.9)], LATER).added) == 1
    assert states(path, LATER.today) == ["accepted", "expired", "proposed"]


def test_what_was_accepted_and_then_lifted_is_not_proposed_again(path):
    """Somebody has decided about these numbers."""
    propose(path, [asked("a", value=0.9)], AUTHOR)
    [held] = accept(path, None, AUTHOR).added
    lift(path, [short_id(held)], "fine", AUTHOR)
    assert propose(path, [asked("a", value=0.9)], LATER).added == ()
