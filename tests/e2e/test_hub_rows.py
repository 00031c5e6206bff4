"""Streamed datasets: from a hub over HTTP and from a folder, the same manifest; a hub that fails costs a shard."""

import json

import pytest
from corpus import documents, rows, write_jsonl, write_parquet
from fake_hub import COMMIT, FakeHub
from lanes import workers
from running import build, run, run_each

from dataaudit.manifest.load import load_manifest

pytestmark = pytest.mark.stores

CONFIG = "splits: {{train: {{dataset: {{id: {}}}}}}}\nreader: {{timeout_seconds: 1, retries: 0}}\n"
CANARY = "hf_canaryToken5309"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with a dataset of three Parquet files."""
    folder = tmp_path / "repo"
    for number in range(3):
        texts = documents(120, seed=number)
        write_parquet(folder / "data" / f"train-{number:05d}-of-00003.parquet", rows(texts, "s"), row_group_size=50)
    write_jsonl(folder / "notes" / "x.jsonl", rows(["no data"], "s"))
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: data/*.parquet\n---\n"
    )
    opened = FakeHub(folder)
    monkeypatch.setenv("HF_ENDPOINT", opened.address)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_TOKEN", CANARY)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    yield opened
    opened.close()


def test_a_dataset_on_a_hub_is_what_it_is_in_a_folder(hub, tmp_path, monkeypatch):
    """Rows, digests and the manifest id are the same; a rerun reads no row again; no token is in any output."""
    (tmp_path / "far.yaml").write_text(CONFIG.format("org/corpus"))
    (tmp_path / "near.yaml").write_text(CONFIG.format("./repo"))
    (tmp_path / "files.yaml").write_text("splits: {train: {paths: [repo/data]}}\n")
    call = ("build", tmp_path / "far.yaml", *(workers(2) or ("--workers", 0)), "--manifest", tmp_path / "m")
    (code, out, err), (again, summary, more) = run_each(call, (*call, "--json"))
    assert (code, again, json.loads(summary)["parts_scanned"]) == (0, 0, 0), err + more
    far = load_manifest(tmp_path / "m")
    assert far.run.roots == {"train": f"datasets:org/corpus@{COMMIT}"}
    shards = far.table("shards").to_pylist()
    assert [shard["uri"] for shard in shards] == [f"default/train/{number:05d}-of-00003" for number in range(3)]
    monkeypatch.delenv("HF_ENDPOINT")  # no hub is asked from here on, so no process of its own is needed
    near = build(tmp_path / "near.yaml", "--state", tmp_path / "s", manifest=tmp_path / "n")[1]
    assert near.id == far.id
    files = build(tmp_path / "files.yaml", "--state", tmp_path / "s", manifest=tmp_path / "f")[1]
    assert files.core.totals == far.core.totals
    columns = ["rows_digest", "documents", "tokens"]
    assert files.table("shards", columns).equals(far.table("shards", columns))
    assert [shard["sha256"] for shard in shards] == files.table("shards")["rows_digest"].to_pylist()
    verified, _ = run("verify", tmp_path / "m", "--data")
    assert "Not checkable" in verified
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert CANARY not in out + err + verified
    assert not [path for path in kept if CANARY.encode() in path.read_bytes()]


def test_what_is_wrong_with_a_dataset_is_said(hub, tmp_path):
    """No such dataset, revision, split, folder: code 2 and what there is; a hub that does not answer: code 3."""
    cases = {
        "org/none": ("org/none cannot be opened (RepositoryNotFoundError)", 2),
        "org/corpus, revision: v9": ("org/corpus cannot be opened (RevisionNotFoundError)", 2),
        "org/corpus, split: test": ("org/corpus has no split test It has: train.", 2),
        "./nowhere": ("there is no folder", 2),
    }
    calls = []
    for number, given in enumerate(cases):
        (tmp_path / f"{number}.yaml").write_text(CONFIG.format(given))
        calls.append(("build", tmp_path / f"{number}.yaml", "--workers", 0, "--manifest", tmp_path / "m"))
    for (words, expected), (code, _, err) in zip(cases.values(), run_each(*calls), strict=True):
        assert code == expected, err
        assert words in " ".join(err.split()), err
    hub.close()
    (tmp_path / "c.yaml").write_text(CONFIG.format("org/corpus"))
    _, err = run("build", tmp_path / "c.yaml", "--manifest", tmp_path / "m", expect=3)
    assert "the hub does not answer" in err


def test_a_damaged_file_of_a_dataset_costs_its_shard(tmp_path):
    """A shard that the library cannot decode is quarantined by name; the others have their numbers."""
    folder = tmp_path / "repo"
    for number in range(3):
        write_parquet(folder / f"train-{number}.parquet", rows(documents(50, seed=number), "s"))
    path = folder / "train-1.parquet"
    data = bytearray(path.read_bytes())
    data[100:2000] = bytes(1900)
    path.write_bytes(data)
    (tmp_path / "c.yaml").write_text(CONFIG.format("./repo"))
    _, manifest = build(tmp_path / "c.yaml", manifest=tmp_path / "m", expect=3)
    found = {row["uri"]: row["reason"] for row in manifest.table("shards").to_pylist()}
    assert list(found.values()) == ["", "unreadable_dataset", ""]
    assert manifest.core.totals.documents == 100
