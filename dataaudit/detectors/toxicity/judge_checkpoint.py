"""Reading a checkpoint of Detoxify without running what is in it, and building the model.

Detoxify unpickles whatever a checkpoint holds. Here torch reads it with ``weights_only=True`` (tensors, numbers,
strings, lists and dicts, nothing that runs), the names in it are checked, and Detoxify is given what was read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dataaudit.detectors.quiet import quiet
from dataaudit.detectors.unavailable import Absence
from dataaudit.guarded import Guarded

_LOCK = threading.Lock()
_OLD_NAMES = {"gamma": "weight", "beta": "bias"}
_OF_CODE = ("GLOBAL", "Unsupported global", "Unsupported class")
"""Words of torch's refusal of what would run."""


class CheckpointError(Exception):
    """A checkpoint that cannot be used.

    Args:
        reason: Stable code.
        message: What was expected and found; nothing of the file's content but names of its parts.
    """

    def __init__(self, reason: Absence, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint and check that it has the parts that Detoxify reads.

    Raises:
        CheckpointError: It has not, is cut short, or wants to run code.
    """
    import pickle

    import torch

    loaded: Any = None
    with Guarded() as call, quiet():
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(call.error, pickle.UnpicklingError) and any(word in str(call.error) for word in _OF_CODE):
        raise CheckpointError(
            Absence.UNSAFE_CHECKPOINT, "it holds more than tensors, numbers, strings, lists and dicts"
        )
    if call.error is not None:
        raise CheckpointError(Absence.BROKEN_CHECKPOINT, "it is no whole file of torch.save")
    _check(loaded)
    checked: dict[str, Any] = loaded
    return checked


def arguments_of(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``model_type``, ``model_name``, ``tokenizer_name`` and ``num_classes`` of a checkpoint."""
    arguments: dict[str, Any] = checkpoint["config"]["arch"]["args"]
    return arguments


def build(path: Path, config_path: Path, device: str) -> Any:
    """Build Detoxify's model from a checkpoint, whatever place its settings had where it was made.

    Args:
        path: The checkpoint.
        config_path: Folder with the settings and vocabulary.
        device: ``cpu`` or ``cuda``.

    Returns:
        ``detoxify.Detoxify``, in the state of inference.

    Raises:
        CheckpointError: It cannot be read, or does not fit its settings.
    """
    from detoxify import Detoxify
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    checkpoint = read_checkpoint(path)
    arguments_of(checkpoint)["model_type"] = str(config_path)
    judge: Any = None
    with Guarded() as call, _LOCK, quiet(), _given(checkpoint):
        judge = Detoxify(checkpoint=str(path), device=device)
    if call.error is not None:
        raise CheckpointError(Absence.BROKEN_CHECKPOINT, f"it does not fit its settings ({call.kind})")
    absent = _absent(judge.model, checkpoint["state_dict"])
    if absent:
        raise CheckpointError(Absence.BROKEN_CHECKPOINT, f"{absent} of the model's tensors are not in it")
    judge.model.eval()
    return judge


@contextmanager
def _given(checkpoint: dict[str, Any]) -> Iterator[None]:
    """Let Detoxify's ``torch.load`` give what was read safely."""
    from detoxify import detoxify

    torch = detoxify.torch
    detoxify.torch = SimpleNamespace(load=lambda *_, **__: checkpoint)
    try:
        yield
    finally:
        detoxify.torch = torch


def _check(loaded: Any) -> None:
    import torch

    try:
        arguments = arguments_of(loaded)
        classes = loaded["config"]["dataset"]["args"]["classes"]
        tensors = loaded["state_dict"]
        known = {"model_type", "model_name", "tokenizer_name", "num_classes"} == set(arguments)
        model, tokenizer = str(arguments["model_name"]), str(arguments["tokenizer_name"])
    except (KeyError, TypeError, AttributeError):
        raise CheckpointError(
            Absence.BROKEN_CHECKPOINT, "expected `config` and `state_dict` as Detoxify writes them"
        ) from None
    named = isinstance(classes, list) and bool(classes) and all(isinstance(name, str) for name in classes)
    whole = isinstance(tensors, Mapping) and all(map(torch.is_tensor, tensors.values()))
    if not (known and named and whole and len(set(classes)) == len(classes)):
        raise CheckpointError(Absence.BROKEN_CHECKPOINT, "expected classes, arguments and tensors as Detoxify writes")
    if not (model.endswith("ForSequenceClassification") and model.isidentifier()):
        raise CheckpointError(Absence.BROKEN_CHECKPOINT, "expected a model for sequence classification")
    if not (tokenizer.endswith(("Tokenizer", "TokenizerFast")) and tokenizer.isidentifier()):
        raise CheckpointError(Absence.BROKEN_CHECKPOINT, "expected the name of a tokenizer")
    if not (isinstance(arguments["num_classes"], int) and arguments["num_classes"] >= len(classes)):
        raise CheckpointError(Absence.BROKEN_CHECKPOINT, "expected at least as many answers as classes")


def _absent(model: Any, tensors: Mapping[str, Any]) -> int:
    """Count the parameters that a checkpoint does not give; the library would make them up at random."""
    given = set()
    for name in tensors:
        head, _, tail = name.rpartition(".")
        given.add(f"{head}.{_OLD_NAMES.get(tail, tail)}")
    return sum(name not in given for name, _ in model.named_parameters())
