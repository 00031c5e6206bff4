"""ToxicityJudge: Detoxify's answer for each document of a sample."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataaudit.detectors.quiet import quiet
from dataaudit.detectors.toxicity.judge_batches import CPU_TOKENS, GPU_TOKENS, Batch, batches
from dataaudit.detectors.toxicity.judge_checkpoint import CheckpointError, build
from dataaudit.detectors.toxicity.judge_files import config_sha256, file_sha256
from dataaudit.detectors.toxicity.judge_model import JudgeModel
from dataaudit.detectors.toxicity.judge_windows import window_limit, windows_of
from dataaudit.errors import DetectorError
from dataaudit.guarded import Guarded

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
    """int16[n] windows that were looked at; 0 where the document was not encoded."""
    whole: npt.NDArray[np.bool_]
    """bool[n]: those windows are all of the document."""
    failures: tuple[Failure | None, ...]
    """[n] why there is no answer; None where there is one."""


class ToxicityJudge:
    """A judge, loaded when it is first asked, once in a process.

    The same text has the same answer whatever is asked beside it; between processors the last decimal may differ.

    Args:
        model: What :func:`dataaudit.detectors.toxicity.judge_resolve.resolve_judge` found.
    """

    def __init__(self, model: JudgeModel) -> None:
        self.model = model

    def judge(self, texts: pa.LargeStringArray) -> Judged:
        """Judge documents.

        Args:
            texts: large_string[n], without nulls.

        Raises:
            DetectorError: The weights are gone or are not those that were found, or the device is not here. What a
                document does to the libraries is never raised.
        """
        with quiet():
            return _loaded(self.model).judge(texts)

    @staticmethod
    def release() -> None:
        """Give the memory of the model back; the next question loads it again."""
        _loaded.cache_clear()


class _Loaded:
    """The model and the tokenizer in memory."""

    def __init__(self, model: JudgeModel) -> None:
        import torch

        self.model = model
        self.device = _device(model.device)
        judge = _build(model, self.device)
        torch.set_num_threads(1)  # workers are one to a core; and the number of threads may move the last digit
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
            found = None
            with Guarded():
                found = windows_of(
                    text.as_py(),
                    self._tokenizer,
                    window=self._limit,
                    max_windows=self.model.max_windows,
                    seed=self.model.seed,
                )
            if found is None:
                failures[index] = Failure.NOT_ENCODED
                continue
            counts[index], whole[index] = len(found.tokens), found.whole
            windows += found.tokens
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
            with Guarded() as call:
                answers[batch.windows] = self._ask(batch)[: len(batch.windows)]
            if call.error is not None:  # one window must not cost the others their answers
                for row, window in enumerate(batch.windows.tolist()):
                    answers[window] = self._ask_alone(batch, row)
        return answers

    def _ask_alone(self, batch: Batch, row: int) -> npt.NDArray[np.float32] | float:
        rows = np.full(len(batch.ids), row)
        with Guarded():
            answer: npt.NDArray[np.float32] = self._ask(
                Batch(windows=batch.windows[row : row + 1], ids=batch.ids[rows], mask=batch.mask[rows])
            )[0]
            return answer
        return float("inf")

    def _ask(self, batch: Batch) -> npt.NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            ids = torch.from_numpy(batch.ids).to(self.device)
            mask = torch.from_numpy(batch.mask).to(self.device)
            logits = self._network(input_ids=ids, attention_mask=mask)[0][:, : len(self.model.classes)]
            probabilities: npt.NDArray[np.float64] = torch.sigmoid(logits.to("cpu", torch.float64)).numpy()
        return np.round(probabilities, DIGITS).astype(np.float32)


@lru_cache(maxsize=1)
def _loaded(model: JudgeModel) -> _Loaded:
    return _Loaded(model)


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
