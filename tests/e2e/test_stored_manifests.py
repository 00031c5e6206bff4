"""Manifests in S3: read and published as on a disk, whole whatever else is published, and refused where that fails."""

import hashlib
import json
import os
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner
from corpus import rows, write_jsonl
from faulty_http import Rule
from installs import ROOT
from installs import run as run_installed
from made_keys import write_keys
from running import build, run
from stores import CANARY, running_store

from dataaudit import api
from dataaudit.base.errors import ManifestError
from dataaudit.cli import main
from dataaudit.manifest import remote
from dataaudit.manifest.load import load_manifest

pytestmark = pytest.mark.stores

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


def put_named(store, folder, prefix, pointer=None):
    """Put a manifest as a build does: objects by content, then the pointer, its own or another."""
    client, own = store.client(), (folder / "manifest.json").read_bytes()
    for name, record in json.loads(own)["run"]["files"].items():
        client.put_object(Bucket="team", Key=f"{prefix}/objects/{record['sha256']}", Body=(folder / name).read_bytes())
    client.put_object(Bucket="team", Key=f"{prefix}/manifest.json", Body=pointer or own)


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
    put = [one[1].partition("?")[0] for one in store.proxy.log if one[0] == "PUT" and "probe" not in one[1]]
    assert put == ["/team/built/manifest.json"]
    assert CANARY not in out + err


def test_of_two_builds_at_once_the_first_is_published_and_the_other_is_told(store, corpora, monkeypatch):
    """Where there was no manifest, and where both began with the same one; the winner's manifest is whole."""
    original, ids = remote.publish_stored, []

    def overtaken(publication):
        monkeypatch.setattr(remote, "publish_stored", original)
        ids.append(json.loads(build_into("s3://team/raced", corpora[1], "--json")[0])["id"])
        return original(publication)

    for expected in ("none", "one"):
        assert ("manifest.json" in keys(store, "raced")) == (expected == "one")
        monkeypatch.setattr(remote, "publish_stored", overtaken)
        _, err = build_into("s3://team/raced", corpora[0], expect=1)
        assert f"another build has published {ids[-1]} there since this one began" in err
        assert "Run the same command again" in err
        assert api.load("s3://team/raced").id == ids[-1]
        run("verify", "s3://team/raced")
    build_into("s3://team/raced", corpora[0])
    assert api.load("s3://team/raced").id != ids[-1]


def test_a_reader_has_one_manifest_whole_while_another_is_published(store, corpora):
    """It reads the pointer, another build publishes, it reads the rest: the old manifest, then the new one."""
    build_into("s3://team/moving", corpora[0])
    first = api.load("s3://team/moving")
    folder, _ = remote.fetch_pointer(remote.parse_stored_address("s3://team/moving"))
    build_into("s3://team/moving", corpora[1])
    old = load_manifest(folder)
    remote._fetch_files(remote.parse_stored_address("s3://team/moving"), old, old.run.files)
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
    original = remote._put

    async def lost(place, name, data, condition):
        if name == "manifest.json":
            assert await original(place, name, data, condition)
        return await original(place, name, data, condition)

    monkeypatch.setattr(remote, "_put", lost)
    build_into("s3://team/lost", corpora[0])
    run("verify", "s3://team/lost")


@pytest.mark.parametrize("lacks", ["ignores conditions", "knows If-None-Match alone", "answers 501"])
def test_a_store_without_conditional_puts_is_refused_by_name(store, corpora, lacks, monkeypatch):
    """Before anything is scanned: its address is named, and the probe is cleaned up."""
    original = remote.StoredAddress.call

    async def call(self, method, name, **arguments):
        if lacks == "answers 501" and "IfNoneMatch" in arguments:
            raise type("Refused", (Exception,), {"response": {"ResponseMetadata": {"HTTPStatusCode": 501}}})
        drop = {"IfMatch"} if lacks == "knows If-None-Match alone" else {"IfMatch", "IfNoneMatch"}
        return await original(self, method, name, **{key: arguments[key] for key in arguments.keys() - drop})

    monkeypatch.setattr(remote.StoredAddress, "call", call)
    _, err = build_into("s3://team/loose", corpora[0], expect=2)
    assert f"the store at {store.address} has no conditional puts (If-None-Match, If-Match)" in err
    assert keys(store, "loose") == []


def test_the_probe_is_cleaned_up(store, corpora):
    remote.begin_publication("s3://team/probed")
    assert keys(store, "probed") == []
    assert any("probed/probe-" in path for method, path, _, _ in store.proxy.log if method == "DELETE")


def test_a_signature_goes_with_the_pointer_that_it_is_of(store, corpora, tmp_path):
    """`build --sign` and `sign` put it; gate and verify ask for it; of a manifest that is replaced it is none."""
    key, public = tmp_path / "build.pem", tmp_path / "build.pub"
    write_keys(tmp_path)
    asks = ("verify", "s3://team/signed", "--require-signature", "--public-key", public)
    _, err = build_into("s3://team/signed", corpora[0], "--sign", "--key", key)
    assert "s3://team/signed/attestation.json: " in err
    assert "signed by" in run(*asks)[0]
    assert any(name.startswith("signed/") for name in keys(store, "signed"))
    build_into("s3://team/signed", corpora[1])
    assert "not signed" in run(*asks, expect=1)[0]
    assert run("sign", "s3://team/signed", "--key", key)[0].startswith("s3://team/signed/attestation.json: ")
    run(*asks)
    gate = ("gate", "s3://team/signed", "--policy", POLICY, "--require-signature", "--public-key")
    assert "Traceback" not in CliRunner().invoke(main, [*gate, str(public)]).stderr
    write_keys(tmp_path, "other")
    assert "the manifest s3://team/signed is not believed" in run(*gate, tmp_path / "other.pub", expect=1)[1]


def test_the_base_and_s3fs_are_enough(store, tmp_path):
    """Nothing of `build`; without s3fs the message is the line to type."""
    put_named(store, DEMO, "small")
    place = "s3://team/small"
    commands = [
        ["show", place],
        ["gate", place, "--policy", POLICY, "--baseline", place],
        ["diff", place, str(DEMO)],
        ["verify", place],
        ["build", "data", "--manifest", place],
    ]
    *read, built = run_installed(tmp_path / "s3", commands, ["s3"])
    assert [one["code"] for one in read] == [0, 3, 0, 0], read
    assert built["err"].endswith("needs packages that are not installed: pip install 'dataaudit[build]'\n")
    for one in run_installed(tmp_path / "base", commands[:4]):
        assert one["code"] == 2
        assert one["err"].endswith("needs packages that are not installed: pip install 'dataaudit[s3]'\n")
    (report,) = run_installed(tmp_path / "r", [["report", place, "--out", "r.html"]], ["report", "s3"])
    assert report["code"] == 0, report["err"]


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("s3://team/nowhere", "no manifest at s3://team/nowhere: there is no manifest.json"),
        ("s3://absent-bucket/m", "s3://absent-bucket/m: there is no bucket absent-bucket"),
        (f"s3://KEY:{CANARY}@team/m", "found keys inside an address of a manifest"),
        ("s3://team/a/../b", "expected the address of a manifest, s3://BUCKET/PREFIX"),
        ("s3://team/a?versionId=1", "expected the address of a manifest, s3://BUCKET/PREFIX"),
        ("s3:///m", "expected the address of a manifest, s3://BUCKET/PREFIX"),
    ],
)
def test_an_address_without_a_manifest_is_wrong_use(store, address, says):
    """Exit code 2, what was looked for, and what to do; of a secret no word."""
    for command in (["show", address], ["gate", address, "--policy", POLICY]):
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 2
        assert says in done.stderr
        assert "\n  " in done.stderr
        assert CANARY not in done.output
    if "absent" in address or "nowhere" not in address:
        done = CliRunner().invoke(main, ["build", str(DEMO), "--manifest", address, "--workers", "0"])
        assert (done.exit_code, says in done.stderr, CANARY in done.output) == (2, True, False)


def test_a_store_that_refuses_or_does_not_answer_is_named(store, monkeypatch):
    """403 is exit code 2, errors that may pass are 3 after some tries; a body that is cut is asked for again."""
    monkeypatch.setattr("dataaudit.base.stores._FIRST_PAUSE_SECONDS", 0.001)
    put_named(store, DEMO, "faulty")
    for fault, code in (("error 403", 2), ("error 503", 3)):
        store.proxy.rules[:] = [Rule(fault, "faulty/manifest.json")]
        out, err = run("show", "s3://team/faulty", expect=code)
        assert "s3://team/faulty/manifest.json cannot be read: " in err
        assert "dataaudit explain remote" in err
        assert CANARY not in out + err
    shards = json.loads((DEMO / "manifest.json").read_bytes())["run"]["files"]["shards.parquet"]["sha256"]
    for fault in ("truncate", "reset", "error 500"):
        store.proxy.rules[:] = [Rule(fault, f"objects/{shards}", times=2)]
        run("show", "s3://team/faulty")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "NoCredentialsError" in run("show", "s3://team/faulty", expect=2)[1]


def test_an_object_that_is_not_what_the_pointer_names_is_not_read(store):
    """Other bytes, fewer bytes, none: exit code 1 or 2, with the object's name."""
    put_named(store, DEMO, "harmed")
    record = json.loads((DEMO / "manifest.json").read_bytes())["run"]["files"]["sources.parquet"]
    key, data = f"harmed/objects/{record['sha256']}", (DEMO / "sources.parquet").read_bytes()
    for body, says in ((data[::-1], "its sha256 is"), (data[:-1], "the run says"), (data + b"x", "the run says")):
        store.client().put_object(Bucket="team", Key=key, Body=body)
        _, err = run("show", "s3://team/harmed", expect=1)
        assert f"s3://team/{key} is not the sources.parquet that was published: " in err
        assert says in err
        run("diff", DEMO, "s3://team/harmed", expect=2)  # 1 says that manifests differ
    with pytest.raises(ManifestError):
        api.diff(DEMO, "s3://team/harmed")
    store.client().delete_object(Bucket="team", Key=key)
    assert f"no object objects/{record['sha256']}" in run("show", "s3://team/harmed", expect=2)[1]


def test_a_pointer_is_not_trusted_with_this_machine(store, tmp_path, monkeypatch):
    """Names that lead out of the folder, sizes that no disk has, a pointer without end, one that is no JSON."""
    pointer, temporary = json.loads((DEMO / "manifest.json").read_bytes()), tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("dataaudit.manifest.remote._own_folder", lambda _: str(temporary))
    evil = b"evil"
    store.client().put_object(Bucket="team", Key=f"evil/objects/{hashlib.sha256(evil).hexdigest()}", Body=evil)
    for name in ("../evil.parquet", "signatures/../../evil", "/evil.parquet", "evil", "signatures/.evil"):
        run_of = pointer["run"] | {"files": pointer["run"]["files"] | {name: record_of(evil)}}
        put_named(store, DEMO, "evil", json.dumps(pointer | {"run": run_of}).encode())
        run("show", "s3://team/evil")
        out, _ = run("verify", "s3://team/evil", expect=1)
        assert f"{name}: the run names it, and it is not there" in " ".join(out.split())
        assert list(tmp_path.rglob("*evil*")) == []
    files = pointer["run"]["files"] | {"shards.parquet": record_of(evil) | {"size": 2**52}}
    put_named(store, DEMO, "evil", json.dumps(pointer | {"run": pointer["run"] | {"files": files}}).encode())
    assert "bytes to fetch" in run("show", "s3://team/evil", expect=2)[1]
    put_named(store, DEMO, "evil", b"{")
    assert "s3://team/evil/manifest.json is not valid JSON" in run("show", "s3://team/evil", expect=2)[1]
    monkeypatch.setattr("dataaudit.manifest.remote.MOST_POINTER_BYTES", 1000)
    put_named(store, DEMO, "evil")
    assert "has more bytes than any, 1,000" in run("show", "s3://team/evil", expect=2)[1]


def record_of(data):
    """Return what a run says of a file."""
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_python_reads_and_publishes_by_address(store, corpora, monkeypatch, tmp_path):
    """load, gate, diff and build; a damaged manifest that is replaced is said to be so."""
    monkeypatch.chdir(tmp_path)
    store.client().put_object(Bucket="team", Key="python/manifest.json", Body=b"{")
    built = api.build(corpora[0], "s3://team/python", workers=0)
    assert any("s3://team/python/manifest.json is not valid JSON" in line for line in built.warnings)
    loaded = api.load("s3://team/python")
    assert (loaded.id, loaded.place) == (built.id, "s3://team/python")
    assert api.diff("s3://team/python", loaded).equal
    assert api.gate("s3://team/python", POLICY, baseline="s3://team/python").subject.id == built.id
    assert (tmp_path / ".dataaudit").is_dir()
    store.proxy.clear()
    assert api.load("s3://team/python").folder == loaded.folder
    assert len(store.proxy.log) == 3, "the pointer, and that it has no signature under either name"
    with pytest.raises(ManifestError, match="no manifest at s3://team/none"):
        api.load("s3://team/none")


def test_what_was_fetched_is_gone_when_the_process_ends(store, tmp_path):
    put_named(store, DEMO, "gone")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "dataaudit", "show", "s3://team/gone"]
    subprocess.run(command, env=environment, check=True, stdout=-3)
    assert list(tmp_path.iterdir()) == []
