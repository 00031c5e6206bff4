"""The search for near-duplicates, all its joins in a row, against all pairs compared one by one."""

import random
import shutil
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from lanes import sample, thinned
from near_corpus import Shard, batch_of, edited, named, random_words, search, true_similarity
from scipy.sparse import csr_array

from dataaudit.metrics.near_dup import candidates as candidate_joins
from dataaudit.metrics.near_dup import verification
from dataaudit.metrics.near_dup.candidates import CANDIDATES
from dataaudit.metrics.near_dup.link import recall_records
from dataaudit.metrics.near_dup.stage import NearDup
from dataaudit.metrics.near_dup.verification import partition_bits
from dataaudit.scan.annotators import WORDS
from dataaudit.scan.cross_shard import keyed
from dataaudit.scan.kernels.minhash import band_keys, sketch

VOCABULARY = [f"word{number}" for number in range(400)]
RARE = [f"rare{number}" for number in range(3000)]
STAGE = NearDup(recall_documents=0)


def families(seed, count=14, size=40):
    """Return groups of texts that are variants of each other, shuffled: some equal, some near, some not."""
    generator = random.Random(seed)
    texts = []
    for _ in range(count):
        words = random_words(generator, VOCABULARY, generator.choice([3, 7, size, 2 * size]))
        texts.append(" ".join(words))
        changes = [generator.choice([0, 0, 1, 1, 2, 6]) for _ in range(generator.randrange(4))]
        texts += [" ".join(edited(generator, words, VOCABULARY, number)) for number in changes]
    generator.shuffle(texts)
    return texts


def in_shards(texts, splits=(0, 0, 1)):
    """Return texts dealt into shards."""
    step = -(-len(texts) // len(splits))
    return [
        Shard(texts=texts[number * step : (number + 1) * step], split=split, source="ab"[number % 2])
        for number, split in enumerate(splits)
    ]


def expected_pairs(shards, threshold=0.8):
    """Return all pairs of first documents that are alike and share a band, and of equal words, by place."""
    documents = [(number, row, text) for number, shard in enumerate(shards) for row, text in enumerate(shard.texts)]
    words = batch_of([text for *_, text in documents], range(len(documents))).get(WORDS)
    signatures, classes = sketch(words.hashes, words.offsets)
    keys = band_keys(signatures, 21, 6)
    first, pairs = {}, {}
    for index, (shard, row, _) in enumerate(documents):
        if words.offsets[index] == words.offsets[index + 1]:
            continue
        leader = first.setdefault(bytes(classes[index]), index)
        if leader != index:
            pairs[documents[leader][:2], (shard, row)] = 1.0
    for left, right in combinations(sorted(first.values()), 2):
        similarity = true_similarity(documents[left][2], documents[right][2])
        if similarity >= threshold and (keys[left] == keys[right]).all(axis=1).any():
            pairs[documents[left][:2], documents[right][:2]] = similarity
    return pairs


@pytest.mark.parametrize("seed", range(6))
def test_every_pair_that_is_alike_and_shares_a_band_is_found_and_no_other(seed, tmp_path):
    shards = in_shards(families(seed))
    found = search(shards, tmp_path, STAGE, held_out=(False, True))
    assert found.pairs() == pytest.approx(expected_pairs(shards))
    assert (found.missed, found.dropped) == (0, 0)


def test_a_partition_that_is_too_large_is_joined_in_passes(tmp_path, monkeypatch):
    """What comes out is the same; no pass holds more than its part."""
    texts = families(5)
    stage = NearDup(small_bucket=2, large_bucket=3, leaders=1, most_candidates=3)
    one = search(in_shards(texts), tmp_path / "a", stage, held_out=(False, True))
    numbers = []
    for module in (candidate_joins, verification):
        monkeypatch.setattr(module, "passes", lambda files, start, stop, *_: few(files, start, stop, numbers))
    other = search(in_shards(texts), tmp_path / "b", stage, held_out=(False, True))
    assert max(numbers) == 16
    assert one.clusters.pairs.equals(other.clusters.pairs)
    assert one.clusters.counts.equals(other.clusters.counts)
    assert (one.missed, one.dropped) == (other.missed, other.dropped)
    assert recalled(one) == recalled(other) != []


@pytest.mark.parametrize("held_out_first", [False, True])
@pytest.mark.parametrize(
    "stage",
    [
        NearDup(recall_documents=0, most_candidates=3),
        NearDup(recall_documents=0, most_candidates=3, small_bucket=2),
        NearDup(recall_documents=0, most_candidates=3, small_bucket=2, large_bucket=4, leaders=2),
    ],
    ids=["small buckets", "large ones", "leaders"],
)
def test_no_leak_is_lost_to_a_limit_whatever_the_order_of_splits(held_out_first, stage, tmp_path):
    """Many held-out variants of one training document: each is found near it, though it may keep few neighbours."""
    generator = random.Random(8)
    words = random_words(generator, VOCABULARY, 80)
    variants = sorted({" ".join(edited(generator, words, VOCABULARY, 1)) for _ in range(32)})
    shards = [Shard(texts=[" ".join(words)], split=0, source="a"), Shard(texts=variants, split=1, source="a")]
    held_out = (False, True)
    if held_out_first:
        shards = [Shard(texts=variants, split=0, source="a"), Shard(texts=[" ".join(words)], split=1, source="a")]
        held_out = (True, False)
    found = search(shards, tmp_path, stage, held_out=held_out)
    near = {row for row, text in enumerate(variants) if true_similarity(text, " ".join(words)) >= 0.8}
    assert len(near) > 25
    side = int(not held_out_first)
    leaked = {place[1] for pair in found.pairs() for place in pair if place[0] == side and pair[0][0] != pair[1][0]}
    assert leaked == near


@pytest.mark.tables
@pytest.mark.parametrize("bits", [1, 3, 8, 12])
def test_sets_are_in_every_partition_that_needs_them(bits, tmp_path):
    shards = in_shards(families(6))
    one = search(shards, tmp_path / "a", STAGE, held_out=(False, True))
    other = search(shards, tmp_path / "b", STAGE, held_out=(False, True), bits=bits)
    assert one.verified.num_rows > 5
    assert one.clusters.pairs.equals(other.clusters.pairs)


@pytest.mark.parametrize(("size", "bits"), [(0, 0), (1000, 0), (10**6, 1), (10**8, 7), (10**12, 12)])
def test_sets_of_more_bytes_are_in_more_partitions(size, bits):
    candidates = pa.table([[1, 1], [2, 3], [1, 1]], schema=CANDIDATES)
    assert partition_bits(candidates, size * 30) == bits


def few(files, start, stop, numbers):
    """Return passes of few rows, and remember how many there are."""
    made = keyed.passes(files, start, stop, 2_000, 16)
    numbers.append(len(made))
    return made


def recalled(found):
    """Return similarity of each drawn near-duplicate to the nearest document, and whether one was found."""
    return list(zip(found.recall.similarities.tolist(), found.recall.found.tolist(), strict=True))


@pytest.mark.parametrize("partitions", [2, 5])
def test_partitions_and_parts_change_nothing(partitions, tmp_path):
    texts = families(3)
    stage = NearDup(small_bucket=2, large_bucket=3, leaders=1, most_candidates=3)
    whole = in_shards(texts)
    cut = [Shard(texts=s.texts, split=s.split, source=s.source, cuts=(1, 7, 8)) for s in whole]
    one = search(whole, tmp_path / "a", stage, held_out=(False, True))
    other = search(cut, tmp_path / "b", stage, held_out=(False, True), partitions=partitions)
    assert one.clusters.pairs.equals(other.clusters.pairs)
    assert one.clusters.clusters.equals(other.clusters.clusters)
    assert one.clusters.counts.equals(other.clusters.counts)
    assert one.clusters.earlier.equals(other.clusters.earlier)
    assert (one.missed, one.dropped) == (other.missed, other.dropped)
    assert recalled(one) == recalled(other) != []


def test_a_document_counts_when_something_like_it_came_earlier(tmp_path):
    generator = random.Random(1)
    words = random_words(generator, VOCABULARY, 60)
    near = [*words[:-1], "other"]
    lone = " ".join(random_words(generator, VOCABULARY, 60))
    text, like = " ".join(words), " ".join(near)
    shards = [Shard(texts=[like, lone, "", "!?"]), Shard(texts=[text, text, lone.upper()], source="books")]
    found = search(shards, tmp_path, STAGE)
    counts = {(row["shard"], row["source"]): row["duplicates"] for row in found.clusters.counts.to_pylist()}
    assert counts == {(0, "web"): 0, (1, "books"): 3}
    assert found.clusters.same_words == 2
    assert sorted(found.clusters.sizes.tolist()) == [2, 3]
    kept = {(row["shard"], row["row"]) for row in found.clusters.clusters.to_pylist() if row["kept"]}
    assert kept == {(0, 0), (0, 1)}
    earlier = [(row["source"], row["earlier_source"], row["documents"]) for row in found.clusters.earlier.to_pylist()]
    assert earlier == [("books", "web", 3)]


def test_a_chain_is_one_cluster_and_its_weakest_link_is_told(tmp_path):
    words = random_words(random.Random(2), VOCABULARY, 100)
    chain = [" ".join(words[start : start + 80]) for start in (0, 2, 4, 11)] + [" ".join(words[45:])]
    found = search([Shard(texts=chain)], tmp_path, STAGE)
    assert found.clusters.sizes.tolist() == [4]
    shared, union = found.clusters.weakest
    assert shared / union == pytest.approx(true_similarity(chain[2], chain[3]))
    duplicates = sum(found.clusters.counts["duplicates"].to_pylist())
    assert duplicates == sum(found.clusters.counts["component_duplicates"].to_pylist()) == 3


def test_two_documents_that_are_near_a_later_one_alone_are_joined_only_in_the_component(tmp_path):
    words = random_words(random.Random(4), VOCABULARY, 100)
    left, right, middle = (" ".join(words[start : start + 80]) for start in (0, 12, 6))
    assert true_similarity(left, right) < 0.8 < true_similarity(left, middle)
    found = search([Shard(texts=[left, right, middle])], tmp_path, STAGE)
    counts = found.clusters.counts.to_pylist()
    assert [(row["duplicates"], row["component_duplicates"]) for row in counts] == [(1, 2)]


@pytest.mark.parametrize("held_out", [(True, False), (False, True)])
def test_a_held_out_document_leaks_whichever_split_comes_first(held_out, tmp_path):
    generator = random.Random(5)
    words = random_words(generator, VOCABULARY, 60)
    lone = [" ".join(random_words(generator, VOCABULARY, 60)) for _ in range(2)]
    first = Shard(texts=[" ".join(words), lone[0]], split=0)
    second = Shard(texts=[" ".join(words[1:]), lone[1], lone[0]], split=1)
    found = search([first, second], tmp_path, STAGE, held_out=held_out)
    leaked = {row["shard"]: row["leaked"] for row in found.clusters.counts.to_pylist()}
    assert leaked == ({0: 2, 1: 0} if held_out[0] else {0: 0, 1: 2})


def template_documents(count):
    """Return documents of one long template with a few words of their own, so that all of them share many bands."""
    generator = random.Random(7)
    template = random_words(generator, VOCABULARY, 150)
    return [" ".join([*template, f"own{number}", f"more{number}"]) for number in range(count)]


def test_a_very_large_bucket_is_joined_with_its_leaders_and_what_that_leaves_out_is_counted(tmp_path):
    stage = NearDup(recall_documents=0, small_bucket=10, large_bucket=20, leaders=3, most_candidates=2)
    found = search([Shard(texts=template_documents(200))], tmp_path, stage)
    assert found.candidates.num_rows <= 200 * 16
    assert found.missed > 10 * 200 * 150
    assert sum(found.clusters.counts["duplicates"].to_pylist()) == 199
    assert sum(found.clusters.counts["undecided"].to_pylist()) == 0
    assert found.clusters.sizes.tolist() == [200]


def template_pairs(count, seed, kept):
    """Return documents of one template, each with a near-duplicate, shuffled; a share of their words is the template's.

    Differences lie in few blocks, so that all of them share bands, and the near ones are 0.78 to 0.9 alike.
    """
    generator = random.Random(seed)
    template, texts = random_words(generator, RARE, 350), []

    def changed(words, blocks, size):
        words = list(words)
        for _ in range(blocks):
            place = generator.randrange(len(words) - size)
            words[place : place + size] = random_words(generator, RARE, size)
        return words

    for _ in range(count // 2):
        own = changed(template, 6, round((1 - kept) * 350 / 6))
        texts += [" ".join(own), " ".join(changed(own, 2, generator.randrange(7, 17)))]
    generator.shuffle(texts)
    return texts


def near_earlier(texts):
    """Return the documents with an earlier one that is alike, by all pairs."""
    vocabulary, rows = {}, []
    for text in texts:
        words = text.split()
        grams = {tuple(words[start : start + 5]) for start in range(len(words) - 4)}
        rows.append([vocabulary.setdefault(gram, len(vocabulary)) for gram in grams])
    sizes = np.array([len(row) for row in rows])
    ends = np.append(0, np.cumsum(sizes))
    matrix = csr_array((np.ones(ends[-1], dtype=np.int32), np.concatenate(rows), ends))
    shared = (matrix @ matrix.T).toarray()
    alike = shared >= 0.8 * (sizes[:, None] + sizes[None, :] - shared)
    return set(np.flatnonzero(np.tril(alike, -1).any(axis=1)).tolist())


@pytest.mark.parametrize(("count", "kept"), sample([(600, 0.98), (600, 0.92), (2000, 0.95), (2000, 0.98)], 4))
def test_near_duplicates_among_pages_of_one_template_are_found(count, kept, tmp_path):
    texts = template_pairs(count, 1, kept)
    found = search([Shard(texts=texts)], tmp_path, STAGE)
    true, reported = near_earlier(texts), {right[1] for _, right in found.pairs()}
    assert reported <= true
    assert len(true) > 0.4 * count
    assert len(reported) >= 0.985 * len(true)


@pytest.mark.tables
def test_recall_covers_what_is_found_of_all_documents(tmp_path):
    """Of corpora that are searched badly, in many orders: 95 % of intervals hold the share that is found."""
    stage = NearDup(recall_documents=120, target_recall=0.8)
    orders, covered, shares, widths = thinned(20, 4), [], [], []
    for corpus in range(thinned(20, 5)):
        texts = template_pairs(240, corpus, 0.7 + 0.014 * corpus)
        for order in range(orders):
            random.Random(order).shuffle(texts)
            folder = tmp_path / f"{corpus}-{order}"
            found = search([Shard(texts=texts)], folder, stage)
            shutil.rmtree(folder)
            share = len({right[1] for _, right in found.pairs()}) / len(near_earlier(texts))
            (record,) = [one for one in recall_records(stage, found.recall) if one.scope.rule is None]
            covered.append(record.low <= share <= record.high)
            shares.append(share)
            widths.append(record.high - record.low)
    assert np.mean(shares) < 0.96
    assert np.mean(widths) < 0.25
    assert np.mean(covered) >= 0.93


def test_rates_are_exact_where_every_pair_was_looked_at_and_have_bounds_where_not(tmp_path):
    """Documents that are near nothing that was compared, and have more to compare with, may be near-duplicates."""
    texts = template_pairs(240, 3, 0.98)
    whole = search([Shard(texts=texts)], tmp_path / "a", STAGE)
    stage = NearDup(recall_documents=0, small_bucket=2, large_bucket=2, leaders=1, most_candidates=1)
    few = search([Shard(texts=texts)], tmp_path / "b", stage)
    sums = [
        {name: sum(found.clusters.counts[name].to_pylist()) for name in ("duplicates", "undecided")}
        for found in (whole, few)
    ]
    true = len(near_earlier(texts))
    assert sums[0] == {"duplicates": true, "undecided": 0}
    assert sums[1]["duplicates"] < true <= sums[1]["duplicates"] + sums[1]["undecided"]


def test_held_out_documents_of_a_hot_bucket_meet_training_data_that_comes_later(tmp_path):
    texts = template_documents(80)
    stage = NearDup(recall_documents=0, small_bucket=4, leaders=2)
    shards = [Shard(texts=texts[:40], split=0), Shard(texts=texts[40:], split=1)]
    found = search(shards, tmp_path, stage, held_out=(True, False))
    assert {row["shard"]: row["leaked"] for row in found.clusters.counts.to_pylist()} == {0: 40, 1: 0}


@pytest.mark.parametrize("held_out", [(False, True), (True, False), (True, True)])
@pytest.mark.parametrize("seed", sample(range(3), 3))
def test_what_is_so_lies_between_what_was_found_and_what_may_be(seed, held_out, tmp_path):
    """Near-duplicates and leaks of a template, with limits that leave much out, and copies in the other split."""
    texts = template_pairs(120, seed, 0.98)
    texts += texts[10:20]
    random.Random(seed).shuffle(texts)
    shards = [Shard(texts=texts[:60], split=0), Shard(texts=texts[60:], split=1)]
    stage = NearDup(recall_documents=0, small_bucket=4, large_bucket=24, leaders=1, most_candidates=1)
    found = search(shards, tmp_path, stage, held_out=held_out)
    sums = {name: sum(found.clusters.counts[name].to_pylist()) for name in found.clusters.counts.column_names[2:]}
    near = {
        (left, right)
        for left, right in combinations(range(len(texts)), 2)
        if true_similarity(texts[left], texts[right]) >= 0.8
    }
    duplicates = len({right for _, right in near})
    splits = [(*held_out,)[int(number >= 60)] for number in range(len(texts))]
    leaks = {place for pair in near for place in pair if splits[place] and not all(splits[other] for other in pair)}
    assert sums["duplicates"] <= duplicates <= sums["duplicates"] + sums["undecided"]
    assert sums["leaked"] <= len(leaks) <= sums["leaked"] + sums["undecided_leaks"]
    assert sums["cut"] > 20


def test_fewer_documents_count_where_their_neighbours_are_too_many(tmp_path, monkeypatch):
    """Whose neighbours are not all verified is not known to be alone, so it is not in the number."""
    texts = template_pairs(240, 3, 0.98)
    monkeypatch.setattr(verification, "_PAIRS", 400)
    found = search([Shard(texts=texts)], tmp_path, NearDup())
    assert 0 < len(found.recall.found) < 0.5 * len(near_earlier(texts))
    assert found.recall.found.all()


def test_drawn_documents_change_no_pair_and_are_found_among_all_others(tmp_path):
    texts = families(9, count=80, size=100)
    without = search(in_shards(texts), tmp_path / "a", STAGE, held_out=(False, True))
    found = search(in_shards(texts), tmp_path / "b", NearDup(), held_out=(False, True))
    assert found.clusters.pairs.equals(without.clusters.pairs)
    assert found.candidates.equals(without.candidates)
    later = {right for pair, right in ((pair, pair[1]) for pair in found.pairs()) if found.pairs()[pair] < 1}
    assert len(found.recall.found) == len(later) > 10
    assert found.recall.found.all()


def test_a_near_duplicate_that_is_not_compared_lowers_recall(tmp_path):
    texts = template_pairs(240, 3, 0.98)
    stage = NearDup(small_bucket=2, large_bucket=2, leaders=1, most_candidates=1)
    found = search([Shard(texts=texts)], tmp_path, stage)
    true = near_earlier(texts)
    assert len(found.recall.found) == len(true)
    assert found.recall.found.sum() == len({right[1] for _, right in found.pairs()}) < len(true)


def test_one_notice_many_times_is_one_cluster_and_recall_says_so(tmp_path):
    generator = random.Random(6)
    notice = random_words(generator, VOCABULARY, 200)
    texts = [" ".join([*notice[: 100 + number % 90], f"own{number}", *notice[110:]]) for number in range(600)]
    found = search([Shard(texts=texts)], tmp_path, NearDup(small_bucket=8, large_bucket=16))
    assert len(found.recall.found) > 500
    assert found.recall.found.mean() > 0.99


def test_nothing_at_all_gives_empty_results(tmp_path):
    found = search([Shard(texts=["", "..."])], tmp_path, NearDup())
    assert found.pairs() == {}
    assert named(found.candidates) == set()
    assert found.clusters.sizes.tolist() == []
    assert found.clusters.weakest == (0, 0)
    assert recalled(found) == []
