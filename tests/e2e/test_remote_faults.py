"""What a network does to a build: faults that pass cost time, those that stay cost one shard, by name."""

import json

import pytest
from corpus import documents, rows, write_jsonl
from faulty_http import FAULTS, Rule
from lanes import workers
from running import build, run
from stores import running_store

pytestmark = pytest.mark.stores

CONFIG = """
splits:
  train: {{paths: ["{}"], text: text, source: {{constant: s}}}}
reader: {{timeout_seconds: 0.5, retries: {}}}
"""
PEEKED = 5
"""The first shards of a split are opened once more, to see their columns: faults are planted behind them."""
SHARDS = PEEKED + 6


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A bucket of small shards behind the failing proxy, and the manifest that they have to give."""
    root = tmp_path_factory.mktemp("faults")
    texts = documents(110, seed=3, size=600)
    for number in range(SHARDS):
        suffix = ".jsonl.zst" if number % 2 else ".jsonl"
        write_jsonl(root / "data" / f"{number:02d}{suffix}", rows(texts[number * 10 : number * 10 + 10], "s"))
    with running_store() as opened:
        opened.copy(root / "data", "corpus", "data/")
        opened.expected = build_with(opened, root, "expected", [])[1]
        yield opened


def key(number):
    """Return the name of a shard."""
    return f"{number:02d}{'.jsonl.zst' if number % 2 else '.jsonl'}"


def build_with(store, folder, name, rules, *, retries=1, expect=0, path="s3://corpus/data/*"):
    """Build with these faults; return the summary and the manifest."""
    store.proxy.clear()
    store.proxy.rules += rules
    folder = folder / name
    folder.mkdir()
    (folder / "c.yaml").write_text(CONFIG.format(path, retries))
    return build(folder / "c.yaml", *workers(2), manifest=folder / "m", expect=expect)


@pytest.mark.parametrize("place", ["listing", "hash", "scan"])
def test_faults_that_pass_cost_only_time(store, tmp_path, place):
    """Each kind of fault once, at the listing, at the first and at the second reading: the same manifest id."""
    if place == "listing":
        rules = [Rule(fault, first=number + 1, times=1) for number, fault in enumerate(FAULTS)]
    else:
        first = 1 if place == "hash" else 2
        rules = [Rule(fault, key(PEEKED + number), first=first, times=1) for number, fault in enumerate(FAULTS)]
        rules.append(Rule("error 500", key(PEEKED + 5), first=first, times=1, method="HEAD"))
    summary, manifest = build_with(store, tmp_path, place, rules, retries=len(FAULTS) if place == "listing" else 1)
    assert summary["id"] == store.expected.id
    assert manifest.run.notes == ()
    assert all(rule.seen > rule.first for rule in rules if place != "listing")


@pytest.mark.parametrize(("place", "faults"), [("hash", (*FAULTS, "short")), ("scan", (*FAULTS, "short"))])
def test_faults_that_stay_cost_the_shard_by_name(store, tmp_path, place, faults):
    """Each kind of fault for ever, for one shard each: quarantined with its reason, the rest is audited."""
    first = 1 if place == "hash" else 2
    rules = [Rule(fault, key(PEEKED + number), first=first) for number, fault in enumerate(faults)]
    _, manifest = build_with(store, tmp_path, place, rules, retries=0, expect=3)
    found = {row["uri"]: (row["status"], row["reason"]) for row in manifest.table("shards").to_pylist()}
    for number in range(SHARDS):
        lost = PEEKED <= number < PEEKED + len(faults)
        assert found[key(number)] == (("quarantined", "io_error") if lost else ("ok", ""))
    assert manifest.core.ledger.shards.quarantined == len(faults)
    assert manifest.core.totals.documents == 10 * (SHARDS - len(faults))


def test_gone_and_forbidden_shards_have_their_own_reasons(store, tmp_path):
    """404 and 403 are told apart from failures, and asked for once."""
    rules = [Rule("error 404", key(6)), Rule("error 403", key(7)), Rule("error 404", key(8), first=2)]
    rules += [Rule("error 403", key(9), first=2)]
    _, manifest = build_with(store, tmp_path, "codes", rules, expect=3)
    found = {row["uri"]: row["reason"] for row in manifest.table("shards").to_pylist()}
    assert [found[key(number)] for number in (6, 7, 8, 9)] == [
        "not_found",
        "permission_denied",
        "not_found",
        "permission_denied",
    ]
    assert [rule.seen for rule in rules] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("error 503", 3, "could not be listed"),
        ("stall", 3, "could not be listed"),
        ("truncate", 3, "could not be listed"),
        ("reset", 3, "could not be listed"),
        ("error 403", 2, "access refused"),
    ],
)
def test_a_store_that_cannot_be_listed_is_an_error(store, tmp_path, fault, code, words):
    """What is missing cannot be known, so nothing is published, and the message says what to do."""
    store.proxy.clear()
    store.proxy.rules.append(Rule(fault))
    (tmp_path / "c.yaml").write_text(CONFIG.format("s3://corpus/data/*", 1))
    _, err = run("build", tmp_path / "c.yaml", "--manifest", tmp_path / "m", expect=code)
    assert words in err
    assert not (tmp_path / "m").exists()


def test_a_shard_that_changes_between_hash_and_scan_is_noticed(store, tmp_path):
    """Other bytes of the same size under the same name: the numbers of neither are published."""
    client = store.client()
    body = client.get_object(Bucket="corpus", Key=f"data/{key(6)}")["Body"].read()
    changing = Rule("change", key(6), first=2, times=1)

    def other(method, path, query, hits=Rule.hits):
        if hits(changing, method, path, query):
            client.put_object(Bucket="corpus", Key=f"data/{key(6)}", Body=body.replace(b"e", b"E"))
        return False

    changing.hits = other
    try:
        _, manifest = build_with(store, tmp_path, "changed", [changing], expect=3)
    finally:
        client.put_object(Bucket="corpus", Key=f"data/{key(6)}", Body=body)
    found = {row["uri"]: row["reason"] for row in manifest.table("shards").to_pylist() if row["reason"]}
    assert found == {key(6): "changed_while_read"}
    assert "changed_while_read" in json.dumps(manifest.table("ledger").to_pylist())
