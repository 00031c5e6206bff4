"""What people read of a replay: whether each suspect is odd data, whether it breaks the model, what is proposed."""

from __future__ import annotations

from collections.abc import Iterable

from dataaudit.render.blocks import Block, Column, Prose, Section, Table, numbers
from dataaudit.render.line import Line, Name, decimal, join, say
from dataaudit.text import plural
from dataaudit.training.findings import Attribution
from dataaudit.training.replay_findings import ContagionFound, DirectFound, Suspect, Unit

_NAMED = {
    "user": "named by you",
    "accounting": "accounts for the excess of an episode",
    "event_test": "episodes follow upon it",
    "residual_test": "odd losses over the run",
}
_LACKING = {
    "checkpoints": "fewer than 3 checkpoints are from before it was read",
    "suspects": "too few of its documents have controls of their length",
    "controls": "too few control units of other shards were unread by then",
}
_DIRECT = {
    "outlier_data": "Odd data",
    "unlike_others": "Unlike the others, odd or not",
    "not_odd": "Not odd",
    "undecided": "Odd or not is left open by these controls",
}
_CONTAGION = {
    "not_contagious": "Not contagious: trained on again from before, other documents' loss stays in its band.",
    "state_dependent": "The model's state: the loss of other documents rises with controls in its place, too.",
    "data_intrinsic": "The data: other documents' loss rises with it from every checkpoint, with controls from none.",
    "interaction": "Both together: other documents' loss rises with it from this state, from no other one.",
    "inconclusive": "Inconclusive",
    "not_reproduced": "The replay is not the run, so nothing is decided",
    "not_evaluated": "Whether it breaks the model was not tried",
}
_ARMS = {
    "A": ("the run", "the suspects"),
    "B": ("the run", "controls"),
    "C": ("other checkpoints", "the suspects"),
    "D": ("other checkpoints", "controls"),
}
_REPLAY = "`dataaudit attribute RUNLOG --manifest DIR --replay MODULE:FUNCTION"
_BECAUSE = {
    "outlier_data": "odd data",
    "data_intrinsic": "breaks the model",
    "follows": "episodes follow upon it",
}


def replay_blocks(found: Attribution) -> Iterable[Block | Section]:
    """Return what the replay found."""
    if found.replay is not None:
        if not found.replay.suspects:
            yield Prose(text="Nothing to do again: no block or shard is suspected. --suspect names one.")
        yield from (_suspect(one) for one in found.replay.suspects)


def proposed(found: Attribution) -> Line:
    """Return what is proposed for a quarantine list; or why nothing is, and what decides it."""
    if found.proposals:
        units = join(", ", (say("{} ({})", _unit(one), _BECAUSE[one.because]) for one in found.proposals))
        return say("To be proposed: {}. `dataaudit quarantine propose` puts it on a list.", units)
    if found.replay is not None and found.replay.suspects:
        return "Nothing is proposed: no suspect of the replay is odd data, or breaks the model from other checkpoints."
    odd = sum(one.outlier for test in found.residual_tests for one in test.units)
    reasons = ["data that accounts for an excess"] if any(one.found is not None for one in found.episodes) else []
    reasons += [f"data with odd losses ({odd:,} of the blocks and shards)"] if odd else []
    if reasons:
        why = f"{' and '.join(reasons)} may be hard and clean"
        return f"Nothing is proposed: {why}. {_REPLAY}` decides: `dataaudit explain replay`."
    if found.episodes:
        return f"Nothing is proposed: no data is named. {_REPLAY} --suspect SHARD` tests what you suspect."
    return "Nothing is proposed: no episode, and no block or shard with odd losses, was found."


def _suspect(one: Suspect) -> Section:
    blocks: list[Block] = [Prose(text=_direct(one.direct))]
    if one.contagion is None:
        blocks.append(Prose(text="No episode reads it or follows upon it, so there is no branch to train from."))
    else:
        blocks += _contagion(one.contagion)
    lead = f"{plural(one.documents, 'document')}; {_NAMED[one.named_by]}."
    place = f"replay-{one.shard}-{one.first_row or 0}"
    return Section(id=place, title=say("Done again: {}", _unit(one)), lead=lead, blocks=tuple(blocks))


def _unit(one: Unit | Suspect) -> Line:
    name = Name(one.name, ends=True)
    return name if one.first_row is None else say("rows {} to {} of {}", one.first_row, one.last_row, name)


def _direct(found: DirectFound) -> Line:
    if found.outcome == "not_evaluated" or found.effect is None or found.interval is None or found.p is None:
        return f"Whether it is odd data is not known: {_LACKING[found.reason]}."
    low, high = found.interval
    among = "" if found.among == 1 else f" times {found.among:,} that it was named among,"
    text = (
        f"{_DIRECT[found.outcome]}: its documents' loss is {found.effect:+.3f} ({low:+.3f} to {high:+.3f}) nats/token"
        f" beside {found.units:,} control units, of which 95 % usually lie within ±{found.usual or 0:.3f}, at"
        f" {plural(len(found.checkpoints), 'checkpoint')} from before either was read"
        f" ({', '.join(f'{one:,}' for one in found.checkpoints)}); p {found.p:.2g},{among} compared"
        f" with {found.alpha:g}."
    )
    if found.outcome == "undecided":
        text += f" The smallest p that these controls can give is {found.smallest_p or 0:.2g},{among.rstrip(',')}."
    if found.matched and "language" not in found.matched:
        text += (
            f" Too few controls have its source and language, so they have its {' and '.join(found.matched)} alone."
            " What that costs: languages and sources differ by themselves. So less is seen, and a language or source of"
            " its own is as far off as bad data; nothing is proposed for that."
        )
    return text


def _contagion(found: ContagionFound) -> Iterable[Block]:
    text = _CONTAGION[found.outcome]
    yield Prose(text=f"{text}: {found.detail}." if found.detail else text)
    if not found.arms:
        return
    yield Table(
        title=(
            f"Loss of {plural(found.held, 'document')} that no arm reads, from step {found.branch:,} to"
            f" {found.last or 0:,}"
        ),
        columns=(
            *(Column("arm", "word"), Column("from", "text"), Column("reads", "text")),
            *numbers("runs", "spikes", "rise, bands", "95 %"),
        ),
        rows=tuple(
            (
                one.arm,
                *_ARMS[one.arm],
                one.repetitions,
                one.spikes,
                decimal(None if one.rise is None else round(one.rise, 2)),
                "-" if one.interval is None else f"{one.interval[0]:.2f} to {one.interval[1]:.2f}",
            )
            for one in found.arms
        ),
        noun="arm",
        note=f"{plural(found.reproduced, 'step')} of arm A were those of the log, bit by bit.",
        whole=True,
    )
