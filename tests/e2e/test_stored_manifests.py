"""Manifests in S3: read and published as on a disk, whole whatever else is published, and refused where that fails."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from corpus import rows, write_corpus, write_jsonl
from faulty_http import Rule
from running import build, run
from stores import CANARY, running_store

from dataaudit import api
from dataaudit.cli import main
from dataaudit.errors import ConfigError, ManifestError, ManifestMismatch, StoreError
from dataaudit.manifest import storing
from dataaudit.manifest.load import load_manifest

pytestmark = pytest.mark.stores

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "manifests/demo"
POLICY = str(ROOT / "pipelines/release-gate.yaml")


@pytest.fixture(scope="module")
def store():
    """An S3 server with the bucket ``team``."""
    with running_store() as opened:
        opened.client().create_bucket(Bucket="team")
        yield opened


@pytest.fixture(autouse=True)
def quiet(store):
    """No fault of an earlier test."""
    store.proxy.clear()


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Folders of two corpora with few documents."""
    folders = []
    for name, texts in (("one", ["a first text", "a second text"]), ("two", ["another text", "and one more"])):
        folders.append(tmp_path_factory.mktemp(name) / "data")
        write_jsonl(folders[-1] / "a.jsonl", rows(texts * 5, "s"))
    return folders


def put_named(store, folder, prefix):
    """Put a manifest as a build does: objects by content, the pointer, a signature when there is one."""
    client, pointer = store.client(), (folder / "manifest.json").read_bytes()
    for name, record in json.loads(pointer)["run"]["files"].items():
        client.put_object(Bucket="team", Key=f"{prefix}/objects/{record['sha256']}", Body=(folder / name).read_bytes())
    client.put_object(Bucket="team", Key=f"{prefix}/manifest.json", Body=pointer)


def keys(store, prefix):
    """Return the keys of objects, below a prefix."""
    found = store.client().list_objects_v2(Bucket="team", Prefix=prefix).get("Contents", [])
    return sorted(one["Key"].removeprefix(prefix + "/") for one in found)


def build_into(place, data, *more, expect=0):
    """Build into an address in a folder of its own; return stdout and stderr."""
    return run("build", data, "--manifest", place, *more, expect=expect, cwd=data.parent)


@pytest.mark.parametrize("named", [True, False], ids=["published", "a copied folder"])
def test_what_reads_manifests_prints_of_a_store_what_it_prints_of_a_folder(store, named, tmp_path, monkeypatch):
    """gate, diff, show, inspect, verify and report, byte for byte, with the address in place of the folder."""
    place = f"s3://team/read-{named}"
    put_named(store, DEMO, "read-True")
    store.copy(DEMO, "team", "read-False/")
    older, near = tmp_path / "older", "d" * len(place)  # lines are as long
    shutil.copytree(DEMO, older)
    (tmp_path / near).symlink_to(DEMO)
    monkeypatch.chdir(tmp_path)
    for command in (
        ["show", "{}"],
        ["show", "{}", "--all"],
        ["show", "{}", "--json"],
        ["inspect", "{}", "0"],
        ["verify", "{}"],
        ["verify", "{}", "--json"],
        ["gate", "{}", "--policy", POLICY],
        ["gate", "{}", "--policy", POLICY, "--baseline", "{}", "--json"],
        ["diff", "{}", str(older)],
        ["diff", str(older), "{}", "--json"],
        ["policy", "draft", "{}"],
    ):
        far, local = (CliRunner().invoke(main, [part.format(where) for part in command]) for where in (place, near))
        assert far.exit_code == local.exit_code, far.output
        assert far.stdout == local.stdout.replace(near, place), command
    pages = []
    for where in (place, near):
        run("report", where, "--baseline", where, "--out", "r.html", cwd=tmp_path)
        pages.append((tmp_path / "r.html").read_text().replace(near, place))
    assert pages[0] == pages[1]


def test_a_build_into_a_store_has_the_id_of_one_on_a_disk(store, corpora):
    """The pointer, objects named by their content and nothing else; a second build puts the pointer alone."""
    _, local = build(corpora[0], manifest=corpora[0].parent / "m")
    out, err = build_into("s3://team/built", corpora[0], "--json")
    assert json.loads(out)["id"] == local.id
    assert json.loads(out)["manifest"] == "s3://team/built"
    names = keys(store, "built")
    pointer = store.client().get_object(Bucket="team", Key="built/manifest.json")["Body"].read()
    files = json.loads(pointer)["run"]["files"]
    assert set(names) == {"manifest.json", *(f"objects/{record['sha256']}" for record in files.values())}
    for name in names[1:]:
        body = store.client().get_object(Bucket="team", Key=f"built/{name}")["Body"].read()
        assert name == f"objects/{hashlib.sha256(body).hexdigest()}"
    run("verify", "s3://team/built")
    store.proxy.clear()
    build_into("s3://team/built", corpora[0])
    put = [
        path.partition("?")[0] for method, path, _, size in store.proxy.log if method == "PUT" and "probe" not in path
    ]
    assert put == ["/team/built/manifest.json"]
    assert CANARY not in out + err


def test_of_two_builds_at_once_the_first_is_published_and_the_other_is_told(store, corpora, monkeypatch):
    """Where there was no manifest, and where both began with the same one; the winner's manifest is whole."""
    original, ids = storing.publish_stored, []

    def overtaken(publication):
        monkeypatch.setattr(storing, "publish_stored", original)
        ids.append(json.loads(build_into("s3://team/raced", corpora[1], "--json")[0])["id"])
        return original(publication)

    for expected in ("none", "one"):
        assert ("manifest.json" in keys(store, "raced")) == (expected == "one")
        monkeypatch.setattr(storing, "publish_stored", overtaken)
        _, err = build_into("s3://team/raced", corpora[0], expect=1)
        assert f"another build has published {ids[-1]} there since this one began" in err
        assert "Run the same command again" in err
        assert api.load("s3://team/raced").id == ids[-1]
        run("verify", "s3://team/raced")
    build_into("s3://team/raced", corpora[0])
    assert api.load("s3://team/raced").id != ids[-1]


def test_a_reader_has_one_manifest_whole_while_another_is_published(store, corpora):
    """It reads the pointer, another build publishes, it reads the rest: the old manifest, then the new one."""
    from dataaudit.manifest import fetching

    build_into("s3://team/moving", corpora[0])
    first = api.load("s3://team/moving")
    folder, _ = fetching.fetch_pointer(fetching.stored_place("s3://team/moving"))
    build_into("s3://team/moving", corpora[1])
    old = load_manifest(folder)
    fetching._fetch_files(fetching.stored_place("s3://team/moving"), old, old.run.files)
    assert old.id == first.id
    assert old.table("shards").equals(first.table("shards"))
    assert api.load("s3://team/moving").id != old.id


def test_a_publish_that_is_cut_off_before_the_pointer_leaves_the_old_manifest(store, corpora):
    """The store fails at the last put: exit code 3, the old manifest is whole, and the same command publishes."""
    build_into("s3://team/cut", corpora[0])
    before = api.load("s3://team/cut").id
    store.proxy.rules.append(Rule("error 403", "cut/manifest.json", method="PUT"))
    _, err = build_into("s3://team/cut", corpora[1], expect=2)
    assert "s3://team/cut cannot be written; what was there before is untouched" in err
    assert api.load("s3://team/cut").id == before
    run("verify", "s3://team/cut")
    store.proxy.clear()
    build_into("s3://team/cut", corpora[1])
    assert api.load("s3://team/cut").id != before


def test_an_answer_that_is_lost_is_no_other_build(store, corpora, monkeypatch):
    """The pointer was put, the answer is lost, the second try finds that the condition no longer holds."""
    original = storing._put

    async def lost(place, name, data, condition):
        if name == "manifest.json":
            assert await original(place, name, data, condition)
        return await original(place, name, data, condition)

    monkeypatch.setattr(storing, "_put", lost)
    build_into("s3://team/lost", corpora[0])
    run("verify", "s3://team/lost")


@pytest.mark.parametrize("lacks", ["ignores conditions", "knows If-None-Match alone", "answers 501"])
def test_a_store_without_conditional_puts_is_refused_by_name(store, corpora, lacks, monkeypatch):
    """Before anything is scanned: its address is named, and the probe is cleaned up."""
    original = storing.StoredPlace.call

    async def call(self, method, name, **arguments):
        if lacks == "answers 501" and "IfNoneMatch" in arguments:
            raise type("Refused", (Exception,), {"response": {"ResponseMetadata": {"HTTPStatusCode": 501}}})
        drop = {"IfMatch"} if lacks == "knows If-None-Match alone" else {"IfMatch", "IfNoneMatch"}
        return await original(self, method, name, **{key: arguments[key] for key in arguments.keys() - drop})

    monkeypatch.setattr(storing.StoredPlace, "call", call)
    _, err = build_into("s3://team/loose", corpora[0], expect=2)
    assert f"the store at {store.address} has no conditional puts (If-None-Match, If-Match)" in err
    assert keys(store, "loose") == []


def test_the_probe_is_cleaned_up(store, corpora):
    """Where conditions are kept, too."""
    storing.begin_publication("s3://team/probed")
    assert keys(store, "probed") == []
    assert any("probed/probe-" in path for method, path, _, _ in store.proxy.log if method == "DELETE")
