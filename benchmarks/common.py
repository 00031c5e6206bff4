"""What benchmarks share: options, documents, whole commands with their costs, exponents, peers, Markdown tables."""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.fields import FieldRule
from dataaudit.scan.corpus.loss import LossLog
from dataaudit.scan.corpus.readers import PartStats, ReadRequest, plan_parts, read_part
from dataaudit.scan.corpus.shards import format_of

PROGRAM = str(Path(sys.executable).with_name("dataaudit"))
TEXTS = {".md", ".rst", ".txt"}


def options(doc: str | None, **given: Any) -> argparse.Namespace:
    """Parse the command line.

    Args:
        doc: The text of ``--help``.
        given: ``name=type`` is an argument, ``name=[type]`` several, ``[type, ...]`` any number. Of an option the value
            is the default, or ``(type, default, *choices)``; it takes several values where the default is a list.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in given.items():
        several = isinstance(value, list)
        if isinstance(kind := value[0] if several else value, type):
            parser.add_argument(name, type=kind, **({"nargs": "*" if ... in value else "+"} if several else {}))
        elif value is False:
            parser.add_argument(f"--{name.replace('_', '-')}", action="store_true")
        else:
            kind, default, *choices = value if isinstance(value, tuple) else (type(kind), value)
            many = {"nargs": "*"} if isinstance(default, list) else {}
            flag = f"--{name.replace('_', '-')}"
            parser.add_argument(flag, type=kind, default=default, choices=choices or None, **many)
    return parser.parse_args()


def head(*names: object) -> None:
    """Print the head of a table: its first column is text, the others are numbers."""
    row(*names)
    print("|---|" + "--:|" * (len(names) - 1))


def row(*cells: object) -> None:
    """Print a row of a table."""
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def has(module: str, package: str = "--group peers") -> bool:
    """Return whether a peer is installed; a line says if not, and what to type."""
    if found := importlib.util.find_spec(module) is not None:
        return found
    print(f"{module} is not installed, so it is not compared: pip install {package}", file=sys.stderr)
    return False


def need(module: str, package: str = "--group peers") -> None:
    """End the script where what it compares with is not installed."""
    if not has(module, package):
        raise SystemExit(1)


class Cost(NamedTuple):
    """What a command and its children took."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    """Of the largest process."""
    code: int
    """Its exit code."""


def run(*command: object) -> Cost:
    """Run a command without its output."""
    begun = time.perf_counter()
    quiet = subprocess.DEVNULL
    with subprocess.Popen([*map(str, command)], stdout=quiet, stderr=quiet) as process:
        return ended(process, begun)


def ended(process: subprocess.Popen[Any], begun: float) -> Cost:
    """Wait for a process that began at a time; return its costs."""
    _, status, usage = os.wait4(process.pid, 0)  # unlike wait(), it gives what this process alone took
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    return Cost(time.perf_counter() - begun, cpu, usage.ru_maxrss / 1e3, process.returncode)


def build_command(inputs: object, work: Path, workers: int) -> list[str]:
    """Return a user's command that builds ``work/manifest`` with the state folder ``work/state``."""
    places = ["--manifest", work / "manifest", "--state", work / "state"]
    return [*map(str, [PROGRAM, "build", inputs, *places, "--workers", workers])]


def build(inputs: object, work: Path, workers: int = 1) -> Cost:
    """Build a folder or a config as a user does.

    Raises:
        SystemExit: The build ended with another code than 0 and 3.
    """
    command = [*build_command(inputs, work, workers), "--quiet"]
    cost = run(*command)
    if cost.code not in {0, 3}:
        raise SystemExit(f"the build ended with code {cost.code}: {' '.join(command)}")
    return cost


def exponents(first: Mapping[str, Any], last: Mapping[str, Any], size: str, kinds: Iterable[str]) -> dict[str, float]:
    """Return the power of a size with which costs grow."""
    ratio = math.log(last[size] / first[size])
    return {kind: round(math.log(last[kind] / first[kind]) / ratio, 3) for kind in kinds}


def text_files(folder: Path) -> Iterator[str]:
    """Yield the contents of the text files (`.md`, `.rst`, `.txt`) below a folder, in the order of their paths."""
    for path in sorted(path for path in folder.rglob("*") if path.suffix in TEXTS and path.is_file()):
        yield path.read_text(encoding="utf-8", errors="replace")


def shards_below(folder: Path) -> list[Path]:
    """Return the shards below a folder, in the order of their paths."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and format_of(str(path))[0] != "unknown")


def read_batches(*shards: Path, source: str | None = None, batch_bytes: int = 1 << 22) -> Iterator[DocBatch]:
    """Yield the batches of shards, whose text is in the column ``text``, and whose source in a column if named."""
    fields = FieldRule(text="text", source_column=source, source_constant="all", max_record_bytes=1 << 30)
    for path in map(str, shards):
        format_, compression = format_of(path)
        for part in plan_parts(path, format_, compression, os.stat(path).st_size, 1 << 60):
            request = ReadRequest(
                path=path, format=format_, compression=compression, part=part, fields=fields, batch_bytes=batch_bytes
            )
            yield from read_part(request, LossLog(), PartStats())


def read_texts(folder: Path, wanted: int = 1 << 60) -> list[str]:
    """Return documents taken evenly from all shards of a folder."""
    texts = [text for batch in read_batches(*shards_below(folder)) for text in batch.texts.to_pylist()]
    chosen = np.unique(np.linspace(0, len(texts) - 1, min(wanted, len(texts))).astype(int))
    return [texts[place] for place in chosen]


def buffers(texts: Iterable[str | bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return uint8 UTF-8 of texts and int64[n + 1] their offsets."""
    encoded = [text.encode("utf-8", "replace") if isinstance(text, str) else text for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets


def megabytes(texts: Iterable[str]) -> float:
    """Return the size of texts in UTF-8."""
    return sum(len(text.encode("utf-8", "replace")) for text in texts) / 1e6
