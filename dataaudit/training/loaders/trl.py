"""TRL's ``SFTTrainer`` under a run log: what it packs by itself has no tags, so it is packed before.

Nothing here imports TRL. Trainers of preferences and of what a model writes itself are out of scope: their batches are
no documents of the corpus.
"""

from __future__ import annotations

from typing import Any

from dataaudit.errors import ConfigError
from dataaudit.training.loaders.collator import TaggedCollator
from dataaudit.training.loaders.token_tags import PER_TOKEN, PLACE

_FOLLOWED = "SFTTrainer"
_LINES = """Pack before it, with `pack_dataset` of trl and `tag_tokens` of dataaudit.training.loaders.token_tags:
rows = pack_dataset(records.map(tag_tokens, remove_columns=["shard", "row", "source"]), {length}, "{strategy}")
config = SFTConfig(..., packing=False, {free}max_length=None, remove_unused_columns=False, \
dataset_kwargs={{"skip_prepare_dataset": True}})
trainer = SFTTrainer(model, config, train_dataset=rows, processing_class=tokenizer)"""


def trl_trainer(kind: type) -> str:
    """Return the name of the trainer of TRL that a class is, or is made of; empty where it is none."""
    own = (one.__name__ for one in kind.__mro__ if one.__module__.split(".")[0] == "trl")
    return next(own, "")


def prepare_trl(trainer: Any) -> bool:
    """Make a trainer of TRL hand on tags; return whether it is one.

    Its own collator stays and makes the batches, whether padded or in one row; ours goes around it.

    Args:
        trainer: Of TRL, or any other, which is left as it is.

    Raises:
        ConfigError: It trains on other things than documents, or its packing has dropped the columns of tags.
    """
    name = trl_trainer(type(trainer))
    if not name:
        return False
    if name != _FOLLOWED:
        raise ConfigError(
            f"{name} is out of scope: it trains on preferences or on what the model wrote, not on documents",
            "Tags and losses by document are for SFTTrainer and transformers' Trainer. `Vitals` watches any model.",
        )
    args, columns = trainer.args, set(getattr(trainer.train_dataset, "column_names", None) or ())
    if args.packing and not (columns >= set(PER_TOKEN) or columns >= set(PLACE)):
        bins = args.packing_strategy != "wrapped"
        raise ConfigError(
            "SFTTrainer(packing=True) keeps `input_ids` and `labels` alone: the columns of tags are gone",
            _LINES.format(
                length=args.max_length,
                strategy=args.packing_strategy,
                free="padding_free=True, " if bins else "",
            ),
        )
    prepared = (args.dataset_kwargs or {}).get("skip_prepare_dataset", False)
    if args.truncation_mode == "keep_end" and args.max_length is not None and not prepared:
        raise ConfigError(
            'truncation_mode="keep_end" cuts documents at their front: tags would name tokens that are gone',
            'truncation_mode="keep_start", or cut the records before, and give each the column `offset`.',
        )
    if not isinstance(trainer.data_collator, TaggedCollator):
        trainer.data_collator = TaggedCollator(trainer.data_collator)
    return True
