"""The examples and the Python of the pages on training run to the end of an epoch, as their readers would run them."""

import importlib.util
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from made_tokens import END
from reading import tiny_gpt2
from reconstructed import Tokenized, call

from dataaudit.live.state_digests import random_state, set_random_state
from dataaudit.manifest.load import load_manifest
from dataaudit.runlog.reader import load_run
from dataaudit.training import Documents, PackedDocuments, TrainingMonitor, byte_encoder, open_manifest
from dataaudit.training.attribution.run_data import Data
from dataaudit.training.attribution.trained_on import trained_on
from dataaudit.training.pages.run_blocks import data_points

ROOT = Path(__file__).parents[3]
MOST_LINES = 60

torch = pytest.importorskip("torch", reason="the examples train")
transformers = pytest.importorskip("transformers", reason="their models")
pytest.importorskip("accelerate", reason="the Trainer needs it")
pytest.importorskip("datasets", reason="the plain loop reads by it")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore"),
]  # those of other people's libraries


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus with token files that release-gate lets pass; its rows of 2,048 fill no whole number of batches."""
    return Tokenized(tmp_path_factory.mktemp("corpus"), 60, stages={})


@pytest.fixture
def place(corpus, tmp_path, monkeypatch):
    """A folder with what the pages name, before a first run: no quarantine list, no log, no checkpoint."""
    (tmp_path / "manifests").mkdir()
    for name in ("2026-11", "first"):
        (tmp_path / "manifests" / name).symlink_to(corpus.manifest)
    (tmp_path / "tokens").symlink_to(corpus.folder / "tokens")
    monkeypatch.setenv("XDG_CACHE_HOME", str(corpus.folder / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Bytes(torch.nn.Module):
    """What the loop of docs/training.md trains: the next byte by the last one."""

    def __init__(self):
        super().__init__()
        self.tokens, self.head = torch.nn.Embedding(256, 16), torch.nn.Linear(16, 256)

    def forward(self, ids):
        return self.head(self.tokens(ids))


class Loop:
    """What docs/howto/replay.md asks its reader for: a model, what trains it, its rows, and a way back."""

    def __init__(self, manifest):
        torch.manual_seed(0)
        self.corpus = open_manifest(manifest, require="verified")
        self.rows = PackedDocuments(Documents(self.corpus, "train", byte_encoder(end=0)), context=2048)
        self.model = Bytes()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.parts = [self.model, self.optimizer, self.schedule]

    def update(self, _number, batches):
        (batch,) = batches
        logits = self.model(batch["input_ids"])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss

    def save(self, path):
        path.parent.mkdir(exist_ok=True)
        torch.save([random_state(), *(one.state_dict() for one in self.parts)], path)

    def restore(self, path):
        generators, *states = torch.load(path, weights_only=False)
        for one, state in zip(self.parts, states, strict=True):
            one.load_state_dict(state)
        set_random_state(generators)


def gpt(vocabulary, heads=1):
    """Return a small model of transformers."""
    return tiny_gpt2(2048, vocab_size=vocabulary, n_embd=24, n_head=heads)


def own_loop():
    """Return what docs/vitals.md takes from the loop of its reader, and his model: of twelve heads."""
    corpus = open_manifest("manifests/2026-11", require="verified")
    rows = PackedDocuments(Documents(corpus, "train", byte_encoder(end=0)), context=64, shift="inner")
    model = gpt(256, heads=12)
    given = {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "corpus": corpus}
    return given | {"loader": torch.utils.data.DataLoader(torch.utils.data.Subset(rows, range(44)), batch_size=8)}


def own_tokenizer(file="tiny.json"):
    """Return what docs/frameworks/trainer.md asks its reader for."""
    read = transformers.PreTrainedTokenizerFast(tokenizer_file=str(file), eos_token=END)
    return {"tokenizer": read, "model": gpt(len(read))}


BLOCKS = {
    "docs/training.md": (True,),
    "docs/vitals.md": (True, True, "no loop; what is healthy takes thousands of steps"),
    "docs/frameworks/trainer.md": (True,),
    "docs/howto/training-loaders.md": (True, True, "streaming has an environment of its own: test_stored.py"),
    "docs/howto/replay.md": (True,),
    "docs/howto/reconstruct.md": ("no loop; a line of nanoGPT's script, which test_orders.py does",),
    "docs/howto/token-files.md": (True,),
    "docs/reference/training-open.md": (True,),
}
"""Of each page, whether a test here runs its blocks of Python, or why none does."""


def blocks(page):
    """Return the Python of a page, block by block."""
    return re.findall(
        r"^```python[^\n]*\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def run(page, given, chosen=slice(None)):
    """Run blocks of a page one after another, with what it asks its reader for; return the names that are left."""
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert [name for name in given if f"`{name}`" not in text] == [], "the page does not say that its reader brings it"
    names = {"__name__": "__main__", **given}
    for block, runs in [*zip(blocks(page), BLOCKS[page], strict=True)][chosen]:
        if runs is True:
            exec(compile(block, page, "exec"), names)  # noqa: S102
    return names


def steps_of(rows, size=8):
    """Return how many steps an epoch has; the last one is short."""
    assert len(rows) % size
    return -(-len(rows) // size)


def trained(steps):
    """Return what the log says that was trained on, and what it points out; it has these steps."""
    log = load_run(Path("runs/7"))
    table = log.table("steps")
    assert table["step"].to_pylist() == list(range(1, steps + 1))
    assert None not in table["user_loss"].to_pylist()
    found = trained_on(Data(log, load_manifest(Path("manifests/2026-11"))))
    return found, [point.text for point in data_points(found)]


@pytest.mark.parametrize("page", BLOCKS)
def test_each_block_of_a_page_is_run_or_says_why_not(page):
    assert len(blocks(page)) == len(BLOCKS[page])


def test_the_loop_of_the_training_page_runs_to_its_end(place):
    model = Bytes()
    names = run("docs/training.md", {"model": model, "optimizer": torch.optim.AdamW(model.parameters())})
    found, pointed_out = trained(steps_of(names["rows"]))
    assert found.tokens == len(names["rows"]) * 2048
    assert (found.drift_reason, pointed_out) == ("other_tokenizer", [])


def test_the_loop_of_the_vitals_page_runs_to_its_end(place, monkeypatch, capsys):
    """Compiling is left out, as it takes half a minute; tests of vitals compare what is compiled, bit by bit."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, disable=True))
    given = own_loop()
    run("docs/vitals.md", given, slice(0, 1))
    trained(steps_of(given["loader"].dataset))
    assert {"max_attn_logit", "loss"} <= set(load_run(Path("runs/7")).table("values")["metric"].to_pylist())
    assert re.search("max_attn_logit +ok", capsys.readouterr().out)


def test_a_model_of_another_make_is_mapped_by_the_vitals_page(place):
    given = own_loop()
    monitor = TrainingMonitor("runs/7", given["corpus"])
    with (
        monitor,
        run(
            "docs/vitals.md",
            {"model": given["model"], "optimizer": given["optimizer"], "monitor": monitor},
            slice(1, 2),
        )["vitals"] as vitals,
    ):
        assert "attention: 1 of 1 layers, 12 heads" in str(vitals)


def test_the_trainer_of_its_page_runs_a_first_time_killed_early_and_again(corpus, place):
    """Its tokenizer is the manifest's under another name, so that tokens are compared, and are those audited."""
    given = own_tokenizer(corpus.folder / "tiny.json")
    forward, calls = given["model"].forward, []

    def killed(*arguments, **more):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return forward(*arguments, **more)

    given["model"].forward = killed
    with pytest.raises(KeyboardInterrupt):
        run("docs/frameworks/trainer.md", given)
    for _ in range(2):
        names = run("docs/frameworks/trainer.md", own_tokenizer(corpus.folder / "tiny.json"))
        assert len(names["rows"]) % 8
        found, pointed_out = trained(names["trainer"].state.max_steps)
        assert [drift.mark for drift in found.drift if drift.mark not in ("", "perhaps")] == pointed_out == []
        assert found.drift_reason == ""
    kinds = [event["kind"] for event in load_run(Path("runs/7")).table("events").to_pylist()]
    assert [kind for kind in kinds if kind != "closed"] == ["started", "started", "resumed"]


def test_the_records_and_the_stream_of_the_loaders_page_hold_all_documents(corpus, place):
    names = run(
        "docs/howto/training-loaders.md", {"tokenizer": own_tokenizer(corpus.folder / "tiny.json")["tokenizer"]}
    )
    assert sum(1 for _ in names["stream"]) == 2 * len(names["records"]) == 2 * len(names["documents"])


def test_the_replay_of_its_page_is_the_run_up_to_the_short_batch_at_its_end(place):
    given = {"Loop": Loop}
    run_folder, loop = Path("runs/7"), Loop("manifests/2026-11")
    batches = torch.utils.data.DataLoader(loop.rows, 8)
    with TrainingMonitor(run_folder, loop.corpus, order="documents") as monitor:
        for number, batch in enumerate(batches, 1):
            monitor.batch(batch["tags"], labels=batch["labels"])
            monitor.step(loop.update(number, [batch]))
            if number == 2:
                loop.save(Path(f"{run_folder}.checkpoints/00002.pt"))
    trained(steps_of(loop.rows))
    replay = run("docs/howto/replay.md", given)["replay"](Path("manifests/2026-11"), run_folder)
    assert replay.checkpoints == [2]
    replay.restore(2)
    losses = load_run(run_folder).table("steps")["user_loss"].to_pylist()
    again = [np.float32(replay.train(step, replay.batches(step)).loss) for step in range(3, len(losses) + 1)]
    assert again == losses[2:]
    with pytest.raises(Exception, match="beyond"):
        replay.batches(len(losses) + 1)


def test_the_map_of_the_token_files_page_and_the_opening_of_its_page_are_read(place, capsys):
    names = run("docs/howto/token-files.md", {})
    assert names["of"].num_rows
    assert capsys.readouterr().out == "[]\n"  # there are fewer than a million tokens
    assert run("docs/reference/training-open.md", {})["corpus"].id == load_manifest(Path("manifests/first")).id


def loaded(name):
    """Return an example as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def test_the_example_of_megatron_files_trains_by_our_reader_or_is_replayed(corpus, tmp_path, capsys):
    """By Megatron's own data set where it is installed: the command that it prints writes the log."""
    example = loaded("megatron_files")
    ways = {"run": False} | ({"own": True} if importlib.util.find_spec("megatron") else {})
    for name, megatron in ways.items():
        capsys.readouterr()
        steps = len(corpus.tokens[0]) // (example.CONTEXT * example.ROWS) + 1  # beyond the end of an epoch
        example.main(str(corpus.manifest), corpus.files[0], tmp_path / name, steps, megatron=megatron)
        printed = capsys.readouterr().out.replace("\\\n", " ").splitlines()
        if megatron:
            done = call(*printed[0].split()[1:])
            assert done.exit_code == 0, done.output
        log = load_run(tmp_path / name)
        assert log.table("steps")["step"].to_pylist() == list(range(1, steps + 1))
        assert None not in log.table("steps")["user_loss"].to_pylist()
        assert corpus.labels(tmp_path / name)
        assert printed[-1] == f"dataaudit attribute {tmp_path / name} --manifest {corpus.manifest}"


@pytest.mark.parametrize(("name", "short"), [("plain_loop", True), ("hf_trainer", False)])
def test_an_example_trains_and_goes_on_to_the_end_of_an_epoch(place, name, short):
    path, example = ROOT / "examples" / f"{name}.py", loaded(name)
    documents = Documents(open_manifest("manifests/2026-11", require="verified"), "train", byte_encoder(end=0))
    rows = PackedDocuments(documents, context=256, shift="inner")
    epoch = len(documents) // 8 if name == "plain_loop" else steps_of(rows, 16)
    for steps in (2, epoch):
        example.main("manifests/2026-11", place / "run", steps)
        log = load_run(place / "run")
        assert log.table("steps")["step"].to_pylist() == list(range(1, steps + 1))
        if name == "hf_trainer":
            assert (place / f"run.checkpoints/checkpoint-{steps}/dataaudit-00000.json").exists()
    events = [one["kind"] for one in log.table("events").to_pylist()]
    assert events == ["started", "closed", "resumed", "closed"]
    assert not short or len(path.read_text().splitlines()) < MOST_LINES
