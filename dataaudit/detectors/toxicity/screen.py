"""The toxicity screen: a linear model of words, pairs of words and pieces of words, over every document.

It judges English. A document of another language is not screened; one whose language nobody could tell is, when
English words are in it.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dataaudit.corpus.languages import UND, LanguageBatch
from dataaudit.corpus.screening import ScreenBatch
from dataaudit.detectors.base import DetectorModel
from dataaudit.detectors.toxicity.screen_file import ScreenFile, read_screen
from dataaudit.errors import DetectorError
from dataaudit.kernels.toxic import toxic_scores
from dataaudit.kernels.words import WordBatch, split_words

NAME = "dataaudit-screen"
ONE_IN = 12
"""A document of unknown language is English when so many of its words, or fewer, hold one of ``ENGLISH``."""
ENGLISH = (
    b"the and that you this with for have what your not are they which would from were been who will their about"
    b" there when can all how out my is it to of"
)


class ToxicityScreen:
    """The screen, loaded; it says the same of a document whatever stands beside it in a batch.

    Raises:
        DetectorError: The model is gone, or is not the one that was named.
    """

    def __init__(self, model: DetectorModel) -> None:
        assert model.path is not None
        data = _read(model.path)
        if sha256(data).hexdigest() != model.sha256:
            raise DetectorError(f"toxicity: {model.path} is not the model that was named", "Install dataaudit again.")
        self.model = model
        self.file: ScreenFile = read_screen(data, str(model.path))

    def score(
        self, values: np.ndarray, offsets: np.ndarray, words: WordBatch, languages: LanguageBatch | None
    ) -> ScreenBatch:
        """Score documents.

        Args:
            values: uint8[b] the documents' valid UTF-8, one after another.
            offsets: int64[n + 1] of the documents in it.
            words: The words of these documents.
            languages: Their languages; None if nobody has looked, which is as if none could be told.
        """
        screened = self._screened(words, languages)
        raw = toxic_scores(values, offsets, words, screened, self.file.weights)
        raw[screened] += self.file.bias
        places = np.searchsorted(self.file.steps, raw, side="right")
        probability, low, high = (
            np.where(screened, table[places], 0.0) for table in (self.file.probabilities, self.file.low, self.file.high)
        )
        return ScreenBatch(raw=raw, probability=probability, low=low, high=high, screened=screened)

    def threshold(self, probability: float = 0.5) -> int:
        """Return the least raw score whose probability is at least so much; above all scores if none is."""
        place = int(np.searchsorted(self.file.probabilities, probability, side="left"))
        if place == 0:
            return int(np.iinfo(np.int64).min)
        return int(self.file.steps[place - 1]) if place <= len(self.file.steps) else int(np.iinfo(np.int64).max)

    def _screened(self, words: WordBatch, languages: LanguageBatch | None) -> npt.NDArray[np.bool_]:
        """Tell which documents hold words and are in a language of the model."""
        counts = words.num_words()
        if languages is None:
            english, unknown = np.zeros(len(counts), dtype=np.bool_), np.ones(len(counts), dtype=np.bool_)
        else:
            known = np.array([name in self.model.languages for name in languages.names], dtype=np.bool_)
            english = known[languages.codes]
            unknown = np.array([name == UND for name in languages.names], dtype=np.bool_)[languages.codes]
        screened: npt.NDArray[np.bool_] = english & (counts > 0)
        for document in np.flatnonzero(unknown & (counts > 0)).tolist():
            hashes = words.hashes[words.offsets[document] : words.offsets[document + 1]]
            screened[document] = int(np.isin(hashes, _english_words()).sum()) * ONE_IN >= len(hashes)
        return screened


@cache
def find_screen() -> DetectorModel:
    """Return what names the screen of this package.

    Raises:
        DetectorError: Its file is not there, or not whole.
    """
    path = packaged_screen()
    data = _read(path)
    about = read_screen(data, str(path)).about
    return DetectorModel(
        name=NAME,
        version=str(about["version"]),
        sha256=sha256(data).hexdigest(),
        languages=tuple(about["languages"]),
        path=path,
    )


def packaged_screen() -> Path:
    """Return where the model lies."""
    return Path(__file__).parent / "screen.npz"


@cache
def _english_words() -> np.ndarray:
    """uint64[k] hashes of ``ENGLISH``."""
    return split_words(np.frombuffer(ENGLISH, dtype=np.uint8), np.array([0, len(ENGLISH)], dtype=np.int64)).hashes


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DetectorError(f"toxicity: {path} cannot be read ({error.strerror})", "Install dataaudit again.") from None
