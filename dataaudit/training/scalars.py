"""A number of a step, in whatever type a loop has it: of Python or NumPy, or a tensor on any device."""

from __future__ import annotations

from typing import Any

import numpy as np

from dataaudit.pending import Pending


def scalar(value: Any) -> float | Pending:
    """Return a number, or one that is on its way to the host.

    Args:
        value: A real number, an array of one, or a tensor of one: of any real dtype, bfloat16 and float8 among them, on
            any device, sharded or with gradients.

    Raises:
        Exception: It is none. Which one depends on whose type it is: NumPy's, torch's or somebody else's.
    """
    if hasattr(value, "detach"):
        full = value.full_tensor() if hasattr(value, "full_tensor") else value
        if full.numel() != 1 or full.is_complex() or full.is_meta:
            raise ValueError(full.shape)
        return Pending(full.reshape(()))
    if np.iscomplexobj(value):
        raise TypeError("complex")
    return float(value.item() if isinstance(value, np.ndarray) else value)
