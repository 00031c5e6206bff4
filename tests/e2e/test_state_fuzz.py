"""A state folder with flipped bits, cut, swapped and lost files gives the same id, and says what it read again."""

import random
import shutil

import pytest
from corpus import words, write_jsonl
from lanes import thinned
from running import run

from dataaudit.engine.store_entries import PACKS, read_pack
from dataaudit.manifest.load import load_manifest

pytestmark = pytest.mark.stores

CASES = thinned(2000, few=30)
BATCH = 10
"""Cases of one test, so that the time left is told as they run."""
CONFIG = """
splits:
  train: {paths: ["train/*"], text: text, source: {column: source}}
  val: {paths: ["val/*"], text: text, source: {column: source}, held_out: true}
protected: {quiz: {paths: [set.jsonl], question: question, answer: answer}}
stages: {repeats: {index: true}, near_dup: {signatures: true}}
reader: {part_bytes: 8192}
"""
REWRITTEN = frozenset(
    (
        "tokenizers", "detectors", ".gitignore", "in-work", "files.sqlite", "wanted", "protected-items", ".files",
        ".arrow",
    )
)  # fmt: skip
"""What every build compares with its source, or writes anew before it reads it; and the index of hashed files, whose
row may be lost with its name, so that a file looks new."""


def write_corpus(folder):
    """Write a corpus of a few kB in which every stage finds something: copies, plants, addresses, leaks."""
    rng = random.Random(3)
    plant, texts = words(rng, 60), []
    for number in range(48):
        text = words(rng, 50) + (plant if number % 2 else [])
        mail = f" mail some.body{number}@example.org" if number % 7 == 0 else ""
        texts.append(" ".join(text) + mail)
    held = [" ".join(words(rng, 80)) for _ in range(5)]
    texts += [f"{texts[3]} x", texts[5], f"some words before {held[0]}"]
    for name, own in {"train/a": texts[:26], "train/b": texts[26:], "val/v": [*held, texts[9]]}.items():
        write_jsonl(folder / f"{name}.jsonl", [{"text": text, "source": "ab"[len(text) % 2]} for text in own])
    items = [{"question": " ".join(words(rng, 20)), "answer": "yes"}, {"question": held[1], "answer": "no"}]
    write_jsonl(folder / "set.jsonl", items)
    (folder / "c.yaml").write_text(CONFIG)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A corpus, and what a build of it left: the folders ``state`` and ``m``, and a list of what is held back."""
    folder = tmp_path_factory.mktemp("state")
    write_corpus(folder)
    call = ("build", "c.yaml", "--state", "state", "--manifest")
    run(*call, "m", cwd=folder)
    places = ["train/a.jsonl:1", "train/b.jsonl:3"]
    run("quarantine", "add", "q.jsonl", "--manifest", "m", *places, "--reason", "spam", "--who", "ana", cwd=folder)
    run(*call, "held", "--quarantine", "q.jsonl", cwd=folder)
    return folder


def harm(rng, path, other):
    """Do one harm to a file; return what was done."""
    data = path.read_bytes()
    kind = rng.choice(["flip", "flip", "flip", "cut", "swap", "gone", "zeros"])
    if kind == "swap":
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)
    elif kind == "gone":
        path.unlink()
    elif kind == "cut":
        path.write_bytes(data[: rng.randrange(max(1, len(data)))])
    elif data:
        place = rng.randrange(len(data))
        flipped = bytes([data[place] ^ 1 << rng.randrange(8)])
        path.write_bytes(data[:place] + (flipped if kind == "flip" else bytes(len(data) - place)) + data[place + 1 :])
    return kind


def alike(rng, path, files):
    """Return another file, of the same kind for the most part: such a swap is the hardest to see."""
    same = [one for one in files if one != path and one.parts[-3:-2] == path.parts[-3:-2] and one.suffix == path.suffix]
    return rng.choice(same if same and rng.random() < 0.8 else [one for one in files if one != path])


def kinds_of(path):
    """Return the kinds of what a pack holds; of another file its name, which is the kind of none."""
    return {one.name.partition("/")[0] for one in read_pack(path)} if PACKS in path.parts else {path.name}


def check(built, seed):
    """Harm a copy of the state folder, build again, and hold the outcome against the law."""
    rng = random.Random(seed)
    state, target = built / f"state-{seed}", built / f"m-{seed}"
    shutil.copytree(built / "state", state)
    files = sorted(path for path in state.rglob("*") if path.is_file())
    chosen = files if rng.random() < 0.03 else rng.sample(files, rng.choice([1, 1, 2, 5, 20]))
    if rng.random() < 0.1:
        chosen = [state / "files.sqlite", *chosen]
    done = []
    for path in chosen:
        other = alike(rng, path, files)
        if path.is_file() and other.is_file():
            done.append((harm(rng, path, other), path, other))
    harmed = {path: path.read_bytes() for _, *paths in done for path in paths if path.is_file()}
    held = rng.random() < 0.3
    more = ("--quarantine", "q.jsonl") if held else ()
    run("build", "c.yaml", "--state", state, "--manifest", target, *more, cwd=built)
    made = load_manifest(target)
    told = " ".join(made.run.notes)
    where = f"seed {seed}: {[(kind, str(path.relative_to(state))) for kind, path, _ in done]}; notes {told}"
    assert made.id == load_manifest(built / ("held" if held else "m")).id, where
    for path, content in harmed.items():
        own = path.relative_to(state).parts
        before = built / "state" / path.relative_to(state)
        if own[0] in REWRITTEN or path.suffix in (".files", ".arrow") or content == before.read_bytes():
            continue
        rewritten = REWRITTEN.intersection(own) or kinds_of(before) <= REWRITTEN
        if not rewritten and not (path.is_file() and path.read_bytes() == content):
            assert "damaged" in told, where
    shutil.rmtree(state)
    shutil.rmtree(target)


@pytest.mark.parametrize("first", range(0, CASES, BATCH))
def test_a_harmed_state_folder_gives_the_same_id_and_says_so(built, first):
    """Flips, cuts, swaps, losses and zeros of any of its files, one or many at a time, with and without a list."""
    for seed in range(first, first + BATCH):
        check(built, seed)
