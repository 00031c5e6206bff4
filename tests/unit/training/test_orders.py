"""`dataaudit reconstruct`: the documents of each step, of saved and computed orders, are those that were trained on."""

import csv
import importlib
import importlib.util
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples, sample
from reconstructed import Tokenized, call
from reference.orders import megatron_blend, megatron_set, olmo_rows, ramped, titan_rows

from dataaudit.base.errors import ConfigError
from dataaudit.runlog.reader import load_run
from dataaudit.training.attribution.loss_table import read_losses
from dataaudit.training.orders.reconstruct import Batches, parse_sizes, parse_steps

CONTEXT = 64
STRETCHES = 1_000


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return Tokenized(tmp_path_factory.mktemp("orders"), 300)


def flat(labels, steps):
    """Return the rows of steps one after another."""
    return [row for step in steps for row in labels[step]]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("epochs", "extra", "apart", "order"), [(1, 1, False, "rows"), (3, 1, True, ""), (2, 0, False, "rows")]
)
def test_samples_of_megatron_are_their_documents(corpus, tmp_path, epochs, extra, apart, order):
    """Byte for byte, against whole streams that were cut; pieces of one document, passes, the order that is claimed."""
    name = corpus.files[0].with_suffix("")
    samples, _ = megatron_set(
        tmp_path, name, corpus.sequences(0), context=CONTEXT, epochs=epochs, seed=3, extra=extra, apart=apart
    )
    steps = len(samples) // 8
    more = () if extra else ("--no-extra-token",)
    found = corpus.reconstruct(
        tmp_path / "run", "--order", "megatron", "--index", tmp_path, "--batch", 8, "--steps", f"1-{steps}", *more
    )
    labels = corpus.labels(tmp_path / "run")
    assert corpus.stretches > (STRETCHES if extra else 500)
    assert flat(labels, range(1, steps + 1)) == [one[1:] for one in samples[: 8 * steps]]
    assert (found["order"], found["consumed"], found["samples"]) == (order, 8 * steps, 8 * steps)
    passes = {one["epoch"] for one in load_run(tmp_path / "run").table("stretches").to_pylist()}
    assert passes == set(range(epochs))


@pytest.mark.torch
def test_a_blend_that_ramps_up_and_skips_goes_on_where_it_was(corpus, tmp_path):
    """Two files by weights, batches rounded down, steps that were skipped, the second half by a command of its own."""
    sets = [
        megatron_set(tmp_path, f"/elsewhere/{one.stem}", corpus.sequences(at), context=CONTEXT, epochs=2, seed=at)
        for at, one in enumerate(corpus.files)
    ]
    samples = megatron_blend(tmp_path, sets, [0.8, 0.2], 700)
    plan = ramped(4, 4, 120, 24, 3, 40)
    how = ("--order", "megatron", "--index", tmp_path, "--batch", 24, "--rampup", 4, 4, 120, "--divisor", 3)
    how += ("--skip", "7,20-22")
    first, run = plan[25][0], tmp_path / "run"
    found = corpus.reconstruct(run, *how, "--steps", "1-30", file=(0, 1))
    assert (found["skipped"], found["order"]) == (4, "")
    assert found["consumed"] == plan[30][0]
    again = corpus.reconstruct(run, *how, "--steps", "26-40", "--consumed", first, file=(1, 0))
    assert again["consumed"] == sum(plan[-1]) < 700
    labels = corpus.labels(run)
    for step, (begin, size) in enumerate(plan, 1):
        expected = [] if step in (7, 20, 21, 22) else [one[1:] for one in samples[begin : begin + size]]
        assert labels.get(step, []) == expected
    table = load_run(run).table("steps")
    assert table["step"].to_pylist() == list(range(1, 41))
    kinds = [one["kind"] for one in load_run(run).table("events").to_pylist()]
    assert kinds.count("skipped") == 4
    assert "resumed" in kinds


@given(
    st.integers(1, 8), st.integers(1, 8), st.integers(1, 6), st.integers(0, 500), st.integers(1, 4), st.integers(1, 60)
)
@settings(max_examples=examples(200), deadline=None)
def test_a_ramp_takes_what_megatron_takes(first, increment, increments, samples, micro, steps):
    """Against the rule in additions alone, sizes that round down to nothing refused."""
    last = first + increment * increments
    if samples == 0 or first < micro:
        return
    batches = Batches(sizes=((0, last),), ramp=(first, increment, samples), divisor=micro)
    found = [(one.first, one.samples) for one in batches.steps(1, steps)]
    assert found == ramped(first, increment, samples, last, micro, steps)


@pytest.mark.parametrize("chunk", sample([4, 1], 2, part="runs"))
def test_rows_of_olmo_are_their_documents(corpus, tmp_path, chunk):
    """Two files, two passes, what fills no batch left out."""
    rows = olmo_rows(corpus.tokens, CONTEXT, chunk)
    named, read = [], []
    for epoch in (1, 2):
        order = np.random.default_rng(epoch).permutation(len(rows) // chunk)
        order = (order[:, None] * chunk + np.arange(chunk)).reshape(-1).astype("<u4")
        said = f"chunk{chunk}_" if chunk > 1 else ""
        path = tmp_path / f"global_indices_{said}dataset_size{len(rows)}_epoch{epoch}_seed0_v1.npy"
        path.write_bytes(order.tobytes())
        named += ["--index", path]
        read += [rows[one] for one in order[: len(rows) // 24 * 24]]
    steps = len(read) // 24
    how = ("--order", "olmo", "--context", CONTEXT, "--batch", 24, *named)
    found = corpus.reconstruct(tmp_path / "run", *how, "--steps", f"1-{steps}", file=(0, 1))
    assert found["order"] == ("rows" if chunk == 1 else "")
    labels = corpus.labels(tmp_path / "run")
    assert corpus.stretches > STRETCHES
    assert flat(labels, range(1, steps + 1)) == [row[1:] for row in read]
    said = corpus.reconstruct(tmp_path / "no", *how, "--steps", f"1-{steps + 1}", file=(0, 1), expect=2)
    assert "one for each pass" in said
    assert "Name all files" in corpus.reconstruct(tmp_path / "no2", *how, "--steps", "1-2", file=(0,), expect=2)


@pytest.mark.torch
@pytest.mark.parametrize("ranks", [1, 3])
def test_offsets_of_nanogpt_are_drawn_again(corpus, tmp_path, ranks):
    """Each rank's generator by itself, after the model's weights; batches fetched ahead; evaluations on the first."""
    torch = pytest.importorskip("torch", reason="its generator draws")
    data, val = (np.array(one) for one in corpus.tokens)
    expected, states = {}, []
    for rank in range(ranks):
        torch.manual_seed(1337 + rank)
        torch.nn.Linear(30, 40)  # stands for the model

        def batch(tokens):
            return [tokens[one : one + CONTEXT + 1].tolist() for one in torch.randint(len(tokens) - CONTEXT, (4,))]

        states.append(tmp_path / f"state-{rank}.pt")
        torch.save(torch.get_rng_state(), states[-1])
        ahead = batch(data)
        for step in range(50):
            if step % 20 == 0 and not rank:
                for tokens in (data, val):
                    for _ in range(3):
                        batch(tokens)
            for micro in range(2):
                expected[step, micro, rank] = [row[1:] for row in ahead]
                ahead = batch(data)
    named = [part for one in states for part in ("--state", one)]
    how = ("--order", "nanogpt", "--context", CONTEXT, "--micro-batch", 4, "--accumulate", 2, "--ranks", ranks, *named)
    how += ("--eval", 20, 3, len(val))
    found = corpus.reconstruct(tmp_path / "run", *how, "--steps", "0-49")
    assert found["order"] == "rows"
    labels = corpus.labels(tmp_path / "run")
    assert corpus.stretches > STRETCHES
    for step in range(50):
        assert labels[step] == [row for micro in (0, 1) for rank in range(ranks) for row in expected[step, micro, rank]]
    size = found["consumed"] // 50  # further pieces of the same start, with the states of that
    corpus.reconstruct(tmp_path / "pieces", *how, "--steps", "0-14")
    corpus.reconstruct(tmp_path / "pieces", *how, "--steps", "15-49", "--consumed", 15 * size)
    assert corpus.labels(tmp_path / "pieces") == labels


@pytest.mark.torch
def test_a_seed_alone_is_that_of_each_rank(corpus, tmp_path):
    """Rank r has the seed + r; what is no state of a generator is said."""
    torch = pytest.importorskip("torch", reason="its generator draws")
    how = ("--order", "nanogpt", "--context", CONTEXT, "--micro-batch", 4, "--ranks", 2)
    corpus.reconstruct(tmp_path / "run", *how, "--state", 7, "--steps", "0-3")
    labels, tokens = corpus.labels(tmp_path / "run"), np.array(corpus.tokens[0])
    for rank in range(2):
        draw = torch.Generator().manual_seed(7 + rank)
        for step in range(4):
            starts = torch.randint(len(tokens) - CONTEXT, (4,), generator=draw).tolist()
            assert labels[step][4 * rank : 4 * rank + 4] == [tokens[x + 1 : x + 1 + CONTEXT].tolist() for x in starts]
    (tmp_path / "bad.pt").write_bytes(b"no state")
    bad = ("--state", tmp_path / "bad.pt", "--state", 1)
    assert "is no state of a generator" in corpus.reconstruct(tmp_path / "no", *how, *bad, "--steps", "0-3", expect=2)


@pytest.mark.parametrize("begin", [False, True])
@pytest.mark.parametrize("ranks", [1, 3])
def test_rows_of_torchtitan_are_their_documents(corpus, tmp_path, begin, ranks):
    """Parts of ranks, shifted within documents; passes beyond the first shuffled; where each rank is in the end."""
    documents = [[600] * begin + one for one in corpus.sequences(0)]
    each = sum(map(len, documents)) // ranks // CONTEXT
    steps = each // 4 * 3 // 2
    number = steps * ranks * 4

    def order(size, epoch):
        own = np.arange(size)
        return own if not epoch else np.random.default_rng(42 + epoch).permutation(size)

    rows = titan_rows(documents, CONTEXT, 2, ranks, number, order)
    how = ("--order", "torchtitan", "--context", CONTEXT, "--micro-batch", 2, "--accumulate", 2, "--ranks", ranks)
    how += ("--begin-token",) if begin else ()
    found = corpus.reconstruct(tmp_path / "run", *how, "--steps", f"1-{steps}")
    labels = corpus.labels(tmp_path / "run")
    assert corpus.stretches > STRETCHES
    assert flat(labels, range(1, steps + 1)) == rows
    assert [one["epoch"] for one in found["positions"]] == [1] * ranks
    assert all(0 <= one["inputs_buffer"] < 400 for one in found["positions"])


def test_what_does_not_fit_is_said(corpus, tmp_path):
    """An index of another file, a damaged one, none, several, too few samples, options of another order."""
    sequences = corpus.sequences(0)
    cache = tmp_path / "cache"
    cache.mkdir()
    samples, _ = megatron_set(cache, "train", sequences, context=CONTEXT, epochs=1, seed=0)
    run, how = tmp_path / "run", ("--order", "megatron", "--index", cache, "--batch", 8, "--steps", "1-3")

    def said(*options, file=(0,)):
        return corpus.reconstruct(run, *options, file=file, expect=2)

    assert "which none of the files" in said(*how, file=(1,))
    assert f"the order has {len(samples):,} samples" in said(*how[:-1], f"1-{len(samples) // 8 + 1}")
    assert "--state: not of --order megatron" in said(*how, "--state", "1")
    assert "--order megatron needs --index" in said("--order", "megatron", "--batch", 8, "--steps", "1-3")
    assert "expected FIRST-LAST" in said(*how[:-1], "1-3,5")
    assert "takes no whole number of increments" in said(*how, "--rampup", 3, 2, 100)
    assert "--skip" in said(*how, "--skip", "5-3")
    assert "no order that is known" in said(
        *("--order", "olmo", "--index", cache / "x.npy", "--batch", 8, "--context", 8, "--steps", "1-3")
    )
    olmo = ("--order", "olmo", "--batch", 8, "--context", 8, "--steps", "1-3", "--index", tmp_path / "olmo")
    (tmp_path / "olmo").mkdir()
    assert "olmo holds 0 files global_indices_*.npy" in said(*olmo)
    for epoch in (1, 2):
        (tmp_path / f"olmo/global_indices_dataset_size7_epoch{epoch}_seed0_v1.npy").touch()
    assert "Name the file in it, once for each pass" in said(*olmo)
    (tmp_path / "olmo/global_indices_dataset_size7_epoch2_seed0_v1.npy").unlink()
    assert "epoch1_seed0_v1.npy is of 7 rows" in said(*olmo)
    assert not run.exists()
    (one,) = cache.glob("*sample_index.npy")
    data = one.read_bytes()
    one.write_bytes(data[:-8])
    assert "is damaged" in said(*how)
    np.save(one, np.load(path_of(one, data))[:-1])
    assert "the indices do not fit" in said(*how)
    one.write_bytes(data)
    moved = np.load(one)
    moved[1:, 1] += 1
    np.save(one, moved)
    assert "samples do not come out at 65 tokens" in said(*how[:-1], f"1-{len(samples) // 8}")
    for odd in (moved.astype(np.float64), moved.ravel()):
        np.save(one, odd)
        assert "expected 2 dimensions of whole numbers" in said(*how)
    one.write_bytes(data)
    megatron_set(cache, "train", sequences, context=CONTEXT, epochs=1, seed=9)
    bare = tmp_path / "bare"
    bare.mkdir()
    megatron_set(bare, "train", sequences, context=CONTEXT, epochs=2, seed=0, extra=0)
    assert "--no-extra-token" in said("--order", "megatron", "--index", bare, "--batch", 8, "--steps", "1-90")
    assert "holds 2 orders of the split train" in said(*how)
    assert "holds 0 orders of the split valid" in said(*how, "--split", "valid")
    prefix = one.with_name(one.name.removesuffix("-sample_index.npy"))
    corpus.reconstruct(tmp_path / "named", *("--order", "megatron", "--index", prefix, "--batch", 8, "--steps", "1-3"))


def path_of(path, data):
    """Return a copy of a file."""
    copy = path.with_name("copy.npy")
    copy.write_bytes(data)
    return copy


def test_a_log_of_another_run_is_left_alone(corpus, tmp_path):
    """And so is one that was not reconstructed."""
    megatron_set(tmp_path, "train", corpus.sequences(0), context=CONTEXT, epochs=1, seed=0)
    how = ("--order", "megatron", "--index", tmp_path, "--batch", 8, "--steps", "1-3")
    corpus.reconstruct(tmp_path / "run", *how)
    other = load_run(tmp_path / "run").run.model_copy(update={"settings": {}})
    sealed = other.sealed((tmp_path / "run/shards.arrow").read_bytes())
    (tmp_path / "run/run.json").write_bytes(sealed.to_json())
    assert "holds the log of another run" in corpus.reconstruct(tmp_path / "run", *how, expect=2)


def test_the_same_command_writes_the_same_stretches(corpus, tmp_path):
    """Twice into folders of their own, and twice into one."""
    megatron_set(tmp_path, "train", corpus.sequences(0), context=CONTEXT, epochs=1, seed=0)
    how = ("--order", "megatron", "--index", tmp_path, "--batch", 8, "--steps", "1-9")
    for name in ("one", "two", "one"):
        corpus.reconstruct(tmp_path / name, *how)
    tables = [load_run(tmp_path / name).table("stretches") for name in ("one", "two")]
    assert tables[0].equals(tables[1])


@pytest.mark.torch
def test_episodes_that_follow_upon_a_block_are_found_from_losses_of_steps_alone(tmp_path, tmp_path_factory):
    """A reconstructed order, a CSV of losses: the event test names the block, and the excess cannot be divided."""
    corpus = Tokenized(tmp_path_factory.mktemp("followed"), 1000)
    megatron_set(tmp_path, "train", corpus.sequences(0), context=CONTEXT, epochs=2, seed=5)
    run, steps = tmp_path / "run", 1200
    how = ("--order", "megatron", "--index", tmp_path, "--batch", 2, "--steps", f"1-{steps}")
    corpus.reconstruct(tmp_path / "bare", *how)
    stretches = load_run(tmp_path / "bare").table("stretches").to_pylist()
    bad = sorted({one["step"] for one in stretches if one["shard"] == 1 and 640 <= one["row"] < 704})
    onsets, after = [], 150
    for step in bad:
        if step > after and step + 3 < steps:
            onsets.append(step + 3)
            after = step + 40
    assert len(onsets) > 10
    draw = np.random.default_rng(0)
    losses = {step: 3 + 3 * step**-0.5 + 0.02 * draw.normal() for step in range(1, steps + 1)}
    for step in onsets:
        losses[step] += 1.0
    with open(tmp_path / "log.csv", "w", newline="") as file:
        write = csv.writer(file)
        write.writerow(["iteration", "lm loss", "learning-rate"])
        write.writerows([step, loss, 1e-3] for step, loss in losses.items())
    said = corpus.reconstruct(run, *how, "--losses", tmp_path / "log.csv")
    assert (said["losses"], said["losses_elsewhere"]) == (steps, 0)
    done = call("attribute", run, "--manifest", corpus.manifest, "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 3
    assert {one["first_step"] for one in found["episodes"]} == set(onsets)
    assert {one["reason"] for one in found["episodes"]} == {"no_stretch_losses"}
    test = found["event_test"]
    assert (test["outcome"], test["null"]) == ("follows", "redrawn")
    named = [(one["shard"], one["first_row"]) for one in test["units"] if one["p"] <= test["alpha"]]
    assert named == [(1, 640)]
    assert "train/data/b.jsonl.gz" in call("attribute", run, "--manifest", corpus.manifest).output


@pytest.mark.runs
def test_losses_that_are_logged_now_and_then_keep_the_whole_exposure(corpus, tmp_path):
    """Every tenth step has a loss; the event test looks at all steps whose stretches are there."""
    megatron_set(tmp_path, "train", corpus.sequences(0), context=CONTEXT, epochs=4, seed=5)
    draw, steps = np.random.default_rng(0), 900
    lines = [{"step": step, "loss": 3 + 0.02 * draw.normal() + (step == 600)} for step in range(10, steps + 1, 10)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    how = ("--order", "megatron", "--index", tmp_path, "--batch", 1, "--steps", f"1-{steps}", "--skip", "880")
    corpus.reconstruct(tmp_path / "run", *how, "--losses", tmp_path / "log.jsonl")
    found = json.loads(call("attribute", tmp_path / "run", "--manifest", corpus.manifest, "--json").stdout)
    assert [one["first_step"] for one in found["episodes"]] == [600]
    assert (found["event_test"]["first_step"], found["event_test"]["last_step"]) == (1, steps)


class TestLosses:
    def read(self, tmp_path, text, **how):
        (tmp_path / "log").write_text(text)
        return read_losses(tmp_path / "log", **how)

    def test_a_csv_with_a_usual_name(self, tmp_path):
        found = self.read(tmp_path, "Step,Wall time,Value\n1,0.5,3.25\n2,0.6,nan\nx,1,2\n1,0.7,3.5\n")
        assert found.step.tolist() == [1, 2]
        assert found.loss[0] == 3.5
        assert np.isnan(found.loss[1])
        assert (found.unread, found.repeated) == (1, 1)

    def test_lines_of_json_with_objects_in_them(self, tmp_path):
        lines = ['{"_step": 3, "train": {"loss": 2.5, "lr": 0.1}}', "", "{cut", '{"_step": 4}', "[1]"]
        found = self.read(tmp_path, "\n".join(lines))
        assert (found.step.tolist(), found.loss.tolist(), found.rate.tolist()) == ([3], [2.5], [0.1])
        assert found.unread == 3

    def test_names_that_are_given(self, tmp_path):
        found = self.read(tmp_path, "n,x,loss\n1,2,3\n", step="n", loss="x")
        assert (found.step.tolist(), found.loss.tolist()) == ([1], [2])

    @pytest.mark.parametrize(
        ("text", "how", "said"),
        [
            ("a,b\n1,2\n", {}, "which column is the step"),
            ("step,loss,lm loss\n1,2,3\n", {}, "several of step, loss, lm loss"),
            ("step,loss\n1,2\n", {"loss": "los"}, "did you mean `loss`"),
            ("step,loss\nx,y\n", {}, "no line with a step and a loss"),
            ("", {}, "which column"),
            ("step,loss\n" + "1" * 200_000 + ",2\n", {}, "no line with a step and a loss"),
            ("\x00\x01\xff", {}, "which column"),
        ],
    )
    def test_what_cannot_be_read_is_said(self, tmp_path, text, how, said):
        with pytest.raises(ConfigError, match=said):
            self.read(tmp_path, text, **how)
        with pytest.raises(ConfigError, match="cannot be read"):
            read_losses(tmp_path / "none")


def test_sizes_and_steps_are_read_as_they_are_written():
    assert parse_sizes("12") == ((0, 12),)
    assert parse_sizes("0:4,100:8") == ((0, 4), (100, 8))
    assert [list(one) for one in parse_steps("3,7-9")] == [[3], [7, 8, 9]]
    assert [one.samples for one in Batches(sizes=((0, 4), (8, 6))).steps(1, 4)] == [4, 4, 6, 6]
    for wrong in ("x", "0:4,", "4-", "1:2", "5:6,0:1"):
        with pytest.raises(ConfigError):
            Batches(sizes=parse_sizes(wrong))
    for wrong in ("", "a", "5-4", "1--2"):
        with pytest.raises(ConfigError):
            parse_steps(wrong)


def there(name):
    """Return a mark that skips a test, before its corpus is made, where a library is not installed."""
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")


def frameworks_cache(corpus, folder):
    """Build Megatron's own blend of two files; return its data set."""
    import torch
    from megatron.core.datasets import blended_megatron_dataset_builder as builder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

    class Tokenizer:
        """What its configuration asks of one."""

        unique_identifiers, special_tokens_dict = {"class": "tiny"}, {}
        vocab_size, eod, pad = 600, corpus.end, -1

    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    config = GPTDatasetConfig(
        random_seed=7,
        sequence_length=CONTEXT,
        blend=([str(one.with_suffix("")) for one in corpus.files], [0.7, 0.3]),
        split="100,0,0",
        path_to_cache=str(folder),
        tokenizer=Tokenizer(),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    return builder.BlendedMegatronDatasetBuilder(GPTDataset, [900, 0, 0], lambda: True, config).build()[0]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")  # of other people's libraries
class TestTheLibrariesThemselves:
    """What their own code read is what is found; each in the environment of its `make test-...`."""

    @there("megatron")
    def test_megatron(self, corpus, tmp_path):
        rows = frameworks_cache(corpus, tmp_path)
        from megatron.core.num_microbatches_calculator import RampupBatchsizeNumMicroBatchesCalculator

        ramp, consumed, sizes = RampupBatchsizeNumMicroBatchesCalculator(24, 2, 2, True, 1, 6, 3, 200), 0, []
        for _ in range(50):
            ramp.update(consumed, consistency_check=True)
            sizes.append(ramp.get() * 2 * 2)
            consumed += sizes[-1]
        how = ("--order", "megatron", "--index", tmp_path, "--batch", 24, "--rampup", 6, 3, 200, "--divisor", 4)
        found = corpus.reconstruct(tmp_path / "run", *how, "--steps", "1-45", file=(0, 1))
        labels = corpus.labels(tmp_path / "run")
        assert corpus.stretches > STRETCHES
        assert found["consumed"] == sum(sizes[:45])
        assert [len(labels[step]) for step in range(1, 46)] == sizes[:45]
        assert flat(labels, range(1, 46)) == [rows[at]["labels"].tolist() for at in range(sum(sizes[:45]))]

    @there("olmo_core")
    @pytest.mark.parametrize("chunk", [1, 4])
    def test_olmo(self, corpus, tmp_path, chunk):
        data = importlib.import_module("olmo_core.data")
        paths = []
        for path in corpus.files:
            paths.append(tmp_path / f"{path.stem}.npy")
            paths[-1].write_bytes(path.read_bytes())
        rows = data.NumpyFSLDataset(
            *paths,
            sequence_length=CONTEXT,
            pad_token_id=599,
            eos_token_id=corpus.end,
            vocab_size=600,
            max_target_sequence_length=CONTEXT * chunk,
        )
        from olmo_core.data.data_loader import NumpyDataLoaderBase

        read = []
        for rank in range(2):
            loader = NumpyDataLoaderBase.wrap_numpy_dataset(
                rows,
                global_batch_size=8 * CONTEXT,
                collator=data.DataCollator(pad_token_id=599),
                work_dir=tmp_path,
                dp_world_size=2,
                dp_rank=rank,
                fs_local_rank=0,
                seed=3,
            )
            own = []
            for epoch in (1, 2):
                loader.reshuffle(epoch)
                own += [batch["input_ids"].tolist() for batch in loader]
                loader.reset()
            read.append(own)
        index = [part for one in sorted(tmp_path.glob("global_indices_*.npy")) for part in ("--index", one)]
        assert len(index) == 4
        steps = len(read[0])
        how = ("--order", "olmo", "--context", CONTEXT, "--batch", 8, *index)
        corpus.reconstruct(tmp_path / "run", *how, "--steps", f"1-{steps}", file=(0, 1))
        labels = corpus.labels(tmp_path / "run")
        assert corpus.stretches > STRETCHES
        for step in range(steps):
            expected = [row[1:] for rank in read for row in rank[step]]
            assert sorted(labels[step + 1]) == sorted(expected)  # ranks take every second row
            assert labels[step + 1][::2] == [row[1:] for row in read[0][step]]

    @there("torchtitan")
    def test_torchtitan(self, corpus, tmp_path, monkeypatch):
        text = importlib.import_module("torchtitan.hf_datasets.text_datasets")
        datasets = importlib.import_module("datasets")
        own = [corpus.tokenizer.decode(one, skip_special_tokens=False) for one in corpus.sequences(0)]
        whole = datasets.Dataset.from_dict({"text": [one.removesuffix("<|endoftext|>") for one in own]})

        class Tokenizer:
            """As its own ones are asked."""

            def encode(self, text, **_):
                return [600, *corpus.encode(text), corpus.end]

        config = type(next(iter(text.DATASETS.values())))
        monkeypatch.setitem(
            text.DATASETS,
            "ours",
            config(path="", loader=lambda path: whole, sample_processor=lambda sample: sample["text"]),
        )
        steps, ranks = 60, 3
        loaders = [
            text.HuggingFaceTextDataset("ours", "x", Tokenizer(), CONTEXT, rank, ranks, infinite=True)
            for rank in range(ranks)
        ]
        read = []
        for one in loaders:
            stream = iter(one)
            read.append([next(stream)[1].tolist() for _ in range(steps * 4)])
        how = ("--order", "torchtitan", "--context", CONTEXT, "--micro-batch", 2, "--accumulate", 2, "--ranks", ranks)
        found = corpus.reconstruct(tmp_path / "run", *how, "--begin-token", "--steps", f"1-{steps}")
        labels = corpus.labels(tmp_path / "run")
        assert corpus.stretches > STRETCHES
        for step in range(steps):
            some = [rank[4 * step + 2 * micro :][:2] for micro in (0, 1) for rank in read]
            assert labels[step + 1] == [row for pair in some for row in pair]
        for one, said in zip(loaders, found["positions"], strict=True):
            state = one.state_dict()
            assert said == {
                "sample_idx": state["sample_idx"],
                "epoch": state["epoch"],
                "inputs_buffer": len(state["inputs_buffer"]),
            }
            assert state["epoch"] > 0
