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


_MEMORY, _COMM, _DEVICE, _IO = ErrorClass.OUT_OF_MEMORY, ErrorClass.COMMUNICATION, ErrorClass.DEVICE, ErrorClass.IO
_ENDED, _KILLED = ErrorClass.PREEMPTION, ErrorClass.KILLED
_CAUSE, _DEATH, _FOLLOWS, _LAUNCHER = Level.CAUSE, Level.DEATH, Level.FOLLOWS, Level.LAUNCHER
_HOST = r"(?:^[A-Z][a-z]{2} +\d+ [\d:]+ (?P<node>[\w.-]+) kernel: .*)?"
_XID = _HOST + r"NVRM: Xid \(PCI:[\w:.]+\): "
_NCCL = r"^(?:(?P<node>[\w.-]+):(?P<pid>\d+):\d+ \[\d+\] )?(?:[\d-]+ [\d:.]+ )?.*NCCL WARN "
_SRUN = r"^srun: error: (?P<node>[\w.-]+): tasks? (?P<rank>\d+).*: "
_SHELL = r"^(?:\S+: line \d+: +(?P<pid>\d+) +(?:Killed|Segmentation|Bus error|Aborted)|.{0,20}\(core dumped\))"
_MPI = r"process rank (?P<rank>\d+) with PID (?P<pid>\d+) on node (?P<node>\S+) exited on signal (?!15\b)"
_SLURM = r"(?:JOB|STEP) \S+ ON (?P<node>\S+) CANCELLED .*DUE TO "
_TERM = r"(?:^|[\]:] |INFO |WARNING )(?:[Rr]eceived|[Cc]aught|[Gg]ot) (?:signal )?(?:SIGTERM|SIGUSR1)\b"
_NOTICE = r"(?i)\b(?:preemption|spot (?:instance )?interruption|maintenance|termination) notice (?:received|for)"
_BROKEN = r"[Cc]onnection (?:closed|reset|refused)"
RULES: Final = (
    # memory
    _rule("Killed process", _HOST + r"[Oo]ut of memory: Killed process (?P<pid>\d+)", _MEMORY, _CAUSE),
    _rule("oom_kill|oom-kill", r"slurmstepd: error: Detected \d+ oom[-_]kill", _MEMORY, _CAUSE),
    _rule("Out Of Memory", _SRUN + "Out Of Memory", _MEMORY, _CAUSE),
    _rule("exceeded memory limit", r"exceeded memory limit .*being killed", _MEMORY, _CAUSE),
    _rule("RESOURCE_EXHAUSTED", r"RESOURCE_EXHAUSTED: .*[Oo]ut of memory", _MEMORY, _CAUSE),
    _rule("OOMKilled", r"\bOOMKilled\b(?![\"' :=]*(?:false|0))", _MEMORY, _CAUSE),
    _rule("CUDA out of memory", r"CUDA out of memory\. Tried to allocate", _MEMORY, _CAUSE),
    # devices and nodes; Xid 45 cleans up after a kill
    _rule("NVRM: Xid", _XID + r"45\b", _DEVICE, _LAUNCHER),
    _rule("NVRM: Xid", _XID + r"\d+(?:, pid='?(?P<pid>\d+))?", _DEVICE, _CAUSE),
    _rule("DUE TO NODE FAIL", _SLURM + "NODE FAIL", _DEVICE, _CAUSE),
    _rule("Node failure on", r"^srun: error: Node failure on (?P<node>[\w.-]+)", _DEVICE, _CAUSE),
    _rule("Task launch for", r"Task launch for \S+ failed on node (?P<node>[\w.-]+):", _DEVICE, _CAUSE),
    _rule("NCCL WARN", _NCCL + r"Cuda failure(?: \d+)? 'out of memory'", _MEMORY, _CAUSE),
    _rule("NCCL WARN", _NCCL + r"Cuda failure", _DEVICE, _CAUSE),
    _rule("NCCL WARN", _NCCL + r"NET/IB ?: (?:\S+ )?Got (?:completion|async event)", _COMM, _CAUSE),
    _rule("ink down", _HOST + r"(?:mlx\d|hfi1|ib\d).{0,80}[Ll]ink down", _COMM, _CAUSE),
    _rule("NCCL WARN", _NCCL + rf".*(?:{_BROKEN}|timed? ?out|failed)", _COMM, _FOLLOWS),
    # what ends a job from outside
    _rule("CANCELLED AT", _SLURM + "(?:TIME LIMIT|PREEMPTION)", _ENDED, _CAUSE),
    _rule("CANCELLED AT", r"\*\*\* JOB \S+ ON (?P<node>\S+) CANCELLED", _ENDED, _CAUSE),
    _rule("CANCELLED AT", r"\*\*\* STEP \S+ ON (?P<node>\S+) CANCELLED", _ENDED, _LAUNCHER),
    _rule("death signal", r"Received \S+ death signal, shutting down workers", _ENDED, _CAUSE),
    _rule("SIGTERM|SIGUSR1", _TERM, _ENDED, _DEATH),
    _rule("after receiving SIG", r"^exiting program after receiving SIG", _ENDED, _DEATH),
    _rule("notice received|notice for", _NOTICE, _ENDED, _CAUSE),
    # deaths
    _rule("failed (exitcode", r"failed \(exitcode: (?:-15|\d+)\)", ErrorClass.UNKNOWN, _LAUNCHER),
    _rule(
        "failed (exitcode",
        r"failed \(exitcode: -\d+\) local_rank: (?P<rank>\d+) \(pid: (?P<pid>\d+)\)",
        _KILLED,
        _DEATH,
    ),
    _rule("exits with return code", r"exits with return code = -(?!15\b)\d+", _KILLED, _DEATH),
    _rule("exits with return code", r"exits with return code = ", ErrorClass.UNKNOWN, _LAUNCHER),
    _rule("Killed |Segmentation|Bus error|Aborted", _SHELL, _KILLED, _DEATH),
    _rule("exited on signal", _MPI, _KILLED, _DEATH),
    _rule("Syntax|Indentation", r"^(?:Syntax|Indentation)Error: ", ErrorClass.CODE, _CAUSE, Stage.START),
    _rule("Fatal Python error", r"^Fatal Python error: ", _KILLED, _DEATH),
    _rule("srun: error", _SRUN + "(?:Killed|Segmentation|Aborted|Bus error)", _KILLED, _DEATH),
    _rule("srun: error", _SRUN + "(?:Exited with|Terminated)", ErrorClass.UNKNOWN, _LAUNCHER),
    _rule("closing signal", r"Sending process (?P<pid>\d+) closing signal", _KILLED, _LAUNCHER),
    # communication
    _rule("Watchdog caught", r"Rank (?P<rank>\d+)\] Watchdog caught collective operation timeout", _COMM, _FOLLOWS),
    _rule("detected by watchdog", r"Rank (?P<rank>\d+)\].*failure detected by watchdog", _COMM, _FOLLOWS),
    _rule("Heartbeat monitor", r"Rank (?P<rank>\d+)\] Heartbeat monitor timed out", _COMM, _FOLLOWS),
    _rule("watchdog got stuck", r"watchdog got stuck for \d+", _COMM, _FOLLOWS),
    _rule("client socket has timed out", r"\[c10d\] The client socket has timed out", _COMM, _FOLLOWS, Stage.START),
    _rule(
        "[c10d]",
        rf"\[c10d\] .*(?:timed out after \d+ms|Broken pipe|{_BROKEN}|recvValue failed|failed to recv)",
        _COMM,
        _LAUNCHER,
    ),
    # storage
    _rule("I/O error", r"(?:blk_update_request: |Buffer |kernel: .*)I/O error", _IO, _CAUSE),
    _rule("not responding, timed out", r"nfs: server \S+ not responding, timed out", _IO, _CAUSE),
)
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
    rb"(?i)\b(?:iteration|iter|step|global_step)['\"]?\s*[:=]?\s*\d+\b[^\n]{0,400}\bloss|\bloss\b[^\n]{0,400}\bstep"
)
STAGES: Final = tuple(
    (re.compile(pattern), stage)
    for pattern, stage in (
        (r"(?i)\bsaving (?:model )?checkpoint\b", Stage.CHECKPOINT),
        (r"(?i)\b(?:running|starting) (?:evaluation|validation)\b", Stage.EVALUATION),
        (r"(?i)\btraining (?:done|finished|completed?)\b", Stage.END),
        (r"(?i)\b(?:saved checkpoint|checkpoint saved|successfully saved)\b", Stage.UNKNOWN),
        (r"(?i)\b(?:evaluation|validation) (?:done|finished)\b", Stage.UNKNOWN),
    )
)
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
    (
        (
            r"out of (?:shared )?memory|can't allocate memory|not enough memory|[Cc]annot allocate memory|bad_alloc"
            r"|Unable to allocate|ALLOC_FAILED|MemoryError"
        ),
        _MEMORY,
        _CAUSE,
    ),
    (r"device-side assert|FloatingPointError|Assertion [`'].*failed", ErrorClass.ASSERTION, _CAUSE),
    (r"CUDA error|ECC error|Cuda failure|CUDNN_STATUS|CUBLAS_STATUS|No CUDA GPUs|CUDA driver", _DEVICE, _CAUSE),
    (r"worker \(pid \d+\) is killed by signal: Terminated", _KILLED, _LAUNCHER),
    (r"worker \(pid \d+\) is killed by signal", _KILLED, _CAUSE),
    (r"worker \(pid\(s\) [\d, ]+\) exited unexpectedly", _KILLED, _DEATH),
    (
        (
            r"NCCL|ncclUnhandled|[Gg]loo|TCPStore|Dist(?:Store|Backend|Network)Error|Connection closed by peer|watchdog"
            r"|Socket Timeout|wait timeout after|Timed out (?:waiting|initializing)|[Rr]endezvous"
            r"|monitoredBarrier"
        ),
        _COMM,
        _FOLLOWS,
    ),
    (r"Broken ?[Pp]ipe|^(?:EOFError|ConnectionResetError|ConnectionRefusedError)", _COMM, _FOLLOWS),
    (
        (
            r"^(?:botocore|boto3|urllib3|requests|aiohttp|httpx|fsspec|huggingface_hub|s3fs|google\.api_core|azure)\."
            r"|^(?:OSError|IOError|PermissionError|FileNotFoundError|FileExistsError|NotADirectoryError|IsADirectoryError"
            r"|BlockingIOError|TimeoutError|ConnectionError|ConnectionAbortedError|HfHubHTTPError)\b"
            r"|PytorchStream(?:Writer|Reader)|\[Errno \d+\]|No space left|Input/output error|Stale file handle|iostream"
            r"|UnpicklingError|SafetensorError"
        ),
        _IO,
        _CAUSE,
    ),
    (r"^KeyboardInterrupt", _ENDED, _DEATH),
    (
        r"in DataLoader worker process|JSONDecodeError|UnicodeDecodeError|ArrowInvalid|DatasetGenerationError",
        ErrorClass.DATA,
        _CAUSE,
    ),
)
_CLASSES = tuple((re.compile(pattern), error, level) for pattern, error, level in _TEXTS)
_DATA = re.compile(r"torch/utils/data/|/(?:webdataset|datasets|streaming)/")
_CODE = re.compile(
    r"^(?:\w+\.)*(?:TypeError|NameError|AttributeError|ImportError|ModuleNotFoundError|KeyError|IndexError|SyntaxError"
    r"|ValueError|ZeroDivisionError|NotImplementedError|UnboundLocalError|RecursionError|LookupError)\b"
    r"|shapes? (?:cannot|mismatch)|size mismatch|Expected all tensors|expected scalar type"
)
_FRAMES = (
    (Stage.EVALUATION, r"\b(?:evaluate|evaluation|validate|validation_step|run_eval\w*|eval_\w+)$"),
    (Stage.CHECKPOINT, r"torch/serialization\.py|distributed/checkpoint/|safetensors"),
    (Stage.CHECKPOINT, r" save$|\b(?:save|load)_(?:checkpoint|state|pretrained|model)\w*$"),
    (Stage.DATA, r"torch/utils/data/|/(?:datasets|webdataset|streaming)/"),
    (Stage.DATA, r" (?:__getitem__|collate\w*|get_batch|next_batch|load_batch)$"),
    (Stage.BACKWARD, r"torch/autograd/| backward$"),
    (Stage.OPTIMIZER, r"torch/optim/|clip_grad|/optimizers?/| optimizer_step$"),
    (Stage.FORWARD, r"torch/nn/(?:modules|functional)| (?:forward\w*|loss_of|compute_loss|loss_fn|training_step)$"),
    (Stage.END, r"destroy_process_group|atexit"),
    (Stage.START, r"init_process_group|from_pretrained|<frozen importlib|argparse| (?:setup|initialize)\w*$"),
)
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
    name = text.partition(":")[0].rpartition(".")[2].strip()
    if name in _SILENT or (name == "SystemExit" and text.rstrip().endswith((": 0", ":"))):
        return None
    if name == "AssertionError":
        return ErrorClass.ASSERTION, Level.CAUSE
    if name != "KeyError":
        for pattern, error, level in _CLASSES:
            if pattern.search(text):
                return error, level
    if any(_DATA.search(file) or function == "__getitem__" for file, function in frames):
        return ErrorClass.DATA, Level.CAUSE
    if _CODE.search(text):
        return ErrorClass.CODE, Level.CAUSE
    waits = frames and frames[-1][0].endswith(("distributed_c10d.py", "torch/distributed/rendezvous.py"))
    return (_COMM, _FOLLOWS) if waits else (ErrorClass.UNKNOWN, _CAUSE)


def stage_of(frames: Sequence[tuple[str, str]]) -> Stage | None:
    """Return the stage that frames, (file, function), are in; None where they do not say."""
    shown = [f"{file} {function}" for file, function in frames if not file.endswith(_RECOMPUTED)]
    return next((stage for stage, pattern in _STAGES if any(map(pattern.search, shown))), None)
