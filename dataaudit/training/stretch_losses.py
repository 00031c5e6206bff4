"""The loss of every stretch of a batch: from the loop's own per-token losses, from logits, or from hidden states.

All is computed on detached tensors without gradients, draws no random number, and waits for nothing: what a GPU
computes is copied to the host behind the loop's back. Sums run over the places of a row in one order, so the same
losses give the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dataaudit.errors import TagsError
from dataaudit.runlog.format import UNUSED
from dataaudit.training.tags import SHARD, START

if TYPE_CHECKING:
    pass

IGNORED = -100
"""Label of a token that is no target."""
_CHUNK_ELEMENTS = 1 << 22
_CHUNK_LOGITS = 1 << 24


def stretch_loss_sums(losses: Any, tags: Any, labels: Any | None, *, inner: bool) -> tuple[Any, Any | None]:
    """Add up the losses of each stretch.

    Args:
        losses: [B, T] loss of each label; where the model shifts the labels itself, [B, T - 1] of all but the first.
        tags: int64[B, K, 7]
        labels: [B, T] of which :data:`IGNORED` ones do not count; None: all count.
        inner: Whether the model shifts the labels itself.

    Returns:
        float64[B, K] on the device of the losses, 0 for places that are not used; and, with labels, int64[B, K]: how
        many of each stretch's labels count.

    Raises:
        TagsError: The shapes do not belong together.
    """
    import torch

    with torch.no_grad():
        losses = losses.detach()
        if losses.dim() != 2:
            raise TagsError(f"losses: expected one for each label, [B, T], found {list(losses.shape)}")
        rows, columns = losses.shape
        length = columns + 1 if inner and (labels is None or labels.shape[1] != columns) else columns
        first = length - columns
        _check_shapes(tags, labels, rows, length)
        counts = None if labels is None else labels[:, first:] != IGNORED
        if counts is not None:
            losses = losses.masked_fill(~counts, 0)
            if inner and not first:
                counts = counts.clone()
                counts[:, 0] = False
        tags = tags.to(losses.device, non_blocking=True)
        starts = torch.where(tags[..., SHARD] == UNUSED, length, tags[..., START])
        stops = torch.cat([starts[:, 1:], torch.full_like(starts[:, :1], length)], dim=1)
        place = torch.arange(first, length, device=losses.device)
        step = max(1, _CHUNK_ELEMENTS // max(1, starts.shape[1] * columns))
        sums, numbers = [], []
        for row in range(0, rows, step):
            chosen = slice(row, row + step)
            within = (place >= starts[chosen, :, None]) & (place < stops[chosen, :, None])
            sums.append(torch.where(within, losses[chosen, None, :].to(torch.float64), 0.0).sum(-1))
            if counts is not None:
                numbers.append((within & counts[chosen, None, :].to(within.device)).sum(-1))
        return torch.cat(sums), torch.cat(numbers) if numbers else None


def token_losses(logits: Any, labels: Any, *, inner: bool) -> Any:
    """Return the loss of each label from logits, in float32, a few rows at a time.

    Args:
        logits: [B, T, V]
        labels: int64[B, T]
        inner: Whether logits at a place predict the label of the next one.

    Returns:
        float32[B, T], or [B, T - 1] where the model shifts the labels itself.
    """
    import torch
    from torch.nn.functional import cross_entropy

    with torch.no_grad():
        logits = logits.detach()
        if inner:
            logits, labels = logits[:, :-1], labels[:, 1:]
        step = max(1, _CHUNK_LOGITS // max(1, logits.shape[1] * logits.shape[2]))
        found = []
        for row in range(0, len(logits), step):
            part = logits[row : row + step].transpose(1, 2).float()
            found.append(cross_entropy(part, labels[row : row + step], reduction="none", ignore_index=IGNORED))
        return torch.cat(found)


def hidden_losses(hidden: Any, head: Any, labels: Any, *, inner: bool) -> Any:
    """Return the loss of each label from the last hidden states, in a pass of its own through the head.

    Args:
        hidden: [B, T, d] what goes into the head.
        head: The module, or its weight [V, d].
        labels: int64[B, T]
        inner: As of :func:`token_losses`.

    Returns:
        As of :func:`token_losses`.
    """
    import torch

    with torch.no_grad():
        hidden = hidden.detach()
        vocab = head.weight.shape[0] if isinstance(head, torch.nn.Module) else head.shape[0]
        step = max(1, _CHUNK_LOGITS // max(1, hidden.shape[1] * vocab))
        found = []
        for row in range(0, len(hidden), step):
            part = hidden[row : row + step]
            logits = head(part) if isinstance(head, torch.nn.Module) else part @ head.detach().T
            found.append(token_losses(logits, labels[row : row + step], inner=inner))
        return torch.cat(found)


def check_targets(targets: np.ndarray, *possible: np.ndarray) -> None:
    """Hold the targets that tags promise against the labels, or the losses, that there are, row by row.

    Args:
        targets: int64[B] targets of each row, by the tags.
        possible: int64[B] numbers of which each row has one: all its labels, those that are not ignored, its losses.

    Raises:
        TagsError: They differ: tags and labels are not of the same rows, or not shifted alike.
    """
    wrong = np.flatnonzero(np.all([targets != one for one in possible], axis=0))
    if len(wrong):
        row = int(wrong[0])
        raise TagsError(
            f"row {row} of the batch has {int(possible[0][row]):,} targets, its tags say {int(targets[row]):,}",
            "Tags must travel with their rows, and `shift` say who shifts the labels: the loader (outer) or the model"
            f" (inner). Where some labels are {IGNORED}, hand over `labels` too.",
        )


def _check_shapes(tags: Any, labels: Any | None, rows: int, length: int) -> None:
    found = tuple(tags.shape)
    if len(found) != 3 or found[0] != rows or (labels is not None and tuple(labels.shape) != (rows, length)):
        shown = "" if labels is None else f", labels {tuple(labels.shape)}"
        raise TagsError(f"losses of {rows} rows of {length} labels, tags {found}{shown}: they do not belong together")
