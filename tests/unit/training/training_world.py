"""A small corpus with its files, manifest, lists and keys, and ways to spoil it."""

import datetime as dt
import hashlib
import json
import os

import pyarrow.parquet as pq
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from made_manifest import make, shard

from dataaudit.decide.gate.run import judge, policy_of
from dataaudit.decide.quarantine.apply import Request, apply
from dataaudit.decide.quarantine.changes import Author, add, add_requests
from dataaudit.decide.quarantine.released import compared_lists
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.signing import PrivateKey, seal
from dataaudit.manifest.trust import Signer, attested
from dataaudit.present.export.verdict import About, statement
from dataaudit.training.opening import open_manifest

KEY, OTHER = (PrivateKey(Ed25519PrivateKey.generate()) for _ in range(2))
AUTHOR = Author(who="ana@example.org", now=dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC))
CONFIG = {
    "splits": {
        "train": {"text": "body.text", "source": {"column": "from"}, "held_out": False},
        "val": {"text": "text", "source": {"pattern": "(?P<source>[a-z]+)[.]jsonl"}, "held_out": True},
    },
    "reader": {"max_line_bytes": 100_000, "text_document": "file"},
}
ROWS = 10


def rule(budget, **more):
    """Return a policy of one rule: at least so many documents."""
    named = {"name": "documents", "metric": "documents", "stat": "count", "unit": "documents", "comparator": ">="}
    return {"policy": "enough", "version": "3", "rules": [{**named, "budget": budget, **more}]}


PASSING, FAILING = rule(1), rule(10**6)


def lines(name):
    """Return the bytes of a shard: ten documents, by turns of two sources."""
    records = [{"body": {"text": f"{name} {row}"}, "from": ("web", "code")[row % 2]} for row in range(ROWS)]
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def row_of(uri, data, **more):
    """Return the row of a shard that holds these bytes."""
    digest = hashlib.sha256(data).hexdigest()
    rows_digest = hashlib.sha256(b"rows" + data).hexdigest()
    return shard(uri, **{"size": len(data), "sha256": digest, "rows_digest": rows_digest} | more)


class World:
    """A folder with files in ``data``, a manifest ``m``, and an empty list ``list.jsonl``.

    Args:
        folder: Where to make it.
        more: Further rows of the table of shards; their files are not made.
    """

    def __init__(self, folder, *more):
        self.folder, self.data, self.manifest = folder, folder / "data", folder / "m"
        self.list, self.applied, self.public = folder / "list.jsonl", folder / "applied", folder / "release.pub"
        self.signature = folder / "m.verdict.dsse.json"
        self.data.mkdir()
        rows = []
        for uri in ("a.jsonl", "b.jsonl", "c.jsonl"):
            (self.data / uri).write_bytes(lines(uri[0]))
            rows.append(row_of(uri, lines(uri[0]), sources={"code": 50, "web": 50}))
        rows.append(row_of("b.jsonl#copy=2", lines("b"), sources={"web": 100}))
        (self.data / "v.jsonl").write_bytes(lines("v"))
        rows.append(row_of("v.jsonl", lines("v"), split="val", sources={"v": 100}))
        self.rows = sorted([*rows, *more], key=lambda row: (row["split"], row["uri"]))
        make(self.manifest, self.rows, roots=self.data, config=CONFIG)
        self.list.touch()
        self.public.write_bytes(KEY.public.key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))

    def open(self, **how):
        """Open it, by default without a signature."""
        return open_manifest(self.manifest, **{"require": "verified", "cache": self.folder / "cache"} | how)

    def hold(self, *names, **more):
        """Put shards or documents on the list; return it."""
        requests, _ = add_requests(names, load_manifest(self.manifest), reason="manual", metric=None, run=None)
        add(self.list, requests, AUTHOR, **more)
        return self.list

    def apply(self, **more):
        """Apply the list; return the folder."""
        how = {"file": self.list, "manifest": load_manifest(self.manifest), "out": self.applied, "documents": True}
        apply(Request(**how | more))
        return self.applied

    def sign(self, key=KEY, policy=PASSING, time="2026-11-21T12:00:00+00:00", *, sealed=True):
        """Write a verdict beside the manifest; return its file."""
        manifest = load_manifest(self.manifest)
        payload = statement(judge(manifest, policy_of(policy)), manifest, None, About(time=time))
        self.signature.write_bytes(seal(payload, key) if sealed else payload)
        return self.signature

    def sign_by(self, policy):
        """Write a verdict by a policy of a file, which may ask for a signed manifest and name a list."""
        rules = policy_of(policy)
        manifest = load_manifest(self.manifest)
        if rules.require_signature:
            manifest = attested(manifest, Signer(public_key=self.public))
        verdict = judge(manifest, rules, lists=compared_lists(manifest, rules))
        time = "2026-11-21T12:00:00+00:00"
        self.signature.write_bytes(seal(statement(verdict, manifest, None, About(time=time)), KEY))

    def edit(self, **run):
        """Change what `manifest.json` says of the run: no part of the id."""
        path = self.manifest / "manifest.json"
        document = json.loads(path.read_bytes())
        document["run"] |= run
        path.write_text(json.dumps(document))

    def edit_core(self):
        """Change a number in the core of `manifest.json`."""
        path = self.manifest / "manifest.json"
        path.write_text(path.read_text().replace('"vocab_size": 1000', '"vocab_size": 999'))

    def edit_drops(self, **columns):
        """Apply a list that names one document, and change what the drop list says of it."""
        self.hold("train/a.jsonl:3")
        path = self.apply() / "documents.parquet"
        table = pq.read_table(path)
        rows = [row | columns for row in table.to_pylist()]
        pq.write_table(type(table).from_pylist(rows, schema=table.schema), path)
        record = json.loads((self.applied / "applied.json").read_bytes())
        record["files"][path.name] = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
        (self.applied / "applied.json").write_text(json.dumps(record))

    def edit_table(self, name, column, value):
        """Give every row of a column another value."""
        path = self.manifest / f"{name}.parquet"
        table = pq.read_table(path)
        rows = [row | {column: value} for row in table.to_pylist()]
        pq.write_table(type(table).from_pylist(rows, schema=table.schema), path, store_schema=True)

    def cut(self, path):
        """Cut a file in half."""
        os.truncate(path, path.stat().st_size // 2)
