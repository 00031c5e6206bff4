"""Token histogram and drift: counts against a loop, comparisons against SciPy, and what pages say of them."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import drift as slow
from scipy.stats import entropy
from strategies import DOCUMENTS, make_batch

from dataaudit.base.errors import ConfigError
from dataaudit.base.render.blocks import Cell, Table
from dataaudit.base.render.line import PLAIN, spell
from dataaudit.manifest.metric import Scope
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.drift import definition
from dataaudit.metrics.drift.definition import section, text_or_id
from dataaudit.metrics.drift.stage import STATS, TOP_SOURCES, TOP_TOKENS, Histogram, left_out, top_tokens
from dataaudit.metrics.stages import make_stages
from dataaudit.scan.annotators import TOKENS
from dataaudit.scan.stages.base import Comparing, Context, Limited, merge
from dataaudit.scan.stages.partial import Reference, TableShape, combine, group, token_shape, token_table

STAGE = Histogram()
ROWS = st.lists(
    st.tuples(st.sampled_from(["web", "", "\u00fc", "z", "other"]), st.integers(0, 50), st.integers(0, 99)), max_size=80
)


def rows_table(rows):
    """Return a table of (source, token, count); half of each count is in the half."""
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    counts = np.array(columns[2], dtype=np.int64)
    names = sorted(set(columns[0]))
    groups = np.array([names.index(name) for name in columns[0]], dtype=np.int64)
    return token_table(names, groups, np.array(columns[1], dtype=np.int64), [counts, counts // 2])


def partial(counts):
    """Return a partial of {source: {token: (count, half)}}."""
    rows = [
        (source, token, *both) for source, tokens in sorted(counts.items()) for token, both in sorted(tokens.items())
    ]
    schema = token_shape().schema()
    return {"histogram": pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)}


def reference(counts, **more):
    """Return a reference of {(split, source): {token: count}}."""
    rows = [(*key, token, count) for key, tokens in sorted(counts.items()) for token, count in sorted(tokens.items())]
    schema = TABLES["histogram"].schema
    table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
    return Reference(table, **{"sources": list(counts), **more})


def context(against=None, split="train", size=60, **more):
    """Return a context of one split."""
    return Context(scope=Scope(split=split), mixture={}, reference=against, vocab_size=size, **more)


def records(counts, given_context):
    """Return {(stat, source): record}."""
    found = STAGE.finalize(partial(counts), given_context)
    return {(record.stat, record.scope.source): record for record in found}


NOW = {"web": {1: (40, 20), 2: (10, 6), 7: (3, 1)}, "code": {1: (5, 5), 30: (50, 22)}}
THEN = {
    ("train", "web"): {1: 44, 2: 9},
    ("train", "code"): {30: 60, 31: 4},
    ("val", "web"): {5: 7},
    ("train", "old"): {9: 2},
}


@given(documents=DOCUMENTS)
def test_map_counts_what_a_loop_counts(documents):
    batch = make_batch(documents)
    told = [
        (source, bool(batch.digests[index, 8] & 1), batch.get(TOKENS).ids[start:stop].tolist())
        for index, ((_, source), start, stop) in enumerate(
            zip(documents, batch.get(TOKENS).offsets[:-1], batch.get(TOKENS).offsets[1:], strict=True)
        )
    ]
    rows = merge(STAGE, [STAGE.map(batch)])["histogram"].to_pylist()
    found = {(row["source"], row["token"]): (row["count"], row["half"]) for row in rows}
    assert found == slow.count_ids(told)
    assert len(rows) == len(found)


@given(rows=ROWS)
def test_adding_up_is_what_arrows_grouping_gives(rows):
    table = rows_table(rows)
    plain = TableShape(keys=token_shape().keys, sums=token_shape().sums)
    assert group(token_shape(), table).equals(group(plain, table))


def test_adding_up_takes_chunks_of_any_size():
    pieces = [rows_table([("b", 1, 2), ("a", 5, 1), ("a", 3, 4)]), rows_table([("a", 3, 1)])] * 200
    plain = TableShape(keys=token_shape().keys, sums=token_shape().sums)
    assert combine(pa.concat_tables(pieces)).equals(group(plain, pa.concat_tables(pieces)))


def test_it_says_what_the_engine_has_to_know():
    assert isinstance(STAGE, Comparing)
    assert isinstance(STAGE, Limited)
    assert not any(isinstance(stage, Comparing | Limited) for stage in make_stages({}) if stage.name != STAGE.name)
    with pytest.raises(ConfigError, match="at least 1"):
        make_stages({"histogram": {"max_sources": 0}})


def test_scopes_are_compared_with_the_same_scope():
    against = reference(THEN)
    found = records(NOW, context(against))
    now, then = np.full(60, 0.5), np.full(60, 0.5)
    now[[1, 2, 7]] += [40, 10, 3]
    then[[1, 2]] += [44, 9]
    assert found["kl", "web"].value == pytest.approx(entropy(now, then), rel=1e-10)
    now[[1, 30]] += [5, 50]
    then[[30, 31, 9]] += [60, 4, 2]
    assert found["kl", None].value == pytest.approx(entropy(now, then), rel=1e-10)
    then[5] += 7
    everything = records(NOW, context(against, split=None))
    assert everything["kl", None].value == pytest.approx(entropy(now, then), rel=1e-10)
    assert (found["kl", "web"].n, found["kl", None].n) == (53, 108)


def test_bias_and_excess_are_intervals_that_belong_together():
    found = records(NOW, context(reference(THEN)))
    kl, bias, excess = (found[stat, "web"] for stat in ("kl", "kl_bias", "kl_excess"))
    assert (kl.method, bias.method, bias.confidence) == ("exact", "estimated", 0.95)
    assert bias.low == pytest.approx(bias.value / 2)
    assert bias.high == pytest.approx(bias.value * 2)
    assert excess.value == pytest.approx(kl.value - bias.value)
    assert (excess.low, excess.high) == (pytest.approx(kl.value - bias.high), pytest.approx(kl.value - bias.low))


def test_one_half_without_a_token_leaves_the_bias_open():
    found = records({"web": {1: (4, 4)}}, context(reference(THEN)))
    assert found["kl", "web"].status == "ok"
    for stat in ("kl_bias", "kl_excess"):
        assert (found[stat, "web"].status, found[stat, "web"].reason) == ("not_evaluated", "too_few_documents")


def test_without_a_reference_every_scope_says_so_once():
    found = records(NOW, context())
    assert {key: (record.status, record.reason) for key, record in found.items()} == {
        (stat, None): ("not_applicable", "no_reference") for stat in STATS
    }


@pytest.mark.parametrize("problem", ["other_tokenizer", "no_histogram_in_reference"])
def test_a_reference_that_cannot_be_compared_gives_its_reason(problem):
    found = records(NOW, context(reference({}, problem=problem)))
    assert {(record.status, record.reason) for record in found.values()} == {("not_applicable", problem)}
    assert {source for _, source in found} == {None}


def test_what_the_reference_lacks_is_named():
    against = reference(THEN, sources=[*THEN, ("train", "small")])
    now = {"new": {1: (2, 1)}, "small": {1: (2, 1)}, "other": {1: (2, 1)}}
    found = records(now, context(against, folded=True))
    reasons = {source: found["kl", source].reason for source in now}
    assert reasons == {"new": "absent_in_reference", "small": "folded_in_reference", "other": "folded_sources"}
    assert records(now, context(against))["kl", "other"].reason == "absent_in_reference"
    assert records(now, context(reference(THEN, folded=True)))["kl", "other"].reason == "folded_sources"
    assert records(now, context(against, split="test"))["kl", None].reason == "absent_in_reference"


def test_nothing_counted_is_not_evaluated():
    for against, expected in (
        (None, ("not_applicable", "no_reference")),
        (reference(THEN), ("not_evaluated", "empty_denominator")),
    ):
        found = records({}, context(against))
        assert {(record.status, record.reason) for record in found.values()} == {expected}


def test_shards_are_compared_with_their_split():
    shard = partial({"web": NOW["web"]})
    columns = STAGE.compare_shard(shard, context(reference(THEN)))
    now, then = np.full(60, 0.5), np.full(60, 0.5)
    now[[1, 2, 7]] += [40, 10, 3]
    then[[1, 2, 30, 31, 9]] += [44, 9, 60, 4, 2]
    assert columns["token_kl_drift"] == pytest.approx(entropy(now, then), rel=1e-10)
    assert 0 < columns["token_js_drift"] < np.log(2)
    assert columns["token_kl_bias"] > 0
    absent = STAGE.compare_shard(shard, context(reference(THEN), split="test"))
    assert absent == dict.fromkeys(columns)
    assert set(columns) <= set(TABLES["shards"].schema.names)


def test_top_tokens_are_ranked_by_what_they_add():
    now = {"web": dict.fromkeys(range(40), (100, 50)) | {41: (900, 400)}}
    then = {("train", "web"): dict.fromkeys(range(40), 100) | {42: 900}}
    found = [token for token in top_tokens(partial(now), context(reference(then))) if token["source"] == "web"]
    assert [token["token"] for token in found] == [41, 42]
    counts = [(token["count"], token["reference_count"], token["rank"]) for token in found]
    assert counts == [(900, 0, 1), (0, 900, 2)]
    assert found[0]["js"] == found[1]["js"]
    assert found[0]["kl"] > 0 > found[1]["kl"]
    everything = list(top_tokens(partial(now), context(reference(then), split=None)))
    assert {token["source"] for token in everything} == {None}


def test_top_tokens_are_bounded_and_sources_left_out_are_counted():
    now = {f"s{number:03}": dict.fromkeys(range(30), (number + 1, 1)) for number in range(TOP_SOURCES + 5)}
    then = {("train", source): {50: 10} for source in now}
    found = Counter(token["source"] for token in top_tokens(partial(now), context(reference(then))))
    assert set(found.values()) == {TOP_TOKENS}
    assert set(found) == {None, *(f"s{number:03}" for number in range(5, TOP_SOURCES + 5))}
    assert left_out(partial(now)) == 5


ABOVE, BELOW = 0.2, 0.03
CASES = {
    (ABOVE, 0.1): ("above 0.05, beyond chance", "above 0.05 nats and surely beyond chance", "warn"),
    (ABOVE, 0.001): ("above 0.05, beyond chance", "above 0.05 nats and surely beyond chance", "warn"),
    (ABOVE, -0.1): ("above 0.05, as chance could give", "above 0.05 nats, but chance alone could give it", ""),
    (ABOVE, None): ("above 0.05, chance not known", "above 0.05 nats; how much chance gives is not known", "warn"),
    (BELOW, 0.01): ("beyond chance, not above 0.05", "surely beyond chance, but not above 0.05 nats", ""),
    (BELOW, -0.01): ("", "not above 0.05 nats", ""),
    (BELOW, None): ("", "not above 0.05 nats", ""),
    (0.05, 0.04): ("beyond chance, not above 0.05", "surely beyond chance, but not above 0.05 nats", ""),
}


class NoTokens:
    """A manifest whose table of drift is empty."""

    def table(self, _):
        """Return no row."""
        return pa.table({name: pa.array([], pa.string()) for name in ("split", "source", "rank")})


def drift(split, kl, low):
    """Return a drift as of a build."""
    excess = None if low is None else low + 0.01
    return {
        "split": split,
        "source": "",
        "kl": kl,
        "js": 0.01,
        "noise": 0.01,
        "excess_low": low,
        "excess": excess,
        "reason": "",
    }


def said(found):
    """Return the sentence, the tone, and the marks and tones of KL of the table's rows."""
    made = section(NoTokens(), found)
    (table,) = (one for one in made.blocks if isinstance(one, Table))
    tones = [row[2].tone if isinstance(row[2], Cell) else "" for row in table.rows]
    return spell(made.lead, PLAIN), made.tone, [spell(row[-1], PLAIN) for row in table.rows], tones


@pytest.mark.parametrize(("case", "expected"), CASES.items())
def test_sentence_mark_and_colour_say_one_thing(case, expected, monkeypatch):
    """KL above the alarm is one question, KL beyond chance another; the alarm is an answer to both."""
    found = [drift("train", *case)]
    mark, sentence, tone = expected
    lead, own, marks, tones = said(found)
    assert lead.endswith(f", in train: {sentence}.")
    assert (own, marks, bool(tones[0])) == (tone, [mark], tone == "warn")
    monkeypatch.setattr(definition, "drifts", lambda _: found)
    highlights = [one.text for one in definition._highlights(None)]
    assert len(highlights) == mark.startswith("above")
    assert all(("beyond chance" in one) == ("beyond chance" in mark) for one in highlights)
    assert all(("above 0.05" in one) == ("above 0.05" in mark) for one in highlights)


def test_an_alarm_that_is_not_the_largest_divergence_is_named():
    """The largest may be chance; a smaller one that is not is what turns the section."""
    lead, tone, marks, tones = said([drift("a", 0.3, -0.1), drift("b", 0.1, 0.05), drift("c", 0.06, 0.01)])
    assert "0.3000 nats, in a: above 0.05 nats, but chance alone could give it." in lead
    assert lead.endswith(" In b it is 0.1000 nats: above 0.05 nats and surely beyond chance.")
    assert (tone, [bool(one) for one in tones]) == ("warn", [False, True, True])
    assert marks[0] == "above 0.05, as chance could give"


@pytest.mark.parametrize(
    ("piece", "text"),
    [
        ("Ġjest", '" jest"'), ("ĠÃ©", '" é"'), ("æĹ¥æľ¬", '"日本"'), ("Ċ", '"\\n"'), ("čĊĠĠ", '"\\r\\n  "'),
        ("âĢĵ", '"–"'), ("\u2581jest", '" jest"'), ("<0x0A>", '"\\n"'), ("plain", '"plain"'),
        ("<|end|>", '"<|end|>"'), ("\\\\n", '"\\\\n"'),
    ],
)  # fmt: skip
def test_the_text_of_a_token(piece, text):
    assert text_or_id(piece, 5) == text


@pytest.mark.parametrize("piece", ["čas", "ģimene", "ě", "ñ", "日", "ünï"])
def test_letters_that_byte_level_vocabularies_use_are_letters_elsewhere(piece):
    """A Czech, Latvian or Spanish entry of SentencePiece is no byte of another one."""
    assert text_or_id(piece, 5) == f'"{piece}"'


@pytest.mark.parametrize(("piece", "text"), [("<0xE2>", "<0xE2>"), ("âĢ", '"âĢ"'), ("", "id 5"), (None, "id 5")])
def test_a_part_of_a_character_keeps_its_entry(piece, text):
    assert text_or_id(piece, 5) == text
