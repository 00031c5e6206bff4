"""transformers' Trainer on audited documents: accumulation, workers, checkpoints, a run log.

pip install 'dataaudit[train,hf]' 'transformers>=5' accelerate
python examples/hf_trainer.py MANIFEST RUN [STEPS]
"""

from __future__ import annotations

import sys
from pathlib import Path

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from dataaudit.training import Documents, PackedDocuments, byte_encoder, open_manifest
from dataaudit.training.loaders.collator import TaggedCollator
from dataaudit.training.loaders.trainer import audit_trainer

CONTEXT = 256


def main(manifest: str, run: Path, steps: int) -> None:
    """Train a small model over bytes, or go on with it."""
    corpus = open_manifest(manifest, require="verified")
    rows = PackedDocuments(Documents(corpus, "train", byte_encoder(end=0)), CONTEXT, shift="inner")
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=CONTEXT, n_embd=64, n_layer=2, n_head=2))
    arguments = TrainingArguments(
        run.with_name(f"{run.name}.checkpoints"),
        max_steps=steps,
        gradient_accumulation_steps=2,
        dataloader_num_workers=2,
        logging_steps=10,
        save_steps=50,
        remove_unused_columns=False,
        report_to=[],
    )
    trainer = Trainer(model, arguments, train_dataset=rows, data_collator=TaggedCollator())
    audit_trainer(trainer, run, corpus, resume=True)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(arguments.output_dir))
    print(f"{trainer.state.global_step} steps; dataaudit attribute {run} --manifest {manifest}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 100)
