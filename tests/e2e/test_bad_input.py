"""The table of bad input, row by row: what each broken file gets, and that nothing else is lost or shown."""

import gzip
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from bad_input import CANARY, GOOD, HOSTILE_NAME, JSONL, MILD, SEVERE, arrow, parquet, table
from corpus import documents, rows, write_jsonl, zstd
from lanes import workers
from running import build, metric, run

from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.locate import encode_path
from dataaudit.manifest.verify import verify
from dataaudit.scan.corpus.loss import Reason

pytestmark = pytest.mark.inputs

PAGE = Path(__file__).parents[2] / "docs/reference/losses.md"
CONFIG = """
splits:
  plain: {paths: [data/plain], text: text, source: {constant: s}}
  nested: {paths: [data/nested], text: body.text, source: {constant: s}}
  column: {paths: [data/column], text: text, source: {column: source}}
  pattern: {paths: [data/pattern], text: text, source: {pattern: 'pattern/(?P<source>[a-z]+)'}}
"""
NEIGHBOURS = {
    "plain/good.jsonl": JSONL,
    "plain/good.parquet": parquet(table()),
    "plain/good.arrow": arrow(table()),
    "plain/good.arrows": arrow(table(), stream=True),
    "nested/good.jsonl": JSONL.replace(b'"text"', b'"body.text"'),
    "column/good.jsonl": JSONL,
    "pattern/good.jsonl": JSONL,
}


class Built:
    """What a build of good and broken files published and printed."""

    def __init__(self, root, cases, code):
        self.root, self.cases = root, cases
        for name, data in NEIGHBOURS.items():
            (root / "data" / name).parent.mkdir(parents=True, exist_ok=True)
            (root / "data" / name).write_bytes(data)
        for case in cases:
            case.make(root / "data" / case.path)
        (root / "config.yaml").write_text(CONFIG, encoding="utf-8")
        target = root / "m"
        out, err = run("build", root / "config.yaml", *workers(2), "--manifest", target, expect=code)
        self.manifest = load_manifest(target)
        self.shards = {row["uri"]: row for row in self.manifest.table("shards").to_pylist()}
        self.ledger = self.manifest.table("ledger").to_pylist()
        self.printed = {"build": out + err}

    def row(self, case):
        """Return the row of a case's shard."""
        return self.shards[encode_path("data/" + case.path)]

    def print_all(self):
        """Print the manifest in every way."""
        target = self.root / "m"
        self.printed["build again"] = "".join(
            run("build", self.root / "config.yaml", "--manifest", target, "--json", expect=self.code())
        )
        self.printed["show"] = "".join(run("show", target))
        self.printed["show all"] = "".join(run("show", target, "--all"))
        for name in ("documents", "coverage_unread_bytes"):
            self.printed[f"show {name}"] = "".join(run("show", target, "--metric", name))
        worst = next((self.row(case)["shard"] for case in self.cases if HOSTILE_NAME in case.path), 0)
        self.printed["inspect"] = "".join(run("inspect", target, str(worst)))
        self.printed["inspect of a document"] = "".join(run("inspect", target, f"{self.good()}:3"))

    def code(self):
        """Return the exit code of the build."""
        return max(case.exit_code for case in self.cases)

    def good(self):
        """Return the number of a shard that is good."""
        return self.shards["data/plain/good.jsonl"]["shard"]


@pytest.fixture(scope="module")
def mild(tmp_path_factory):
    """A build in which everything is read, but for some records."""
    return Built(tmp_path_factory.mktemp("mild") / "corpus", MILD, 0)


@pytest.fixture(scope="module")
def severe(tmp_path_factory):
    """A build in which shards are not read."""
    return Built(tmp_path_factory.mktemp("severe") / "corpus", SEVERE, 3)


@pytest.fixture(scope="module")
def built(mild, severe):
    """Both builds, by case."""
    return {case.title: one for one in (mild, severe) for case in one.cases}


@pytest.mark.parametrize("case", MILD + SEVERE, ids=lambda case: case.title)
def test_status_reason_and_place_are_those_of_the_table(built, case):
    """The shard has its status and code, and the ledger a row with the code and the place."""
    one = built[case.title]
    row = one.row(case)
    assert (row["status"], row["reason"]) == (case.status, case.code)
    losses = [loss for loss in one.ledger if loss["shard"] == row["shard"]]
    found = [(loss["reason"], loss["records"]) for loss in losses if loss["records"]]  # 0: a remark
    if case.status in ("quarantined", "skipped"):
        assert row["documents"] == 0
        assert (case.code, -1) in found
    else:
        assert row["documents"] == case.documents
        assert found == ([(case.code, 1)] if case.code else [])
    if case.place is not None:
        assert case.place in [loss["place"] for loss in losses]


def test_the_good_neighbours_are_audited_in_full(mild, severe):
    for one in (mild, severe):
        good = [one.shards[f"data/{name}"] for name in NEIGHBOURS]
        assert {(row["status"], row["documents"]) for row in good} == {("ok", GOOD)}
        read = sum(case.documents for case in one.cases)
        assert one.manifest.core.totals.documents == read + GOOD * len(NEIGHBOURS)
        assert len(one.shards) == len(NEIGHBOURS) + len(one.cases)
        assert verify(one.manifest) == []
        by_status, ledger = Counter(row["status"] for row in one.shards.values()), one.manifest.core.ledger
        assert ledger.shards.read == by_status["ok"] + by_status["partial"]
        planned = sum(row["size"] for row in one.shards.values())
        gone = {row["shard"]: row["size"] for row in one.shards.values() if row["status"] in {"quarantined", "skipped"}}
        unread = sum(gone.values())
        assert (ledger.bytes.planned, ledger.bytes.quarantined + ledger.bytes.skipped) == (planned, unread)
        lines = sum(row["bytes"] for row in one.ledger if row["shard"] not in gone)
        assert metric(one.manifest, "coverage_unread_bytes", "bytes") == unread + lines


def test_documents_with_nul_are_kept_and_counted(mild):
    assert metric(mild.manifest, "documents", "with_nul") == 1
    assert metric(mild.manifest, "documents", "with_nul", split="plain") == 1


def test_a_pickle_is_never_opened(severe):
    """Its code would have made a folder."""
    assert not list(severe.root.rglob("the-pickle-ran"))
    assert not list(severe.root.parent.glob("the-pickle-ran"))


def test_what_is_printed_holds_no_text_and_steers_nothing(mild, severe):
    """No document, no traceback, no escape sequence, no command of a CI runner: in no output of any command."""
    for one in (mild, severe):
        one.print_all()
        for command, text in one.printed.items():
            assert CANARY not in text, command
            assert "Traceback" not in text, command
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", text), command
            assert not re.search(r"^\s*::|##\[", text, re.MULTILINE), command
        published = b"".join(path.read_bytes() for path in (one.root / "m").iterdir())
        assert CANARY.encode() not in published


def test_a_rerun_reads_nothing_again(severe):
    out, _ = run("build", severe.root / "config.yaml", "--manifest", severe.root / "m", "--json", expect=3)
    summary = json.loads(out)
    assert summary["parts_scanned"] == 0
    assert summary["id"] == severe.manifest.id


def test_a_mended_file_is_read_and_no_other(tmp_path):
    for name, data in (("good.jsonl", JSONL), ("bad.jsonl.gz", gzip.compress(JSONL)[:-9])):
        (tmp_path / "data" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "data" / name).write_bytes(data)
    build("data", manifest=tmp_path / "m", cwd=tmp_path, expect=3)
    (tmp_path / "data/bad.jsonl.gz").write_bytes(gzip.compress(JSONL))
    mended, manifest = build("data", manifest=tmp_path / "m", cwd=tmp_path)
    assert (mended["parts_scanned"], manifest.core.totals.documents) == (1, 2 * GOOD)


@pytest.mark.timeout(400)
def test_a_shard_that_needs_too_much_memory_is_quarantined_by_name(tmp_path):
    """One record of 1.5 GB against workers of 1 GB: that shard is named, the others have their numbers."""
    for name in ("a", "c", "d"):
        write_jsonl(tmp_path / "data" / f"{name}.jsonl", rows(documents(200, seed=8), name))
    with zstd.open(tmp_path / "data" / "b.jsonl.zst", "wb") as stream:
        stream.write(b'{"text": "')
        for _ in range(150):
            stream.write(b"a " * 5_000_000)
        stream.write(b'"}\n')
    config = (
        "splits: {train: {paths: [data], text: text, source: {constant: s}}}\nreader: {max_line_bytes: 2000000000}\n"
    )
    (tmp_path / "c.yaml").write_text(config)
    more = ("--workers", 2, "--memory-limit", "1GB")
    _, manifest = build(tmp_path / "c.yaml", *more, manifest=tmp_path / "m", expect=3, timeout=380)
    found = {row["uri"]: (row["status"], row["reason"]) for row in manifest.table("shards").to_pylist()}
    assert found.pop("data/b.jsonl.zst") == ("quarantined", "out_of_memory")
    assert set(found.values()) == {("ok", "")}
    assert manifest.core.totals.documents == 600


def test_a_password_in_an_address_is_not_repeated(tmp_path):
    """An address that cannot be read is wrong use, and its secret is in no output."""
    config = tmp_path / "c.yaml"
    config.write_text("splits: {train: {paths: ['gopher://user:hunter2@host/a.jsonl?token=hunter3'], text: text}}")
    for given in (config, "gopher://user:hunter2@host/a.jsonl?token=hunter3"):
        out, err = run("build", given, "--manifest", tmp_path / "m", expect=2, cwd=tmp_path)
        assert "hunter" not in out + err


def test_the_page_says_what_the_cases_are():
    """Every row of the page is a case with that status, code and exit code, and every case has its row."""
    rows = re.findall(r"^\| (.+?) \| (\w+) \| (`\w+`|) ?\| (\d) \| (.*?) ?\|$", PAGE.read_text("utf-8"), re.MULTILINE)
    found = {title: (status, code.strip("`"), int(exit_code)) for title, status, code, exit_code, _ in rows}
    assert found == {case.title: (case.status, case.code, case.exit_code) for case in MILD + SEVERE}
    assert len(rows) == len(found)


def test_the_cases_cover_the_codes_that_a_file_can_have():
    """A new reason code needs a broken file, unless only a machine can bring it about."""
    of_machines = {
        "permission_denied", "io_error", "changed_while_read", "worker_died", "out_of_memory", "timed_out",
        "internal_error",
    }  # fmt: skip
    of_datasets = {"unreadable_dataset"}  # streamed, no file: test_hub_rows.py
    of_sets = {"wrong_number_of_fields"}  # evaluation sets, no shards: test_leaks.py
    of_lists = {"quarantine_list"}  # of no file, of who holds it back: test_build_quarantine.py
    beside_others = {"oversize_record", "not_finite"}  # too much of any shard that is small; a remark: test_losses.py
    assert {case.code for case in MILD + SEVERE if case.code} == set(
        Reason
    ) - of_machines - of_datasets - of_sets - of_lists - beside_others
