"""Rules of other programs that call a step a spike, each written anew from its source, beside ours.

- OLMo-core, ``StabilityMonitorCallback``: loss or gradient norm above mean + 6 sd of the last 128 values, flagged ones
  among them, once there are 128.
- OLMo-core, ``SkipStepOptimizer``: loss or gradient norm off the mean by more than 6 sd on either side of the
  last 128, once there are 64.
- Lightning, ``SpikeDetection``: loss that rose, and is off the running mean of 10 by twice that mean or more; a spike
  does not move the mean. (It ends the run; here the run goes on, as after a restart without the batch.)
- trainscope 1.8, ``ChangePointDetector``: CUSUM of (loss - median) / (1.4826 MAD) of the last 200 values, slack 1,
  threshold 6, on either side, begun anew after each alarm. (``ruptures`` changes its score alone, never its alarms.)
- mean + 6 sd: of the last 50 losses, flagged ones among them.

Each is of one curve; where a program looks at two, either is an alarm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from dataaudit.training.attribution.curve import judge


def ours(values: np.ndarray) -> np.ndarray:
    """Flagged steps above the band, NaN and infinities."""
    found = np.zeros(len(values), dtype=bool)
    for one in judge(np.arange(1, len(values) + 1), values).spikes:
        found[one.places] = True
    return found


def ours_of_norms(values: np.ndarray) -> np.ndarray:
    """The same of the logarithms of gradient norms, which ``attribute`` lists apart."""
    found = np.zeros(len(values), dtype=bool)
    for one in judge(np.arange(1, len(values) + 1), values, log=True).spikes:
        found[one.places] = True
    return found


def stability_monitor(values: np.ndarray) -> np.ndarray:
    """OLMo-core's callback."""
    return above(values, 128)


def skip_step(values: np.ndarray) -> np.ndarray:
    """OLMo-core's optimizer."""
    found = np.zeros(len(values), dtype=bool)
    for step in range(63, len(values)):
        past = values[max(0, step - 128) : step]
        found[step] = not abs(values[step] - past.mean()) <= 6 * past.std(ddof=1)
    return found


def lightning(values: np.ndarray) -> np.ndarray:
    """Lightning's callback."""
    past: deque[float] = deque(maxlen=10)
    found = np.zeros(len(values), dtype=bool)
    last = 0.0
    for step, value in enumerate(values.tolist()):
        mean = sum(past) / len(past) if past else np.nan
        found[step] = step >= 1 and (
            not np.isfinite(value) or (value - last > 0 and abs(value - mean) >= abs(2.0 * mean))
        )
        if not found[step]:
            past.append(value)
            last = value
    return found


def cusum(values: np.ndarray) -> np.ndarray:
    """Trainscope's detector."""
    past: deque[float] = deque(maxlen=200)
    found = np.zeros(len(values), dtype=bool)
    up = down = 0.0
    for step, value in enumerate(values.tolist()):
        if len(past) >= 30:
            median = float(np.median(past))
            spread = max(1.4826 * float(np.median(np.abs(np.array(past) - median))), 1e-12)
            distance = (value - median) / spread
            up, down = max(0.0, up + distance - 1.0), min(0.0, down + distance + 1.0)
            if up >= 6.0 or -down >= 6.0:
                found[step], up, down = True, 0.0, 0.0
        past.append(value)
    return found


def six_deviations(values: np.ndarray) -> np.ndarray:
    """Mean + 6 sd of the loss."""
    return above(values, 50)


def above(values: np.ndarray, window: int) -> np.ndarray:
    """Return which values are above mean + 6 sd of the window before them, once that is full."""
    found = np.zeros(len(values), dtype=bool)
    for step in range(window, len(values)):
        past = values[step - window : step]
        found[step] = past.std() >= 1e-10 and values[step] > past.mean() + 6 * past.std()
    return found


Rule = Callable[[np.ndarray], np.ndarray]
RULES: dict[str, tuple[Rule, Rule | None]] = {
    "dataaudit, loss": (ours, None),
    "dataaudit, loss or gradient norm": (ours, ours_of_norms),
    "OLMo-core, stability monitor": (stability_monitor, stability_monitor),
    "OLMo-core, skip step": (skip_step, skip_step),
    "Lightning, SpikeDetection": (lightning, None),
    "trainscope, CUSUM": (cusum, None),
    "mean + 6 sd of 50": (six_deviations, None),
}
"""What each does with losses, and with gradient norms."""


def alarms(name: str, loss: np.ndarray, norm: np.ndarray) -> np.ndarray:
    """Return which steps a rule calls a spike: bool[steps]."""
    of_loss, of_norm = RULES[name]
    found = of_loss(loss)
    return found if of_norm is None else found | of_norm(norm)
