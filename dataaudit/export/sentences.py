"""What a manifest says of its corpus in sentences that may be published: the same in every catalogue and card.

Small counts of personal data are not told, as in every report (:mod:`dataaudit.metrics.disclosure`). Of secrets the
number is told in tens: an exact one says how many are still to be found.
"""

from __future__ import annotations

from collections.abc import Callable

from dataaudit import text as t
from dataaudit.manifest.load import Manifest
from dataaudit.metrics.contamination.facts import set_leaks
from dataaudit.metrics.disclosure import FEW, about
from dataaudit.metrics.language.facts import languages
from dataaudit.metrics.meanings import reason_text
from dataaudit.metrics.near_dup.facts import near_duplicates
from dataaudit.metrics.overlap.facts import held_out_leaks
from dataaudit.metrics.pii.facts import PiiEntity, personal_data
from dataaudit.metrics.repeats.facts import repeats
from dataaudit.metrics.secrets.facts import secrets
from dataaudit.metrics.toxicity.facts import toxic
from dataaudit.metrics.volume.facts import Overview

NAMED = 10
"""Sources, languages and entities that are named."""
_NAME_LIMIT = 80
Show = Callable[[str], str]
"""Makes a name from the data harmless in the format that it is written in."""
_RATES = {"near_dup": "have a near-duplicate in training data", "ngram": "share half of their 13-grams with it"}


def plain(text: str) -> str:
    """Return a name for plain text."""
    return t.clean(text, _NAME_LIMIT)


def coverage(view: Overview) -> list[str]:
    """Say what was read of what was planned, and why not all of it."""
    shards, stored, documents = (view.ledger[name] for name in ("shards", "stored_bytes", "documents"))
    read = f"{t.count(shards['read'])} of {t.plural(shards['planned'], 'shard')}"
    said = [f"The audit read {read}, {t.count(stored['read'])} of {t.plural(stored['planned'], 'stored byte')}."]
    reasons = sorted({reason for shard in view.unread for reason in shard.reasons})
    if view.unread:
        why = "; ".join(reason_text(reason) for reason in reasons)
        said.append(
            f"{t.plural(len(view.unread), 'shard')} could not be read and {_are(len(view.unread))} in no number: {why}."
        )
    if documents["bad"]:
        said.append(f"{t.plural(documents['bad'], 'record')} of shards that were read could not be used.")
    return said


def duplicates(manifest: Manifest, view: Overview) -> list[str]:
    """Say how much of the corpus repeats."""
    said = []
    rate = view.totals.exact_dup_rate
    if rate is not None:
        said.append(f"{t.ratio(rate)} of the documents are exact duplicates of an earlier one, white space aside.")
    near = near_duplicates(manifest)
    whole = next((scope for scope in near.scopes if not scope.name), None) if near else None
    if whole is not None and whole.rate is not None:
        said.append(f"{t.ratio(whole.rate)} of the documents are near-duplicates of an earlier one.")
    spans = repeats(manifest, 0)
    if spans is not None and spans.hotspots:
        said.append(
            f"{t.plural(spans.hotspots, 'span')} of 50 words and more {_are(spans.hotspots)} each in at least"
            f" {t.plural(spans.floor, 'training document')}; {t.ratio(spans.token_share)} of the training tokens lie"
            " inside."
        )
    return said


def leakage(manifest: Manifest, show: Show = plain) -> list[str]:
    """Say what of held-out splits and evaluation sets is in training data."""
    said = []
    for split in held_out_leaks(manifest):
        for stat, meaning in _RATES.items():
            value = getattr(split, stat)
            if value is not None:
                said.append(f"{t.ratio(value)} of the documents of the held-out split {show(split.split)} {meaning}.")
        if split.why:
            said.append(f"Leakage of the held-out split {show(split.split)} was not evaluated: {plain(split.why)}.")
    for leak in set_leaks(manifest):
        if leak.verbatim is None:
            said.append(
                f"Items of the evaluation set {show(leak.set)} ({leak.part}) were not evaluated: {plain(leak.why)}."
            )
        else:
            also = "" if leak.similar is None else f", {t.ratio(leak.similar)} with small changes"
            said.append(
                f"{t.ratio(leak.verbatim)} of {t.plural(leak.findable, 'item')} of the evaluation set"
                f" {show(leak.set)} ({leak.part}) are in training data word for word{also}."
            )
    return said


def toxicity(manifest: Manifest, show: Show = plain) -> list[str]:
    """Say how toxic documents are, by whoever judged."""
    found = toxic(manifest)
    if found is None:
        return []
    total = found.total
    if total.rate is not None and total.rate.value is not None:
        bounds = f"{t.ratio(total.rate.low)} to {t.ratio(total.rate.high)}"
        judge = show(found.judge.name or "")
        return [f"{t.ratio(total.rate.value)} of the documents are toxic, by {judge} on a sample ({bounds})."]
    if total.screen_positive is None:
        return []
    judged = f"{t.ratio(total.screen_positive)} of the documents that it can judge ({t.ratio(total.screened)} of all)"
    return [f"A screen classifies {judged} as toxic; no judge has scored them."]


def mixture(view: Overview, show: Show = plain) -> list[str]:
    """Say which sources the training tokens come from."""
    held = [share for share in view.sources if share.share is not None]
    if not held:
        return []
    named = ", ".join(f"{show(share.source)} {t.ratio(share.share)}" for share in held[:NAMED])
    more = f", {t.plural(len(held) - NAMED, 'further source')}" if len(held) > NAMED else ""
    return [f"Sources by share of the training tokens: {named}{more}."]


def tongues(manifest: Manifest, show: Show = plain) -> list[str]:
    """Say which languages the tokens are in."""
    found = languages(manifest)
    if found is None or not found.parts:
        return []
    named = ", ".join(f"{show(part.language)} {t.ratio(part.share)}" for part in found.parts[:NAMED])
    rest = len(found.parts) - NAMED
    more = f", {t.plural(rest, 'further language')}" if rest > 0 else ""
    whose = "training tokens" if found.trained else "tokens"
    who = show(found.detectors[0])
    return [f"Languages by share of the {whose}: {named}{more}; decided by {who}, und where it is not sure."]


def personal(manifest: Manifest, show: Show = plain) -> list[str]:
    """Say which personal data patterns found; numbers that would point at people are left out."""
    found = personal_data(manifest)
    if found is None:
        return ["Personal data was not searched for."]
    if not found.entities:
        return ["Patterns for personal data found none."]
    held = [one for one in found.entities if not one.found.suppressed and one.found.documents]
    said = [_entity(one, show) for one in held[:NAMED]]
    few = sum(one.found.suppressed for one in found.entities)
    if few:
        said.append(f"{t.plural(few, 'further kind')} of personal data: in so few documents that no number is given.")
    if len(held) > NAMED:
        said.append(f"{t.plural(len(held) - NAMED, 'further kind')} of personal data.")
    return [*said, "What no pattern knows, names of people among it, is in no number."]


def keys(manifest: Manifest) -> list[str]:
    """Say roughly how many secrets were found."""
    found = secrets(manifest)
    if found is None:
        return ["Secrets (keys, tokens, passwords) were not searched for."]
    if not found.total.documents:
        return ["Patterns for secrets (keys, tokens, passwords) found none."]
    sure = (
        "; some are confirmed by their structure" if found.total.validated else "; none is confirmed by its structure"
    )
    return [f"Secrets (keys, tokens, passwords) are in {_roughly(found.total.documents)} documents{sure}."]


def filters(manifest: Manifest, show: Show = plain) -> list[str]:
    """Say which filters ran before, as declared, and that the audit removed nothing."""
    said = [
        f"Filter {show(one.name)}{' ' + show(one.version) if one.version else ''}, as declared:"
        f" {t.plural(one.documents_in, 'document')} in, {t.count(one.documents_out)} out."
        for one in manifest.core.upstream_filters
    ]
    return [*(said or ["No filter before the audit is declared."]), "The audit itself removed and changed nothing."]


def _entity(one: PiiEntity, show: Show) -> str:
    share = f", {t.ratio(one.found.share)} of all" if one.found.share is not None else ""
    return f"{show(one.entity)}: in {t.plural(one.found.documents or 0, 'document')}{share}, as patterns find it."


def _roughly(number: int) -> str:
    return f"fewer than {FEW}" if number < FEW else f"about {t.count(about(number))}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
