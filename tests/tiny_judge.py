"""Makes small checkpoints of the form that Detoxify publishes: BERT with two layers and a vocabulary of words."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = ("you", "are", "a", "the", "good", "day", "letter", "and", "of", "to", "we", "read", "it", ".", ",")
TOXIC = ("vile", "filth", "scum")
INSULT = ("fool", "idiot")
VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *TOXIC, *INSULT)
HIDDEN = 32


def write_checkpoint(folder: Path, *, classes=("toxic",), knows_words=True, beside=True, seed=1) -> Path:
    """Write settings, a vocabulary and a checkpoint into a folder; return the checkpoint's path.

    Args:
        folder: Created if absent.
        classes: Names as in the data set that it was trained on, ``toxic`` and ``insult`` among them.
        knows_words: Whether its weights are set so that :data:`TOXIC` words raise all classes but ``insult`` and
            :data:`INSULT` words that one; otherwise they are random, and large enough for all to matter.
        beside: Whether the checkpoint names the folder by a path relative to its own place.
        seed: Of the random weights.
    """
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    folder.mkdir(parents=True, exist_ok=True)
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=512,
        num_labels=len(classes),
        initializer_range=0.4,
    )
    torch.manual_seed(seed)
    model = BertForSequenceClassification(config).eval()
    if knows_words:
        _teach(model, classes)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    (folder / "config.json").write_text(json.dumps({**config.to_dict(), "model_type": "bert"}))
    arguments = {
        "model_type": "." if beside else str(folder),
        "model_name": "BertForSequenceClassification",
        "tokenizer_name": "BertTokenizer",
        "num_classes": len(classes),
    }
    path = folder / "tiny.ckpt"
    settings = {"dataset": {"args": {"classes": list(classes)}}, "arch": {"args": arguments}}
    torch.save({"config": settings, "state_dict": model.state_dict()}, path)
    return path


def _teach(model, classes) -> None:
    """Set the weights: each token looks at all alike, and the first one carries how many bad words it saw."""
    import torch

    kinds = dict.fromkeys(TOXIC, 4) | dict.fromkeys(INSULT, 6)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.endswith("LayerNorm.weight"):
                parameter.zero_()
        words = model.bert.embeddings.word_embeddings.weight
        for index, word in enumerate(VOCABULARY):
            # Two places of opposite sign, which a layer's normalisation leaves alone.
            place = kinds.get(word, 8 if word.startswith("[") else 2)
            words[index, place], words[index, place + 1] = 1.0, -1.0
        first = model.bert.encoder.layer[0].attention
        first.self.value.weight.copy_(torch.eye(HIDDEN))
        first.output.dense.weight.copy_(torch.eye(HIDDEN))
        model.bert.pooler.dense.weight.copy_(torch.eye(HIDDEN))
        for index, name in enumerate(classes):
            model.classifier.weight[index, 6 if name == "insult" else 4] = 2000.0
            model.classifier.bias[index] = -5.0
