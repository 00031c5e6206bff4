"""Whether weights that are shared stay so: a tied output layer that was cut off from its embedding trains alone."""

from __future__ import annotations

from typing import Any

from torch import nn


class Tying:
    """Remembers which places of a model share a parameter.

    Args:
        model: That is looked at.
    """

    def __init__(self, model: nn.Module) -> None:
        places: dict[int, list[tuple[str, nn.Module, str]]] = {}
        for prefix, module in model.named_modules():
            for name, parameter in module.named_parameters(recurse=False):
                places.setdefault(id(parameter), []).append((f"{prefix}.{name}".lstrip("."), module, name))
        self._shared = [one for one in places.values() if len(one) > 1]
        self._broken = _never_tied(model)

    def broken(self) -> list[dict[str, Any]]:
        """Return which places came apart since the last call: details of alarms."""
        found, self._broken = self._broken, []
        for own in list(self._shared):
            first, others = own[0], own[1:]
            apart = [name for name, module, at in others if not _same(_at(first[1], first[2]), _at(module, at))]
            if apart:
                self._shared.remove(own)
                found.append(_detail(f"{', '.join(apart)} no longer shares its weights with {first[0]}"))
        return found


def _never_tied(model: nn.Module) -> list[dict[str, Any]]:
    """Return an alarm where the model's own settings say that it is tied, and it is not."""
    config = getattr(model, "config", None)
    ends = [getattr(model, f"get_{end}_embeddings", None) for end in ("input", "output")]
    if getattr(config, "tie_word_embeddings", False) is not True or not all(map(callable, ends)):
        return []
    modules = [end() for end in ends if end is not None]
    weights = [getattr(one, "weight", None) for one in modules]
    one, other = weights
    if one is None or other is None or _same(one, other) or one.shape != other.shape:
        return []
    return [_detail("the settings say that input and output embeddings share their weights, and they do not")]


def _at(module: nn.Module, name: str) -> Any:
    return getattr(module, name, None)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if one is None or other is None or one.is_meta or other.is_meta:
        return False
    return bool(one.data_ptr() == other.data_ptr() and one.data_ptr())


def _detail(what: str) -> dict[str, Any]:
    return {"metric": "tying", "layer": -1, "head": -1, "stat": "value", "rule": "tying", "value": 0.0, "what": what}
