"""What detectors would say of texts, made of the texts alone: for tests of what comes after the detectors."""

import numpy as np

from dataaudit.scan.detectors.patterns.entity import FindingBatch
from dataaudit.scan.detectors.toxicity.screen import ScreenBatch

ENTITIES = (("pii", "EMAIL_ADDRESS"), ("pii", "PHONE_NUMBER"), ("secrets", "AWS_KEY"), ("secrets", "JWT"))


def made_screen(texts):
    """Return a score for each text: the longer, the more toxic; an empty one is not screened."""
    sizes = np.array([len(text) for text in texts], dtype=np.int64)
    probability = np.where(sizes > 0, np.minimum(sizes / 500, 1.0), 0.0)
    return ScreenBatch(raw=sizes, probability=probability, screened=sizes > 0)


def made_findings(texts):
    """Return up to three findings a text, of every entity, tier and kind in turn."""
    rows = []
    for document, text in enumerate(texts):
        size = len(text.encode())
        for number in range(min(3, size // 5)):
            entity, tier = (size + number) % len(ENTITIES), (size // 3 + number) % 3
            rows.append((document, entity, tier, (size + number) % 5 == 0, 2 * number, 2 * number + 1, 0.5 + tier / 8))
    columns = list(zip(*rows, strict=True)) or [()] * 7
    kinds = (np.int32, np.int16, np.int8, np.bool_, np.int64, np.int64, np.float32)
    names = ("documents", "codes", "tiers", "reserved", "starts", "ends", "scores")
    return FindingBatch(
        detectors=tuple(detector for detector, _ in ENTITIES),
        entities=tuple(name for _, name in ENTITIES),
        truncated=np.array([len(text) > 1000 for text in texts], dtype=bool),
        **{name: np.array(column, dtype=kind) for name, column, kind in zip(names, columns, kinds, strict=True)},
    )
