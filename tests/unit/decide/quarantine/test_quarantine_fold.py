"""What a list says: order, lifts, acceptance, expiry, repeated lines."""

import datetime as dt

from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from quarantine_made import NOW, TODAY, entry, standing_slowly

from dataaudit.decide.quarantine.list import fold


def states(entries, on=TODAY):
    """Return {id: state} as the fold says it."""
    return {record.entry.id: record.standing.value for record in fold(entries, on).records}


def test_an_addition_holds_and_a_proposal_waits():
    """Only what somebody decided is in force."""
    held, proposed = entry(), entry("propose", "b")
    assert states([held, proposed]) == {held.id: "held", proposed.id: "proposed"}


def test_a_lift_ends_what_it_names_wherever_it_stands():
    """It names the addition's id, so it was written after it: a union of two branches may turn them around."""
    held = entry()
    lift = entry("lift", lifts=(held.id,), reason="mended", who="bo")
    for lines in ([held, lift], [lift, held]):
        folded = fold(lines, TODAY)
        assert (states(lines), folded.records[0].by, folded.no_ops) == ({held.id: "lifted"}, lift, 0)
    assert fold([lift], TODAY).no_ops == 1
    assert fold([held, lift, entry("lift", lifts=(held.id,), who="cy")], TODAY).no_ops == 1


def test_what_one_branch_accepted_and_another_lifted_is_held_back():
    """Until somebody who sees both lifts the addition."""
    proposed = entry("propose")
    added, lift = entry(accepts=proposed.id), entry("lift", lifts=(proposed.id,))
    for lines in ([proposed, added, lift], [lift, added, proposed]):
        assert states(lines) == {proposed.id: "accepted", added.id: "held"}
        assert fold(lines, TODAY).no_ops == 1


def test_what_was_lifted_can_be_added_again():
    """A lift ends entries, not targets: a later addition of the same shard holds."""
    held = entry()
    lift = entry("lift", lifts=(held.id,))
    again = entry(when=NOW + dt.timedelta(seconds=1))
    assert states([held, lift, again]) == {held.id: "lifted", again.id: "held"}


def test_an_accepted_proposal_gives_way_to_its_addition():
    """Lifting the addition does not open the proposal again."""
    proposed = entry("propose")
    added = entry(accepts=proposed.id)
    lift = entry("lift", lifts=(added.id,))
    assert states([proposed, added]) == {proposed.id: "accepted", added.id: "held"}
    assert states([proposed, added, lift]) == {proposed.id: "accepted", added.id: "lifted"}


def test_an_entry_holds_through_its_last_day():
    """The day after it is expired; a lift before stays a lift."""
    held = entry(until="2026-11-21")
    assert states([held], dt.date(2026, 11, 21)) == {held.id: "held"}
    assert states([held], dt.date(2026, 11, 22)) == {held.id: "expired"}
    assert states([held, entry("lift", lifts=(held.id,))], dt.date(2026, 11, 22)) == {held.id: "lifted"}


def test_a_repeated_line_changes_nothing_and_is_counted():
    """Two copies of a file put together say the same as one; an old addition does not undo a lift."""
    held = entry()
    lift = entry("lift", lifts=(held.id,))
    folded = fold([held, lift, held, lift], TODAY)
    assert (folded.repeated, [record.standing for record in folded.records]) == (2, ["lifted"])


@st.composite
def histories(draw):
    """Lines in any order: lifts of what is not there yet, of lifts, twice; acceptances of additions; repeated lines."""
    lines = []
    for step in range(draw(st.integers(0, 12))):
        action = draw(st.sampled_from(["add", "add", "propose", "lift", "accept", "repeat"]))
        when = NOW + dt.timedelta(seconds=step)
        until = draw(st.sampled_from([None, "2026-11-20", "2026-11-21", "2026-11-22"]))
        chosen = draw(st.lists(st.sampled_from(lines), max_size=3)) if lines else []
        if action == "repeat" and chosen:
            lines.append(chosen[0])
        elif action == "lift" and chosen:
            lines.append(entry("lift", lifts=tuple(one.id for one in chosen), when=when))
        elif action == "accept" and chosen:
            lines.append(entry(accepts=chosen[0].id, when=when, until=until))
        elif action in {"add", "propose"}:
            lines.append(entry(action, draw(st.sampled_from("abc")), when=when, until=until))
    return draw(st.one_of(st.just(lines), st.permutations(lines)))


@settings(max_examples=examples(300))
@given(histories(), st.sampled_from([TODAY - dt.timedelta(days=1), TODAY, TODAY + dt.timedelta(days=1)]))
def test_the_fold_says_what_its_slow_twin_says(lines, day):
    """For any lines in any order, on any day."""
    assert states(lines, day) == standing_slowly(lines, day)


@settings(max_examples=examples(200))
@given(histories(), st.data())
def test_order_and_repeated_lines_change_no_meaning(lines, data):
    """Nor what is counted as changing nothing."""
    more = data.draw(st.lists(st.sampled_from(lines), max_size=4)) if lines else []
    mixed = data.draw(st.permutations([*lines, *more]))
    assert states(mixed) == states(lines)
    assert fold(mixed, TODAY).no_ops == fold(lines, TODAY).no_ops


@settings(max_examples=examples(100))
@given(histories(), histories())
def test_more_lines_never_bring_back_what_is_over(first, second):
    """A lifted or accepted entry is never open again."""
    before, after = states(first), states([*first, *second])
    over = {name for name, state in before.items() if state in {"lifted", "accepted"}}
    assert all(after[name] in {"lifted", "accepted"} for name in over)
