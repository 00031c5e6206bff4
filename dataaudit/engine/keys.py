"""Keys of partials: digests of everything that decides a result, and of nothing else."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from typing import Any

from dataaudit import __version__
from dataaudit.corpus.fields import FieldRule
from dataaudit.corpus.readers import READER_VERSION, Part
from dataaudit.corpus.shards import Compression, Format
from dataaudit.corpus.texts import NORMAL_FORM, NORMAL_FORM_VERSION
from dataaudit.corpus.tokens import Risks, TokenizerFile
from dataaudit.detectors.lid176 import FASTTEXT
from dataaudit.engine.store import STORE_VERSION
from dataaudit.manifest.canonical import digest_json
from dataaudit.stages.base import Stage, parameters

NUMERIC_LIBRARIES = (
    "detect-secrets",
    FASTTEXT,
    "gigatoken",
    "hyperscan",
    "numba",
    "numpy",
    "orjson",
    "phonenumbers",
    "pyarrow",
    "pycld2",
    "python-stdnum",
    "scipy",
    "sentencepiece",
    "tokenizers",
)
SAMPLE_ONE_IN = 1024
"""About one document in so many is encoded by both encoders."""


def library_versions() -> dict[str, str]:
    """Return the versions of everything that affects numbers; part of every key and of the manifest."""
    return {**_installed(), "unicode": unicodedata.unidata_version}


@cache
def _installed() -> dict[str, str]:
    """Ask once: every key holds these versions, and asking takes over a millisecond."""
    return {name: version(name) for name in NUMERIC_LIBRARIES}


def tokenizer_value(tokenizer: TokenizerFile, risks: Risks, *, force_reference: bool, seed: int) -> dict[str, Any]:
    """Return what decides token ids and which encoder counts them."""
    return {
        "format": tokenizer.format,
        "sha256": tokenizer.sha256,
        "risks": risks.digest,
        "force_reference": force_reference,
        "sample_one_in": SAMPLE_ONE_IN,
        "seed": seed,
    }


def reading_key(
    sha256: str, split: str, format_: Format, compression: Compression, part: Part, fields: FieldRule
) -> str:
    """Return the key of what reading a part gives, whatever is done with it."""
    return _digest(
        {
            "tool": __version__,
            "store": STORE_VERSION,
            "libraries": library_versions(),
            "reader": READER_VERSION,
            "sha256": sha256,
            "split": split,
            "format": format_,
            "compression": compression,
            "part": [part.start, part.stop],
            "fields": asdict(fields),
        }
    )


def stage_key(reading: str, stage: Stage, decisive: Mapping[str, Any]) -> str:
    """Return the key of one stage's partial of a part.

    Args:
        reading: Key of what reading the part gives.
        stage: The stage.
        decisive: What decides the answers that stages look at, as plain JSON values: ``tokenizer`` of
            :func:`tokenizer_value`, ``languages`` of :meth:`dataaudit.detectors.LanguageModels.key_value`,
            ``protected``, the digest of the index of what is protected, ``screen`` and the pattern detectors by their
            names. What no stage looks at may be left out.
    """
    value = {
        "reading": reading,
        "stage": stage.name,
        "version": stage.version,
        "parameters": parameters(stage),
        "normal_form": [NORMAL_FORM, NORMAL_FORM_VERSION],
    }
    for name in _looked_at(stage):
        assert decisive.get(name) is not None, f"{name} is part of the key of a stage that looks at it"
        value[name] = decisive[name]
    return _digest(value)


def _looked_at(stage: Stage) -> list[str]:
    needs = (
        ("tokenizer", stage.needs_tokens),
        ("languages", stage.needs_languages),
        ("protected", stage.needs_matches),
        ("screen", stage.needs_screen),
        (stage.detector, bool(stage.detector)),
    )
    return [name for name, needed in needs if needed]


def _digest(value: dict[str, Any]) -> str:
    return digest_json(value).removeprefix("sha256:")
