"""The scripts of `benchmarks/` run: small runs of each end well, so nothing of what they call has gone."""

import gzip
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from corpus import documents, rows, write_jsonl
from tiny_judge import write_checkpoint

ROOT = Path(__file__).parents[2]
SCRIPTS = {path.name for path in (ROOT / "benchmarks").glob("*.py") if "def main(" in path.read_text("utf-8")}
SMALL = """
canary_power.py --baselines 1 --only labels
contamination.py {shards} {made}/items.jsonl:question:answer
contamination.py {shards} {made}/items.jsonl:question:answer --short
filters.py {shards} --documents 20
filters.py {shards} --documents 20 --whole
held_out_forms.py {shards}/a.jsonl --train {shards}/b.jsonl.zst --documents 3 --forms re-wrapped
installs.py {made}/dataaudit-0.0.0-py3-none-any.whl --extras base
judges.py toxicity {judge} {made}/labelled.csv --documents {shards}/a.jsonl
judges.py pii {made}/labelled.json
language.py {made}/languages --corpus {shards} --per-language
large_manifest.py --shards 200
large_manifest.py --texts {made} --sources 3 --documents 40
link_scale.py --documents 1000 2000 --workers 1 --folder {work}/link
many_shards.py {made} --shards 4 8 --workers 1 --folder {work}
near_templates.py --documents 200
neardup.py {shards} --documents 5 --rounds 1
pii.py labelled {made}/labelled.json --presidio {python}
pii.py regions
pii.py corpus {shards}/a.jsonl {shards}/b.jsonl.zst
pii.py speed {shards}/b.jsonl.zst --presidio {python} --documents 5
pii.py make {work}/made.json
probe_canaries.py --seeds 1 --epochs 1 --canaries 1 --background 10 --samples 4 --width 32
scan.py {shards} --sample-mb 0.1 --rounds 1 --workers 1 --off near_dup repeats
secret_rates.py {shards} --count 1 --sample-megabytes 0.02
secret_rates.py --names 1
simulated_shards.py {made} --shards 66 70 --workers 1 --folder {work} --stages lengths
small_pieces.py {made} --documents 20 --forms one-file groups-1 batches-1 tables-10
spike_alarms.py --steps 20 --long 1100
spike_bursts.py {mixed} {work}/bursts --runs 0 --clean 1 --steps 2
spike_clean.py {work}/clean --runs 1 --steps 8 --documentation {system} --packages benchmarks --locale {system}
spike_power.py {runs} --part runs rules
spike_power.py {runs} --part clean jumps repeated --logs 3
spike_power.py {runs} --part residual event --trials 3
spike_power.py {runs} --part uniform discoveries --trials 3 --relabelings 1
spike_replay.py {work}/replays --runs 1 --kinds clean
spike_runs.py {work}/runs --limit 1 --steps 3 --documentation {system} --manuals {system} --checksums {system}
spike_seen.py {bursts}
spike_unseen.py {work}/a --seeds 0 --orders shuffled --faults no-spaces --documentation {system} --packages benchmarks
staged_day.py {work}/day --faults --healthy 60
startup.py {shards}/a.jsonl --repeat 1
token_files.py {shards}/a.jsonl --rounds 1 --workers 1
toxicity.py --sets made={made}/labelled.csv:text:is_toxic:Toxic --clean b={shards}/b.jsonl.zst --words {made}/words.txt
training.py {manifest} --rounds 2 --steps 1
triage_staged.py {work}/triage --seeds 1000 --only none
vitals_alarms.py --seeds 1 --steps 60 --schedules constant
vitals_experts.py --tokens 256 --steps 2
vitals_faults.py --healthy 20 --seeds 0
vitals_mechanism.py --seeds 0 --only starved
vitals_lead.py --onset 9 --steps 12 --seeds 0
worst_inputs.py --kb 5 10 --steps
"""
NOT_HERE = re.compile(r".*is not installed, so it is not compared: .*|ModuleNotFoundError: No module named .*")


def run(script, *options):
    """Run a script; return what it prints, and its lines about packages that are not installed."""
    call = [sys.executable, "benchmarks/" + script, *options]
    done = subprocess.run([*map(str, call)], capture_output=True, text=True, check=False, cwd=ROOT)
    said = done.stderr.splitlines()
    assert done.returncode == 0 or NOT_HERE.fullmatch(said[-1]), done.stderr
    return done.stdout, [line for line in said if NOT_HERE.fullmatch(line)]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Make what the scripts read: logs, shards, texts, labelled sets, a checkpoint, a wheel, a manifest."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import spike_bursts

    made = tmp_path_factory.mktemp("made")
    shards = made / "shards"
    texts = documents(300)
    write_jsonl(shards / "a.jsonl", rows([text * (1 + 300 // len(text)) for text in texts[:100]], "web"))
    write_jsonl(shards / "b.jsonl.zst", rows(texts[100:], "web"))
    (made / "a.md").write_text("\n\n".join("one paragraph of many words, " * 20 + str(n) for n in range(40)), "utf-8")
    (made / "words.txt").write_text("vile\nscum\n")
    languages = {"en": "Sentence {} is read by each of the two.", "de": "Der Satz {} wird von beiden gelesen."}
    (made / "languages").mkdir()
    for name, sentence in languages.items():
        (made / "languages" / f"{name}.txt").write_text("".join(sentence.format(n) + "\n" for n in range(5)))
    questions = [f"How many apples does farmer number {n} sell to the baker?" for n in range(20)]
    items = [{"question": question, "answer": f"He sells {n} of them."} for n, question in enumerate(questions)]
    write_jsonl(made / "items.jsonl", items)
    comments = "".join(
        f"you are {word} {n},{label}\n" for n in range(5) for word, label in [("vile", "Toxic"), ("good", "Not")]
    )
    (made / "labelled.csv").write_text("text,is_toxic\n" + comments)
    span = {"entity_type": "EMAIL_ADDRESS", "start_position": 9, "end_position": 29}
    (made / "labelled.json").write_text(json.dumps([{"full_text": "Write to jane.roe@example.org", "spans": [span]}]))
    with zipfile.ZipFile(made / "dataaudit-0.0.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_program.py", "main = print")
        about = {
            "METADATA": "Metadata-Version: 2.1\nName: dataaudit\nVersion: 0.0.0\nProvides-Extra: base\n",
            "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "entry_points.txt": "[console_scripts]\ndataaudit = tiny_program:main\n",
            "RECORD": "",
        }
        for name, text in about.items():
            wheel.writestr(f"dataaudit-0.0.0.dist-info/{name}", text)
    build = [sys.executable, "-m", "dataaudit", "build", shards / "a.jsonl", "--manifest", made / "manifest"]
    subprocess.run([*map(str, build), "--workers", "0", "--quiet"], check=True, stdout=subprocess.DEVNULL)
    mixed = made / "mixed"
    sources = (*spike_bursts.SOURCES, spike_bursts.OTHER_SCRIPT)
    write_jsonl(mixed / "a.jsonl.zst", [{"text": text, "source": one} for one in sources for text in texts[:20]])
    run("spike_bursts.py", mixed, made / "bursts", "--runs", 0, "--clean", 1, "--steps", 120)
    return {
        "made": made,
        "mixed": mixed,
        "bursts": made / "bursts",
        "shards": shards,
        "system": made_system(made / "system"),
        "judge": write_checkpoint(made / "judge"),
        "runs": ROOT / "tests/unit/training/runs",
        "manifest": made / "manifest",
        "python": sys.executable,
    }


def made_system(folder):
    """Write documentation, manual pages and checksums, as a system has them; return their folder."""
    kinds = {"doc": 240, "table": 60, "man1": 100, "ko/man1": 3}
    kinds |= {f"{name}/man1": 10 for name in ("de", "fr", "nl", "pt", "sv", "es", "ja", "zh_CN", "uk", "ru")}
    for kind, number in kinds.items():
        words = (
            "0123456789 " * 9 if kind == "table" else "some words that stand in a line of a page, and no more of them"
        )
        (folder / kind).mkdir(parents=True)
        for n in range(number):
            data = "".join(f"{n} {line} {kind} {words}\n" for line in range(60)).encode()
            name = f"page-{n}.1.gz" if kind == "man1" else f"page-{n}"
            (folder / kind / name).write_bytes(gzip.compress(data) if kind == "man1" else data)
    for n in range(10):
        lines = "".join(f"{n * 100 + line:032x}  {line}\n" for line in range(60))
        (folder / f"package-{n}.md5sums").write_text(lines)
    return folder


@pytest.mark.benchmarks
def test_every_script_has_a_small_run():
    assert {line.split()[0] for line in SMALL.strip().split("\n")} == SCRIPTS


@pytest.mark.benchmarks
@pytest.mark.parametrize("line", SMALL.strip().split("\n"), ids=lambda line: re.sub(r"\.py|\S*[{/]\S*", "", line))
def test_a_small_run_ends_well(line, places, tmp_path):
    said, missing = run(*line.format(work=tmp_path, **places).split())
    if missing:
        pytest.skip("; ".join(missing))
    assert said.strip()


@pytest.mark.builds
def test_the_profile_of_a_scan_names_every_step(tmp_path):
    """It builds, in one process, with the default stages; all that it times has time."""
    write_jsonl(tmp_path / "texts/a.jsonl", rows(documents(100), "web"))
    said, _ = run("scan.py", tmp_path / "texts", "--profile")
    for step in ("languages", "patterns", "encode", "read", "stage near_dup", "around the scan"):
        assert step in said
