"""A ``sitecustomize``: libraries fail on documents that hold a word, with the document in all that they say."""

import importlib.abc
import json
import logging
import os
import sys
import warnings

ASKED = "FAILING_LIBRARIES"
"""Environment variable: JSON of {module: {place in it: word}}."""


class SaysTextError(Exception):
    """What a library raises, with the text that it was given."""


def failing(function, word):
    """Return a function that raises, prints, warns and logs what it is given, when that holds a word."""

    def call(*args, **kwargs):
        for value in (*args, *kwargs.values()):
            text = as_text(value)
            if word in text:
                print("cannot look at", text)
                print("cannot look at", text, file=sys.stderr)
                warnings.warn(text, stacklevel=2)
                logging.getLogger("presidio-analyzer").critical("cannot look at %s", text)
                raise SaysTextError(f"cannot look at {text}")
        return function(*args, **kwargs)

    return call


def as_text(value):
    """Return whatever text an argument holds."""
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).decode("utf-8", "replace")
    if hasattr(value, "to_pylist"):
        value = value.to_pylist()
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    return value if isinstance(value, str) else ""


class Finder(importlib.abc.MetaPathFinder):
    """Changes functions of modules as they are imported.

    Args:
        asked: {module: {place in it: word}}.
    """

    def __init__(self, asked):
        self._asked = asked

    def find_spec(self, name, path, target=None):
        """Find a module as anybody would, and have it changed after it ran."""
        if name not in self._asked:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                for place, word in self._asked[name].items():
                    *owners, last = place.split(".")
                    owner = module
                    for one in owners:
                        owner = getattr(owner, one)
                    setattr(owner, last, failing(getattr(owner, last), word))

            spec.loader.exec_module = exec_module
        return spec


if ASKED in os.environ:
    sys.meta_path.insert(0, Finder(json.loads(os.environ[ASKED])))
