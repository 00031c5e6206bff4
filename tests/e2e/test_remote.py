"""A corpus in a store: the same manifest as on a disk, nothing read twice without need, no secret anywhere."""

import http.server
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus import CONFIG, documents, rows, write_corpus, write_jsonl
from lanes import workers
from local_server import LocalServer
from running import build, run
from stores import CANARY

from dataaudit.config import Split
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.verify import verify
from dataaudit.scan.corpus.shards import discover

pytestmark = pytest.mark.stores

SPLIT = "splits: {{train: {{paths: [{}], text: text, source: {{constant: s}}}}}}\n"


@pytest.fixture(scope="module")
def copied(store, tmp_path_factory):
    """A corpus on disk and in the bucket ``corpus``, with what is no data beside it; the folder on disk."""
    root = tmp_path_factory.mktemp("local")
    write_corpus(root / "data", per_shard=60)
    (root / "data" / "train" / "README.md").write_text("about")
    (root / "data" / "train" / "_tmp").mkdir()
    write_jsonl(root / "data" / "train" / "_tmp" / "x.jsonl", rows(["no"], "s"))
    (root / "config.yaml").write_text(CONFIG.replace('/*"', '"'))
    store.copy(root, "corpus", "deep/")
    return root


def _no_secret(outputs, folder, *secrets, skip=""):
    """Check that no text and no file holds a secret."""
    kept = [path for path in folder.rglob("*") if path.is_file() and path.name != skip]
    assert len(kept) > 20
    for secret in secrets:
        assert not [text for text in outputs if secret in text]
        assert not [path for path in kept if secret.encode() in path.read_bytes()]


def test_a_corpus_in_a_store_has_the_id_that_it_has_on_disk(store, copied, tmp_path):
    """From paths and from a config whose root is the bucket; the root is shown, and is not part of the identity."""
    local = build("data", manifest=tmp_path / "a", cwd=copied)[0]["id"]
    arguments = (*workers(2), "--state", tmp_path / "state")
    out, err = run("build", "s3://corpus/deep/data", *arguments, "--manifest", tmp_path / "b", "--json")
    manifest = load_manifest(tmp_path / "b")
    assert json.loads(out)["id"] == manifest.id == local
    assert set(manifest.run.roots.values()) == {"s3://corpus/deep/data"}
    config = (copied / "config.yaml").read_text()
    by_config = build(copied / "config.yaml", manifest=tmp_path / "c")[0]["id"]
    (tmp_path / "far.yaml").write_text(config + "root: s3://corpus/deep\n")
    assert build(tmp_path / "far.yaml", *arguments, manifest=tmp_path / "d")[0]["id"] == by_config
    outputs = [out, err, *run("inspect", tmp_path / "b", "0", "--json")]
    _no_secret(outputs, tmp_path, CANARY, "canary-Access-Key")


ONE_READING = "stages: {near_dup: false, repeats: false}\n"
"""Without what looks at documents a second time."""


def test_each_object_is_read_twice_and_then_not_again(store, tmp_path):
    """Once to hash and once to scan; an unchanged object is known by its ETag, `--rehash` reads it."""
    for number in range(8):
        write_jsonl(tmp_path / "x" / f"{number}.jsonl.zst", rows(documents(200, seed=number), "s"))
    store.copy(tmp_path / "x", "twice")
    (tmp_path / "c.yaml").write_text(SPLIT.format('"s3://twice/*.zst"') + ONE_READING)
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "x").iterdir()}
    counts = []
    for more in ((), (), ("--rehash",)):
        store.proxy.clear()
        build(tmp_path / "c.yaml", *workers(2), *more, manifest=tmp_path / "m")
        reads = store.proxy.reads()
        counts.append({name: reads[name] / sizes[name] for name in ("5.jsonl.zst", "6.jsonl.zst", "7.jsonl.zst")})
    assert [set(count.values()) for count in counts] == [{2.0}, {0.0}, {1.0}]


def test_documents_that_are_looked_at_again_cost_two_readings_more(store, tmp_path):
    """Near-duplicates and repeated spans are read again in two rounds; a second build reads nothing."""
    for number in range(8):  # the first ones are peeked into
        write_jsonl(tmp_path / "x" / f"{number}.jsonl.zst", rows(documents(200, seed=number), "s"))
    store.copy(tmp_path / "x", "again")
    (tmp_path / "c.yaml").write_text(SPLIT.format('"s3://again/*.zst"'))
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "x").iterdir()}
    for most in (4.0, 0.0):
        store.proxy.clear()
        build(tmp_path / "c.yaml", *workers(2), manifest=tmp_path / "m")
        reads = store.proxy.reads()
        assert all(reads[name] <= most * size for name, size in sizes.items() if name in ("5.jsonl.zst", "7.jsonl.zst"))


def test_of_a_parquet_file_only_the_columns_are_read(store, tmp_path):
    """A large column that nothing asks for is hashed and not read again, and large parts of files are ranges."""
    texts = documents(400, seed=1)
    noise = [bytes(pa.py_buffer(str(number).encode() * 9000)) for number in range(400)]
    (tmp_path / "x").mkdir()
    table = pa.table({"noise": noise, "text": texts})
    pq.write_table(table, tmp_path / "x" / "a.parquet", row_group_size=50, compression="none", use_dictionary=False)
    write_jsonl(tmp_path / "x" / "b.jsonl", rows(documents(3000, seed=2), "s"))
    store.copy(tmp_path / "x", "columns")
    (tmp_path / "c.yaml").write_text(SPLIT.format('"s3://columns"') + "reader: {part_bytes: 500000}\n" + ONE_READING)
    local = build("x", "--text", "text", manifest=tmp_path / "l", cwd=tmp_path)[1]
    store.proxy.clear()
    _, manifest = build(tmp_path / "c.yaml", *workers(2), manifest=tmp_path / "m")
    assert manifest.core.totals == local.core.totals
    sizes = {name: (tmp_path / "x" / name).stat().st_size for name in ("a.parquet", "b.jsonl")}
    reads = store.proxy.reads()
    assert reads["a.parquet"] < 1.3 * sizes["a.parquet"]
    assert reads["b.jsonl"] < 2.6 * sizes["b.jsonl"]


def test_verify_reads_the_store_again(store, tmp_path):
    """`verify --data` hashes the objects, finds a changed one, and takes an address as the new root."""
    write_jsonl(tmp_path / "x" / "a.jsonl", rows(["one", "two"], "s"))
    write_jsonl(tmp_path / "x" / "b.jsonl", rows(["three"], "s"))
    store.copy(tmp_path / "x", "verified")
    store.copy(tmp_path / "x", "moved", "to/")
    build("s3://verified", manifest=tmp_path / "m")
    out, _ = run("verify", tmp_path / "m", "--data")
    assert "2 shards as the manifest says" in out
    store.client().put_object(Bucket="verified", Key="b.jsonl", Body=b'{"text": "THREE", "source": "s0"}\n')
    out, _ = run("verify", tmp_path / "m", "--data", expect=1)
    assert "b.jsonl: the bytes have changed since the build" in out
    store.client().delete_object(Bucket="verified", Key="a.jsonl")
    out, _ = run("verify", tmp_path / "m", "--data", expect=1)
    assert "a.jsonl: No such file or directory (s3://verified/a.jsonl)" in " ".join(out.split())
    run("verify", tmp_path / "m", "--data", "--root", "s3://moved/to")


def test_local_and_remote_splits_live_together(store, copied, tmp_path):
    """Each split has its own root; both kinds in one split are an error that says so."""
    write_jsonl(tmp_path / "val" / "v.jsonl", rows(["held"], "s"))
    (tmp_path / "c.yaml").write_text(
        "splits:\n  train: {paths: ['s3://corpus/deep/data/train']}\n  val: {paths: [val], held_out: true}\n"
    )
    _, manifest = build(tmp_path / "c.yaml", manifest=tmp_path / "m")
    assert manifest.run.roots == {"train": "s3://corpus/deep/data/train", "val": str(tmp_path)}
    assert verify(manifest) == []
    (tmp_path / "d.yaml").write_text(SPLIT.format('"s3://corpus/deep/data/train", val'))
    _, err = run("build", tmp_path / "d.yaml", "--manifest", tmp_path / "n", expect=2)
    assert "found local files and s3:// in one split" in err


def test_keys_of_a_store_need_not_look_like_paths(store, copied, tmp_path):
    """Markers of folders are no files; empty names, a file that is a folder too and glob signs lose nothing."""
    client = store.client()
    client.create_bucket(Bucket="odd")
    keys = [
        "d/", "d/a.jsonl", "d//b.jsonl", "d/a.jsonl/c.jsonl", "d/[x].jsonl", "d/100% #1?.jsonl", "d/sub/",
        "d-2/e.jsonl", "d/\u00fc \u4e2d.jsonl", "d/_tmp/f.jsonl", "top.jsonl",
    ]  # fmt: skip
    for key in keys:
        client.put_object(Bucket="odd", Key=key, Body=b"" if key.endswith("/") else b'{"text": "x"}\n')

    def uris(*patterns):
        found = discover({"t": Split(paths=patterns)}, tmp_path, root_at_base=False, follow_symlinks=False)
        assert all(shard.size for shard in found.shards)
        return [shard.uri for shard in found.shards]

    below = ["/b.jsonl", "100%25 %231%3F.jsonl", "[x].jsonl", "a.jsonl", "a.jsonl/c.jsonl", "\u00fc \u4e2d.jsonl"]
    assert uris("s3://odd/d") == below
    assert uris("s3://odd/d*/e.jsonl", "s3://odd/top.jsonl") == ["d-2/e.jsonl", "top.jsonl"]
    assert uris("s3://odd/d/[x].jsonl") == ["[x].jsonl"]
    assert uris("s3://odd/d/*.jsonl") == below[1:]
    assert len(uris("s3://odd")) == len(uris("s3://odd/**")) - 1 == 8
    assert uris("s3://odd/top.jsonl", "s3://corpus/deep/data/val/*.zst")[1:] == ["odd/top.jsonl"]


def test_what_is_wrong_with_an_address_is_said(store, copied, tmp_path):
    cases = {
        "s3://corpus/deep/none.jsonl": "no such file or folder: s3://corpus/deep/none.jsonl",
        "s3://corpus/deep/data/*/*.csv": "matches no file",
        "s3://no-such-bucket/x/*.jsonl": "matches no file",
        "s3://user:canary-pw@corpus/x.jsonl": "keys inside an address",
        "gs://bucket/x.jsonl": "gcsfs",
        "nosuch://bucket/x.jsonl": "names no kind of store",
        "zip://a.jsonl::s3://corpus/x.zip": "chain",
        "s3://corpus/deep/config.yaml": "read from a local file",
        "https://user:canary-pw@127.0.0.1:1/folder/?sig=canary-pw": "a web server cannot be listed",
    }
    for address, words in cases.items():
        _, err = run("build", address, "--manifest", tmp_path / "m", expect=2)
        assert words in " ".join(err.split()), err
        assert "canary-pw" not in err


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves a folder over HTTP: plainly without ranges, or with ranges and ETags; a signature is asked for."""

    ranges = True

    def log_message(self, *args):
        """Say nothing."""

    def do_HEAD(self):
        """Refuse, as an address that is signed for GET does."""
        self.send_error(403)

    def do_GET(self):
        """Serve a file, or a range of it."""
        if f"sig={CANARY}" not in self.path:
            self.send_error(403)
            return
        try:
            data = (self.folder / self.path.partition("?")[0].lstrip("/").replace("%20", " ")).read_bytes()
        except OSError:
            self.send_error(404)
            return
        asked = self.headers.get("Range")
        if self.ranges and asked:
            first, last = map(int, asked.removeprefix("bytes=").split("-"))
            part = data[first : last + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(data)}")
            self.send_header("ETag", '"v1"')
        else:
            part = data
            self.send_response(200)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)


@pytest.mark.parametrize("ranges", [True, False])
def test_signed_web_addresses_are_read_and_their_signatures_kept_nowhere(tmp_path, ranges, monkeypatch):
    """With ranges and without, the numbers and URIs are those of the local files; no output holds the signature."""
    folder = tmp_path / "x"
    names = ["train/a b.jsonl", "train/c.parquet", "train/d.jsonl.gz"]
    write_corpus(tmp_path / "made", per_shard=40)
    folder.joinpath("train").mkdir(parents=True)
    for name, made in zip(names, ("part-0.jsonl", "part-1.parquet", "part-1.jsonl.gz"), strict=True):
        (folder / name).write_bytes((tmp_path / "made" / "train" / made).read_bytes())
    server = LocalServer(type("Served", (Files,), {"ranges": ranges, "folder": folder}))
    host = server.address.removeprefix("http://")
    listed = [f"http://canary-User:{CANARY}@{host}/{name.replace(' ', '%20')}?sig={CANARY}&v=1" for name in names]
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    try:
        expected = build("train", manifest=tmp_path / "l", cwd=folder)[0]["id"]
        state = ("--state", tmp_path / "state", *workers(2))
        out, err = run("build", *listed, *state, "--manifest", tmp_path / "m", "--json")
        again, noted = run("build", *listed, *state, "--manifest", tmp_path / "m", "--json")
        assert json.loads(out)["id"] == json.loads(again)["id"] == expected
        assert ("3 files are unchanged" in noted) == ranges
        assert ("no ETag, checksum or time" in noted) != ranges
        manifest = load_manifest(tmp_path / "m")
        assert manifest.run.roots == {"train": f"http://{host}/train"}
        outputs = [out, err, again, noted, *run("verify", tmp_path / "m", "--data", expect=1)]
        outputs += [*run("inspect", tmp_path / "m", "0"), *run("show", tmp_path / "m", "--all")]
        broken = [listed[0].replace("a%20b", "gone"), listed[1]]
        outputs += [*run("build", *broken, *state, "--manifest", tmp_path / "n", expect=2)]
        (tmp_path / "c.yaml").write_text(SPLIT.format(json.dumps(listed[2])) + "sead: 1\n")
        outputs += [*run("build", tmp_path / "c.yaml", *state, "--manifest", tmp_path / "n", expect=2)]
    finally:
        server.close()
    _no_secret(outputs, tmp_path, CANARY, "canary-User", skip="c.yaml")
