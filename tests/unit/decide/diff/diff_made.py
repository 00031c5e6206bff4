"""Pairs of made manifests, and what a comparison of them gives."""

import hashlib
import json

import made_manifest

from dataaudit.decide.diff.compare import compare
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.load import load_manifest


def rows(text):
    """Return the digest of some rows."""
    return hashlib.sha256(text.encode()).hexdigest()


def shard(uri, held=None, **more):
    """Return a shard that holds the rows named `held`, by default those named like it; its bytes are named `stored`."""
    held = uri if held is None else held
    stored = more.pop("stored", held)
    given = {"rows_digest": rows(held), "sha256": rows(f"stored {stored}")} | more
    if given.get("status") in made_manifest.UNREAD:
        given["rows_digest"] = None
    return made_manifest.shard(uri, **given)


def histogram(counts):
    """Return rows of the histogram of {(split, source): {token: count}}."""
    return [
        {"split": split, "source": source, "token": token, "count": count}
        for (split, source), held in counts.items()
        for token, count in held.items()
    ]


def made(folder, shards, *, core=None, **more):
    """Publish a manifest, change its core, and load it."""
    ordered = sorted(shards, key=lambda row: (row["split"].encode(), row["uri"].encode()))
    made_manifest.make(folder, ordered, **more)
    if core:
        change_core(folder, core)
    return load_manifest(folder)


def change_core(folder, changes):
    """Change fields of a core; its id follows."""
    path = folder / "manifest.json"
    document = json.loads(path.read_text())
    document["core"] |= changes
    document["id"] = digest_json(document["core"])
    path.write_text(json.dumps(document))


def difference(tmp_path, old, new, *, old_with=None, new_with=None):
    """Compare two lists of shards."""
    pair = [
        made(tmp_path / name, shards, **(more or {}))
        for name, shards, more in (("old", old, old_with), ("new", new, new_with))
    ]
    return compare(*pair)


def fates(found):
    """Return {fate: (shards of the old side, shards of the new side)}."""
    return {str(one.fate): (one.old_shards, one.new_shards) for one in found.fates}


def demands(found):
    """Return the causes' codes by bump."""
    return {(str(cause.bump), cause.code, cause.proven) for cause in found.proposal.causes}
