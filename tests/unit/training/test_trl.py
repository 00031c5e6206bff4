"""TRL's SFTTrainer under a run log: packed, padding-free or padded, it trains as without us, and its tags are right."""

from collections import Counter

import numpy as np
import pytest
from reading import bits, logged_rows, read_back, steps_of, trained_tokens

from dataaudit.base.errors import ConfigError, TagsError
from dataaudit.training.loaders.collator import TaggedCollator
from dataaudit.training.loaders.hub import tagged_dataset
from dataaudit.training.loaders.token_tags import tag_tokens

torch = pytest.importorskip("torch", reason="the trainer's tensors are torch's")
trl = pytest.importorskip("trl", reason="TRL's trainer is what is tested")
import tokenizers  # noqa: E402 - after the skip
import transformers  # noqa: E402 - after the skip

from dataaudit.training.loaders.trainer import audit_trainer  # noqa: E402 - after the skip

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # those of other people's libraries
CONTEXT, STEPS, PLACE = 128, 6, ["shard", "row", "source"]
COMMON = {
    "max_steps": STEPS,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": [],
    "disable_tqdm": True,
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "max_length": None,
    "remove_unused_columns": False,
    "seed": 1,
}
PREPARED = {"dataset_kwargs": {"skip_prepare_dataset": True}}
WAYS = {
    "bfd": {"padding_free": True, **PREPARED},
    "bfd_split": {"padding_free": True, **PREPARED},
    "wrapped": PREPARED,
    "padding-free": {"padding_free": True, **PREPARED},
    "padded": {},
    "padded, cut": {"max_length": CONTEXT // 2},
}


@pytest.fixture(scope="module")
def records(documents):
    return tagged_dataset(documents)


@pytest.fixture(scope="module")
def tokenizer():
    """Knows the names of 256 tokens, which is all that the trainer asks it for."""
    words = tokenizers.models.WordLevel({f"t{one}": one for one in range(256)}, unk_token="t1")
    own = tokenizers.Tokenizer(words)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=own, eos_token="t0", pad_token="t1")


def rows_of(records, way):
    """Return what a trainer is given, packed where the way is a strategy."""
    if way not in ("bfd", "bfd_split", "wrapped"):
        return records
    return trl.pack_dataset(records.map(tag_tokens, remove_columns=PLACE), CONTEXT, way)


def model():
    """Return a tiny Llama over bytes, with dropout of attention."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        attention_dropout=0.1,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    return transformers.LlamaForCausalLM(config)


def trainer_of(folder, rows, tokenizer, **more):
    arguments = trl.SFTConfig(folder / "out", **COMMON | more)
    return trl.SFTTrainer(model(), arguments, train_dataset=rows, processing_class=tokenizer)


def result(trainer):
    """Train; return what was logged, weights and random state, to the bit, and the targets of each step by token."""
    counts, own = Counter(), trainer.training_step

    def seen(model, inputs, *arguments, **more):
        labels = inputs["labels"][:, 1:].flatten()
        counts.update(labels[labels != -100].tolist())
        return own(model, inputs, *arguments, **more)

    trainer.training_step = seen
    trainer.train()
    logged = [(one["loss"], one["grad_norm"], one["entropy"]) for one in trainer.state.log_history if "loss" in one]
    return (logged, *bits(trainer.model)), counts


@pytest.mark.parametrize("way", WAYS)
def test_it_trains_as_without_us_to_the_bit_and_its_log_has_what_it_trained_on(
    records, corpus, tokenizer, tmp_path, way
):
    rows = rows_of(records, way)
    plain = rows.remove_columns([one for one in rows.column_names if one not in ("input_ids", "seq_lengths")])
    without, _ = result(trainer_of(tmp_path, plain, tokenizer, **WAYS[way]))
    found, counts = result(audit_trainer(trainer_of(tmp_path, rows, tokenizer, **WAYS[way]), tmp_path / "run", corpus))
    assert found == without
    assert trained_tokens(tmp_path / "run") == counts
    steps = logged_rows(tmp_path / "run", "steps")
    assert [one["micro_batches"] for one in steps] == [2] * STEPS
    for one, (loss, *_) in zip(steps, found[0], strict=True):
        assert one["targets"] == one["scored"] > 0
        assert one["loss_sum"] / one["targets"] == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_every_stretch_is_its_documents_bytes(made, records, corpus, tokenizer, tmp_path, way):
    trainer = audit_trainer(
        trainer_of(tmp_path, rows_of(records, way), tokenizer, **WAYS[way]), tmp_path / "run", corpus
    )
    loader = torch.utils.data.DataLoader(
        trainer.train_dataset, 4, shuffle=True, collate_fn=trainer.data_collator, generator=torch.Generator()
    )
    read_back(made, corpus, loader, cut=way == "padded, cut")


@pytest.mark.parametrize("strategy", ["bfd", "bfd_split", "wrapped"])
def test_packing_by_the_trainer_says_the_lines_that_keep_tags(records, corpus, tokenizer, tmp_path, strategy):
    more = {"packing": True, "packing_strategy": strategy, "max_length": CONTEXT, "remove_unused_columns": True}
    trainer = trainer_of(tmp_path, records, tokenizer, **more)
    with pytest.raises(ConfigError, match="keeps `input_ids` and `labels` alone") as error:
        audit_trainer(trainer, tmp_path / "run", corpus)
    lines = error.value.hint.splitlines()[1:]
    assert len(lines) == 3
    known = {"pack_dataset": trl.pack_dataset, "SFTTrainer": trl.SFTTrainer, "tag_tokens": tag_tokens}
    known |= {"model": model(), "tokenizer": tokenizer, "records": records}
    own = {name: value for name, value in COMMON.items() if name not in ("max_length", "remove_unused_columns")}
    known["SFTConfig"] = lambda **given: trl.SFTConfig(tmp_path / "out", **own, **given)
    exec("\n".join(lines).replace("(..., ", "("), known)  # noqa: S102
    audit_trainer(known["trainer"], tmp_path / "run", corpus).train()
    assert len(steps_of(tmp_path / "run")) == STEPS


def test_cuts_of_the_trainer_that_tags_would_not_follow_are_refused(records, corpus, tokenizer, tmp_path):
    """At the front of documents, and of tokens without their tags."""
    trainer = trainer_of(tmp_path, records, tokenizer, max_length=CONTEXT // 2, truncation_mode="keep_end")
    with pytest.raises(ConfigError, match="cuts documents at their front"):
        audit_trainer(trainer, tmp_path / "run", corpus)
    tagged = records.map(tag_tokens, remove_columns=PLACE)
    trainer = audit_trainer(trainer_of(tmp_path, tagged, tokenizer, max_length=9), tmp_path / "again", corpus)
    with pytest.raises(TagsError, match="of them tagged"):
        trainer.train()


@pytest.mark.parametrize("name", ["GRPOTrainer", "DPOTrainer", "RewardTrainer", "RLOOTrainer", "KTOTrainer"])
def test_trainers_of_preferences_and_of_own_samples_are_out_of_scope_by_name(corpus, tmp_path, name):
    """And so are subclasses of them."""
    for kind in (getattr(trl, name), type("Mine", (getattr(trl, name),), {})):
        trainer = object.__new__(kind)
        with pytest.raises(ConfigError, match=f"{name} is out of scope"):
            audit_trainer(trainer, tmp_path / "run", corpus)
    assert not (tmp_path / "run").exists()


def test_a_trainer_of_yours_around_theirs_and_a_collator_of_ours_are_taken(records, corpus, tokenizer, tmp_path):
    class Mine(trl.SFTTrainer):
        def compute_loss(self, model, inputs, *arguments, **more):
            return super().compute_loss(model, inputs, *arguments, **more) * 1

    collate = trl.trainer.sft_trainer.DataCollatorForLanguageModeling(pad_token_id=1)
    arguments = trl.SFTConfig(tmp_path / "out", **COMMON)
    trainer = Mine(
        model(),
        arguments,
        train_dataset=records,
        eval_dataset=records.select(range(4)).remove_columns(PLACE),
        data_collator=TaggedCollator(collate),
        processing_class=tokenizer,
    )
    audit_trainer(trainer, tmp_path / "run", corpus).train()
    assert np.isfinite(trainer.evaluate()["eval_loss"])
    assert logged_rows(tmp_path / "run", "stretches")
