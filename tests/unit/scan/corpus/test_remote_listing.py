"""Remote patterns follow the rules of local ones: both are resolved over the same tree and compared."""

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataaudit.base.errors import ConfigError, StoreError
from dataaudit.config import Split
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.shards import discover
from dataaudit.scan.corpus.storage import remote, remote_listing
from dataaudit.scan.corpus.storage.address import Access

NAMES = (
    "data/b.jsonl", "data/a.jsonl", "data/sub/c.jsonl", "data/sub/deep/d.jsonl", "data/README.md", "data/_SUCCESS",
    "data/.hidden.jsonl", "data/.git/x.jsonl", "data/_tmp/y.jsonl", "data/a[1].jsonl", "data/100% new?.jsonl",
    "data/pieces.parquet/part-0.parquet", "data/pieces.parquet/_metadata", "data/old/manifest.json",
    "data/old/shards.parquet", "data/old/metrics.parquet", "other/z.txt", "other/z.jsonl.gz",
)  # fmt: skip
PATTERNS = (
    "data", "data/", "data/*", "data/*.jsonl", "data/**", "data/**/*.jsonl", "data/**/deep/*", "data/[ab].jsonl",
    "data/a[1].jsonl", "data/?.jsonl", "**/*.gz", "*/*.jsonl", "data/*.parquet", "data/.*", "data/sub/**/*", "other",
    "data/old/*", "data/_tmp/*", "data/100% new?.jsonl", "data/*/c.jsonl", "data/old", "**", "data/**/**/*.jsonl",
)  # fmt: skip


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same files in a folder and in memory; the folder."""
    root = tmp_path_factory.mktemp("tree")
    memory = fsspec.filesystem("memory")
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"{}\n")
        memory.pipe(f"/tree/{name}", b"{}\n")
    yield root
    memory.rm("/tree", recursive=True)


def seen(base, patterns, *, root=None):
    """Return what is found: (uri, skip, size) of each shard and what is left out; or the kind of the error."""
    try:
        found = discover(
            {"train": Split(paths=patterns)},
            base,
            root_at_base=True,
            follow_symlinks=False,
            root=root,
            access=Access(retries=0),
        )
    except ConfigError:
        return "error"
    return [(shard.uri, shard.skip, shard.size) for shard in found.shards], found.left_out


@given(patterns=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3))
def test_a_pattern_means_the_same_in_a_store_and_on_a_disk(both, patterns):
    """Files, order, names, sizes, reasons to skip and what is left out are equal."""
    assert seen(both, patterns, root="memory://tree") == seen(both, patterns)


@pytest.mark.parametrize("walked", [True, False])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_pattern_alone_means_the_same(both, pattern, walked, monkeypatch):
    """As above, for every pattern of the list, in a store that lists keys and in one that lists folders."""
    monkeypatch.setattr(remote_listing, "has_own", lambda store, name: not walked)
    assert seen(both, [pattern], root="memory://tree") == seen(both, [pattern])


@pytest.mark.parametrize("pattern", ["absent.jsonl", "data/*.csv", "none/**", "data/absent/*"])
def test_a_pattern_without_files_says_what_there_is(both, pattern):
    """The error names the place and the address."""
    with pytest.raises(ConfigError, match=r"splits\.train\.paths: .*memory://tree"):
        discover({"train": Split(paths=(f"memory://tree/{pattern}",))}, both, root_at_base=False, follow_symlinks=False)


def test_many_files_of_one_folder_are_listed_once(both, monkeypatch):
    """As inference names every file by itself, the third of a folder costs one listing and no request each."""
    asked = []
    original = remote.ask

    def noting(made, name, *args, **kwargs):
        asked.append(name)
        return original(made, name, *args, **kwargs)

    monkeypatch.setattr(remote_listing, "ask", noting)
    memory = fsspec.filesystem("memory")
    for number in range(20):
        memory.pipe(f"/many/{number:02d}.jsonl", b"{}\n")
    paths = [f"memory://many/{number:02d}.jsonl" for number in range(20)]
    found = discover({"train": Split(paths=paths)}, both, root_at_base=False, follow_symlinks=False)
    assert [shard.size for shard in found.shards] == [3] * 20
    assert asked == ["info", "info", "ls"]
    memory.rm("/many", recursive=True)


def refuse(monkeypatch, error, folder):
    """Let a listing of one folder fail."""
    kind = type(fsspec.filesystem("memory"))
    original = kind.ls

    def ls(self, path, *args, **kwargs):
        if path.rstrip("/").endswith(folder):
            raise error
        return original(self, path, *args, **kwargs)

    monkeypatch.setattr(kind, "ls", ls)
    monkeypatch.setattr(remote_listing, "has_own", lambda store, name: False)


def test_a_folder_that_may_not_be_listed_is_a_loss_with_a_name(both, monkeypatch):
    """Below the folder that a pattern starts from; that one itself is an error."""
    refuse(monkeypatch, PermissionError("no secret"), "/sub")
    shards, _ = seen(both, ["data/**/*.jsonl"], root="memory://tree")
    assert ("data/sub/", Reason.PERMISSION, 0) in shards
    with pytest.raises(ConfigError, match="may not be listed") as caught:
        discover({"t": Split(paths="memory://tree/data/sub/*")}, both, root_at_base=False, follow_symlinks=False)
    assert "secret" not in str(caught.value)


def test_a_folder_that_cannot_be_listed_is_an_error(both, monkeypatch):
    """How much is missing cannot be known; its kind is shown, not its message."""
    refuse(monkeypatch, OSError("connection to secret lost"), "/sub")
    with pytest.raises(StoreError, match=r"data could not be listed: the request failed \(OSError\)") as caught:
        discover(
            {"t": Split(paths="memory://tree/data/**")},
            both,
            root_at_base=False,
            follow_symlinks=False,
            access=Access(retries=0),
        )
    assert caught.value.exit_code == 3
    assert "secret" not in str(caught.value)


def test_addresses_that_differ_in_their_secrets_alone_are_refused(both, monkeypatch):
    """Their URIs would be the same, and one of them would be read twice instead of both once."""

    def found(self, address, where):
        return address.remote_path(self.access)

    monkeypatch.setattr(remote_listing.RemoteLister, "_web_file", found)
    paths = ["https://h/x.jsonl?id=1", "https://h/x.jsonl?id=2"]
    with pytest.raises(ConfigError, match="differ in their query") as caught:
        discover({"t": Split(paths=paths)}, both, root_at_base=False, follow_symlinks=False)
    assert "id=" not in str(caught.value)
    same = discover({"t": Split(paths=[paths[0]] * 2)}, both, root_at_base=False, follow_symlinks=False)
    assert [shard.uri for shard in same.shards] == ["x.jsonl", "x.jsonl#copy=2"]
