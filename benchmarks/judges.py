"""The judges of a sample on labelled text: quality, and speed beside the plain use of their libraries.

    python benchmarks/judges.py toxicity CHECKPOINT LABELLED.csv [--documents SHARD.jsonl.zst]
    python benchmarks/judges.py pii LABELLED.json [--model SPACY_MODEL]

`toxicity` reads columns `text` and `is_toxic` (`Toxic` or not) and a checkpoint (benchmarks/judge_checkpoint.py makes
one). `pii` reads presidio-research's generated texts: `full_text`, `spans`. Speed is CPU time on one thread, of one
process, first pass after loading. Prints Markdown.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from backports import zstd

from dataaudit.detectors.judges import quiet
from dataaudit.detectors.toxicity.judge import ToxicityJudge
from dataaudit.detectors.toxicity.judge_model import JudgeModel, JudgeSettings, build, resolve_judge

NAIVE_ROWS = 32
MAX_BYTES = 3_000_000


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
    """Return documents of a shard of JSON lines, 3 MB of text at most, in its order."""
    texts, size = [], 0
    with zstd.open(path, "rb") as file:
        for line in file:
            texts.append(json.loads(line)["text"])
            size += len(texts[-1])
            if size > MAX_BYTES:
                break
    return texts


def toxicity(checkpoint: Path, labelled: Path, documents: Path | None) -> None:
    """Print AUC and accuracy at one half, and speed batched by length, in order, and one by one."""
    model = resolve_judge(JudgeSettings(judge=str(checkpoint.resolve()), device="cpu"), Path())
    assert isinstance(model, JudgeModel), model
    with labelled.open(newline="") as file:
        rows = list(csv.DictReader(file))
    texts = [row["text"] for row in rows]
    truth = np.array([row["is_toxic"] == "Toxic" for row in rows])
    judge, plain = ToxicityJudge(model), build(model.path, model.config_path, "cpu")
    judge.judge(column(texts[:32]))
    scores = judge.judge(column(texts)).probabilities[:, model.main_class]
    right = ((scores >= 0.5) == truth).mean()
    print(f"{len(texts)} comments: AUC {auc(scores, truth):.3f}, accuracy at 0.5 {right:.3f}\n")
    print(
        "| text | documents | MB | batched by length, MB/s | Detoxify, batches of 32 in order | Detoxify, one by one |"
    )
    print("|---|--:|--:|--:|--:|--:|")
    for name, some in (("comments", texts), ("documents", read_documents(documents) if documents else [])):
        if not some:
            continue
        size = sum(len(text.encode()) for text in some) / 1e6
        # Detoxify sees the first 512 tokens of a document, the judge up to eight windows: the same windows for both.
        cut = pieces(some, judge, model)
        shown = sum(len(text.encode()) for text in cut) / 1e6
        ours, judged = seconds(lambda cut=cut: judge.judge(column(cut)))
        rows32 = [cut[begin : begin + NAIVE_ROWS] for begin in range(0, len(cut), NAIVE_ROWS)]
        batched, answers = seconds(lambda rows32=rows32: [plain.predict(one) for one in rows32])
        single, _ = seconds(lambda cut=cut: [plain.predict(one) for one in cut])
        flat = np.array([value for one in answers for value in np.atleast_1d(next(iter(one.values())))])
        apart = np.abs(judged.probabilities[:, 0] - flat).max()
        print(
            f"| {name} | {len(some)} in {len(cut)} windows | {size:.2f}, {shown:.2f} seen | {shown / ours:.3f} "
            f"| {shown / batched:.3f} (ours {batched / ours:.2f} times) "
            f"| {shown / single:.3f} (ours {single / ours:.2f} times) |"
        )
        print(f"<!-- largest difference to Detoxify's answers: {apart:.6f} -->")
    exact(judge, model, texts)


def pieces(texts: list[str], judge: ToxicityJudge, model: JudgeModel) -> list[str]:
    """Return the text of the windows that the judge looks at, as texts of their own."""
    from transformers import AutoTokenizer

    from dataaudit.detectors.toxicity.judge import windows_of

    del judge
    tokenizer = AutoTokenizer.from_pretrained(model.config_path)
    found: list[str] = []
    with quiet():
        for text in texts:
            windows = windows_of(text, tokenizer, window=480, max_windows=model.max_windows, seed=model.seed)
            found += [tokenizer.decode(tokens, skip_special_tokens=True) for tokens in windows.tokens]
    return found


def exact(judge: ToxicityJudge, model: JudgeModel, texts: list[str]) -> None:
    """Print whether answers are the same to the last bit of what is kept, however texts are put together."""
    whole = judge.judge(column(texts)).probabilities
    parts = [judge.judge(column(texts[begin : begin + 7])).probabilities for begin in range(0, len(texts), 7)]
    turned = judge.judge(column(texts[::-1])).probabilities[::-1]
    same = whole.tobytes() == np.concatenate(parts).tobytes() == np.ascontiguousarray(turned).tobytes()
    print(f"\nThe same answers in one call, in calls of seven and in reverse: {same} ({len(model.classes)} classes)")


def pii(labelled: Path, model_name: str | None) -> None:
    """Print recall and hits that touch no labelled span by entity, and speed beside presidio alone."""
    from dataaudit.detectors.pii.analyzer import PiiAnalyzer
    from dataaudit.detectors.pii.analyzer_engine import build_engine, load_nlp
    from dataaudit.detectors.pii.analyzer_model import AnalyzerModel, AnalyzerSettings, resolve_analyzer
    from dataaudit.detectors.pii.shipped import load_pii

    records = json.loads(labelled.read_text())
    texts = [record["full_text"] for record in records]
    model = resolve_analyzer(AnalyzerSettings(model=model_name), load_pii(), Path())
    assert isinstance(model, AnalyzerModel), model
    analyzer = PiiAnalyzer(model)
    analyzer.analyze(column(texts[:20]))
    ours, analysis = seconds(lambda: analyzer.analyze(column(texts)))
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
    size = sum(len(text.encode()) for text in texts) / 1e6
    print(
        f"{len(texts)} texts, {size:.2f} MB: {size / ours:.3f} MB/s; presidio's recognizers alone {size / alone:.3f}\n"
    )
    print("| entity | labelled | recall | hits | that touch no label of any kind |")
    print("|---|--:|--:|--:|--:|")
    hits: dict[int, list[tuple[str, int, int]]] = {}
    for document, code, start, end in zip(
        analysis.documents.tolist(),
        analysis.codes.tolist(),
        analysis.starts.tolist(),
        analysis.ends.tolist(),
        strict=True,
    ):
        data = texts[document].encode()
        begin = len(data[:start].decode())
        hits.setdefault(document, []).append((analysis.entities[code], begin, begin + len(data[start:end].decode())))
    for name in analysis.entities:
        spans = [
            (index, span["start_position"], span["end_position"])
            for index, record in enumerate(records)
            for span in record["spans"]
            if span["entity_type"] == name
        ]
        met = sum(
            any(kind == name and begin < stop and start < end for kind, begin, end in hits.get(index, []))
            for index, start, stop in spans
        )
        own = [(index, begin, end) for index, some in hits.items() for kind, begin, end in some if kind == name]
        free = sum(
            not any(s["start_position"] < end and begin < s["end_position"] for s in records[index]["spans"])
            for index, begin, end in own
        )
        if spans or own:
            recall = f"{met / len(spans):.3f}" if spans else ""
            print(f"| {name} | {len(spans)} | {recall} | {len(own)} | {free} |")


def main() -> None:
    """Measure one of the two judges."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    one = kinds.add_parser("toxicity")
    one.add_argument("checkpoint", type=Path)
    one.add_argument("labelled", type=Path)
    one.add_argument("--documents", type=Path)
    two = kinds.add_parser("pii")
    two.add_argument("labelled", type=Path)
    two.add_argument("--model")
    arguments = parser.parse_args()
    if arguments.kind == "toxicity":
        toxicity(arguments.checkpoint, arguments.labelled, arguments.documents)
    else:
        pii(arguments.labelled, arguments.model)


if __name__ == "__main__":
    main()
