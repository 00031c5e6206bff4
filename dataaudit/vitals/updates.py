"""How large an update is against the weights it changes, from the optimizer's own state: no weight is copied.

Right after ``optimizer.step()``, before gradients are cleared and the learning rate moves, the state says what the step
was. With a = lr·weight_decay and w the weights after it:

- Adam: dw = -lr·u, u = m̂ / (√v̂ + eps), the moments corrected for their start; AMSGrad: v̂ from the largest v.
- AdamW: dw = -(a·w + lr·u) / (1 - a).
- SGD: dw = -lr·b with momentum, b its buffer; -(a·w + lr·(g + momentum·b)) / (1 - a) with Nesterov's; without momentum
  -(a·w + lr·g) / (1 - a).

It is the update that was computed. Weights in bfloat16 may round it away, which this does not see. Of other optimizers
(Muon) the weights are copied before the step, a layer or so at a time.

Tensors are taken in pieces: what is held beside them is never larger than a million elements (``norms.PIECE``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dataaudit.vitals.norms import norm, pieces

_MOMENTS = ("momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Norms:
    """Euclidean norms of some tensors taken together, scalars of float32 on their device."""

    weight: torch.Tensor
    gradient: torch.Tensor
    update: torch.Tensor

    @property
    def update_to_weight(self) -> torch.Tensor:
        """Norm of the update over that of the weights after it; NaN where these are zero."""
        return ratio(self.update, self.weight)

    @property
    def grad_to_weight(self) -> torch.Tensor:
        """Norm of the gradient over that of the weights after the update; NaN where these are zero."""
        return ratio(self.gradient, self.weight)


def is_adam(optimizer: torch.optim.Optimizer) -> bool:
    """Tell whether an optimizer keeps Adam's moments."""
    return type(optimizer) in {torch.optim.Adam, torch.optim.AdamW}


def why_not(optimizer: torch.optim.Optimizer) -> str | None:
    """Return why the updates of an optimizer cannot be told from its state; None where they can."""
    if not is_adam(optimizer) and type(optimizer) is not torch.optim.SGD:
        return f"{type(optimizer).__name__}: no formula for its update"
    if any(group["weight_decay"] * float(group["lr"]) >= 1 for group in optimizer.param_groups):
        return "weight decay times learning rate is 1 or more: the weights before the step are gone"
    return None


def norms(optimizer: torch.optim.Optimizer, parameters: Sequence[torch.nn.Parameter]) -> Norms:
    """Return norms of parameters, their gradients and the update just made; nothing waits for a device.

    A parameter without a gradient was not updated, and counts with its weights alone. A GradScaler leaves it to a fused
    optimizer to skip a step: within the step's hooks, where the optimizer has ``found_inf``, such an update is 0.

    Args:
        optimizer: One that :func:`why_not` says nothing against.
        parameters: Of the optimizer, all on one device: those of a layer, of a module.

    Raises:
        ValueError: A parameter is none of the optimizer's.
    """
    groups = {id(one): group for group in optimizer.param_groups for one in group["params"]}
    if any(id(one) not in groups for one in parameters):
        raise ValueError("norms: a parameter is none of the optimizer's")
    with torch.no_grad():
        updated = [one for one in parameters if one.grad is not None]
        updates = [_norm_of_update(optimizer, groups[id(one)], one) for one in updated]
        device = parameters[0].device
        update, skipped = _together(updates, device), getattr(optimizer, "found_inf", None)
        if skipped is not None:
            update = torch.where(skipped.to(device).reshape(()) > 0, 0.0, update)
        return Norms(
            weight=_together([norm(one) for one in parameters], device),
            gradient=_together([norm(one.grad) for one in updated], device),
            update=update,
        )


def norms_from_copies(copies: Sequence[torch.Tensor], parameters: Sequence[torch.nn.Parameter]) -> Norms:
    """Return norms of parameters, their gradients and what they moved by, for any optimizer.

    Args:
        copies: Of the parameters before the step; they are overwritten.
        parameters: After it, all on one device. Differences are of their data type: exact where a weight at most
            doubles or halves, or was zero.
    """
    with torch.no_grad():
        device = parameters[0].device
        return Norms(
            weight=_together([norm(one) for one in parameters], device),
            gradient=_together([norm(one.grad) for one in parameters if one.grad is not None], device),
            update=_together([norm(old.sub_(one)) for old, one in zip(copies, parameters, strict=True)], device),
        )


def _together(found: list[torch.Tensor], device: torch.device) -> torch.Tensor:
    return torch.linalg.vector_norm(torch.stack(found)) if found else torch.zeros((), device=device)


def ratio(above: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
    """Return one over the other, NaN where that is zero."""
    return torch.where(below > 0, above / below, torch.nan)


def _norm_of_update(
    optimizer: torch.optim.Optimizer, group: dict[str, Any], parameter: torch.nn.Parameter
) -> torch.Tensor:
    """Return the norm of the update of a parameter, a float32 scalar."""
    state = optimizer.state[parameter]
    held = {"weight": parameter.detach(), "gradient": parameter.grad}
    held |= {name: state[name] for name in _MOMENTS if isinstance(state.get(name), torch.Tensor)}
    if parameter.grad is not None and parameter.grad.is_sparse:
        return norm(_update(optimizer, group, state.get("step"), held))
    return _together(
        [
            norm(_update(optimizer, group, state.get("step"), dict(zip(held, piece, strict=True))))
            for piece in pieces([one for one in held.values() if one is not None])
        ],
        parameter.device,
    )


def _update(
    optimizer: torch.optim.Optimizer, group: dict[str, Any], step: torch.Tensor | None, held: dict[str, Any]
) -> torch.Tensor:
    """Return the update of a piece of a parameter."""
    lr, weight, gradient = group["lr"], held["weight"], held["gradient"]
    decay = lr * group["weight_decay"]
    if isinstance(optimizer, torch.optim.SGD):
        gradient = -gradient if group["maximize"] else gradient
        momentum = group["momentum"]
        if momentum and not group["nesterov"]:
            return -lr * held["momentum_buffer"]
        direction = gradient + momentum * held["momentum_buffer"] if momentum else gradient
        return -(decay * weight + lr * direction) / (1 - decay)
    assert step is not None
    first, second = group["betas"]
    steps = step.double()  # 1 - 0.999 in float32 would be off by 6e-5
    variance = held["max_exp_avg_sq"] if group["amsgrad"] else held["exp_avg_sq"]
    denominator = (variance / (1 - second**steps)).sqrt() + group["eps"]
    direction = held["exp_avg"] / (1 - first**steps) / denominator
    if isinstance(optimizer, torch.optim.AdamW) or group.get("decoupled_weight_decay"):
        return -(decay * weight + lr * direction) / (1 - decay)
    return -lr * direction
