"""What stands out of a manifest, worst first: one list for `show`, the end of `build`, their JSON, and the report.

The order is that of :class:`Kind`, whatever the corpus: what has to be acted on (secrets, data that is in no number,
leaks), then what may be wrong, then what is worth knowing. Within a kind the larger one stands first, then the name.
Everything comes from the manifest, so the same manifest gives the same list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypedDict

from dataaudit import text as t
from dataaudit.manifest.load import Manifest
from dataaudit.metrics.contamination.facts import counts, found_in_training, set_leaks, worst_parts
from dataaudit.metrics.drift.facts import Drift, drifts, moved, moved_perhaps, why_no_drift
from dataaudit.metrics.exact_dup.facts import REPEATED, most_duplicated
from dataaudit.metrics.judged import Judge, interval, number
from dataaudit.metrics.meanings import encoder_text
from dataaudit.metrics.near_dup.facts import HEAVY, NearScope, near_duplicates
from dataaudit.metrics.overlap.facts import held_out_leaks, leaks, shared_text
from dataaudit.metrics.overlap.places import LeakPlace, leak_places
from dataaudit.metrics.pii.facts import personal_data
from dataaudit.metrics.repeats.facts import repeats
from dataaudit.metrics.secrets.facts import Secrets, secrets
from dataaudit.metrics.toxicity.facts import Toxic, ToxicScope, toxic
from dataaudit.metrics.volume.facts import LostShard, Overview, is_off, off_by
from dataaudit.render.blocks import Tone
from dataaudit.render.line import Line, Name, Number, decimal, join, say, share, spell
from dataaudit.report.outliers import Outlier, outliers

MANY = 0.01
"""Share of documents from which duplicates, a repeated span, toxic text and personal data stand out."""
_ASKED_FOR_NOTHING = {"no_judge", "no_analyzer"}
_NAME = 24
_LEAST_NAME = 12
_CODE = 40
_KINDS = 3


class Kind(IntEnum):
    """What stands out, the gravest first."""

    NOTHING_READ = 0
    SECRETS = 1
    UNREAD = 2
    LEAKED = 3
    SIMILAR = 4
    MIXTURE = 5
    DRIFT = 6
    FAR = 7
    BAD_RECORDS = 8
    EXACT_DUPLICATES = 9
    NEAR_DUPLICATES = 10
    REPEATS = 11
    TOXICITY = 12
    PERSONAL_DATA = 13
    UNCONFIRMED = 14
    NOT_JUDGED = 15
    NOT_LOOKED_AT = 16
    ENCODER = 17

    @property
    def grave(self) -> bool:
        """Whether it asks for action before the data is used."""
        return self <= Kind.LEAKED

    @property
    def tone(self) -> Tone:
        """How it is coloured."""
        return "bad" if self.grave else "warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standout:
    """One thing that stands out."""

    kind: Kind
    part: str
    """Name of the part of `dataaudit show` that says more."""
    size: float
    """The larger stands first among those of its kind."""
    text: Line
    """What, with its number; names are short."""
    link: Line = ", in"
    """What leads from the text to the place."""
    place: str = ""
    """Source, or ``split/uri`` of a shard; as it is in the data. Empty without one."""
    shard: int | None = None
    """Ordinal of the shard, when the place is one."""

    def sentence(self, width: int = 120) -> Line:
        """Return the whole in words.

        Args:
            width: Cells that the name of the place may take; a shard's is cut from the left, and left out below 12, as
                its number says which it is. 8 or more.
        """
        if not self.place:
            return self.text
        if self.shard is None:
            return say("{}{} {}", self.text, self.link, Name(self.place, width, ends=True))
        if width < _LEAST_NAME:
            return say("{}{} shard {}", self.text, self.link, str(self.shard))
        return say("{}{} shard {} {}", self.text, self.link, str(self.shard), Name(self.place, width, tail=True))


class _Where(TypedDict, total=False):
    """What a place is given as."""

    link: Line
    place: str
    shard: int


def standouts(manifest: Manifest, view: Overview) -> list[Standout]:
    """Return what stands out, worst first.

    Args:
        manifest: Of what.
        view: Its overview.
    """
    found = [
        *_coverage(view),
        *_secrets(secrets(manifest)),
        *_leaks(manifest),
        *_mixture(view),
        *_drift(drifts(manifest)),
        *_far(outliers(manifest)),
        *_duplicates(manifest, view),
        *_repeats(manifest),
        *_toxicity(toxic(manifest)),
        *_personal(manifest),
        *_encoder(view),
    ]
    return sorted(found, key=lambda one: (one.kind, -one.size, one.part, one.place, spell(one.text)))


def standout_facts(manifest: Manifest, view: Overview) -> list[dict[str, Any]]:
    """Return the same as plain JSON values, worst first; ``text`` is the whole sentence."""
    return [
        {
            "kind": one.kind.name.lower(),
            "grave": one.kind.grave,
            "section": one.part,
            "text": spell(one.sentence()),
            "place": one.place,
            "shard": one.shard,
            "size": one.size,
        }
        for one in standouts(manifest, view)
    ]


def _coverage(view: Overview) -> Iterator[Standout]:
    planned = view.ledger["shards"]["planned"]
    if not view.totals.documents:
        text = f"No document was read, of {t.plural(planned, 'shard')}: nothing was evaluated"
        yield Standout(kind=Kind.NOTHING_READ, part="coverage", size=1, text=text)
    groups: dict[str, list[LostShard]] = {}
    for lost in view.unread:
        whole = sorted(code for code, records in lost.reasons.items() if records < 0) or sorted(lost.reasons)
        groups.setdefault(whole[0] if whole else lost.status, []).append(lost)
    for code, shards in groups.items():
        size, largest = sum(one.size for one in shards), max(shards, key=lambda one: (one.size, -one.shard))
        number = f"{t.count(len(shards))} of {t.plural(planned, 'shard')}"
        yield Standout(
            kind=Kind.UNREAD,
            part="coverage",
            size=size,
            place=f"{largest.split}/{largest.uri}",
            shard=largest.shard,
            text=say("{} not read, {} ({})", number, Name(code, _CODE, ends=True), t.size(size)),
            link=_first(len(shards)),
        )
    bad = view.ledger["documents"]["bad"]
    if bad and view.partial:
        most = max(view.partial, key=lambda one: (sum(number for number in one.reasons.values()), -one.shard))
        yield Standout(
            kind=Kind.BAD_RECORDS,
            part="coverage",
            size=bad,
            place=f"{most.split}/{most.uri}",
            shard=most.shard,
            text=f"{t.plural(bad, 'bad record')} left out",
            link=_first(len(view.partial), f"most of {len(view.partial):,}"),
        )


def _secrets(found: Secrets | None) -> Iterator[Standout]:
    if found is None:
        return
    total, place = found.total, found.places[0] if found.places else None
    hits = total.validated + total.contextual + total.pattern
    where = _Where() if place is None else _Where(place=f"{place.split}/{place.uri}", shard=place.shard)
    where["link"] = _first(found.shards, "most")
    if total.validated:
        documents = t.plural(total.validated_documents, "document")
        text = f"{t.plural(total.validated, 'secret')} confirmed, in {documents}"
        yield Standout(kind=Kind.SECRETS, part="secrets", size=total.validated, text=text, **where)
    elif hits:
        text = f"{t.plural(hits, 'possible secret')} in {t.plural(total.documents, 'document')}, none confirmed"
        yield Standout(kind=Kind.UNCONFIRMED, part="secrets", size=hits, text=text, **where)
    if found.truncated:
        yield _not_looked_at("secrets", found.truncated)


def _leaks(manifest: Manifest) -> Iterator[Standout]:
    exact, held_out, sets = leaks(manifest), held_out_leaks(manifest), set_leaks(manifest)
    said = {one.split for one in exact}
    others = [(one, sign) for one in held_out if one.split not in said and (sign := shared_text(one))]
    parts = [one for one in worst_parts(sets) if one.similar or one.verbatim]
    if not (exact or others or parts):
        return
    places = leak_places(manifest)
    for leak in exact:
        name, part = Name(leak.split, _NAME, ends=True), share(leak.documents / leak.of)
        text = say("{} of {} of {} in training ({})", leak.documents, t.plural(leak.of, "document"), name, part)
        yield _leak(Kind.LEAKED, leak.documents, text, leak.split, places)
    for other, sign in others:
        kind = Kind.LEAKED if sign.stat == "span" else Kind.SIMILAR
        yield _leak(kind, sign.value * other.documents, sign.text, other.split, places)
    for item in parts:
        verbatim, similar = counts(item)
        yield _leak(Kind.LEAKED if verbatim else Kind.SIMILAR, similar, found_in_training(item), item.set, places)


def _leak(kind: Kind, size: float, text: Line, which: str, places: Sequence[LeakPlace]) -> Standout:
    own = [one for one in places if one.set == which]
    where = _Where(link=_first(len(own), "most"))
    if own:
        where |= {"place": own[0].name, "shard": own[0].shard}
    return Standout(kind=kind, part="leaks", size=size, text=text, **where)


def _mixture(view: Overview) -> Iterator[Standout]:
    off = sorted((one for one in view.sources if is_off(one)), key=lambda one: (-abs(off_by(one)), one.source))
    if off:
        most = off[0]
        number = f"{t.count(len(off))} of {t.plural(len(view.sources), 'source')} off the declared share"
        yield Standout(
            kind=Kind.MIXTURE,
            part="mixture",
            size=abs(off_by(most)),
            place=most.source,
            link=" for",
            text=say("{}: {}", number, Number(off_by(most), signed=True)),
        )


def _drift(found: Sequence[Drift]) -> Iterator[Standout]:
    marked = [one for one in found if moved(one)] or [one for one in found if moved_perhaps(one)]
    if marked:
        far = sorted(marked, key=lambda one: (-(one.kl or 0.0), one.split, one.source))
        most = far[0]
        beyond = "" if most.excess_low is None else f", at least {t.ratio(most.excess_low)} beyond chance"
        beyond = ", as chance could give" if moved_perhaps(most) else beyond
        place = f"{most.split}/{most.source}" if most.source else most.split
        yield Standout(
            kind=Kind.DRIFT,
            part="drift",
            size=most.kl or 0.0,
            place=place,
            text=f"KL {t.ratio(most.kl)} nats from the reference{beyond}",
            link=_first(len(far), f"farthest of {len(far):,}"),
        )
    elif why := why_no_drift(found):
        yield Standout(kind=Kind.NOT_JUDGED, part="drift", size=1, text=f"Drift was not measured: {why}")


def _far(found: Sequence[Outlier]) -> Iterator[Standout]:
    """Yield one for each column: the farthest shard, and how many there are."""
    columns: dict[str, list[Outlier]] = {}
    for one in found:
        columns.setdefault(one.column, []).append(one)
    for column, own in columns.items():
        most = own[0]
        text = say("{} rejects {}, median {}", Name(column, _NAME, ends=True), share(most.value), share(most.median))
        if column == "bytes_per_token":
            text = say("bytes per token {}, median {}", decimal(most.value), decimal(most.median))
        yield Standout(
            kind=Kind.FAR,
            part="shards",
            size=abs(most.deviations),
            place=f"{most.split}/{most.uri}",
            text=text,
            shard=most.shard,
            link=_first(len(own), f"farthest of {len(own):,}"),
        )


def _duplicates(manifest: Manifest, view: Overview) -> Iterator[Standout]:
    rate, shards = view.totals.exact_dup_rate, most_duplicated(manifest)
    most = shards[0] if shards else None
    if rate is not None and most is not None and (rate > MANY or most.exact_dup_rate > REPEATED):
        yield Standout(
            kind=Kind.EXACT_DUPLICATES,
            part="shards",
            size=rate,
            shard=most.shard,
            place=f"{most.split}/{most.uri}",
            text=say("{} of all documents repeat an earlier one", share(rate)),
            link=say(", {} of", share(most.exact_dup_rate)),
        )
    near = near_duplicates(manifest)
    if near is None:
        return
    whole = near.scopes[-1]
    heavy = max(near.sources, key=_near_rate, default=None)
    if heavy is not None and ((whole.rate or 0.0) > MANY or _near_rate(heavy) > HEAVY):
        number = t.plural(whole.documents, "near-duplicate")
        yield Standout(
            kind=Kind.NEAR_DUPLICATES,
            part="near_dup",
            size=whole.documents,
            place=heavy.name,
            text=say("{} of an earlier document ({})", number, share(whole.rate)),
            link=say(", {} of", share(heavy.rate)),
        )
    if pairs := near.counts.get("truncated_pairs"):
        text = f"{t.plural(pairs, 'pair')} of large buckets were not compared"
        yield Standout(kind=Kind.NOT_LOOKED_AT, part="near_dup", size=pairs, text=text)


def _near_rate(one: NearScope) -> float:
    return one.rate or 0.0


def _repeats(manifest: Manifest) -> Iterator[Standout]:
    found = repeats(manifest, 1)
    if found is None:
        return
    first = found.top[0] if found.top else None
    if first is not None and ((first.share or 0.0) > MANY or (found.token_share or 0.0) > MANY):
        number = f"{t.plural(found.hotspots, 'repeated span')}, one in {t.plural(first.documents, 'document')}"
        yield Standout(
            kind=Kind.REPEATS,
            part="repeats",
            size=first.documents,
            text=say("{} ({})", number, share(first.share)),
            place=first.source,
            link=", mostly of",
        )
    if found.below_floor:
        text = f"{t.plural(found.below_floor, 'repeated window')} of 50 words left out: too many for the memory allowed"
        yield Standout(kind=Kind.NOT_LOOKED_AT, part="repeats", size=found.below_floor, text=text)


def _toxicity(found: Toxic | None) -> Iterator[Standout]:
    if found is None:
        return
    judged = not found.judge.reason
    scopes = [one for one in (*found.sources, found.total) if _least_toxic(one, judged=judged) > MANY]
    if scopes:
        most = max(scopes, key=lambda one: (_least_toxic(one, judged=judged), one.documents))
        rate = most.rate if judged else most.screen
        reads = found.judge.reads if judged else most.screened
        bounds = "" if rate is None or rate.low is None else say(" ({})", interval(rate))
        who = "judged" if judged else "screened"
        yield Standout(
            kind=Kind.TOXICITY,
            part="toxicity",
            size=_least_toxic(most, judged=judged),
            place=most.name,
            text=say("{} toxic{}, of {} {}", number(rate), bounds, share(reads), who),
        )
    yield from _not_judged("toxicity", found.judge)


def _least_toxic(one: ToxicScope, *, judged: bool) -> float:
    """Return the lower bound of a rate; the rate itself without one."""
    rate = one.rate if judged else one.screen
    if rate is None or rate.value is None:
        return 0.0
    return rate.value if rate.low is None else rate.low


def _personal(manifest: Manifest) -> Iterator[Standout]:
    found = personal_data(manifest)
    if found is None:
        return
    total = found.total.found
    if not total.suppressed and (total.share or 0.0) > MANY:
        kinds = [
            say("{} {}", Name(one.entity, _NAME, ends=True), one.found.documents)
            for one in found.entities
            if one.found.documents and not one.found.suppressed
        ][:_KINDS]
        listed = say(": {}", join(", ", kinds)) if kinds else ""
        text = say("{} of documents hold personal data{}", share(total.share), listed)
        yield Standout(kind=Kind.PERSONAL_DATA, part="pii", size=total.share or 0.0, text=text)
    if found.truncated:
        yield _not_looked_at("pii", found.truncated)
    if found.judge is not None:
        yield from _not_judged("pii", found.judge)


def _not_judged(part: str, judge: Judge) -> Iterator[Standout]:
    if judge.reason and judge.reason not in _ASKED_FOR_NOTHING:
        yield Standout(kind=Kind.NOT_JUDGED, part=part, size=1, text=f"Nothing was judged: {judge.meaning}")


def _not_looked_at(part: str, documents: int) -> Standout:
    text = f"{t.plural(documents, 'document')} with too many candidates: the first ones alone were looked at"
    return Standout(kind=Kind.NOT_LOOKED_AT, part=part, size=documents, text=text)


def _encoder(view: Overview) -> Iterator[Standout]:
    reason = view.tokenizer["encoder_reason"]
    if reason != "ok":
        text = f"Tokens were counted by {encoder_text(reason)}"
        yield Standout(kind=Kind.ENCODER, part="splits", size=1, text=text)


def _first(number: int, many: str = "largest") -> str:
    """Return what leads to the one place, or to the first of several."""
    return ", in" if number == 1 else f", {many} in"
