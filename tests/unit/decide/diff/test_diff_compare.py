"""What became of shards, and which bump it means."""

import pytest
from diff_made import change_core, demands, difference, fates, histogram, made, shard
from forged import hold_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.base.errors import ManifestMismatch
from dataaudit.decide.diff.compare import compare, complaint
from dataaudit.decide.diff.difference import Bump, MetricChangeKind, ShardChangeKind
from dataaudit.manifest.load import load_manifest

pytestmark = pytest.mark.usefixtures("odd_numbers")
BASE = [shard("a"), shard("b"), shard("v", split="val")]
WORDS = {("train", "web"): {1: 150, 2: 50}, ("val", "web"): {1: 60, 3: 40}}


def test_a_manifest_is_equal_to_itself(tmp_path):
    """Nothing is listed, and no bump is due."""
    found = difference(tmp_path, BASE, BASE)
    assert found.equal
    assert (found.proposal.bump, found.proposal.causes, found.unchanged_shards) == (Bump.NONE, (), 3)
    assert (found.fates, found.shards, found.metrics, found.drifts, found.settings, found.recuts) == ((),) * 6


@pytest.mark.parametrize(
    ("new", "fate", "bump", "proven"),
    [
        ([shard("a"), shard("b", stored="zst"), BASE[2]], "repacked", "patch", True),
        ([shard("a"), shard("b.parquet", "b", stored="parquet"), BASE[2]], "repacked", "patch", True),
        ([shard("a"), shard("renamed", "b"), BASE[2]], "moved", "patch", True),
        ([*BASE, shard("c")], "added", "minor", True),
        ([shard("a"), BASE[2]], "removed", "major", True),
        ([shard("a"), shard("b", "other", documents=9), BASE[2]], "changed", "major", True),
        ([shard("a"), shard("b", documents=9), BASE[2]], "changed", "major", True),  # a list left one document out
        ([shard("a"), BASE[2], shard("b", split="val")], "moved_split", "major", True),
        ([shard("a"), shard("b", status="quarantined", reason="truncated_stream"), BASE[2]], "lost", "major", True),
    ],
)
def test_every_change_of_a_shard_has_its_name_and_its_bump(tmp_path, new, fate, bump, proven):
    """One shard differs; the causes say what and how sure it is."""
    found = difference(tmp_path, BASE, new)
    assert fates(found) == {fate: (fate != "added", fate != "removed")}
    assert demands(found) == {(bump, fate, proven)}
    assert (str(found.proposal.bump), found.proposal.proven) == (bump, proven)
    assert not found.equal


def test_a_shard_that_can_be_read_again_is_new_data(tmp_path):
    """What was quarantined is in the numbers now; nothing that was there is gone."""
    broken = shard("b", status="quarantined", reason="truncated_stream")
    found = difference(tmp_path, [shard("a"), broken], [shard("a"), shard("b")])
    assert (fates(found), str(found.proposal.bump)) == ({"recovered": (1, 1)}, "minor")


def test_a_broken_shard_that_is_gone_is_not_shown_to_be_harmless(tmp_path):
    """What it held was never known, so a smaller bump would promise too much."""
    broken = shard("b", status="quarantined", reason="truncated_stream")
    found = difference(tmp_path, [shard("a"), broken], [shard("a")])
    assert demands(found) == {("major", "removed_unread", False)}


def test_empty_shards_are_packaging(tmp_path):
    """A shard without a document takes no data away and brings none."""
    hollow = shard("empty", documents=0, tokens=0, sources={})
    assert demands(difference(tmp_path / "1", [*BASE, hollow], BASE)) == {("patch", "removed_empty", True)}
    assert demands(difference(tmp_path / "2", BASE, [*BASE, hollow])) == {("patch", "added_empty", True)}


def test_a_split_that_is_no_longer_held_out_is_major(tmp_path):
    """The documents are the same, but what they may be used for is not."""
    held = [{"name": "train", "held_out": False}, {"name": "val", "held_out": False}]
    sums = {"train": (2, 20, 800, 200), "val": (1, 10, 400, 100)}
    names = ("shards", "documents", "bytes", "tokens")
    splits = [one | dict(zip(names, sums[one["name"]], strict=True)) for one in held]
    found = difference(tmp_path, BASE, BASE, new_with={"core": {"splits": splits}})
    assert demands(found) == {("major", "split_role", True)}
    assert [(one.area, one.name, one.old, one.new) for one in found.settings] == [
        ("splits", "val.held_out", "true", "false")
    ]


class TestRecut:
    """The same documents cut into other shards: digests cannot show it, counts can agree."""

    OLD = (shard("a"), shard("b"), BASE[2])
    NEW = (shard("whole", "a+b", documents=20, tokens=200), BASE[2])

    def compared(self, tmp_path, new_words=None, **more):
        """Compare the two with token counts."""
        tables = [{"histogram": histogram(words)} for words in (WORDS, new_words or WORDS)]
        return difference(
            tmp_path, self.OLD, self.NEW, old_with={"tables": tables[0]}, new_with={"tables": tables[1], **more}
        )

    def test_all_counts_agree(self, tmp_path):
        """Called a patch, and said not to be proven."""
        found = self.compared(tmp_path)
        assert fates(found) == {"recut": (2, 1)}
        assert demands(found) == {("patch", "recut", False)}
        assert not found.proposal.proven
        (recut,) = found.recuts
        assert (recut.split, recut.consistent, recut.differ) == ("train", True, ())

    def test_one_token_is_another(self, tmp_path):
        """As many documents, bytes and tokens, but some token fell: documents have changed, for sure."""
        found = self.compared(tmp_path, WORDS | {("train", "web"): {1: 149, 2: 51}})
        assert fates(found) == {"removed": (2, 0), "added": (0, 1)}
        assert demands(found) == {("major", "removed", True), ("minor", "added", True)}
        assert found.recuts[0].fell

    def test_more_was_cut_in(self, tmp_path):
        """Nothing fell, so the old documents may all be there: major, as that cannot be shown."""
        new = [shard("whole", "a+b+c", documents=30, tokens=300), BASE[2]]
        more = WORDS | {("train", "web"): {1: 250, 2: 50}}
        tables = [{"tables": {"histogram": histogram(words)}} for words in (WORDS, more)]
        found = difference(tmp_path, self.OLD, new, old_with=tables[0], new_with=tables[1])
        assert demands(found) == {("major", "removed", False), ("minor", "added", True)}
        assert not found.proposal.proven

    def test_only_the_sizes_that_differ_are_named(self, tmp_path):
        """As many documents with more tokens: it was said that documents differ, too."""
        new = [shard("whole", "a+b", documents=20, tokens=300), BASE[2]]
        assert difference(tmp_path, self.OLD, new).recuts[0].differ == ("bytes, tokens of a source",)

    def test_without_token_counts_nothing_is_consistent(self, tmp_path):
        """Totals alone are too little to call it a patch, and it is said what was not compared."""
        found = difference(tmp_path, self.OLD, self.NEW)
        assert demands(found) == {("major", "removed", False), ("minor", "added", True)}
        assert "how often each token occurs in each source (not counted in both)" in found.recuts[0].unknown

    def test_another_tokenizer_is_no_proof_against_it(self, tmp_path):
        """Token counts are not compared; what is left agrees, and is too little."""
        old = made(tmp_path / "old", self.OLD, tables={"histogram": histogram(WORDS)})
        made(tmp_path / "new", self.NEW, tables={"histogram": histogram(WORDS)})
        tokenizer = {"tokenizer": old.core.tokenizer.model_dump(mode="json") | {"sha256": "ef" * 32}}
        change_core(tmp_path / "new", tokenizer)
        found = compare(old, load_manifest(tmp_path / "new"))
        assert demands(found) == {("major", "removed", False), ("minor", "added", True)}
        assert found.recuts[0].agree == ("documents and bytes of each source", "languages of each source")
        assert [drift.reason for drift in found.drifts] == ["other_tokenizer"]


@pytest.mark.parametrize(
    ("old", "new", "shards", "complaint", "least"),
    [
        ("1.2.3", "1.2.4", BASE, "", "1.2.3"),
        ("1.2.3", "1.2.3", BASE, "", "1.2.3"),
        ("1.2.3", "1.2.2", BASE, "backwards", "1.2.3"),
        ("1.2.3", "1.3.0", [*BASE, shard("c")], "", "1.3.0"),
        ("1.2.3", "2.0.0", [*BASE, shard("c")], "", "1.3.0"),
        ("1.2.3", "1.2.4", [*BASE, shard("c")], "too_small", "1.3.0"),
        ("1.2.3", "1.2.3", [*BASE, shard("c")], "unchanged", "1.3.0"),
        ("1.2.3", "1.10.0", [shard("a")], "too_small", "2.0.0"),
        ("1.2.3", "2.0.0-rc.1", [shard("a")], "", "2.0.0"),
        ("v1.2.3", "v2.0.0", [shard("a")], "", "2.0.0"),
        ("2026-10", "2026-11", [shard("a")], "not_semver", None),
        ("1.2.3", "1.2.03", [shard("a")], "not_semver", "2.0.0"),
    ],
)
def test_versions_are_held_against_the_bump(tmp_path, old, new, shards, complaint, least):
    """The least version is that of the older one, bumped; a promise that is too small is named."""
    held = [{"core": {"dataset": {"name": "made", "version": version}}} for version in (old, new)]
    found = difference(tmp_path, BASE, shards, old_with=held[0], new_with=held[1])
    assert (found.proposal.complaint, found.proposal.version) == (complaint, least)


def test_versions_of_other_datasets_are_not_compared(tmp_path):
    """Two names, two histories."""
    found = difference(tmp_path, BASE, BASE, new_with={"dataset": "another"})
    assert found.proposal.complaint == "other_dataset"


def test_another_audit_of_the_same_data_is_not_equal_and_no_bump(tmp_path):
    """Settings differ, nothing else."""
    found = difference(tmp_path, BASE, BASE, new_with={"config": {"language": {"detector": "fasttext"}}})
    assert (found.equal, found.proposal.bump) == (False, Bump.NONE)
    assert [(one.area, one.name, one.old, one.new) for one in found.settings] == [
        ("config", "language.detector", None, '"fasttext"')
    ]


def test_the_new_manifest_names_the_old_one_as_its_parent(tmp_path):
    """It was built with the old one as its reference."""
    old = made(tmp_path / "old", BASE)
    new = made(tmp_path / "new", BASE, core={"parents": [old.id]})
    assert compare(old, new).descends
    assert not compare(new, old).descends


def test_a_table_that_was_changed_is_an_error(tmp_path):
    """A comparison of what was never published would prove nothing."""
    old, new = made(tmp_path / "old", BASE), made(tmp_path / "new", BASE[:2])
    (tmp_path / "old/shards.parquet").write_bytes((tmp_path / "new/shards.parquet").read_bytes())
    with pytest.raises(ManifestMismatch, match=r"shards\.parquet of .* is not the file that was published"):
        compare(old, new)
    hold_bytes(tmp_path / "old")
    with pytest.raises(ManifestMismatch, match="table shards"):
        compare(load_manifest(tmp_path / "old"), new)


def test_two_empty_corpora_are_equal(tmp_path):
    """No shard, no document, no crash."""
    assert difference(tmp_path, [], []).equal


HELD = st.dictionaries(
    st.tuples(st.sampled_from(["train", "val"]), st.sampled_from(["a", "b", "c"])),
    st.tuples(st.sampled_from(["x", "y", "z"]), st.sampled_from(["ok", "quarantined"]), st.integers(0, 3)),
    max_size=4,
)
MIRRORED = {
    ShardChangeKind.REMOVED: ShardChangeKind.ADDED,
    ShardChangeKind.ADDED: ShardChangeKind.REMOVED,
    ShardChangeKind.LOST: ShardChangeKind.RECOVERED,
    ShardChangeKind.RECOVERED: ShardChangeKind.LOST,
}
MIRRORED_METRICS = {
    MetricChangeKind.REMOVED: MetricChangeKind.ADDED,
    MetricChangeKind.ADDED: MetricChangeKind.REMOVED,
    MetricChangeKind.LOST: MetricChangeKind.GAINED,
    MetricChangeKind.GAINED: MetricChangeKind.LOST,
}


def listed(held):
    """Return shards of {(split, uri): (rows, status, documents)}."""
    return [
        shard(
            uri,
            f"{what}{documents}",
            split=split,
            status=status,
            documents=documents,
            tokens=10 * documents,
            sources={"web": 10 * documents} if documents else {},
            reason="" if status == "ok" else "truncated_stream",
        )
        for (split, uri), (what, status, documents) in held.items()
    ]


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(HELD, HELD)
def test_the_other_direction_mirrors_it(tmp_path_factory, one, other):
    """Added and removed change places, values and signs too; equality is symmetric."""
    folder = tmp_path_factory.mktemp("pair")
    pair = made(folder / "one", listed(one)), made(folder / "other", listed(other))
    there, back = compare(*pair), compare(*reversed(pair))
    assert there.equal == back.equal == (pair[0].id == pair[1].id)
    assert sorted(
        (change.fate, change.old_split, change.old_uri, change.new_split, change.new_uri)
        for change in there.shards
        if change.fate != ShardChangeKind.RECUT
    ) == sorted(
        (MIRRORED.get(change.fate, change.fate), change.new_split, change.new_uri, change.old_split, change.old_uri)
        for change in back.shards
        if change.fate != ShardChangeKind.RECUT
    )
    mirrored = {
        (change.metric, change.stat, change.scope): (
            MIRRORED_METRICS.get(change.fate, change.fate),
            change.new,
            change.old,
        )
        for change in back.metrics
    }
    assert {
        (change.metric, change.stat, change.scope): (change.fate, change.old, change.new) for change in there.metrics
    } == mirrored
    signs = {(change.metric, change.stat, change.scope): change.difference for change in back.metrics}
    for change in there.metrics:
        back_again = signs[change.metric, change.stat, change.scope]
        assert change.difference == (None if back_again is None else -back_again)
    assert (there.unchanged_shards, there.unchanged_metrics) == (back.unchanged_shards, back.unchanged_metrics)


def test_a_shard_that_lost_all_its_documents_is_no_patch(tmp_path):
    old = [shard("a"), shard("b")]
    new = [shard("a", held="nothing", documents=0, tokens=0, sources={}), shard("b")]

    found = difference(tmp_path, old, new)

    assert fates(found) == {"removed": (1, 0), "added": (0, 1)}
    assert found.proposal.bump == "major"


def test_documents_in_a_shard_that_had_none_are_an_addition(tmp_path):
    old = [shard("a", held="nothing", documents=0, tokens=0, sources={}), shard("b")]
    new = [shard("a"), shard("b")]

    found = difference(tmp_path, old, new)

    assert found.proposal.bump == "minor"
    assert found.proposal.proven


def test_shards_with_the_same_documents_and_other_bad_records_are_not_the_same(tmp_path):
    old = [shard("a", held="rows", stored="with bad lines", bad=3), shard("b")]
    new = [shard("a", held="rows", stored="without", bad=0), shard("b")]

    found = difference(tmp_path, old, new)

    assert fates(found) == {"changed": (1, 1)}
    assert found.proposal.bump == "major"
    assert not found.proposal.proven


def test_as_many_bad_records_in_other_bytes_are_repacked(tmp_path):
    found = difference(tmp_path, [shard("a", stored="x", bad=2)], [shard("a", stored="y", bad=2)])

    assert fates(found) == {"repacked": (1, 1)}


def test_a_version_that_differs_in_its_suffix_alone_is_too_small_and_not_unchanged(tmp_path):
    found = difference(
        tmp_path,
        [shard("a")],
        [shard("a"), shard("b")],
        old_with={"core": {"dataset": {"name": "made", "version": "1.1.0-rc.1"}}},
        new_with={"core": {"dataset": {"name": "made", "version": "1.1.0"}}},
    )

    assert found.proposal.complaint == "too_small"
    assert complaint(found) == "the new version differs in its suffix alone, but the data demand a minor bump"


def test_a_copy_of_a_shard_that_is_gone_is_not_said_to_be_gone_altogether(tmp_path):
    old = [shard("a", held="rows"), shard("b", held="rows")]

    found = difference(tmp_path, old, [shard("a", held="rows")])

    assert "one copy of them less" in found.proposal.causes[0].text
