"""What a probe measured: numbers with intervals and hashes, what was not evaluated, and how each moved since before.

The ``eval_artifact_hash`` is of all that a number depends on besides the weights. Two numbers are compared where it is
the same. Where it is not, the comparison is *invalid*, and what differs is named: a swapped tokenizer moves a loss as
much as a broken model does.

A report lies in a folder of its own: ``report.json``, and ``arrays.npz`` with the units that pair it with the next.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError
from dataaudit.base.files import write_whole
from dataaudit.manifest.canonical import digest_json
from dataaudit.probes.estimates import CONFIDENCE, Estimate, Units

if TYPE_CHECKING:
    from dataaudit.probes.models import Model

SCHEMA = "dataaudit-probes/1"
REPORT_FILE, ARRAYS_FILE = "report.json", "arrays.npz"
_UNITS = ("top", "bottom", "ids")
HARNESS = "dataaudit-probes"
"""Name of this harness; each probe adds its own version, which rises when its numbers change."""
NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalArtifacts:
    """What a probe was made with; each field is a digest or a short name."""

    tokenizer: str
    """Digest of the tokenizer's file, or the encoder's name."""
    prompts: str
    """Digest of all tokens or texts that the model is given or scored on, in order."""
    templates: str = NONE
    """How a prompt is made of a text."""
    decoding: str = NONE
    """Sampling, lengths and seeds, as JSON."""
    harness: str
    """Name and version of the program that computes the number."""
    dtype: str
    """Of the model's weights."""

    @property
    def digest(self) -> str:
        """The ``eval_artifact_hash``: ``sha256:<hex>`` of the fields as canonical JSON."""
        return digest_json(asdict(self))

    def differing(self, other: EvalArtifacts) -> tuple[str, ...]:
        """Return the names of the fields that differ, in their order."""
        mine, others = asdict(self), asdict(other)
        return tuple(name for name in mine if mine[name] != others[name])


def artifacts_of(model: Model, harness: str, prompts: str, **more: str) -> EvalArtifacts:
    """Return the artifacts of a model: its tokenizer and dtype with what is given."""
    return EvalArtifacts(tokenizer=model.tokenizer.digest, dtype=model.dtype, harness=harness, prompts=prompts, **more)


def harness(probe: str, version: int | str) -> str:
    """Return the harness of a probe of ours."""
    return f"{HARNESS}/{probe} {version}"


def digest_rows(rows: Iterable[Any]) -> str:
    """Return ``sha256:<hex>`` of texts or of integer arrays, in order; where a row ends is part of it."""
    state = hashlib.sha256()
    for row in rows:
        data = row.encode("utf-8", "surrogatepass") if isinstance(row, str) else np.asarray(row, "<i8").tobytes()
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return f"sha256:{state.hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number of a probe."""

    metric: str
    stat: str = "value"
    scope: Mapping[str, str] = field(default_factory=dict)
    """What it is about: split, source, language, length, domain, set, times, entity, leaks."""
    unit: str
    value: float | None
    low: float | None = None
    high: float | None = None
    confidence: float = CONFIDENCE
    units: int = 0
    """Independent units that it is made of: documents, rows, prompts."""
    method: str = "sampled"
    """exact, sampled, or at_least where text may have been missed."""
    reason: str = ""
    """Why there is no value, or no interval."""
    artifacts: str = ""
    """Its ``eval_artifact_hash``."""
    change: Estimate | None = None
    """Since the report that it is compared with, paired."""
    invalid: tuple[str, ...] = ()
    """Artifacts that differ from that report's: the two are not compared."""

    @property
    def key(self) -> str:
        """Metric, statistic and scope, as one name."""
        scope = ",".join(f"{name}={value}" for name, value in sorted(self.scope.items()))
        return f"{self.metric}.{self.stat}[{scope}]"

    @property
    def known(self) -> bool:
        """Whether it has a value that is finite."""
        return self.value is not None and bool(np.isfinite(self.value))

    @property
    def task(self) -> str | None:
        """The task of a score; empty of a number of everything, None of a slice or another part."""
        return self.scope.get("task", "") if self.scope.keys() <= {"task"} else None

    @property
    def name(self) -> str:
        """Metric, and statistic and task where it has these, as people read them."""
        name = self.metric if self.stat == "value" else f"{self.metric}.{self.stat}"
        return f"{name} {self.task}" if self.task else name


@dataclass(slots=True)
class Outcome:
    """What a probe returns: numbers, the units behind them by key, arrays for the next checkpoint, notes."""

    numbers: list[Number] = field(default_factory=list)
    units: dict[str, Units] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(
        self, metric: str, units: Units, unit: str, *, stat: str = "value", method: str = "sampled", **scope: str
    ) -> Number:
        """Add a ratio of sums with its interval; one whose denominator is 0 is not evaluated."""
        number = Number(metric=metric, stat=stat, scope=scope, unit=unit, value=None, reason="no_units", method=method)
        if (made := units.estimate()) is not None:
            reason = "not_finite" if not np.isfinite(made.value) else "one_unit" if made.low is None else ""
            number = replace(number, reason=reason, **asdict(made))
        self.numbers.append(number)
        self.units[number.key] = units
        return number

    def absent(self, metric: str, unit: str, reason: str, **scope: str) -> None:
        """Add a number that could not be evaluated, and why."""
        self.numbers.append(Number(metric=metric, scope=scope, unit=unit, value=None, reason=reason))


@dataclass(slots=True, kw_only=True)
class ProbeReport:
    """Everything that was measured of a checkpoint."""

    checkpoint: str
    step: int
    digest: str = ""
    """Of the checkpoint's file; empty where it is a model in this process."""
    manifest: str = ""
    """Id of the manifest."""
    program: str = ""
    numbers: list[Number] = field(default_factory=list)
    artifacts: dict[str, EvalArtifacts] = field(default_factory=dict)
    """By ``eval_artifact_hash``."""
    notes: list[str] = field(default_factory=list)
    compared_with: str = ""
    units: dict[str, Units] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def not_evaluated(self) -> list[Number]:
        """Numbers without a value, or whose value is not finite."""
        return [number for number in self.numbers if not number.known]

    @property
    def invalid(self) -> list[Number]:
        """Numbers whose comparison is invalid."""
        return [number for number in self.numbers if number.invalid]

    def get(self, metric: str, stat: str = "value", **scope: str) -> Number:
        """Return a number.

        Raises:
            LookupError: It is not there.
        """
        wanted = Number(metric=metric, stat=stat, scope=scope, unit="", value=None).key
        for number in self.numbers:
            if number.key == wanted:
                return number
        raise LookupError(f"no {wanted}")

    def compare(self, before: ProbeReport) -> None:
        """Add to each number how it moved since another report, or which artifacts make that comparison invalid."""
        self.compared_with = f"{before.checkpoint} (step {before.step:,})"
        old = {number.key: number for number in before.numbers}
        for at, number in enumerate(self.numbers):
            theirs = old.get(number.key)
            if theirs is None or not number.known or not theirs.known:
                continue
            if number.artifacts != theirs.artifacts:
                mine, other = self.artifacts[number.artifacts], before.artifacts[theirs.artifacts]
                self.numbers[at] = replace(number, invalid=mine.differing(other), change=None)
            elif number.key in self.units and number.key in before.units:
                change = self.units[number.key].change_from(before.units[number.key])
                self.numbers[at] = replace(number, change=change)

    def document(self) -> dict[str, Any]:
        """Return the report in plain types; values that are not finite are null, with a reason."""
        names = ("checkpoint", "step", "digest", "manifest", "program", "compared_with", "notes")
        numbers = [asdict(number) for number in self.numbers]
        for number in numbers:
            number |= {key: None for key in ("value", "low", "high") if not np.isfinite(number[key] or 0.0)}
        artifacts = {key: asdict(own) for key, own in self.artifacts.items()}
        plain = {"schema": SCHEMA} | {name: getattr(self, name) for name in names}
        return plain | {"numbers": numbers, "artifacts": artifacts}

    def write(self, folder: Path) -> None:
        """Write it; each file appears whole, ``report.json`` last."""
        arrays: dict[str, Any] = {f"state|{name}": array for name, array in self.arrays.items()}
        for key, units in self.units.items():
            arrays |= {f"units|{key}|{name}": getattr(units, name) for name in _UNITS}
        try:
            sink = io.BytesIO()
            np.savez_compressed(sink, **arrays)
            write_whole(folder / ARRAYS_FILE, sink.getvalue())
            write_whole(folder / REPORT_FILE, t.as_json(self.document()).encode())
        except OSError as error:
            raise ConfigError(f"the report {folder} cannot be written: {error.strerror or error}") from None

    @classmethod
    def load(cls, folder: Path) -> ProbeReport:
        """Read a report.

        Raises:
            ConfigError: It is absent, damaged, or of another version.
        """
        try:
            plain = orjson.loads((folder / REPORT_FILE).read_bytes())
            if plain.pop("schema") != SCHEMA:
                raise ConfigError(f"{folder}: a report of another version than {SCHEMA}")
            made = cls(**{name: plain[name] for name in plain if name not in {"numbers", "artifacts"}})
            made.artifacts = {key: EvalArtifacts(**value) for key, value in plain["artifacts"].items()}
            for number in plain["numbers"]:
                change = number.pop("change")
                number["invalid"] = tuple(number["invalid"])
                made.numbers.append(Number(**number, change=None if change is None else Estimate(**change)))
            with np.load(folder / ARRAYS_FILE, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise ConfigError(
                f"{folder} holds no report of a probe that can be read: {reason}",
                "Name a folder step-... of --out, or make the report again: dataaudit probe ... --step N --out DIR",
            ) from None
        keys = {name[6:].rpartition("|")[0] for name in arrays if name.startswith("units|")}
        made.units = {key: Units(*(arrays[f"units|{key}|{name}"] for name in _UNITS)) for key in keys}
        made.arrays = {name[6:]: array for name, array in arrays.items() if name.startswith("state|")}
        return made


def probed_detail(report: ProbeReport) -> dict[str, Any]:
    """Return what an event ``probed`` of a run log says: which checkpoint, and artifacts by ``eval_artifact_hash``."""
    artifacts = {key: asdict(own) for key, own in report.artifacts.items()}
    return {"checkpoint": report.checkpoint, "digest": report.digest, "artifacts": artifacts}


def latest_before(folder: Path, step: int) -> Path | None:
    """Return the folder of the newest report of a step before one."""
    folders = {path.parent.name.removeprefix("step-"): path.parent for path in folder.glob(f"step-*/{REPORT_FILE}")}
    steps = {int(number): own for number, own in folders.items() if number.isdecimal() and int(number) < step}
    return steps[max(steps)] if steps else None


def values_of(numbers: Sequence[Number]) -> list[tuple[str, str, float]]:
    """Return metric, statistic and value of the rows of numbers in a run log's table of values.

    A slice of the validation loss is ``val_loss.source:web``, the name that rules of alerts and pages know; elsewhere
    the scope follows upon the metric in the same way. Bounds are the statistics ``low`` and ``high``.
    """
    rows: list[tuple[str, str, float]] = []
    for number in numbers:
        if number.value is None:
            continue
        metric = "val_loss" if number.metric == "slice_val_loss" else number.metric
        scope = ".".join(f"{name}:{value}" for name, value in sorted(number.scope.items()))
        name = f"{metric}.{scope}" if scope else metric
        prefix = "" if number.stat == "value" else f"{number.stat}_"
        bounds = ((number.stat, number.value), (f"{prefix}low", number.low), (f"{prefix}high", number.high))
        rows += [(name, stat, value) for stat, value in bounds if value is not None]
    return rows
