"""transformers' Trainer with tags: nothing of the training changes, and its log says what was trained on."""

import gc
import hashlib
import json
import random
import weakref
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pyarrow.compute as pc
import pytest
from lanes import WHOLE
from made_corpus import CONFIG
from made_manifest import make, shard
from reading import bits, events, kinds, logged_rows, tiny_gpt2, untagged, values
from together import run_together

from dataaudit.base.errors import ConfigError, TagsError
from dataaudit.runlog.reader import load_run, ranks_at
from dataaudit.training.attribution.attribute import attribute
from dataaudit.training.attribution.curve import missing_of
from dataaudit.training.attribution.run_data import load_data
from dataaudit.training.attribution.run_facts import run_facts
from dataaudit.training.documents import Documents, byte_encoder
from dataaudit.training.loaders.collator import TaggedCollator
from dataaudit.training.loaders.hub import tagged_dataset, tagged_stream
from dataaudit.training.loaders.ranks import log_rank
from dataaudit.training.opening import open_manifest
from dataaudit.training.packing import PackedDocuments

torch = pytest.importorskip("torch", reason="the trainer's tensors are torch's")
transformers = pytest.importorskip("transformers", reason="the trainer is transformers'")
pytest.importorskip("accelerate", reason="the trainer needs it")
from dataaudit.training.loaders.ranks import StreamedRows  # noqa: E402 - after the skip
from dataaudit.training.loaders.trainer import audit_trainer  # noqa: E402 - after the skip

pytestmark = [
    pytest.mark.torch,
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore"),
]  # those of other people's libraries
ROWS, CONTEXT, STEPS = 4, 64, 6


@pytest.fixture(scope="module")
def rows(documents):
    return PackedDocuments(documents, CONTEXT, shift="inner")


def trainer_of(folder, rows, *, collate=None, eval_dataset=None, positions=CONTEXT, **more):
    """Return a trainer that accumulates two batches a step."""
    options = {
        "max_steps": STEPS,
        "per_device_train_batch_size": ROWS,
        "gradient_accumulation_steps": 2,
        "remove_unused_columns": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "seed": 1,
        "use_cpu": True,
    }
    arguments = transformers.TrainingArguments(folder / "out", **options | more)
    return transformers.Trainer(
        tiny_gpt2(positions),
        arguments,
        train_dataset=rows,
        eval_dataset=eval_dataset,
        data_collator=collate or TaggedCollator(),
    )


def result(trainer, **how):
    """Train; return losses, gradient norms, weights and random state, to the bit."""
    trainer.train(**how)
    logged = [(one["loss"], one["grad_norm"]) for one in trainer.state.log_history if "loss" in one]
    return logged, *bits(trainer.model)


def stretches(folder):
    """Return the stretches of a log, with all but when they were written."""
    return logged_rows(folder, "stretches")


def counts(folder):
    """Return how often each token of each source was trained on."""
    found = Counter()
    for one in logged_rows(folder, "tokens"):
        found[one["source"], one["token"]] += one["count"]
    return found


def test_the_trainer_trains_as_without_it_to_the_bit(rows, corpus, tmp_path):
    without = result(trainer_of(tmp_path, rows, collate=untagged, dataloader_num_workers=2))
    audited = audit_trainer(trainer_of(tmp_path, rows, dataloader_num_workers=2), tmp_path / "run", corpus)
    assert isinstance(audited, transformers.Trainer)
    found = result(audited)
    assert found == without
    steps = logged_rows(tmp_path / "run", "steps")
    assert [one["micro_batches"] for one in steps] == [2] * STEPS
    assert all(one["targets"] == one["scored"] == 2 * ROWS * (CONTEXT - 1) for one in steps)
    for one, (loss, _) in zip(steps, found[0], strict=True):
        assert one["user_loss"] == pytest.approx(loss, rel=1e-6)
        labels = 2 * ROWS * CONTEXT  # transformers divides by all labels, the first ones of rows too
        assert one["loss_sum"] / labels == pytest.approx(one["user_loss"], rel=1e-5)
    assert [values(tmp_path / "run", "grad_global_norm")[one["step"]] for one in steps] == [
        norm for _, norm in found[0]
    ]
    rate = values(tmp_path / "run", "learning_rate")
    assert list(rate.values()) == pytest.approx([5e-5 * (STEPS - step) / STEPS for step in range(STEPS)])
    facts = run_facts(load_run(tmp_path / "run"))
    assert (facts.steps_seen, facts.tokens_seen) == (STEPS, STEPS * 2 * ROWS * (CONTEXT - 1))
    assert facts.clipping.clipped == sum(norm + 1e-6 > 1 for _, norm in found[0])
    assert set(values(tmp_path / "run", "dataloader_wait")) == set(range(2, STEPS + 1))
    counted = sum(load_run(tmp_path / "run").table("tokens")["count"].to_pylist())
    assert counted == facts.tokens_seen


def test_an_error_is_in_the_log(rows, corpus, tmp_path):
    class Fails(transformers.TrainerCallback):
        def on_step_begin(self, args, state, control, **_):
            if state.global_step == 2:
                raise RuntimeError("as planned")

    trainer = audit_trainer(trainer_of(tmp_path, rows), tmp_path / "run", corpus)
    trainer.add_callback(Fails())
    with pytest.raises(RuntimeError, match="as planned"):
        trainer.train()
    assert [kind for kind in kinds(tmp_path / "run") if kind in ("failed", "closed")] == ["failed", "closed"]
    assert events(tmp_path / "run", "failed") == [(2, {"error": "RuntimeError"})]


def test_a_run_with_evaluations_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(rows, corpus, tmp_path):
    evaluated = torch.utils.data.Subset(rows, range(8))
    more = {"save_strategy": "steps", "save_steps": 3, "eval_strategy": "steps", "eval_steps": 2}
    whole = result(audit_trainer(trainer_of(tmp_path, rows, eval_dataset=evaluated, **more), tmp_path / "one", corpus))
    assert sorted(values(tmp_path / "one", "val_loss")) == [2, 4, 6]
    checkpoint = tmp_path / "out" / "checkpoint-3"
    assert json.loads((checkpoint / "dataaudit-00000.json").read_bytes())["step"] == 3
    folder = tmp_path / "two"
    again = tmp_path / "again"
    first = audit_trainer(trainer_of(again, rows, eval_dataset=evaluated, **more), folder, corpus)
    first.add_callback(Stop(5))
    first.train()
    second = audit_trainer(trainer_of(again, rows, eval_dataset=evaluated, **more), folder, corpus)
    found = result(second, resume_from_checkpoint=str(again / "out" / "checkpoint-3"))
    assert found[1:] == whole[1:]
    assert stretches(folder) == stretches(tmp_path / "one")
    ends = [counts(one) for one in (folder, tmp_path / "one")]
    assert ends[0] == ends[1]
    assert not {"learning_rate_jump", "nan_inf"} & set(kinds(folder))
    assert [step for step, _ in events(folder, "resumed")] == [3]
    steps = load_run(folder).table("steps")
    assert steps["step"].to_pylist() == list(range(1, STEPS + 1))
    assert steps["micro_batches"].to_pylist() == [2] * STEPS  # batches of evaluations are none of them
    (again / "out" / "checkpoint-3" / "dataaudit-00000.json").write_text('{"step": 3, "cor')
    with pytest.raises(ConfigError, match="is damaged: the state of a log"):
        audit_trainer(trainer_of(again, rows), folder, corpus).train(str(again / "out" / "checkpoint-3"))
    (again / "out" / "checkpoint-3" / "dataaudit-00000.json").unlink()
    lacking = audit_trainer(trainer_of(again, rows), folder, corpus)
    with pytest.raises(ConfigError, match="holds no state of a log"):
        lacking.train(resume_from_checkpoint=str(again / "out" / "checkpoint-3"))


class Stop(transformers.TrainerCallback):
    """Ends a training early."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step >= self.step


def order_of(folder):
    return load_run(folder).run.order


def test_the_log_knows_whether_the_trainer_shuffles_rows(rows, corpus, tmp_path):
    """What is said wins; streams, sequential samplers and data that are begun anew when resumed are no such."""
    tries = {
        "rows": (rows, {}, {}),
        "said": (rows, {}, {"order": "documents"}),
        "sequential": (rows, {"train_sampling_strategy": "sequential"}, {}),
        "stream": (StreamedRows(rows, ROWS), {}, {}),
        "unskipped": (rows, {"ignore_data_skip": True}, {}),
    }
    for name, (data, arguments, options) in tries.items():
        trainer = trainer_of(tmp_path / name, data, max_steps=1, **arguments)
        audit_trainer(trainer, tmp_path / name / "run", corpus, **options).train()
    found = {name: order_of(tmp_path / name / "run") for name in tries}
    assert found == {"rows": "rows", "said": "documents", "sequential": "", "stream": "", "unskipped": ""}


@pytest.mark.parametrize("kind", ["map-style", "streamed"])
def test_the_log_is_the_same_for_any_number_of_workers(rows, corpus, tmp_path, kind):
    """Workers 0 to 4, persistent or not: the same stretches with the same losses."""
    logs = []
    for workers in range(5):
        more = {"dataloader_num_workers": workers, "dataloader_persistent_workers": workers in (2, 4)}
        data = rows if kind == "map-style" else StreamedRows(rows, ROWS)
        trainer = trainer_of(tmp_path / str(workers), data, max_steps=3, **more)
        audit_trainer(trainer, tmp_path / str(workers) / "run", corpus).train()
        logs.append(stretches(tmp_path / str(workers) / "run"))
    assert len(logs[0]) > 3 * 2 * ROWS
    assert all(one == logs[0] for one in logs[1:])


def test_a_trainer_ends_with_its_last_reference(rows, corpus, tmp_path):
    """Found as a circle, its loader is taken apart from the inside, and waits five seconds for each worker."""
    trainer = audit_trainer(trainer_of(tmp_path, rows, max_steps=1), tmp_path / "run", corpus)
    trainer.train()
    gone = weakref.ref(trainer)
    gc.disable()
    try:
        del trainer
        assert gone() is None
    finally:
        gc.enable()


def test_columns_that_the_trainer_would_drop_are_an_error_at_once(rows, corpus, tmp_path):
    with pytest.raises(ConfigError, match="remove_unused_columns=False") as raised:
        audit_trainer(trainer_of(tmp_path, rows, remove_unused_columns=True), tmp_path / "run", corpus)
    assert not (tmp_path / "run").exists(), raised
    audited = audit_trainer(trainer_of(tmp_path, rows, collate=untagged), tmp_path / "run", corpus)
    with pytest.raises(ConfigError, match="already"):
        audit_trainer(audited, tmp_path / "run", corpus)
    with pytest.raises(TagsError, match="has no tags"):
        audited.train()


def test_records_of_datasets_padded_and_padding_free_reach_the_log(documents, corpus, tmp_path):
    found = tagged_dataset(documents, order="shuffled", cache=tmp_path).filter(lambda one: len(one["input_ids"]) < 250)
    flat = TaggedCollator(transformers.DataCollatorWithFlattening())
    trainer = trainer_of(tmp_path, found, collate=flat, positions=250, num_train_epochs=2, max_steps=-1)
    audit_trainer(trainer, tmp_path / "run", corpus).train()
    met = stretches(tmp_path / "run")
    for epoch in (0, 1):
        names = sorted((one["shard"], one["row"]) for one in met if one["epoch"] == epoch)
        assert names == sorted(zip(found["shard"], found["row"], strict=True))
    assert {one["batch_row"] for one in met} == {0}
    assert all(one["targets"] > 0 and one["loss"] > 0 for one in met if one["row"] >= 0 and one["targets"])
    stream = tagged_stream(documents).filter(lambda one: len(one["input_ids"]) < 250).shuffle(seed=0, buffer_size=30)
    trainer = trainer_of(tmp_path, stream, collate=flat, positions=250, dataloader_num_workers=2)
    audit_trainer(trainer, tmp_path / "streamed", corpus).train()
    assert {one["step"] for one in stretches(tmp_path / "streamed")} == set(range(1, STEPS + 1))


def planted(folder, bad=7, shards=10):
    """Publish a corpus of which one shard is noise; return its manifest's folder."""
    draw, listed = random.Random(0), []
    (folder / "data").mkdir()
    for number in range(shards):
        noise = number == bad
        texts = [
            "".join(draw.choices("!#$%&*+<=>?@[]^{}~0123456789", k=250)) if noise else "tick tack tock " * 16
            for _ in range(40)
        ]
        found = b"".join(json.dumps({"text": one, "source": "web"}).encode() + b"\n" for one in texts)
        name = f"part-{number:02d}.jsonl"
        (folder / "data" / name).write_bytes(found)
        digest = hashlib.sha256(found).hexdigest()
        listed.append(shard(name, sha256=digest, documents=40, size=len(found)) | {"rows_digest": digest})
    make(folder / "m", listed, roots=folder / "data", config=CONFIG)
    return folder / "m"


def first_of(rows, shard):
    """Return where the first document of a shard stands, as a share of all."""
    starts = rows.documents.starts
    return np.flatnonzero((rows.order >= starts[shard]) & (rows.order < starts[shard + 1]))[0] / len(rows.order)


def test_the_shard_behind_a_spike_of_a_trainer_is_named(tmp_path):
    manifest = planted(tmp_path)
    corpus = open_manifest(manifest, require="verified", cache=tmp_path / "cache")
    documents = Documents(corpus, "train", byte_encoder(end=0))
    orders = (
        PackedDocuments(documents, CONTEXT, seed=one, order="interleaved", open_shards=3, shift="inner")
        for one in range(99)
    )
    rows = StreamedRows(next(one for one in orders if 0.5 < first_of(one, shard=7) < 0.7), ROWS)
    steps = len(rows) // ROWS // 2
    trainer = trainer_of(tmp_path, rows, max_steps=steps, learning_rate=2e-2, logging_steps=50)
    audit_trainer(trainer, tmp_path / "run", corpus).train()
    (episode,) = attribute(load_data(tmp_path / "run", manifest)).episodes
    assert "part-07.jsonl" in episode.model_dump_json()
    assert episode.found is not None


def test_two_processes_agree_on_what_is_held_and_mark_what_is_read_twice(made, tmp_path):
    run_together("ddp_run.py", 2, made.folder, made.hold("train/b.jsonl"), tmp_path)
    log = load_run(tmp_path / "run")
    steps = log.table("steps").to_pylist()
    assert {(one["rank"], one["step"]) for one in steps} == {(rank, step) for rank in (0, 1) for step in (1, 2, 3)}
    whole = json.loads((tmp_path / "rows.json").read_bytes())
    met = log.table("stretches").to_pylist()
    once = [(one["shard"], one["row"], one["offset"]) for one in met if one["epoch"] >= 0]
    again = [(one["shard"], one["row"], one["offset"]) for one in met if one["epoch"] < 0]
    assert sorted(once) == sorted(map(tuple, whole))
    assert again
    assert set(again) < set(once)
    assert {one["epoch"] for one in met} == {0, -1}
    facts = run_facts(log)
    assert facts.tokens_seen == sum(one["targets"] for one in met) == sum(log.table("tokens")["count"].to_pylist())
    assert facts.repeated_tokens == sum(one["targets"] for one in met if one["epoch"] < 0)
    assert facts.steps_seen == 3
    assert facts.times.profiled_steps == 1
    assert 0 < facts.times.comm_time_frac <= 1
    assert 0 < facts.times.compute_time_frac <= 1
    assert facts.times.straggler.ranks == 2
    out = {index for index, uri in enumerate(made.uris) if uri.startswith("b.jsonl")}
    held = load_run(tmp_path / "held").table("stretches").to_pylist()
    sums = [load_run(tmp_path / name).table("steps").select(["rank", "step", "targets"]) for name in ("run", "held")]
    assert sums[0].equals(sums[1])  # held documents are replaced, not masked: every row has as many targets
    assert any(one["shard"] in out for one in met)
    assert not any(one["shard"] in out for one in held)
    _go_on_with_other_ranks(made, tmp_path)


def _go_on_with_other_ranks(made, folder):
    """One process goes on from the second step of two, then two from the fourth of the one: a phase each."""
    before = load_run(folder / "run").table("stretches")
    run_together("ddp_run.py", 1, made.folder, folder, folder, "checkpoint-2")
    log = load_run(folder / "run")
    steps = log.table("steps").to_pylist()
    assert [(one["step"], one["rank"]) for one in steps] == [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (1, 1), (2, 1)]
    early = pc.less_equal(before["step"], 2)
    missing = missing_of(log.table("steps"), log.table("events"), log.run.ranks)
    assert (missing.number, missing.whole.tolist()) == (0, [1, 2, 3, 4, 5])
    assert log.table("stretches").filter(pc.less_equal(log.table("stretches")["step"], 2)).equals(before.filter(early))
    if not WHOLE:
        return
    run_together("ddp_run.py", 2, made.folder, folder, folder, "checkpoint-4")
    log = load_run(folder / "run")
    assert {(one["step"], one["rank"]) for one in log.table("steps").to_pylist()} == {
        *((step, 0) for step in range(1, 6)),
        *((step, 1) for step in (1, 2, 5)),
    }
    events = [(one["kind"], one["step"]) for one in log.table("events").to_pylist() if one["rank"] == 0]
    assert [one for one in events if one[0] in ("started", "resumed")] == [
        ("started", 0),
        ("resumed", 2),
        ("resumed", 4),
    ]
    missing = missing_of(log.table("steps"), log.table("events"), log.run.ranks)
    assert (missing.number, missing.whole.tolist()) == (0, [1, 2, 3, 4, 5])
    phases = ranks_at(np.arange(1, 6), log.table("events"), log.run.ranks)
    assert phases.tolist() == [2, 2, 1, 1, 2]


@pytest.mark.parametrize(
    ("kind", "logging"), [("tp", [[0, 2], None, [1, 2], None]), ("pp", [None, [0, 2], None, [1, 2]])]
)
def test_of_a_pair_that_shares_a_model_one_process_logs_what_the_whole_model_would(made, tmp_path, kind, logging):
    """Of a tensor-parallel pair the first one; of two pipeline stages the last one, which has the logits."""
    run_together("mesh_run.py", 4, made.folder, tmp_path, kind)
    places = [json.loads((tmp_path / f"place-{rank}.json").read_bytes()) for rank in range(4)]
    assert places == logging
    pairs, whole = load_run(tmp_path / "run"), load_run(tmp_path / "whole")
    keys = [(name, "ascending") for name in ("rank", "step", "batch_row", "start")]
    met, expected = (log.table("stretches").sort_by(keys) for log in (pairs, whole))
    assert met.num_rows > 30
    assert met.drop_columns("loss").equals(expected.drop_columns("loss"))
    np.testing.assert_allclose(met["loss"].to_numpy(), expected["loss"].to_numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("names", "sizes", "places"),
    [
        (("dp", "tp"), (2, 2), {(0, 0): (0, 2), (0, 1): None, (1, 0): (1, 2), (1, 1): None}),
        (("pp", "dp"), (2, 2), {(0, 0): None, (1, 0): (0, 2), (1, 1): (1, 2), (0, 1): None}),
        (("dp_replicate", "dp_shard", "cp"), (2, 3, 1), {(1, 2, 0): (5, 6), (0, 1, 0): (1, 6)}),
    ],
)
def test_the_processes_that_log_are_those_with_logits_one_of_each_group(names, sizes, places):
    for place, expected in places.items():
        mesh = SimpleNamespace(mesh_dim_names=names, get_coordinate=lambda at=place: at, size=lambda at: sizes[at])
        assert log_rank(mesh) == expected


def test_a_mesh_that_cuts_rows_or_has_no_names_is_refused():
    for names, say in ((("dp", "cp"), "a part of each row"), (None, "no names")):
        mesh = SimpleNamespace(mesh_dim_names=names, get_coordinate=lambda: (0, 1), size=lambda _at: 2)
        with pytest.raises(ConfigError, match=say):
            log_rank(mesh)
