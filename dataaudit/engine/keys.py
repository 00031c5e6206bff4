"""Keys of partials: digests of everything that decides a result, and of nothing else."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from typing import Any

from dataaudit import __version__
from dataaudit.annotators.base import AnnotatorModel, in_order
from dataaudit.annotators.findings import FINDINGS
from dataaudit.corpus.fields import FieldRule
from dataaudit.corpus.readers import READER_VERSION, Part
from dataaudit.corpus.shards import Compression
from dataaudit.corpus.texts import NORMAL_FORM, NORMAL_FORM_VERSION
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


def library_versions() -> dict[str, str]:
    """Return the versions of everything that affects numbers; part of every key and of the manifest."""
    return {**_installed(), "unicode": unicodedata.unidata_version}


@cache
def _installed() -> dict[str, str]:
    """Ask once: every key holds these versions, and asking takes over a millisecond."""
    return {name: version(name) for name in NUMERIC_LIBRARIES}


def reading_key(sha256: str, split: str, format_: str, compression: Compression, part: Part, fields: FieldRule) -> str:
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


def stage_key(reading: str, stage: Stage, decisive: Mapping[str, Any], *, without: Sequence[int] = ()) -> str:
    """Return the key of one stage's partial of a part.

    Args:
        reading: Key of what reading the part gives.
        stage: The stage.
        decisive: Of :func:`decisive_values`. What no stage looks at may be left out.
        without: Records of the part that are held back from the stage, ascending.
    """
    value: dict[str, Any] = {
        "reading": reading,
        "stage": stage.name,
        "version": stage.version,
        "parameters": parameters(stage),
        "normal_form": [NORMAL_FORM, NORMAL_FORM_VERSION],
    }
    if without:
        value["without"] = list(without)
    for name in _looked_at(stage):
        assert decisive.get(name) is not None, f"{name} is part of the key of a stage that looks at it"
        value[name] = decisive[name]
    return _digest(value)


def decisive_values(models: Sequence[AnnotatorModel]) -> dict[str, str]:
    """Return a digest of what decides each annotation, and of what that needs; findings by their detectors.

    A digest, since it is in the key of every stage of every part: patterns alone are hundreds of values.
    """
    found: dict[str, Any] = {}
    for model in models:
        value = model.decisive()
        if model.annotation == FINDINGS:
            found |= value
        else:
            found[model.annotation.name] = [one.decisive() for one in in_order([model.annotation], models)]
    return {name: digest_json(value) for name, value in found.items()}


def _looked_at(stage: Stage) -> list[str]:
    names = [one.name for one in stage.needs if one != FINDINGS]
    return [*names, stage.detector] if stage.detector else names


def _digest(value: dict[str, Any]) -> str:
    return digest_json(value).removeprefix("sha256:")
