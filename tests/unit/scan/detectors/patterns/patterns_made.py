"""A small registry of made entities, batches of documents, and the answer of the reference implementation."""

from __future__ import annotations

import numpy as np
from reference.patterns import PlainFinding, find_plainly

from dataaudit.scan.detectors.patterns.entity import Candidate, Evidence, FindingBatch
from dataaudit.scan.detectors.patterns.registry import Registry, build_registry
from dataaudit.scan.detectors.patterns.written import Names, parse_layer

MADE = r"""
entities:
  TICKET:
    context: [ticket, "Fall*", "票号", "numéro de billet"]
    reserved: zeros
    normal: digits
    rules:
      - {name: plain, regex: '[0-9]{4}(?:-[0-9]{4}){1,2}', validators: [even]}
      - {name: long, regex: '#[0-9]{3,9}', left: '#', right: '0-9', tiers: {form_bare: drop}}
  MAIL:
    normal: lower
    rules:
      - {regex: '[a-z.]{1,20}@[a-z]{1,10}\.[a-z]{2,5}', prefilter: '@[a-z]', reach: [20, 20], left: 'a-z.',
         right: 'a-z'}
  CODE:
    context: code
    rules:
      - {regex: 'code[ :=]{1,3}(?P<value>[a-z0-9]{3,8})', ignore_case: true, tiers: {form_bare: contextual}}
  STRONG:
    rules:
      - {regex: '[0-9]{4}-[0-9]{4}', passes: strong, validators: [threes]}
"""


def even(candidate: Candidate) -> Evidence:
    return Evidence.WEAK if candidate.text[-1] in "02468" else Evidence.REJECTED


def threes(candidate: Candidate) -> Evidence:
    return Evidence.FORM if "33" in candidate.text else Evidence.REJECTED


def zeros(candidate: Candidate) -> bool:
    return "0000" in candidate.text or candidate.before.endswith("example ")


NAMES = Names(validators={"even": even, "threes": threes}, reserved={"zeros": zeros})


def registry_of(text: str = MADE, *, detector: str = "pii") -> Registry:
    layer = parse_layer(text, where="made.yaml", detector=detector, names=NAMES)
    return build_registry([layer], names=NAMES, versions={})


def batch_of(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    encoded = [text.encode() for text in texts]
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in encoded])]).astype(np.int64)
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets


def listed(batch: FindingBatch) -> list[list[PlainFinding]]:
    """Return the findings of each document by the reference implementation."""
    documents: list[list[PlainFinding]] = [[] for _ in range(len(batch.truncated))]
    for place, document in enumerate(batch.documents.tolist()):
        code = batch.codes[place]
        documents[document].append(
            PlainFinding(
                start=int(batch.starts[place]),
                end=int(batch.ends[place]),
                detector=batch.detectors[code],
                entity=batch.entities[code],
                tier=int(batch.tiers[place]),
                reserved=bool(batch.reserved[place]),
            )
        )
    return documents


def plainly(registry: Registry, texts: list[str]) -> list[list[PlainFinding]]:
    return [find_plainly(text.encode(), registry.entities, registry.validators, registry.reserved) for text in texts]
