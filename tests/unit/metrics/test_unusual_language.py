"""Documents in a language that is unusual in their source, against counting one by one."""

import math
import statistics

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.peers import Peers, unusual_language_shares, with_unusual_languages

COLUMNS = ("split", "sources", "languages", "documents", "bytes", "wordless_documents")
SCHEMA = pa.schema([TABLES["shards"].schema.field(name) for name in COLUMNS])
LANGUAGES = st.none() | st.dictionaries(st.sampled_from(["en", "pl", "und", "de"]), st.integers(1, 9), max_size=4)
SHARDS = st.lists(
    st.tuples(st.sampled_from(["train", "val"]), st.sampled_from(["web", "code"]), LANGUAGES), max_size=14
)


def table(shards):
    """Return the columns of some shards: of each its split, its source, and documents by language."""
    rows = []
    for split, source, languages in shards:
        number = sum((languages or {}).values())
        counts = {"documents": number, "bytes": number, "tokens": number}
        rows.append(
            {
                "split": split,
                "documents": number,
                "bytes": number,
                "wordless_documents": None,
                "sources": [{"source": source, **counts}] if number else [],
                "languages": None
                if languages is None
                else [
                    {"language": name, "documents": held, "bytes": held, "tokens": held}
                    for name, held in sorted(languages.items())
                ],
            }
        )
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@given(shards=SHARDS)
@settings(max_examples=examples(300))
def test_shares_are_those_of_counting(shards):
    """The share of a language beyond its median in the shards of the same group, but for documents without one."""
    made = table(shards)
    groups = Peers.of(made).groups.tolist()
    sizes = [sum((languages or {}).values()) for *_, languages in shards]
    expected = []
    for (*_, languages), group, size in zip(shards, groups, sizes, strict=True):
        peers = [
            (other[2], number)
            for other, of, number in zip(shards, groups, sizes, strict=True)
            if of == group and number and other[2] is not None
        ]
        usual = {
            name: statistics.median(held.get(name, 0) / number for held, number in peers) for name in languages or {}
        }
        beyond = [max(0.0, held / size - usual[name]) for name, held in (languages or {}).items() if name != "und"]
        expected.append(sum(beyond) if size else math.nan)
    assert unusual_language_shares(made).tolist() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("number", [3, 6])
def test_a_polish_shard_is_unusual_in_code_and_in_english(number):
    """Of three shards or six; one without a language is not, nor one with the usual languages in other numbers."""
    for usual in ({"und": 90, "en": 10}, {"en": 100}, {"en": 60, "und": 40}):
        shards = [("train", "web", usual)] * (number - 1)
        assert unusual_language_shares(table([*shards, ("train", "web", {"pl": 50})])).tolist() == [0.0] * (
            number - 1
        ) + [1.0]
        assert unusual_language_shares(table([*shards, ("train", "web", {"und": 50})])).max() == 0


def test_a_shard_without_words_has_no_share():
    """Of empty texts, or of dashes alone; it is no peer of the others either."""
    made = table([("train", "web", {"en": 2}), ("train", "web", {"und": 2}), ("train", "web", {"und": 3})])
    empty = made.set_column(made.schema.get_field_index("bytes"), "bytes", pa.array([2, 0, 9]))
    assert unusual_language_shares(empty).tolist() == pytest.approx([0.5, math.nan, 0.0], nan_ok=True)
    place = made.schema.get_field_index("wordless_documents")
    dashes = empty.set_column(place, "wordless_documents", pa.array([0, 2, 3]))
    assert unusual_language_shares(dashes).tolist() == pytest.approx([0.0, math.nan, math.nan], nan_ok=True)


def test_the_column_is_filled_and_null_without_documents():
    """Where languages were not looked for, it is null in every shard."""
    made = table([("train", "web", {"en": 2}), ("train", "web", {}), ("train", "web", None)])
    place = TABLES["shards"].schema.field("unusual_language_share")
    filled = with_unusual_languages(made.append_column(place, pa.nulls(3, place.type)))
    assert filled["unusual_language_share"].to_pylist() == [0.0, None, None]
    assert filled.schema.field("unusual_language_share") == place
