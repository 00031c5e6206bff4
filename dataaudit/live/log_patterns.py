"""What lines and exceptions of real logs mean: a class, a stage, and whether they can be the cause or only follow.

``log_forms.yaml`` has the forms of messages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum, StrEnum
from importlib import resources
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.yamlfile import load_yaml


class ErrorClass(StrEnum):
    """What kind of error it is."""

    OUT_OF_MEMORY = "out_of_memory"
    COMMUNICATION = "communication"
    DEVICE = "device"
    IO = "io"
    DATA = "data"
    ASSERTION = "assertion"
    CODE = "code"
    PREEMPTION = "preemption"
    KILLED = "killed"
    UNKNOWN = "unknown"


class Stage(StrEnum):
    """What the loop did at that time."""

    START = "start"
    DATA = "data"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    END = "end"
    UNKNOWN = "unknown"


class Level(IntEnum):
    """How near to a cause an event is; ``log_forms.yaml`` explains each."""

    CAUSE = 0
    DEATH = 1
    FOLLOWS = 2
    LAUNCHER = 3


class Rule(NamedTuple):
    """A line of a known form. Its pattern may name ``rank``, ``node`` and ``pid``."""

    level: Level
    error: ErrorClass
    words: tuple[bytes, ...]
    """One of them stands in every such line: what a block is searched for first."""
    pattern: re.Pattern[str]
    stage: Stage | None = None


def _forms() -> dict[str, Any]:
    text = resources.files("dataaudit.live").joinpath("log_forms.yaml").read_text("utf-8")
    known: dict[str, Any] = load_yaml(text, where="the forms of logs")
    return known


def _rule(level: str, error: str, words: str, pattern: str, stage: str | None = None) -> Rule:
    for name, part in _FORMS["parts"].items():
        pattern = pattern.replace(f"<{name}>", part)
    pattern = pattern.replace(r"<rank>\d+", r"<rank>\d{1,6}").replace(r"<pid>\d+", r"<pid>\d{1,9}")
    listed = tuple(word.encode() for word in words.split("|"))
    return Rule(Level[level.upper()], ErrorClass(error), listed, re.compile(pattern), Stage(stage) if stage else None)


_FORMS = _forms()
RULES: Final = tuple(_rule(*form) for form in _FORMS["lines"])
STAGES: Final = tuple((re.compile(pattern), Stage(stage)) for stage, pattern in _FORMS["stages"])
_CLASSES = tuple(
    (re.compile(pattern), (ErrorClass(error), Level[level.upper()])) for level, error, pattern in _FORMS["exceptions"]
)
_FRAMES = tuple((Stage(stage), re.compile(pattern)) for stage, pattern in _FORMS["frames"])
TRACEBACK: Final = "Traceback (most recent call last):"
WHAT: Final = re.compile(r"^\s*what\(\):\s+(\S.*)")
CHAIN: Final = re.compile(
    r"^(?:The above exception was the direct cause|During handling of the above exception|Original Traceback)"
)
FRAME: Final = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?')
EXCEPTION: Final = re.compile(
    r"^(?P<name>(?:[A-Za-z_]\w*\.)*(?:\w*(?:Error|Exception|Interrupt|Exit|Timeout|Empty|Warning|Iteration)"
    r"|[A-Z][a-z0-9]+[A-Z]\w*))(?::\s*(?P<text>.*))?$"
)
PROGRESS: Final = re.compile(
    rb"(?i)\b(?:iteration|iter|step|global_step|epoch|batch)(?:['\"]?\s*[:=]?\s*\d+\b[^\n]{0,400}(?:\b|_)loss"
    rb"|=\d+(?:/\d|, skipped=))|\bloss\b[^\n]{0,400}\b(?:step|epoch)"
)
"""A line by which a trainer says how far it is."""
STAGE_WORDS: Final = (b"aving ", b"aved ", b"valuation", b"alidation", b"raining ")
TRIGGERS: Final = (
    *sorted({word for rule in RULES for word in rule.words}),
    *(b"Traceback (most", b"what():", b"Root Cause (first", b"Failures:", b"worker group FAILED", b"last enqueued"),
    *(b"Restarting worker group", b"will restart worker group"),
)
"""A block without any of them has no event."""
_TRIGGER: Final = "|".join(re.escape(word.decode()) for word in TRIGGERS)
_SILENT = {"ChildFailedError", "SignalException", "RendezvousGracefulExitError", "StopIteration", "GeneratorExit"}
_DATA = re.compile(r"torch/utils/data/|/(?:webdataset|datasets|streaming)/")
_CODE = re.compile(
    r"^(?:\w+\.)*(?:TypeError|NameError|AttributeError|ImportError|ModuleNotFoundError|KeyError|IndexError|SyntaxError"
    r"|ValueError|ZeroDivisionError|NotImplementedError|UnboundLocalError|RecursionError|LookupError)\b"
    r"|shapes? (?:cannot|mismatch)|size mismatch|Expected all tensors|expected scalar type"
)
_RECOMPUTED = "torch/utils/checkpoint.py"


def has_trigger(data: bytes) -> bool:
    """Tell whether a block may have an event; Arrow's regular expressions pass over it once for all words."""
    return bool(pc.match_substring_regex(pa.array([data], pa.binary()), _TRIGGER)[0].as_py())


def judge(text: str, frames: Sequence[tuple[str, str]] = ()) -> tuple[ErrorClass, Level] | None:
    """Return class and level of an exception, ``Name: text``; None for those by which a launcher ends.

    Args:
        text: The exception, with the lines behind it.
        frames: (file, function), outermost first.
    """
    name = text.partition(":")[0].rpartition(".")[2].strip()
    if name in _SILENT or (name == "SystemExit" and text.rstrip().endswith((": 0", ":"))):
        return None
    if name == "AssertionError":
        return ErrorClass.ASSERTION, Level.CAUSE
    if name != "KeyError" and (known := next((own for form, own in _CLASSES if form.search(text)), None)) is not None:
        return known
    if any(_DATA.search(file) or function == "__getitem__" for file, function in frames):
        return ErrorClass.DATA, Level.CAUSE
    if _CODE.search(text):
        return ErrorClass.CODE, Level.CAUSE
    waits = frames and frames[-1][0].endswith(("distributed_c10d.py", "torch/distributed/rendezvous.py"))
    return (ErrorClass.COMMUNICATION, Level.FOLLOWS) if waits else (ErrorClass.UNKNOWN, Level.CAUSE)


def stage_of(frames: Sequence[tuple[str, str]]) -> Stage | None:
    """Return the stage that frames, (file, function), are in; None where they do not say."""
    shown = [f"{file} {function}" for file, function in frames if not file.endswith(_RECOMPUTED)]
    return next((stage for stage, pattern in _FRAMES if any(map(pattern.search, shown))), None)
