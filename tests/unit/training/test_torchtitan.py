"""torchtitan's text loader with tags: rows, order and checkpoints stay, and every stretch is its document's bytes."""

import hashlib

import pytest
from reading import events, kinds, steps_of

from dataaudit.base.errors import ConfigError, TagsError
from dataaudit.runlog.reader import load_run
from dataaudit.training import TrainingMonitor
from dataaudit.training.documents import Documents, byte_encoder
from dataaudit.training.loaders.hub import tagged_dataset
from dataaudit.training.packing import EPOCH, OFFSET, ROW, SHARD, START, TARGETS, UNUSED

torch = pytest.importorskip("torch", reason="its loader is torch's")
titan_on_cpu = pytest.importorskip("titan_on_cpu", reason="its trainer is what is tested")
text = pytest.importorskip("torchtitan.hf_datasets.text_datasets", reason="its loader is what is tested")
from torchtitan.distributed import ParallelDims  # noqa: E402 - after the skip

from dataaudit.training.loaders.torchtitan import tagged_loader  # noqa: E402 - after the skip
from dataaudit.training.loaders.torchtitan_trainer import AuditedTrainer  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # those of other people's libraries
ROWS, CONTEXT, STEPS, BEGIN, END = 2, 48, 6, 257, 256
Titan = text.HuggingFaceTextDataLoader


class Tokenizer:
    """Bytes, with a token of the end, and of the beginning where it has one."""

    def __init__(self, *, begin):
        self.bos_id = BEGIN if begin else None

    def encode(self, given, **_):
        return [*([BEGIN] if self.bos_id else []), *given.encode(), END]


@pytest.fixture(scope="module")
def records(corpus):
    return tagged_dataset(Documents(corpus, "train", byte_encoder()), content="text")


@pytest.fixture(autouse=True)
def registered(records, monkeypatch):
    """Two names of data sets, as torchtitan's pages say to add them: all documents, and some of them."""
    config = type(next(iter(text.DATASETS.values())))
    for name, own in (("audited", records), ("few", records.select(range(20)))):
        made = config(path="", loader=lambda _, own=own: own, sample_processor=lambda sample: sample["text"])
        monkeypatch.setitem(text.DATASETS, name, made)


def loader(*, name="audited", begin=True, rank=0, ranks=1, workers=0):
    config = Titan.Config(dataset=name, dataset_path="x", num_workers=workers)
    how = {"tokenizer": Tokenizer(begin=begin), "seq_len": CONTEXT, "local_batch_size": ROWS}
    return Titan(config, dp_world_size=ranks, dp_rank=rank, **how)


def interleaved():
    kind = text.InterleavedHuggingFaceTextDataLoader
    sources = [
        text.HFDataSource(dataset=name, dataset_path="x", weight=weight)
        for name, weight in (("audited", 3.0), ("few", 1.0))
    ]
    how = {"tokenizer": Tokenizer(begin=True), "seq_len": CONTEXT, "local_batch_size": ROWS}
    return kind(kind.Config(sources=sources), dp_world_size=1, dp_rank=0, **how)


def taken(batches, number):
    stream = iter(batches)
    return [next(stream) for _ in range(number)]


def digest(tokens):
    return hashlib.sha256(
        bytes(one % 256 for one in tokens) + bytes([sum(one >= 256 for one in tokens) % 256])
    ).digest()


def check(made, found):
    """Hold the labels of every stretch against its document, by digest; return how many there are."""
    number = 0
    for inputs, labels in found:
        for row, tags in zip(labels.tolist(), inputs["tags"].tolist(), strict=True):
            used = [one for one in tags if one[SHARD] != UNUSED]
            assert used[0][START] == 0
            for one, stop in zip(used, [*(later[START] for later in used[1:]), CONTEXT], strict=True):
                whole = [*made.text(one[SHARD], one[ROW])[0].encode(), END]
                own = whole[one[OFFSET] :][: stop - one[START]]
                assert one[TARGETS] == stop - one[START] == len(own)
                assert digest(own) == digest(row[one[START] : stop])
                number += 1
    return number


WAYS = {
    "one": {},
    "no token of beginning": {"begin": False},
    "the second of three ranks": {"rank": 1, "ranks": 3},
    "workers": {"workers": 2},
    "some passes": {"name": "few"},
}


@pytest.mark.parametrize("way", [*WAYS, "interleaved"])
def test_rows_are_those_of_torchtitan_to_the_bit_and_every_stretch_is_its_document(made, way):
    def make():
        return interleaved() if way == "interleaved" else loader(**WAYS[way])

    plain = taken(make(), 400)
    found = taken(tagged_loader(make()), 400)
    for (own, labels), (inputs, same) in zip(plain, found, strict=True):
        assert torch.equal(labels, same)
        assert sorted(inputs) == sorted([*own, "tags"])
        assert all(torch.equal(own[name], inputs[name]) for name in own)
    assert check(made, found) >= 800
    passes = {one[EPOCH] for inputs, _ in found for row in inputs["tags"].tolist() for one in row if one[SHARD] >= 0}
    assert passes == set(range(max(passes) + 1))
    assert max(passes) > 1 or way != "some passes"


@pytest.mark.parametrize("done", [1, 7, 150])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_checkpoint_of_the_loader_goes_on_with_the_very_next_tags(made, done, workers):
    first = tagged_loader(loader(name="few", workers=workers))
    stream = iter(first)
    for _ in range(done):
        next(stream)
    state = first.state_dict()
    expected = [next(stream) for _ in range(20)]
    second = tagged_loader(loader(name="few", workers=workers))
    second.load_state_dict(state)
    for (own, labels), (inputs, same) in zip(expected, taken(second, 20), strict=True):
        assert torch.equal(labels, same)
        assert torch.equal(own["tags"], inputs["tags"])
    assert check(made, expected)


def train(batches, monitor=None):
    """Train a model on them; return losses, weights and random state to the bit."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Embedding(258, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 258))
    optimizer, losses = torch.optim.AdamW(layers.parameters()), []
    stream = iter(batches)
    for _ in range(STEPS):
        inputs, labels = next(stream)
        tags = inputs.pop("tags", None)
        logits = layers(inputs["input"])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if monitor is not None:
            monitor.batch(tags, logits=logits.detach(), labels=labels)
            monitor.step(loss)
    return losses, [one.detach().numpy().tobytes() for one in layers.parameters()], torch.get_rng_state().tolist()


def test_a_loop_trains_as_without_us_to_the_bit_and_its_log_has_every_label(corpus, tmp_path):
    without = train(loader())
    with TrainingMonitor(tmp_path / "run", corpus, tokenizer="bytes") as monitor:
        assert train(tagged_loader(loader()), monitor) == without
    steps = load_run(tmp_path / "run").table("steps").to_pylist()
    assert [one["targets"] for one in steps] == [one["scored"] for one in steps] == [ROWS * CONTEXT] * STEPS
    for one, loss in zip(steps, without[0], strict=True):
        assert one["loss_sum"] / one["targets"] == pytest.approx(loss, rel=1e-5)


def test_what_has_no_tags_is_refused(records, monkeypatch):
    """Other data sets, a loader twice, records without columns, and a checkpoint without tags."""
    with pytest.raises(ConfigError, match="found list"):
        tagged_loader(torch.utils.data.DataLoader([1]))
    with pytest.raises(ConfigError, match="found _TaggedTextDataset"):
        tagged_loader(tagged_loader(loader()))
    plain, again = loader(), tagged_loader(loader())
    next(iter(plain))
    again.load_state_dict(plain.state_dict())
    with pytest.raises(ConfigError, match="was made without tags"):
        iter(again)
    config = type(text.DATASETS["few"])
    bare = records.remove_columns(["row"])
    monkeypatch.setitem(
        text.DATASETS, "few", config(path="", loader=lambda _: bare, sample_processor=lambda one: one["text"])
    )
    with pytest.raises(TagsError, match="has no column row"):
        next(iter(tagged_loader(loader(name="few"))))
    bare = records.rename_column("text", "content")
    with pytest.raises(TagsError, match=r'(?s)it has content, row, shard.*content="text"'):
        next(iter(tagged_loader(loader(name="few"))))


def fit(kind, config, *given, **more):
    """Train by torchtitan's own trainer, or ours; return its losses, weights and random state, to the bit."""
    losses = []
    with pytest.MonkeyPatch.context() as patch, titan_on_cpu.one_rank(patch):
        trainer = kind(config, *given, **more)
        kept = trainer.metrics_processor.log
        patch.setattr(trainer.metrics_processor, "log", lambda *own, **how: (losses.append(own[1]), kept(*own, **how)))
        trainer.train()
        trainer.close()
        weights = [own.detach().to_local().numpy().tobytes() for own in trainer.model_parts[0].parameters()]
    return losses, weights, torch.get_rng_state().tolist()


def test_its_trainer_trains_as_without_us_to_the_bit_and_goes_on_by_its_checkpoints(corpus, tmp_path):
    """The log has the loss that torchtitan prints, the rate, and goes on where the checkpoint does."""
    without = fit(titan_on_cpu.Trainer, titan_on_cpu.config_of(tmp_path / "without", "audited", steps=STEPS))
    own = {"folder": tmp_path / "run", "corpus": corpus}
    found = fit(AuditedTrainer, titan_on_cpu.config_of(tmp_path / "with", "audited", steps=STEPS), **own)
    assert found == without
    steps = load_run(tmp_path / "run").table("steps").to_pylist()
    assert [row["user_loss"] for row in steps] == pytest.approx(found[0], rel=1e-6)
    assert [row["targets"] for row in steps] == [2 * 2 * 48] * STEPS
    own = {"folder": tmp_path / "again", "corpus": corpus}
    for until in (2, STEPS):
        config = titan_on_cpu.config_of(tmp_path / "out", "audited", steps=until, save=2)
        config.lr_scheduler.total_steps = STEPS
        fit(AuditedTrainer, config, **own)
    log = load_run(tmp_path / "again")
    assert log.table("steps")["step"].to_pylist() == list(range(1, STEPS + 1))
    kinds = [row["kind"] for row in log.table("events").to_pylist()]
    assert [kind for kind in kinds if kind != "closed"] == ["started", "resumed"]
    assert "learning_rate" in log.table("values")["metric"].to_pylist()


def test_an_error_is_in_the_log_with_what_waited(corpus, tmp_path, monkeypatch):
    """Also where nobody closes the trainer."""
    own = titan_on_cpu.Trainer.forward_backward_step

    def fails(trainer, **given):
        if trainer.step == 3:
            raise RuntimeError("as planned")
        return own(trainer, **given)

    monkeypatch.setattr(titan_on_cpu.Trainer, "forward_backward_step", fails)
    config = titan_on_cpu.config_of(tmp_path / "out", "audited", steps=STEPS)
    with pytest.raises(RuntimeError, match="as planned"):
        fit(AuditedTrainer, config, folder=tmp_path / "run", corpus=corpus)
    assert steps_of(tmp_path / "run") == [1, 2]
    assert [kind for kind in kinds(tmp_path / "run") if kind != "not_seen"] == ["started", "failed", "closed"]
    assert events(tmp_path / "run", "failed") == [(2, {"error": "RuntimeError"})]


def test_parallelism_that_cuts_rows_is_refused_by_name(corpus, tmp_path, monkeypatch):
    """Before anything is logged; its own start, which takes two processes, is left out."""
    dims = ParallelDims(dp_replicate=1, dp_shard=1, cp=1, tp=1, pp=2, ep=1, world_size=2)
    monkeypatch.setattr(titan_on_cpu.Trainer, "__init__", lambda self, _: setattr(self, "parallel_dims", dims))
    with pytest.raises(ConfigError, match="pipeline and context parallelism"):
        AuditedTrainer(None, tmp_path / "run", corpus)
    assert not (tmp_path / "run").exists()
