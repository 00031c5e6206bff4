"""Bytes of a manifest's files: the run records them, as other programs believe them."""

import json
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from forged import hold_bytes

from dataaudit.base.errors import ManifestError, ManifestMismatch
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.publish import publish
from dataaudit.manifest.tables import TABLES
from dataaudit.manifest.verify import verify

GOLDEN = Path(__file__).parents[2] / "golden/manifest"


def codes(folder):
    """Return the codes of all problems."""
    return [problem.code for problem in verify(load_manifest(folder))]


def published(parts, folder, **below):
    """Publish a manifest with a folder of files; return where it lies."""

    def fill(to):
        for name, data in below.items():
            (to / name).write_bytes(data)

    publish(folder, *parts, {"repeat_index": fill})
    return folder


def statistics_of(path):
    """Return the statistics of the third column, ``low`` of lengths."""
    return pq.read_metadata(path).row_group(0).column(2).statistics


def edit_least(path):
    """Write the largest value over the least in the footer of a table's file."""
    stated, data = statistics_of(path), path.read_bytes()
    least, most = (int(value).to_bytes(8, "little") for value in (stated.min, stated.max))
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[:footer] + data[footer:].replace(least, most))


@pytest.mark.parametrize("name", sorted(TABLES))
def test_the_same_rows_in_other_bytes_are_found(folder, name):
    path = folder / f"{name}.parquet"
    pq.write_table(pq.read_table(path), path, compression="gzip")
    assert codes(folder) == ["file_bytes"]
    with pytest.raises(ManifestMismatch, match=f"{name}.parquet of .* is not the file that was published"):
        load_manifest(folder).table(name)


def test_statistics_that_other_programs_believe_are_bytes(folder):
    """An edited least value in the footer leaves every row as it was; DuckDB would pass over the row group."""
    path = folder / "lengths.parquet"
    column = statistics_of(path)
    edit_least(path)
    assert pq.read_table(path).equals(pq.read_table(GOLDEN / "lengths.parquet"))
    changed = statistics_of(path)
    assert (changed.min, changed.max) != (column.min, column.max)
    with pytest.raises(ManifestMismatch, match="not the file that was published"):
        load_manifest(folder).table("lengths")
    assert codes(folder) == ["file_bytes"]
    hold_bytes(folder)
    assert set(codes(folder)) == {"statistics"}


def test_statistics_are_compared_with_the_values_whoever_wrote_the_bytes_into_the_run(tmp_path):
    folder = shutil.copytree(GOLDEN, tmp_path / "m")
    assert codes(folder) == []
    path = folder / "pairs.parquet"
    table = pq.read_table(path)
    pq.write_table(table, path, write_statistics=False)
    hold_bytes(folder)
    assert codes(folder) == []
    pq.write_table(table, path, write_page_index=True)
    hold_bytes(folder)
    assert set(codes(folder)) == {"statistics"}
    shutil.copy(GOLDEN / "pairs.parquet", path)
    edit_least(folder / "lengths.parquet")
    hold_bytes(folder)
    [problem, *_] = verify(load_manifest(folder))
    assert problem.text == (
        "lengths.parquet: row group 0, column low: the statistics say another least or largest value than it has"
    )


def test_every_file_of_a_folder_is_checked(golden_parts, tmp_path):
    """One that changed, one that is gone, one that came, and one that is none: each is a problem of its own."""
    folder = published(golden_parts, tmp_path / "m", a=b"1", b=b"22", c=b"333")
    assert load_manifest(folder).run.files["repeat_index/c"].size == 3
    assert codes(folder) == []
    index = folder / "repeat_index"
    (index / "a").write_bytes(b"2")
    (index / "b").unlink()
    (index / "deep").mkdir()
    (index / "deep" / "d").write_bytes(b"")
    (index / "c").unlink()
    os.mkfifo(index / "c")
    assert codes(folder) == ["unknown_file", "file_gone", "file_bytes", "file_unreadable"]


def test_what_is_yours_beside_it_is_no_problem(folder):
    (folder / "quarantine.jsonl").write_text("")
    (folder / "notes").mkdir()
    (folder / "notes" / "a.parquet").write_bytes(b"x")
    assert codes(folder) == []


def test_a_run_that_names_less_than_there_is_is_refused(folder):
    """Leaving a table out of the run is no way around its bytes; nor is a path that leaves the folder."""
    path = folder / "manifest.json"
    document = json.loads(path.read_text())
    del document["run"]["files"]["metrics.parquet"]
    document["run"]["files"]["../secret"] = {"size": 1, "sha256": "0" * 64}
    path.write_text(json.dumps(document))
    assert codes(folder) == ["file_list", "file_gone"]
    with pytest.raises(ManifestError, match=r"the run of .* names no file metrics.parquet"):
        load_manifest(folder).metrics()


@pytest.mark.parametrize("name", ["metrics.parquet", "manifest.json"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "nothing", "broken link", "link to a pipe"])
def test_what_is_no_file_is_an_error_that_says_so(folder, name, kind):
    path = folder / name
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "broken link":
        path.symlink_to("nowhere")
    elif kind == "link to a pipe":
        os.mkfifo(folder / "pipe")
        path.symlink_to("pipe")
    words = {"pipe": "a pipe", "folder": "a folder", "link to a pipe": "a pipe"}.get(kind)
    expected = f"expected a file, found {words}" if words else "(?i)no such file|has none"
    with pytest.raises(ManifestError, match=expected):
        load_manifest(folder).metrics()


def test_a_link_to_the_file_that_was_published_is_as_good_as_it(folder, tmp_path):
    shutil.move(folder / "metrics.parquet", tmp_path / "kept")
    (folder / "metrics.parquet").symlink_to(tmp_path / "kept")
    assert codes(folder) == []
