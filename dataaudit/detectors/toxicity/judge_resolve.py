"""resolve_judge: from what a config asks for to a judge that is known to answer, or to the reason why there is none."""

from __future__ import annotations

import math
from importlib.metadata import version
from pathlib import Path

from dataaudit.detectors.quiet import quiet
from dataaudit.detectors.toxicity.judge_checkpoint import CheckpointError, arguments_of, build, read_checkpoint
from dataaudit.detectors.toxicity.judge_files import config_folder, config_sha256, file_sha256, published_weights
from dataaudit.detectors.toxicity.judge_model import NAMED, WINDOWS_VERSION, JudgeModel, JudgeSettings
from dataaudit.detectors.unavailable import Absence, Unavailable, not_installed


def resolve_judge(settings: JudgeSettings, base_dir: Path) -> JudgeModel | Unavailable:
    """Find the judge that a config asks for, load it once and let it answer.

    Args:
        settings: What the config says.
        base_dir: Folder that relative paths in it start from.

    Returns:
        The judge, or why what depends on it is not evaluated.
    """
    absent = not_installed("the toxicity judge", "toxicity")
    if absent is not None:
        return absent
    if settings.device == "cuda" and not has_cuda():
        return Unavailable(
            reason=Absence.NO_DEVICE, message="toxicity.device: no CUDA device is here", hint="Use `auto` or `cpu`."
        )
    with quiet():
        path = _weights(settings, base_dir)
        if isinstance(path, Unavailable):
            return path
        return _loaded(settings, path, base_dir)


def has_cuda() -> bool:
    """Whether torch sees a GPU."""
    import torch

    return bool(torch.cuda.is_available())


def _weights(settings: JudgeSettings, base_dir: Path) -> Path | Unavailable:
    if settings.judge in NAMED:
        return published_weights(settings.judge, download=settings.download)
    path = base_dir / settings.judge
    if path.is_file():
        return path
    return Unavailable(
        reason=Absence.WEIGHTS_ABSENT,
        message=f"toxicity.judge: expected one of {', '.join(NAMED)} or a file, found nothing at {path}",
        hint="Correct the path.",
    )


def _loaded(settings: JudgeSettings, path: Path, base_dir: Path) -> JudgeModel | Unavailable:
    try:
        arguments = arguments_of(read_checkpoint(path))
        given = None if settings.config_path is None else base_dir / settings.config_path
        folder = config_folder(
            str(arguments["model_type"]), given=given, beside=path.parent, download=settings.download
        )
        if isinstance(folder, Unavailable):
            return folder
        judge = build(path, folder, "cpu")
        answers = judge.predict("Good morning, and thank you for the letter.")
        if not all(math.isfinite(answer) for answer in answers.values()):
            raise CheckpointError(Absence.BROKEN_CHECKPOINT, "its answers are no numbers")
    except CheckpointError as error:
        return Unavailable(
            reason=error.reason,
            message=f"toxicity.judge: {path} cannot be used: {error.message}",
            hint="Give a checkpoint that `Detoxify(checkpoint=...)` loads with `weights_only=True`.",
        )
    named = settings.judge in NAMED
    return JudgeModel(
        name=settings.judge if named else "local",
        version=(
            f"detoxify {version('detoxify')}, transformers {version('transformers')}, torch {version('torch')}"
            f"+windows.{WINDOWS_VERSION}"
        ),
        sha256=file_sha256(path),
        config_sha256=config_sha256(folder),
        classes=tuple(judge.class_names),
        languages=settings.languages or NAMED.get(settings.judge, ()),
        path=path,
        config_path=folder,
        device=settings.device,
        seed=settings.seed,
    )
