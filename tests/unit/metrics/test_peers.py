"""Which shards a shard is compared with, against counting one by one."""

from collections import Counter

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.peers import COLUMNS, LEAST_OF_SOURCE, Peers

SCHEMA = pa.schema([TABLES["shards"].schema.field(name) for name in COLUMNS])
SHARDS = st.lists(
    st.tuples(
        st.sampled_from(["train", "val"]),
        st.none() | st.dictionaries(st.sampled_from(["code", "web", "news"]), st.integers(0, 9), max_size=3),
    ),
    max_size=30,
)


def table(shards):
    """Return the columns of some shards: of each its split, and tokens by source or None where it was not read."""
    rows = [
        {
            "split": split,
            "sources": None
            if tokens is None
            else [{"source": name, "documents": 1, "bytes": 1, "tokens": number} for name, number in tokens.items()],
        }
        for split, tokens in shards
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema([SCHEMA.field("split"), SCHEMA.field("sources")]))


@given(shards=SHARDS)
@example(shards=[("val", {"web": 0}), ("val", {"web": 0}), ("val", {"code": 0, "web": 1})])
@settings(max_examples=examples(100))
def test_peers_are_of_one_split_and_one_source_or_of_all_small_ones(shards):
    """Whatever shards hold, read or not."""
    kinds = []
    for split, tokens in shards:
        parts = tokens if tokens and any(tokens.values()) else dict.fromkeys(tokens or (), 1)  # else by documents
        most = [name for name, number in parts.items() if 2 * number > sum(parts.values())]
        kinds.append((split, most[0] if most else None))
    sizes = Counter(kinds)
    kinds = [(split, name if sizes[split, name] >= LEAST_OF_SOURCE else None) for split, name in kinds]
    peers = Peers.of(table(shards))
    groups = peers.groups.tolist()
    assert [groups.index(group) for group in groups] == [kinds.index(kind) for kind in kinds]
    assert peers.is_source.tolist() == [name is not None for _, name in kinds]
