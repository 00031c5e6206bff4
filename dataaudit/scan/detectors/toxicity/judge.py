"""The toxicity judge: Detoxify's answer for each document of a sample, from windows of its own tokens.

A window's answer does not depend on the other windows of its batch. A product of matrices of another shape may add in
another order, and the last digit moves. So batches have fixed shapes: a window is padded to the next of a few lengths,
and each length has a fixed number of rows; rows that are left over are filled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataaudit.base.errors import CatchErrors, DetectorError
from dataaudit.scan.detectors.judges import draw, quiet
from dataaudit.scan.detectors.toxicity.judge_model import CheckpointError, JudgeModel, build, config_sha256, file_sha256

DIGITS = 4
"""Decimal places of an answer: more than these may differ between processors."""


class Failure(StrEnum):
    """Why a document of the sample has no answer."""

    NOT_ENCODED = "judge_not_encoded"
    """The tokenizer does not take it."""
    FAILED = "judge_failed"
    """The model raised, with this document alone too."""
    NOT_FINITE = "judge_not_finite"
    """The answer is no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Answers for ``n`` documents."""

    probabilities: npt.NDArray[np.float32]
    """float32[n, classes] the largest of the document's windows, to 4 decimals; NaN in the rows that failed."""
    windows: npt.NDArray[np.int16]
    """int16[n] windows that were judged; 0 where the document was not encoded."""
    whole: npt.NDArray[np.bool_]
    """bool[n]: those windows are all of the document."""
    failures: tuple[Failure | None, ...]
    """[n] why there is no answer; None where there is one."""


class ToxicityJudge:
    """A judge, loaded at its first call, once in a process.

    The same text has the same answer in any batch; between processors the last decimal may differ.
    """

    def __init__(self, model: JudgeModel) -> None:
        self.model = model

    def judge(self, texts: pa.LargeStringArray) -> Judged:
        """Judge documents."""
        with quiet():
            return _loaded(self.model).judge(texts)

    @staticmethod
    def release() -> None:
        """Free the memory of the model; the next call loads it again."""
        _loaded.cache_clear()


class _Loaded:
    """The model and the tokenizer in memory."""

    def __init__(self, model: JudgeModel) -> None:
        import torch

        self.model = model
        self.device = _device(model.device)
        judge = _build(model, self.device)
        torch.set_num_threads(1)  # each core has a worker; and the number of threads may move the last digit
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        self._network = judge.model
        self._tokenizer = judge.tokenizer
        self._limit = window_limit(judge.tokenizer, judge.model.config, model.window)
        self._pad = judge.tokenizer.pad_token_id or 0
        self._tokens = CPU_TOKENS if self.device == "cpu" else GPU_TOKENS

    def judge(self, texts: pa.LargeStringArray) -> Judged:
        number, classes = len(texts), len(self.model.classes)
        failures: list[Failure | None] = [None] * number
        counts = np.zeros(number, dtype=np.int16)
        whole = np.zeros(number, dtype=np.bool_)
        windows: list[list[int]] = []
        for index, text in enumerate(texts):
            tokens: list[list[int]] = []
            with CatchErrors() as call:
                tokens, whole[index] = windows_of(
                    text.as_py(),
                    self._tokenizer,
                    window=self._limit,
                    max_windows=self.model.max_windows,
                    seed=self.model.seed,
                )
            if call.error is not None:
                failures[index] = Failure.NOT_ENCODED
                continue
            counts[index] = len(tokens)
            windows += tokens
        answers = self._answers(windows)
        probabilities = np.full((number, classes), np.nan, dtype=np.float32)
        starts = np.cumsum(counts) - counts
        for index in np.flatnonzero(counts).tolist():
            own = answers[starts[index] : starts[index] + counts[index]]
            if np.isinf(own).any():
                failures[index] = Failure.FAILED
            elif np.isnan(own).any():
                failures[index] = Failure.NOT_FINITE
            else:
                probabilities[index] = own.max(axis=0)
        return Judged(probabilities=probabilities, windows=counts, whole=whole, failures=tuple(failures))

    def _answers(self, windows: list[list[int]]) -> npt.NDArray[np.float32]:
        """float32[w, classes] of each window: NaN where the answer is no number, inf where the model raised."""
        answers = np.full((len(windows), len(self.model.classes)), np.inf, dtype=np.float32)
        for batch in batches(windows, limit=self._limit, tokens=self._tokens, pad=self._pad):
            with CatchErrors() as call:
                answers[batch.windows] = self._probabilities(batch.ids, batch.mask)[: len(batch.windows)]
            if call.error is not None:  # a window must not cost the others their answers
                for row, window in enumerate(batch.windows.tolist()):
                    rows = np.full(len(batch.ids), row)
                    with CatchErrors():
                        answers[window] = self._probabilities(batch.ids[rows], batch.mask[rows])[0]
        return answers

    def _probabilities(self, tokens: npt.NDArray[np.int64], masks: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            ids = torch.from_numpy(tokens).to(self.device)
            mask = torch.from_numpy(masks).to(self.device)
            logits = self._network(input_ids=ids, attention_mask=mask)[0][:, : len(self.model.classes)]
            probabilities: npt.NDArray[np.float64] = torch.sigmoid(logits.to("cpu", torch.float64)).numpy()
        return np.round(probabilities, DIGITS).astype(np.float32)


_loaded = lru_cache(maxsize=1)(_Loaded)


def _device(wanted: str) -> str:
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        raise DetectorError("toxicity.device: a worker has no CUDA device", "Use `auto` or `cpu`.")
    return wanted


def _build(model: JudgeModel, device: str) -> Any:
    try:
        same = (file_sha256(model.path), config_sha256(model.config_path)) == (model.sha256, model.config_sha256)
    except OSError as error:
        raise DetectorError(
            f"toxicity.judge: {model.path} cannot be read on a worker ({error.strerror})",
            "Put it where every worker reaches it.",
        ) from None
    if not same:
        raise DetectorError(f"toxicity.judge: {model.path} changed while the build used it", "Run it again.")
    try:
        return build(model.path, model.config_path, device)
    except CheckpointError as error:
        raise DetectorError(f"toxicity.judge: {model.path} cannot be used: {error.message}", "Run it again.") from None


LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 320, 384, 448, 512)
"""Tokens that windows are padded to."""
CPU_TOKENS = 512
"""Tokens of a batch on a CPU, where more at once gain nothing."""
GPU_TOKENS = 32768
"""Tokens of a batch on a GPU."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Windows of about the same length."""

    windows: npt.NDArray[np.int64]
    """int64[w] numbers of the windows, ascending by length, then by number; the first w rows."""
    ids: npt.NDArray[np.int64]
    """int64[r, length] tokens, padded."""
    mask: npt.NDArray[np.int64]
    """int64[r, length] 1 where there is a token."""


def batches(windows: Sequence[Sequence[int]], *, limit: int, tokens: int, pad: int) -> Iterator[Batch]:
    """Put windows into batches."""
    sizes = np.array([len(window) for window in windows], dtype=np.int64)
    lengths = np.array(sorted({min(length, limit) for length in (*LENGTHS, limit)}), dtype=np.int64)
    order = np.argsort(sizes, kind="stable")
    groups = np.searchsorted(lengths, sizes[order])
    for group in np.unique(groups).tolist():
        length = int(lengths[group])
        rows = max(1, tokens // length)
        members = order[groups == group]
        for begin in range(0, len(members), rows):
            yield _batch(windows, members[begin : begin + rows], rows=rows, length=length, pad=pad)


def _batch(
    windows: Sequence[Sequence[int]], members: npt.NDArray[np.int64], *, rows: int, length: int, pad: int
) -> Batch:
    ids = np.full((rows, length), pad, dtype=np.int64)
    mask = np.zeros((rows, length), dtype=np.int64)
    for row in range(rows):
        # Rows left over repeat the last window: a row of padding alone has no answer.
        window = windows[members[min(row, len(members) - 1)]]
        ids[row, : len(window)] = window
        mask[row, : len(window)] = 1
    return Batch(windows=members, ids=ids, mask=mask)


SEGMENT = 1 << 15
"""Characters of a segment. A document of more than ``max_windows`` of them is never encoded as a whole: as many
segments are drawn, and a window of each."""


def windows_of(text: str, tokenizer: Any, *, window: int, max_windows: int, seed: int) -> tuple[list[list[int]], bool]:
    """Return the ids of a document's windows, at most ``max_windows`` and drawn by its text, and whether it is whole.

    Windows are in the document's order, with the ids that the tokenizer adds.
    """
    if len(text) <= SEGMENT * max_windows:
        tokens = _encode(text, tokenizer, window)
        if len(tokens) <= max_windows:
            return tokens, True
        return [tokens[index] for index in draw(text, len(tokens), max_windows, seed)], False
    chosen = []
    for index in draw(text, -(-len(text) // SEGMENT), max_windows, seed):
        segment = text[index * SEGMENT : (index + 1) * SEGMENT]
        tokens = _encode(segment, tokenizer, window)
        chosen.append(tokens[draw(segment, len(tokens), 1, seed)[0]])
    return chosen, False


def _encode(text: str, tokenizer: Any, window: int) -> list[list[int]]:
    tokens: list[list[int]] = tokenizer(
        text,
        truncation=True,
        max_length=window,
        return_overflowing_tokens=True,
        return_attention_mask=False,
        return_token_type_ids=False,
    )["input_ids"]
    return tokens


def window_limit(tokenizer: Any, config: Any, window: int) -> int:
    """Return how many tokens a model can take at once, at most a window."""
    limit = min(window, int(tokenizer.model_max_length))
    positions = getattr(config, "max_position_embeddings", None)
    if positions:
        # Models of the RoBERTa family count positions from the padding token on.
        first = config.pad_token_id + 1 if "roberta" in config.model_type else 0
        limit = min(limit, int(positions) - first)
    return limit
