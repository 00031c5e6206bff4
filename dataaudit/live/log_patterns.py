"""What lines and exceptions of real logs mean: a class, a stage, and whether they can be the cause or only follow.

No pattern is a bare word such as ``error``: each is the form of one program's message, so healthy logs match none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc


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
    """How near to a cause an event is."""

    CAUSE = 0
    DEATH = 1
    """A process ended, and something else may say why."""
    FOLLOWS = 2
    """Mostly the consequence of another rank's failure; the cause only where nothing else is known."""
    LAUNCHER = 3
    """Always a consequence."""


class Rule(NamedTuple):
    """A line of a known form. Its pattern may name ``rank``, ``node`` and ``pid``."""

    words: tuple[bytes, ...]
    """One of them stands in every such line: what a block is searched for first."""
    pattern: re.Pattern[str]
    error: ErrorClass
    level: Level
    stage: Stage | None = None


def _rule(words: str, pattern: str, error: ErrorClass, level: Level, stage: Stage | None = None) -> Rule:
    return Rule(tuple(word.encode() for word in words.split("|")), re.compile(pattern), error, level, stage)


_E, _L = ErrorClass, Level
_HOST = r"(?:^[A-Z][a-z]{2} +\d+ [\d:]+ (?P<node>[\w.-]+) kernel: .*)?"
"""Of the system's log."""
_NCCL = r"^(?:(?P<node>[\w.-]+):(?P<pid>\d+):\d+ \[\d+\] )?(?:[\d-]+ [\d:.]+ )?.*NCCL WARN "
RULES: Final = (
    # memory
    _rule("Killed process", _HOST + r"[Oo]ut of memory: Killed process (?P<pid>\d+)", _E.OUT_OF_MEMORY, _L.CAUSE),
    _rule("oom_kill|oom-kill", r"slurmstepd: error: Detected \d+ oom[-_]kill", _E.OUT_OF_MEMORY, _L.CAUSE),
    _rule("Out Of Memory", r"^srun: error: (?P<node>[\w.-]+): tasks? (?P<rank>\d+).*: Out Of Memory", _E.OUT_OF_MEMORY, _L.CAUSE),
    _rule("CUDA out of memory", r"CUDA out of memory\. Tried to allocate", _E.OUT_OF_MEMORY, _L.CAUSE),
    # devices and nodes
    _rule("NVRM: Xid", r"NVRM: Xid \(PCI:[\w:.]+\): 45\b", _E.DEVICE, _L.LAUNCHER),  # cleaning up after a kill
    _rule("NVRM: Xid", _HOST + r"NVRM: Xid \(PCI:[\w:.]+\): \d+(?:, pid='?(?P<pid>\d+))?", _E.DEVICE, _L.CAUSE),
    _rule("DUE TO NODE FAIL", r"(?:JOB|STEP) \S+ ON (?P<node>\S+) CANCELLED .*DUE TO NODE FAIL", _E.DEVICE, _L.CAUSE),
    _rule("Node failure on", r"^srun: error: Node failure on (?P<node>[\w.-]+)", _E.DEVICE, _L.CAUSE),
    _rule("NCCL WARN", _NCCL + r"Cuda failure(?: \d+)? 'out of memory'", _E.OUT_OF_MEMORY, _L.CAUSE),
    _rule("NCCL WARN", _NCCL + r"Cuda failure", _E.DEVICE, _L.CAUSE),
    _rule("NCCL WARN", _NCCL + r"NET/IB ?: (?:\S+ )?Got (?:completion|async event)", _E.COMMUNICATION, _L.CAUSE),
    _rule("NCCL WARN", _NCCL + r".*(?:[Cc]onnection (?:closed|reset|refused)|timed? ?out|failed)", _E.COMMUNICATION, _L.FOLLOWS),
    # what ends a job from outside
    _rule("CANCELLED AT", r"(?:JOB|STEP) \S+ ON (?P<node>\S+) CANCELLED .*DUE TO (?:TIME LIMIT|PREEMPTION)", _E.PREEMPTION, _L.CAUSE),
    _rule("CANCELLED AT", r"\*\*\* JOB \S+ ON (?P<node>\S+) CANCELLED", _E.PREEMPTION, _L.CAUSE),
    _rule("CANCELLED AT", r"\*\*\* STEP \S+ ON (?P<node>\S+) CANCELLED", _E.PREEMPTION, _L.LAUNCHER),
    _rule("death signal", r"Received \d+ death signal, shutting down workers", _E.PREEMPTION, _L.CAUSE),
    _rule("SIGTERM|SIGUSR1", r"(?:^|[\]:] |INFO |WARNING )(?:[Rr]eceived|[Cc]aught|[Gg]ot) (?:signal )?(?:SIGTERM|SIGUSR1)\b", _E.PREEMPTION, _L.DEATH),
    _rule("notice received|notice for", r"(?i)\b(?:preemption|spot (?:instance )?interruption|maintenance|termination) notice (?:received|for)", _E.PREEMPTION, _L.CAUSE),
    # deaths
    _rule("failed (exitcode", r"failed \(exitcode: (?:-15|\d+)\)", _E.KILLED, _L.LAUNCHER),
    _rule("failed (exitcode", r"failed \(exitcode: -\d+\) local_rank: (?P<rank>\d+) \(pid: (?P<pid>\d+)\)", _E.KILLED, _L.DEATH),
    _rule("Fatal Python error", r"^Fatal Python error: ", _E.KILLED, _L.DEATH),
    _rule("srun: error", r"^srun: error: (?P<node>[\w.-]+): tasks? (?P<rank>\d+).*: (?:Killed|Segmentation|Aborted|Bus error)", _E.KILLED, _L.DEATH),
    _rule("srun: error", r"^srun: error: (?P<node>[\w.-]+): tasks? (?P<rank>\d+).*: (?:Exited with|Terminated)", _E.KILLED, _L.LAUNCHER),
    _rule("closing signal", r"Sending process (?P<pid>\d+) closing signal", _E.KILLED, _L.LAUNCHER),
    # communication
    _rule("Watchdog caught", r"Rank (?P<rank>\d+)\] Watchdog caught collective operation timeout", _E.COMMUNICATION, _L.FOLLOWS),
    _rule("failure detected by watchdog", r"Rank (?P<rank>\d+)\].*failure detected by watchdog", _E.COMMUNICATION, _L.FOLLOWS),
    _rule("watchdog got stuck", r"watchdog got stuck for \d+", _E.COMMUNICATION, _L.FOLLOWS),
    _rule("client socket has timed out", r"\[c10d\] The client socket has timed out", _E.COMMUNICATION, _L.FOLLOWS, Stage.START),
    _rule("[c10d]", r"\[c10d\] .*(?:timed out after \d+ms|Broken pipe|[Cc]onnection (?:reset|closed)|recvValue failed|failed to recv)", _E.COMMUNICATION, _L.LAUNCHER),
    # storage
    _rule("I/O error", r"(?:blk_update_request: |Buffer |kernel: .*)I/O error", _E.IO, _L.CAUSE),
    _rule("not responding, timed out", r"nfs: server \S+ not responding, timed out", _E.IO, _L.CAUSE),
)  # fmt: skip
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
    rb"(?i)\b(?:iteration|iter|step|global_step)['\"]?\s*[:=]?\s*\d+\b[^\n]*\bloss|\bloss\b[^\n]*\bstep"
)
STAGES: Final = (
    (re.compile(r"(?i)^(?:saving checkpoint|saving model checkpoint)|saving checkpoint (?:to|at)\b"), Stage.CHECKPOINT),
    (re.compile(r"(?i)^(?:running|starting) (?:evaluation|validation)\b"), Stage.EVALUATION),
    (re.compile(r"(?i)\btraining (?:done|finished|complete|completed)\b"), Stage.END),
    (re.compile(r"(?i)\b(?:saved checkpoint|checkpoint saved|successfully saved|(?:evaluation|validation) (?:done|finished))"), Stage.UNKNOWN),
)  # fmt: skip
"""Messages at which a stage begins, or the loop goes on."""
STAGE_WORDS: Final = (b"aving ", b"aved ", b"valuation", b"alidation", b"raining ")
TRIGGERS: Final = (
    *sorted({word for rule in RULES for word in rule.words}),
    *(b"Traceback (most", b"what():", b"Root Cause (first", b"Failures:", b"worker group FAILED", b"last enqueued"),
    *(b"Restarting worker group", b"will restart worker group"),
)
"""A block without any of them has no event."""
_TRIGGER: Final = "|".join(re.escape(word.decode()) for word in TRIGGERS)
_SILENT = {"ChildFailedError", "SignalException", "RendezvousGracefulExitError", "StopIteration", "GeneratorExit"}
_TEXTS = (
    (r"out of (?:shared )?memory|can't allocate memory|not enough memory|[Cc]annot allocate memory|Unable to allocate"
     r"|bad_alloc|ALLOC_FAILED|MemoryError", _E.OUT_OF_MEMORY, _L.CAUSE),
    (r"device-side assert|Assertion [`'].*failed", _E.ASSERTION, _L.CAUSE),
    (r"CUDA error|uncorrectable ECC|Cuda failure|CUDNN_STATUS|CUBLAS_STATUS|No CUDA GPUs|CUDA driver", _E.DEVICE, _L.CAUSE),
    (r"worker \(pid \d+\) is killed by signal: Terminated", _E.KILLED, _L.LAUNCHER),
    (r"worker \(pid \d+\) is killed by signal", _E.KILLED, _L.CAUSE),
    (r"worker \(pid\(s\) [\d, ]+\) exited unexpectedly", _E.KILLED, _L.DEATH),
    (r"NCCL|ncclUnhandled|[Gg]loo|TCPStore|Dist(?:Store|Backend|Network)Error|Connection closed by peer|Socket Timeout"
     r"|wait timeout after|watchdog|Timed out (?:waiting|initializing)|[Rr]endezvous", _E.COMMUNICATION, _L.FOLLOWS),
    (r"Broken ?[Pp]ipe|^(?:EOFError|ConnectionResetError|ConnectionRefusedError)", _E.COMMUNICATION, _L.FOLLOWS),
    (r"^(?:botocore|boto3|urllib3|requests|aiohttp|httpx|fsspec|huggingface_hub|s3fs|google\.api_core|azure)\."
     r"|^(?:OSError|IOError|FileNotFoundError|PermissionError|NotADirectoryError|IsADirectoryError|BlockingIOError|TimeoutError"
     r"|FileExistsError|ConnectionError|ConnectionAbortedError|EndpointConnectionError|ReadTimeoutError|HfHubHTTPError)\b"
     r"|PytorchStream(?:Writer|Reader)|\[Errno \d+\]|No space left|Input/output error|Stale file handle|iostream error", _E.IO, _L.CAUSE),
    (r"^(?:\w+\.)*AssertionError", _E.ASSERTION, _L.CAUSE),
    (r"^KeyboardInterrupt", _E.PREEMPTION, _L.DEATH),
    (r"in DataLoader worker process|JSONDecodeError|UnicodeDecodeError|ArrowInvalid|DatasetGenerationError", _E.DATA, _L.CAUSE),
)  # fmt: skip
_CLASSES = tuple((re.compile(pattern), error, level) for pattern, error, level in _TEXTS)
_CODE = re.compile(
    r"^(?:\w+\.)*(?:TypeError|NameError|AttributeError|ImportError|ModuleNotFoundError|KeyError|IndexError|SyntaxError|ValueError"
    r"|ZeroDivisionError|NotImplementedError|UnboundLocalError|RecursionError|LookupError)\b|shapes? (?:cannot|mismatch)|size mismatch"
    r"|Expected all tensors|expected scalar type"
)
_FRAMES = (
    (Stage.EVALUATION, r"\b(?:evaluate|evaluation|validate|validation_step|run_eval\w*|eval_\w+)$"),
    (Stage.CHECKPOINT, r"torch/serialization\.py|distributed/checkpoint/|safetensors|\b(?:save|load)_(?:checkpoint|state|pretrained|model)\w*$| save$"),
    (Stage.DATA, r"torch/utils/data/|/datasets/|/webdataset/|/streaming/| (?:__getitem__|collate\w*|get_batch|next_batch|load_batch)$"),
    (Stage.BACKWARD, r"torch/autograd/|torch/_tensor\.py backward$| backward$"),
    (Stage.OPTIMIZER, r"torch/optim/|clip_grad|/optimizers?/| optimizer_step$"),
    (Stage.FORWARD, r"torch/nn/(?:modules|functional)| forward\w*$| (?:loss_of|compute_loss|loss_fn|training_step)$"),
    (Stage.END, r"destroy_process_group|atexit"),
    (Stage.START, r"init_process_group|from_pretrained|<frozen importlib|argparse| (?:setup|initialize)\w*$"),
)  # fmt: skip
_STAGES = tuple((stage, re.compile(pattern)) for stage, pattern in _FRAMES)
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
    name = text.partition(":")[0].strip()
    if name.rpartition(".")[2] in _SILENT or (name == "SystemExit" and text.rstrip().endswith((": 0", "Exit"))):
        return None
    if name not in {"AssertionError", "KeyError"}:
        for pattern, error, level in _CLASSES:
            if pattern.search(text):
                return error, level
    elif name == "AssertionError":
        return ErrorClass.ASSERTION, Level.CAUSE
    files = [file for file, _ in frames]
    if any("torch/utils/data/" in file for file in files) or any(function == "__getitem__" for _, function in frames):
        return ErrorClass.DATA, Level.CAUSE
    if _CODE.search(text):
        return ErrorClass.CODE, Level.CAUSE
    if files and files[-1].endswith(("distributed_c10d.py", "torch/distributed/rendezvous.py")):
        return ErrorClass.COMMUNICATION, Level.FOLLOWS
    return ErrorClass.UNKNOWN, Level.CAUSE


def stage_of(frames: Sequence[tuple[str, str]]) -> Stage | None:
    """Return the stage that frames, (file, function), are in; None where they do not say."""
    shown = [f"{file} {function}" for file, function in frames if not file.endswith(_RECOMPUTED)]
    return next((stage for stage, pattern in _STAGES if any(map(pattern.search, shown))), None)
