"""Values of every kind are planted in a corpus; no command may write or print one, whatever goes wrong on the way."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path

import failing_libraries
import pytest
from canaries import SENTENCE, Search, personal, secrets
from click.testing import CliRunner
from corpus import write_jsonl, write_parquet, write_slow_tokenizer
from lanes import thinned
from running import DATAAUDIT
from tiny_judge import write_checkpoint

from dataaudit import cli
from dataaudit.manifest.load import load_manifest
from dataaudit.scan.detectors import shipped_patterns

pytestmark = pytest.mark.judges

CONFIG = """
splits:
  train: {{paths: [data/train], text: text, source: {{column: source}}}}
  val: {{paths: [data/val], text: text, source: {{column: source}}, held_out: true}}
tokenizer: tokenizer.json
reader: {{part_bytes: 60000, max_bad_records: 0.5}}
stages: {stages}
{more}
"""
EVERY_STAGE = "{near_dup: {signatures: true}}"
CONTENT_ONLY = "{near_dup: false, overlap: false, repeats: false, filters: false}"
JUDGED = """
toxicity: {judge: judge/tiny.ckpt, languages: [en], most_judged: 20, half_width: 0.3}
pii: {analyzer: presidio, most_judged: 20, half_width: 0.3}
"""
POLICY = Path(__file__).parents[2] / "pipelines/release-gate.yaml"
PLACES = ("train", "packed", "columns", "val", "broken", "failing")
FILLER = "The committee met on Monday and read the letter about the new library beside the river. "
FAILING = {
    "dataaudit.scan.detectors.patterns.registry": {"_scan_block": "kingfisher"},
    "dataaudit.scan.detectors.pii.contacts": {"in_use": "3141592"},
    "pycld2": {"detect": "sandpiper"},
    "dataaudit.scan.corpus.tokens.libraries": {"TokenizersReference.encode": "woodpecker"},
}
"""Functions that are given text, and the words that make them fail."""
FAILING_JUDGES = {
    "presidio_analyzer.analyzer_engine": {"AnalyzerEngine.analyze": "library"},
    "transformers.tokenization_utils_base": {"PreTrainedTokenizerBase.__call__": "library"},
}


@pytest.fixture(scope="module")
def planted():
    """Lines by place, and what to search for: other values at every place."""
    lines, values = {}, {}
    for place in PLACES:
        rng = random.Random(f"canaries {place}")
        made = personal(rng) | secrets(rng)
        made |= {f"sentence {number}": (line, line) for number, line in enumerate(_sentences(rng))}
        lines[place] = [line for line, _ in made.values()]
        values |= {f"{name} of {place}": value for name, (_, value) in made.items()}
    return lines, Search(values)


def _sentences(rng):
    return [SENTENCE.format("".join(rng.choices("bcdfghjklmnp", k=12))) for _ in range(2)]


def texts_of(lines, rng, *, word="", together=3):
    """Return documents that hold the lines, some together, among other text."""
    made = []
    for start in range(0, len(lines), together):
        parts = lines[start : start + together]
        made.append(
            f"{FILLER}{word}\n" + "\n".join(f"{part} {rng.choice(['and', 'so', 'then'])} {FILLER}" for part in parts)
        )
    return made


def plant(root, lines, *, words=()):
    """Write the corpus: each place's lines in a format of its own; copies of some, broken records, cut files.

    Args:
        root: Where to.
        lines: By place.
        words: For each a shard in two formats, whose documents hold it.
    """
    rng = random.Random(9)
    made = {place: [{"text": text, "source": "web"} for text in texts_of(found, rng)] for place, found in lines.items()}
    filler = [{"text": f"{FILLER}{number} {FILLER}", "source": "plain"} for number in range(60)]
    write_jsonl(root / "data/train/a.jsonl", made["train"] + filler + made["train"][:9])
    write_jsonl(root / "data/train/b.jsonl.zst", made["packed"] + made["val"][:9])
    write_parquet(root / "data/train/c.parquet", made["columns"] + made["train"][9:12])
    write_jsonl(root / "data/val/v.jsonl", made["val"])
    write_parquet(root / "data/val/v.parquet", made["val"][5:])
    broken = []
    for number, text in enumerate(texts_of(lines["broken"], rng, together=1)):
        whole = json.dumps({"text": text, "source": "web"}, ensure_ascii=False).encode()
        broken.append(
            (
                whole[:40] + b"\xff\xfe" + whole[40:],
                whole[:-9],
                json.dumps({"text": [text]}).encode(),
                json.dumps({text: "x"}).encode(),
                json.dumps([text]).encode(),
                b'{"text": "x", "text": ' + whole[9:],
                json.dumps({"text": {"deep": text}}).encode(),
                text.encode(),
            )[number % 8]
        )
    good = [json.dumps(row).encode() for row in filler] * (1 + len(broken) // len(filler))
    (root / "data/train/broken.jsonl").write_bytes(b"\n".join(good + broken))
    (root / "data/train/all-broken.jsonl").write_bytes(b"\n".join(broken))
    whole = (root / "data/train/b.jsonl.zst").read_bytes()
    (root / "data/train/cut.jsonl.zst").write_bytes(whole[: len(whole) // 2])
    (root / "data/train/cut.parquet").write_bytes((root / "data/train/c.parquet").read_bytes()[:-40])
    for word in words:
        rows = [
            {"text": text, "source": "web"} for text in texts_of(lines["failing"], rng, word=f"Call +44 20 8{word}")
        ]
        write_jsonl(root / f"data/train/{word}.jsonl", rows)
        write_parquet(root / f"data/train/{word}.parquet", rows)
    write_slow_tokenizer(root / "tokenizer.json")


class Desk:
    """A folder that everything is written below, commands that are run in it, and what they print.

    Args:
        root: The folder.
        failing: Functions that fail in every process, as in :data:`FAILING`.
    """

    def __init__(self, root: Path, failing=None) -> None:
        self.root, self.work = root, root / "work"
        for name in ("tmp", "dask"):
            (self.work / name).mkdir(parents=True)
        self.printed = b""
        self._environment = {
            **os.environ,
            "TMPDIR": str(self.work / "tmp"),
            "DASK_TEMPORARY_DIRECTORY": str(self.work / "dask"),
            "PYTHONWARNINGS": "default",
        }
        if failing:
            (root / "patch").mkdir()
            shutil.copy(failing_libraries.__file__, root / "patch" / "sitecustomize.py")
            self._environment[failing_libraries.ASKED] = json.dumps(failing)
            self._environment["PYTHONPATH"] = os.pathsep.join([str(root / "patch"), os.environ.get("PYTHONPATH", "")])
        self._environment.pop("DATAAUDIT_DEBUG", None)

    def start(self, *args):
        """Start a command."""
        return subprocess.Popen(
            [DATAAUDIT, *map(str, args)],
            cwd=self.work,
            env=self._environment,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def end(self, process, *expect):
        """Wait for a command; keep what it printed."""
        out, err = process.communicate(timeout=500)
        self.printed += out + err
        assert b"Traceback" not in err, err
        if expect:
            assert process.returncode in expect, err
        return out

    def run(self, *args, expect=0):
        """Run a command to its end; return its stdout."""
        return self.end(self.start(*args), expect)

    def ask(self, *args):
        """Run a command that only reads, in this process: starting one takes longer than most commands."""
        with contextlib.chdir(self.work):
            result = CliRunner().invoke(cli.main, [str(one) for one in args])
        assert result.exit_code == 0, result.output
        assert result.output
        self.printed += result.stdout_bytes + result.stderr_bytes

    def leaks(self, search):
        """Return where any value is."""
        return {(name, "printed") for name in search.find(self.printed)} | search.find_below(self.work)


@pytest.fixture(scope="module")
def audited(planted, tmp_path_factory):
    """A corpus with canaries after every command, a killed build and an interrupted build."""
    root = tmp_path_factory.mktemp("canaries")
    plant(root, planted[0])
    (root / "config.yaml").write_text(CONFIG.format(more="", stages=EVERY_STAGE), encoding="utf-8")
    (root / "key").write_text("b6c1a0d2e4f8-made-up-key-of-the-canaries\n", encoding="utf-8")
    desk = Desk(root)
    build = ("build", root / "config.yaml", "--workers", 2, "--manifest", "m", "--hmac-key", root / "key")
    for number, entries in ((signal.SIGKILL, 30), (signal.SIGINT, 60)):
        process = desk.start(*build)
        while process.poll() is None and len(list((desk.work / ".dataaudit/partials").rglob("*"))) < entries:
            time.sleep(0.05)
        os.killpg(process.pid, number) if number == signal.SIGKILL else process.send_signal(number)
        desk.end(process)
    desk.run(*build, "--samples", 40, "--samples-dir", "samples", expect=3)
    desk.run(*build[:3], thinned(2, few=0), *build[4:], "--json", expect=3)
    desk.ask("show", "m")
    desk.ask("show", "m", "--all")
    desk.ask("show", "m", "--json")
    for metric in ("pii_hit_rate", "secret_hit_rate", "data_toxicity_rate"):
        desk.ask("show", "m", "--metric", metric)
    shards = load_manifest(desk.work / "m").table("shards")["shard"].to_pylist()
    for shard in shards:
        desk.ask("inspect", "m", shard)
    for place in (f"{shards[0]}:0", "train/data/train/a.jsonl:1", "train/data/train/broken.jsonl:70"):
        desk.ask("inspect", "m", place)
        desk.ask("inspect", "m", place, "--json")
    desk.ask("inspect", "m", "train/data/train/a.jsonl", "--samples", 5, "--samples-dir", "samples-shard")
    desk.ask("inspect", "m", "train/data/train/a.jsonl:1", "--samples", 5, "--samples-dir", "samples-row")
    desk.ask("verify", "m", "--data")
    desk.ask("export", "lsh", "m", "--out", "m.lsh")
    said = ("--license", "MIT", "--url", "https://example.org", "--creator", "A", "--description", "B")
    desk.ask("export", "croissant", "m", "--out", "croissant.json", *said, "--date-published", "2026-11-22")
    desk.ask("export", "openlineage", "m", "--out", "openlineage.ndjson")
    desk.ask("export", "card", "m", "--out", "card.md")
    desk.ask("export", "verdict", "m", "--policy", POLICY, "--out", "verdict.json")
    desk.run("gate", "m", "--policy", POLICY, "--failing", "failing.jsonl", "--out", "gate.json", expect=3)
    assert (desk.work / "failing.jsonl").stat().st_size
    desk.ask("doctor", "--json")
    desk.ask("schema", "--out", "schemas")
    return desk


def test_the_search_finds_what_is_there(planted, audited):
    """The control: every value is found in the corpus, and in base64, hexadecimal, UTF-16 and lower case."""
    lines, search = planted
    found = {name.rsplit(" of ")[-1] for name, _ in search.find_below(audited.root / "data")}
    assert found == set(PLACES) - {"failing", "packed"}
    line = next(line for line in lines["train"] if "quokka" in line)
    for disguise in (line.lower(), line.encode().hex(), json.dumps(line), repr(line)):
        assert search.find(f"x{disguise}".encode()) == {"sentence 0 of train"}
    assert search.find(b"abc" + line.encode("utf-16-le")) == {"sentence 0 of train"}
    for shift in range(3):
        assert search.find(base64.b64encode(b"." * shift + line.encode() + b"!")) == {"sentence 0 of train"}


def test_every_kind_that_is_looked_for_is_planted_and_found(planted, audited):
    found = set(load_manifest(audited.work / "m").table("findings")["class"].to_pylist())
    known = {entity.name for entity in shipped_patterns().entities}
    assert known - found == set()


def test_no_command_writes_or_prints_a_value(planted, audited):
    """Manifest with its columns decompressed, state folder, samples, temporary folders of Dask, stdout, stderr."""
    assert audited.leaks(planted[1]) == set()


def test_samples_are_masked_files_for_their_owner(audited):
    """Mode 0600 in a folder of mode 0700, a banner, and the class where the finding was."""
    for name in ("samples", "samples-shard", "samples-row"):
        folder = audited.work / name
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        files = sorted(folder.glob("*.txt"))
        assert len(files) > (0 if name == "samples-row" else 20)
        for path in folder.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for path in files:
            text = path.read_text(encoding="utf-8")
            assert text.startswith("# SAMPLES OF FINDINGS: THIS FILE HOLDS PARTS OF DOCUMENTS.")
            assert f"rm -r {folder}" in text
            entries = text.split("\n#\n")[-1].strip().split("\n\n")
            assert all(re.search(rf"<<[^>]*{path.name.split('.')[1]}[^>]*>>", entry) for entry in entries)


def test_samples_change_no_number_and_no_id(audited):
    """The build without samples that came after the one with them published the same manifest."""
    assert audited.printed.count(load_manifest(audited.work / "m").id.encode()) >= 2


def test_libraries_that_fail_with_the_text_in_their_message_cost_a_shard_and_show_nothing(planted, tmp_path):
    """What they raise, print, warn and log reaches no stderr, no note, no traceback; the shard is named."""
    lines, search = planted
    words = sorted({word for places in FAILING.values() for word in places.values()})
    plant(tmp_path, lines, words=words)
    (tmp_path / "config.yaml").write_text(CONFIG.format(more="", stages=CONTENT_ONLY), encoding="utf-8")
    desk = Desk(tmp_path, FAILING)
    desk.run("build", tmp_path / "config.yaml", "--workers", thinned(2, few=0), "--manifest", "m", expect=3)
    shards = load_manifest(desk.work / "m").table("shards").to_pylist()
    reasons = {row["uri"]: row["reason"] for row in shards if any(word in row["uri"] for word in words)}
    assert reasons == dict.fromkeys(reasons, "internal_error")
    assert len(reasons) == 2 * len(words)
    desk.ask("show", "m")
    desk.ask("show", "m", "--all")
    assert desk.leaks(search) == set()


@pytest.mark.parametrize("failing", [None, FAILING_JUDGES], ids=["well", "failing"])
def test_judges_show_nothing_of_what_they_read(planted, tmp_path, failing):
    """Also when they fail, and say so with the text: a document without a verdict is counted, and that is all."""
    lines, search = planted
    plant(tmp_path, lines)
    write_checkpoint(tmp_path / "judge", classes=("toxic", "insult"))
    (tmp_path / "config.yaml").write_text(CONFIG.format(more=JUDGED, stages=CONTENT_ONLY), encoding="utf-8")
    desk = Desk(tmp_path, failing)
    more = ("--samples", 9, "--samples-dir", "samples")
    desk.run("build", tmp_path / "config.yaml", "--workers", thinned(1, few=0), "--manifest", "m", *more, expect=3)
    manifest = load_manifest(desk.work / "m")
    for metric in ("pii_hit_rate", "data_toxicity_rate"):
        (failed,) = manifest.metrics(metric, "judge_failed")
        assert (failed.value == 0) == (failing is None)
        desk.ask("show", "m", "--metric", metric)
    assert desk.leaks(search) == set()
