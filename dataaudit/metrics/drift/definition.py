"""Drift: how far the frequencies of tokens are from those of the reference manifest.

An entry of a vocabulary is the spelling of one library; :func:`token_text` makes text of it that people read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from dataaudit.base import text as t
from dataaudit.base.render.blocks import (
    Bar,
    Block,
    Figure,
    Section,
    Table,
    bars,
    column,
    empty_section,
    named,
    table_of,
    toned,
)
from dataaudit.base.render.line import Line, Name, join, nats, say
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import Metric
from dataaudit.metrics.family import SOURCES, Family, ShardStatistic, declare, statistics
from dataaudit.metrics.recomputed import Agrees, Number
from dataaudit.metrics.shown import Highlight, Kind, Part, Shown, first_of

METRIC = "token_kl_drift"

FAMILY = Family(
    name="drift",
    metrics=(
        declare(
            METRIC,
            statistics("kl js kl_bias kl_excess", "nats", SOURCES, against_reference=True),
            reading=7,
            area="tokens",
            columns=(
                ShardStatistic("kl", "token_kl_drift", of="tokens", head="drift, nats", shown_as="number"),
                ShardStatistic("js", "token_js_drift", of="tokens"),
                ShardStatistic("kl_bias", "token_kl_bias", of="tokens", estimated=True),
                ShardStatistic(
                    "kl_excess", "token_kl_drift", of="tokens", by_chance="token_kl_bias", absent="too_few_documents"
                ),
            ),
        ),
    ),
    stage="dataaudit.metrics.drift.stage:Histogram",
    stage_name="histogram",
    finish="dataaudit.metrics.drift.stage:drift_table",
    tables={"histogram": "histogram"},
    harmless=frozenset({"max_sources"}),
    checked_with=("histogram", "sources"),
    checks=(Agrees("tokens of histogram", Number("histogram", "count"), Number("sources", "tokens")),),
)

_ESCAPE = re.compile(r"\\(?:[\\ntr]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_BLANK = "\u2581"
"""What SentencePiece writes for a blank."""
_SHOWN = [*range(33, 127), *range(161, 173), *range(174, 256)]
"""Bytes that byte-level vocabularies write as the character of that number; the others follow from U+0100 on."""
_OTHERS = [byte for byte in range(256) if byte not in _SHOWN]
_BYTES = {chr(byte): byte for byte in _SHOWN} | {chr(256 + place): byte for place, byte in enumerate(_OTHERS)}


def token_text(piece: str) -> str:
    """Return the text of a token between quotes, ``" jest"``; its entry where it has no text of its own."""
    entry = _ESCAPE.sub(lambda every: every[0].encode().decode("unicode_escape"), piece)
    if byte := _BYTE.fullmatch(entry):
        text = chr(int(byte[1], 16))
        return json.dumps(text) if text.isascii() else entry
    return json.dumps(_of_bytes(entry) or entry.replace(_BLANK, " "), ensure_ascii=False)


def text_or_id(piece: str | None, token: int) -> str:
    """Return the text of a token as :func:`token_text` does; its id where it is not in the vocabulary."""
    return token_text(piece) if piece else f"id {token}"


def _of_bytes(entry: str) -> str:
    """Return the text of a byte-level entry; nothing of what is none, or is a part of a character."""
    if entry.isascii() or any(character not in _BYTES for character in entry):
        return ""
    try:
        text = bytes(_BYTES[character] for character in entry).decode()
    except UnicodeDecodeError:
        return ""
    return text if all(character.isprintable() or character in "\t\n" for character in text.replace("\r\n", "")) else ""


Drift = dict[str, Any]
"""Divergence of a split, or of a source of it: see :func:`drifts`."""
ALARM_NATS = 0.05
_ALARM = f"above {ALARM_NATS}, beyond chance"
_PERHAPS = f"above {ALARM_NATS}, as chance could give"
_UNKNOWN = f"above {ALARM_NATS}, chance not known"
_SMALL = f"beyond chance, not above {ALARM_NATS}"
"""Marks. Two questions, apart: whether `kl`, an exact number, is above the alarm, and whether the interval of
`kl_excess` lies above 0, which is more than other documents of the same kind give."""
_LOUD = frozenset({_ALARM, _UNKNOWN})
_SAYS = {
    _ALARM: f"above {ALARM_NATS} nats and surely beyond chance",
    _PERHAPS: f"above {ALARM_NATS} nats, but chance alone could give it",
    _UNKNOWN: f"above {ALARM_NATS} nats; how much chance gives is not known",
    _SMALL: f"surely beyond chance, but not above {ALARM_NATS} nats",
    "": f"not above {ALARM_NATS} nats",
}
"""The same in sentences."""
_TOKENS, _SAID = 15, 5
_WHY = {
    "other_tokenizer": "the reference was built with another tokenizer, so token counts cannot be compared",
    "no_histogram_in_reference": "the reference holds no token counts: its stage `histogram` was off",
    "empty_denominator": "there are no tokens to compare",
}


@dataclass(frozen=True, slots=True)
class MovedToken:
    """A token that is more or less frequent than before."""

    text: str
    """As of :func:`dataaudit.metrics.drift.definition.token_text`, or its id."""
    old: int
    new: int
    kl: float
    """Its part of the KL divergence, in nats; negative where it is less frequent."""
    js: float | None = None
    """Its part of the Jensen-Shannon divergence."""


@once
def drifts(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the drift of every split, and of its sources, from those of the reference; none without a reference.

    ``noise`` is the KL that chance alone gives on average, ``excess`` what is beyond it; ``reason`` why there is none.
    """
    records: dict[tuple[str, str], dict[str, Metric]] = {}
    for record in manifest.metrics(METRIC):
        if record.scope.split is not None and record.scope.shard is None and record.scope.language is None:
            records.setdefault((record.scope.split, record.scope.source or ""), {})[record.stat] = record
    return [
        {
            "split": split,
            "source": source,
            "kl": stats["kl"].value,
            "js": stats["js"].value,
            "noise": stats["kl_bias"].value,
            "excess_low": stats["kl_excess"].low,
            "excess": stats["kl_excess"].value,
            "reason": stats["kl"].reason,
        }
        for (split, source), stats in sorted(records.items())
        if stats["kl"].reason != "no_reference"
    ]


def _why_no_drift(every: Sequence[Drift]) -> str:
    """Return in words why nothing was measured; empty when something was."""
    reasons = {drift["reason"] for drift in every}
    if len(reasons) != 1 or reasons == {""}:
        return ""
    (reason,) = reasons
    return _WHY.get(reason, f"no number: {t.clean(reason, 60)}")


def _kl(drift: Drift) -> float:
    return drift["kl"] or 0.0


def section(manifest: Manifest, every: Sequence[Drift]) -> Section:
    """Return the drift of splits, then of the sources that moved most, and the tokens behind the largest."""
    title = "Drift from the reference"
    if not every:
        return empty_section("drift", title, "There is no reference manifest, so drift was not measured.")
    if all(drift["reason"] for drift in every):
        return Section(id="drift", title=title, lead=f"Drift was not measured: {_why_no_drift(every[:1])}.")
    worst = max((drift for drift in every if drift["kl"] is not None), key=_kl)
    alarms = [drift for drift in every if _mark(drift) in _LOUD]
    text = "The largest divergence from the reference is {} nats, in {}: {}."
    lead: Line = say(text, nats(worst["kl"]), place(worst), _SAYS[_mark(worst)])
    if alarms and _mark(worst) not in _LOUD:
        most = max(alarms, key=_kl)
        lead = say("{} In {} it is {} nats: {}.", lead, place(most), nats(most["kl"]), _SAYS[_mark(most)])
    blocks: tuple[Block, ...] = (_table(every), *_moving(manifest, worst))
    return Section(id="drift", title=title, lead=lead, tone="warn" if alarms else "", blocks=blocks)


def place(drift: Drift) -> Line:
    """Return the split and source in words."""
    split = Name(drift["split"], 60)
    return say("{}, source {}", split, Name(drift["source"], 60)) if drift["source"] else split


def tokens_that_moved(name: str, title: Line, tokens: Sequence[MovedToken], before: str, now: str) -> Figure:
    """Return a chart of the tokens that make most of a divergence, with its table; ``name`` is its id."""
    made = (
        Bar(
            Name(token.text),
            token.kl,
            say("{} nats, {} {}, {} {}", nats(token.kl, signed=True), token.old, before, token.new, now),
        )
        for token in tokens
    )
    often = (say("{} {} often", Name(token.text, 26), "more" if token.kl > 0 else "less") for token in tokens[:_SAID])
    with_js = any(token.js is not None for token in tokens)
    return Figure(
        id=name,
        title=title,
        chart=bars("part of KL, nats", made),
        says=join(", ", often),
        table=table_of(
            title,
            tokens,
            column("token", lambda token: Name(token.text, 40), kind="name"),
            column(before, "old"),
            column(now, "new"),
            column("part of KL, nats", lambda token: nats(token.kl, signed=True)),
            *([column("part of JS, nats", "js", nats)] if with_js else []),
            most=None,
            folded=True,
        ),
        note="To the right: more often than before; to the left: less often.",
    )


def _table(every: Sequence[Drift]) -> Table:
    splits = [drift for drift in every if not drift["source"]]
    sources = sorted(
        (drift for drift in every if drift["source"]),
        key=lambda drift: (-(drift["kl"] or -1.0), drift["split"], drift["source"]),
    )
    note = (
        f"Above {ALARM_NATS}: KL itself. Beyond chance: the interval of kl_excess lies above 0, which is"
        " more than two samples of the same text give."
    )
    if any(_mark(drift) == _PERHAPS for drift in every):
        note += (
            " As chance could give: documents are few, or repeat each other so much that chance alone could give it:"
            " look at the tokens, and at the duplicates."
        )
    return table_of(
        "Divergence of token counts from the reference, in nats",
        [*splits, *sources],
        column("split", shown=Name),
        column("source", shown=named),
        column("KL", lambda drift: toned(nats(drift["kl"]), when=_mark(drift) in _LOUD)),
        column("Jensen-Shannon", "js", nats),
        column("KL by chance", "noise", nats),
        column("KL beyond chance", "excess", nats),
        column("", _mark, kind="word"),
        noun="source",
        note=note,
    )


def _moving(manifest: Manifest, worst: Drift) -> list[Figure]:
    """Return the tokens that make most of the largest divergence."""
    rows = manifest.table("drift")
    rows = rows.filter(pc.equal(rows["split"], worst["split"]))
    is_named = pc.equal(rows["source"], worst["source"]) if worst["source"] else pc.is_null(rows["source"])
    largest = rows.filter(pc.fill_null(is_named, False)).sort_by("rank")[:_TOKENS].to_pylist()
    if not largest:
        return []
    tokens = [
        MovedToken(text_or_id(row["piece"], row["token"]), row["reference_count"], row["count"], row["kl"], row["js"])
        for row in largest
    ]
    title = say("Tokens that moved most in {}", place(worst))
    return [tokens_that_moved("chart-drift", title, tokens, "in the reference", "here")]


def _mark(drift: Drift) -> str:
    """Return how a divergence is marked, or why there is none."""
    if drift["reason"]:
        return str(drift["reason"])
    above = _kl(drift) > ALARM_NATS
    if drift["excess_low"] is None:
        return _UNKNOWN if above else ""
    if drift["excess_low"] > 0:
        return _ALARM if above else _SMALL
    return _PERHAPS if above else ""


def _highlights(manifest: Manifest) -> Iterator[Highlight]:
    every = drifts(manifest)
    marked = [drift for drift in every if _mark(drift) in _LOUD] or [item for item in every if _mark(item) == _PERHAPS]
    if marked:
        most = min(marked, key=lambda drift: (-_kl(drift), drift["split"], drift["source"]))
        least = f"above {ALARM_NATS}, at least {t.ratio(most['excess_low'])} of it beyond chance"
        mark = least if _mark(most) == _ALARM else _mark(most)
        yield Highlight(
            kind=Kind.DRIFT,
            part="drift",
            size=_kl(most),
            place=f"{most['split']}/{most['source']}" if most["source"] else most["split"],
            text=f"KL {t.ratio(most['kl'])} nats from the reference: {mark}",
            link=first_of(len(marked), f"farthest of {len(marked):,}"),
        )
    elif why := _why_no_drift(every):
        yield Highlight(kind=Kind.NOT_JUDGED, part="drift", size=1, text=f"Drift was not measured: {why}")


SHOWN = Shown(
    parts=(Part(name="drift", area="tokens", blocks=lambda manifest: [section(manifest, drifts(manifest))]),),
    highlights=_highlights,
    facts={"drift": drifts},
)
