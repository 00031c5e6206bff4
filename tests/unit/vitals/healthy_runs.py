"""Healthy runs that are simulated: values of heads and layers under schedules, with trends, memory and heavy tails."""

from __future__ import annotations

import math

import numpy as np

from dataaudit.vitals.metric import Key
from dataaudit.vitals.metrics import declared

SCHEDULES = ("constant", "cosine", "to_zero", "wsd", "restarts", "batch_ramp")
OF_HEADS = ("max_attn_logit", "attn_entropy")
OF_LAYERS = ("update_to_weight", "grad_norm", "grad_to_weight", "residual_rms", "activation_mean_abs", "layer_std")
_STATS = {"max_attn_logit": "sampled", "attn_entropy": "normalised", "residual_rms": "block"}


def rates(schedule: str, steps: int, peak: float = 3e-4, warm: int = 100) -> np.ndarray:
    """Return float64[steps], learning rates."""
    at = np.arange(steps)
    rise = np.minimum((at + 1) / warm, 1)
    done = np.clip((at - warm) / (steps - warm), 0, 1)
    share = {
        "cosine": 0.1 + 0.45 * (1 + np.cos(np.pi * done)),
        "to_zero": 5e-4 + 0.5 * (1 + np.cos(np.pi * done)),
        "wsd": np.where(done < 0.8, 1, np.maximum((1 - done) / 0.2, 1e-3)),
        "restarts": 0.01 + 0.495 * (1 + np.cos(np.pi * (np.maximum(at - warm, 0) % (steps // 4)) / (steps // 4))),
    }.get(schedule, np.ones(steps))
    return peak * rise * share


def healthy(schedule: str, steps: int, seed: int, *, layers: int = 12, heads: int = 8):
    """Return a healthy run.

    Every metric has an exponent of the learning rate, answers it within 1 to 200 steps, a trend, and noise: half of it
    of Student's t with 4 degrees, half with a memory of up to 0.95 a step; a part is common to all its series. Levels
    are such that no value passes a threshold of the literature: a run that passes it is not healthy.

    Returns:
        Keys; float64[steps, series], values; float64[steps], rates; float64[steps], tokens.
    """
    draw = np.random.default_rng(seed)
    rate = rates(schedule, steps, warm=min(100, steps // 12))
    tokens = 8192.0 * 2 ** np.minimum(np.arange(steps) // (steps // 5), 3 if schedule == "batch_ramp" else 0)
    log_rate, log_tokens, clock = np.log(rate / rate.max()), np.log(tokens / tokens[0]), np.cumsum(rate / rate.max())
    keys, values = [], []
    for metric in (*OF_HEADS, *OF_LAYERS):
        own = [(layer, head) for layer in range(layers) for head in (range(heads) if metric in OF_HEADS else (-1,))]
        exact, size = metric == "update_to_weight", (steps, len(own))
        lag, phi, sd = draw.choice([1, 10, 60, 200]), draw.choice([0, 0.3, 0.7, 0.95]), draw.choice([0.005, 0.03, 0.1])
        common, of_tokens = draw.choice([0, 0.3, 0.7]), draw.choice([0, -0.3])
        noise = mixed(draw, 4.0, size, common)
        if phi:
            memory = mixed(draw, 8.0, size, common)
            for at in range(1, steps):
                memory[at] = phi * memory[at - 1] + math.sqrt(1 - phi**2) * memory[at]
            noise = math.sqrt(0.5) * (noise + memory)
        answered = np.empty(steps)
        answer = log_rate[0]
        for at in range(steps):
            answer += (log_rate[at] - answer) / (1 if exact else lag)
            answered[at] = answer
        exponent = np.ones(len(own)) if exact else draw.normal(0, 0.3) * (1 + 0.2 * draw.normal(size=len(own)))
        trend = draw.normal(0, 0.3) * (1 + 0.3 * draw.normal(size=len(own)))
        walk = np.cumsum(draw.normal(size=size) * (rate / rate.max())[:, None] * 5e-4, 0)
        logs = (
            np.clip(draw.normal(size=len(own)), -2, 1)
            + np.outer(answered, exponent)
            + np.outer(np.log1p(clock / 50), trend)
            + walk
        )
        logs += np.outer(log_tokens, np.full(len(own), of_tokens)) + sd * noise * np.exp(-0.5 * log_tokens)[:, None]
        keys += [Key(metric, *place, _STATS.get(metric, "all")) for place in own]
        limits = [limit.value for limit in declared(metric).thresholds if limit.above]
        if limits:
            logs -= np.maximum(logs.max(0) - math.log(0.8 * min(limits)), 0)
        values.append(np.exp(logs))
    return keys, np.hstack(values), rate, tokens


def mixed(draw, freedom: float, size: tuple[int, int], common: float) -> np.ndarray:
    """Return float64[steps, series] of Student's t, of which a share of the variance is common to all series."""
    own, shared = draw.standard_t(freedom, size), draw.standard_t(freedom, (size[0], 1))
    return (math.sqrt(1 - common) * own + math.sqrt(common) * shared) / math.sqrt(freedom / (freedom - 2))


def judged(alarms, keys, values, rate, tokens, *, every: int = 1):
    """Return (step, finding) of a run of which every so many steps are measured."""
    nothing = np.full(len(keys), np.nan)
    return [
        (step, one)
        for step, row in enumerate(values, 1)
        for one in alarms.see(step, row if step % every == 0 else nothing, rate=rate[step - 1], tokens=tokens[step - 1])
    ]


def incidents(found) -> set[int]:
    """Return the incidents of findings."""
    return {one.detail["incident"] for _, one in found if one.kind != "coverage"} - {0}
