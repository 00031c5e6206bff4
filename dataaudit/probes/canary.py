"""Canaries: short trainings on fixed shards, of healthy code once, and of changed code after each change.

::

    OUT/seeds/0000.json    a training: what it read, its values, the files of code that it used
    OUT/baseline.json      the healthy trainings together, or
    OUT/canary.json        those of the changed code beside the baseline's, and the verdict

A training is written whole when it is done, so a command that was stopped goes on with the next seed. A training by
other code, or of other shards, is made again.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dataaudit import __version__
from dataaudit.base.errors import ConfigError, ManifestError, NothingEvaluated
from dataaudit.base.files import read_safely, write_whole
from dataaudit.base.render import terminal
from dataaudit.base.render.blocks import Cell, Facts, Prose, Table, Tone, names, numbers, toned, words
from dataaudit.base.render.line import Name
from dataaudit.live.reproducibility import reproducibility_manifest
from dataaudit.manifest.canary_record import (
    LOSSES,
    BaselineRecord,
    CanaryCore,
    CanaryRecord,
    Changed,
    Expect,
    Judged,
    RunFacts,
    SeedRun,
    Side,
    State,
    judge,
    judge_speed,
    read_baseline,
    read_canary,
    sealed,
)
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.outfiles import check_folder
from dataaudit.probes.canary_task import CanaryTask
from dataaudit.training.replay.replaying import called, load_function

BASELINE_FILE, CANARY_FILE = "baseline.json", "canary.json"
SHARE_LAST = 10
"""The mean of losses is over a tenth of the steps, the last ones."""
_PIECE = 2
"""Version of the file of a training."""
Report = Callable[[str], None]
"""Takes lines of progress."""
_HEADLINES = {
    "pass": "PASS: the change trains as healthy seeds do",
    "better": "BETTER: a loss is lower than healthy seeds explain",
    "regressed": "REGRESSED: a metric is out of what healthy seeds differ by",
    "undecidable": "UNDECIDABLE: the runs do not suffice for a verdict",
    "invalid": "INVALID: these runs cannot be compared",
}
_TONES: dict[State, Tone] = {"worse": "bad", "moved": "bad", "better": "warn", "not_evaluated": "warn"}
MOST_VALUES = 20
"""Rows of logged values that a terminal lists; those that moved come first."""


def make_baseline(
    function: str,
    manifest: Path,
    out: Path,
    *,
    seeds: Sequence[int],
    steps: int,
    config: Sequence[Path],
    report: Report,
) -> Path:
    """Train healthy code with each seed, and write ``OUT/baseline.json``; return its path."""
    side, run = _Trainings(function, manifest, out, steps, config, report).side(seeds)
    path = out / BASELINE_FILE
    with contextlib.suppress(ManifestError):  # there is none, as a rule
        older = read_baseline(path)
        if older.core.code != side.code:
            report(f"{path} replaces the baseline {older.id}, which other code made")
    return _written(path, sealed(side, run))


def run_canary(
    function: str,
    baseline: Path,
    out: Path,
    *,
    manifest: Path | None,
    seeds: int | None,
    config: Sequence[Path],
    changed: Changed,
    expect: Expect | None,
    report: Report,
) -> CanaryRecord:
    """Train changed code with the first of a baseline's seeds, judge it, write ``OUT/canary.json``; return the record.

    Manifest and seeds are the baseline's, all of them, when None. Digests of the files ``config`` are recorded.
    """
    known = read_baseline(baseline / BASELINE_FILE)
    folder = manifest or Path(known.run.environment["manifest_folder"])
    chosen = sorted(known.core.healthy)[:seeds]
    if not chosen:
        raise NothingEvaluated(f"{baseline} has no healthy seed", "Mend the code, and make the baseline again.")
    trainings = _Trainings(function, folder, out, known.core.steps, config, report)
    side, run = trainings.side(())
    if judge(changed, known.core, side)["verdict"] != "invalid":  # other shards: nothing need be trained
        side, run = trainings.side(chosen)
    judged = judge(changed, known.core, side, expect)
    core = CanaryCore(changed=changed, expect=expect, baseline_id=known.id, baseline=known.core, canary=side, **judged)
    path = _written(out / CANARY_FILE, sealed(core, run.model_copy(update={"speed": judge_speed(known.run, run)})))
    return read_canary(path)


class _Trainings:
    """Trainings of a function by seed, each in a file of its own."""

    def __init__(
        self, name: str, manifest: Path, out: Path, steps: int, config: Sequence[Path], report: Report
    ) -> None:
        self._manifest, self._out, self._steps, self._report = manifest, out, steps, report
        self._last = max(1, steps // SHARE_LAST)
        check_folder("--out", out)
        loaded = load_manifest(manifest)
        self._id, self._shards = loaded.id, shard_digests(loaded)
        digests = {path: _digest_or_none(path) for path in config}
        self._config = {path.name: own for path, own in digests.items() if own is not None}
        if lost := [path for path, own in digests.items() if own is None]:
            raise ConfigError(f"--config: {lost[0]} cannot be read")
        if len(self._config) < len(config):
            raise ConfigError("--config: two files have the same name", "Rename a file: digests are recorded by name.")
        module, _, own = name.rpartition(":")
        is_file = module.endswith(".py")
        self._folder = Path(module).resolve().parent if is_file else Path.cwd()
        self._name = f"{Path(module).name if is_file else module}:{own}"
        self._function = load_function(name, "canary")
        if not callable(self._function):
            raise ConfigError(f"canary: {name} is no function")
        self._files: dict[str, str] = {}
        known = reproducibility_manifest(code=self._folder)
        self._environment = {"code": known.get("code"), "installed": known["installed"]}
        self._machine = _machine()
        made_with = known["installed"]["python"], known["installed"]["all"], self._machine
        self._key = digest_json([_PIECE, self._name, self._id, self._shards, self._config, steps, made_with])

    def side(self, seeds: Sequence[int]) -> tuple[Side, RunFacts]:
        """Train what is not there yet, and return everything."""
        pieces = [self._piece(seed) for seed in seeds]
        files: Mapping[str, str] = {path: own for piece in pieces for path, own in piece["files"].items()}
        runs = tuple(SeedRun(**{name: piece[name] for name in SeedRun.model_fields}) for piece in pieces)
        side = Side(
            manifest=self._id,
            training_shards=self._shards[0],
            held_out_shards=self._shards[1],
            function=self._name,
            code=digest_json(dict(sorted(files.items()))),
            config=self._config,
            steps=self._steps,
            last=self._last,
            seeds=runs,
        )
        return side, RunFacts(
            at=max((dt.datetime.fromisoformat(piece["at"]) for piece in pieces), default=dt.datetime.now(dt.UTC)),
            machine=self._machine,
            program=f"dataaudit {__version__}",
            environment=self._environment | {"files": dict(files), "manifest_folder": str(self._manifest.resolve())},
            step_seconds={own["seed"]: own["step_seconds"] for own in pieces if not own["problem"]},
            tokens_per_sec={own["seed"]: own["tokens_per_sec"] for own in pieces if own["tokens_per_sec"]},
        )

    def _piece(self, seed: int) -> dict[str, Any]:
        """Return a training: from its file where that is of this code and these shards, else made now."""
        path = self._out / "seeds" / f"{seed:04}.json"
        stored = _stored(path)
        if stored is not None and stored["key"] == self._key and self._unchanged(stored["files"]):
            self._report(f"seed {seed}: kept")
            return stored
        if stored is None and path.exists():
            self._report(f"{path} is damaged, so the seed is trained again")
        with tempfile.TemporaryDirectory(prefix="dataaudit-canary-") as scratch:
            task = CanaryTask(seed, self._steps, self._manifest, Path(scratch))
            made: dict[str, Any] = called(task.run, self._function, self._last, where=f"canary, seed {seed}:")
        files = self._imported()
        made |= {"key": self._key, "files": files}
        made["at"] = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        _written(path, json.dumps(made, sort_keys=True).encode() + b"\n")
        shown = made["problem"] or ", ".join(f"{name} {value:.4g}" for name, value in made["values"].items())
        self._report(f"seed {seed}: {shown}; {made['step_seconds'] * 1e3:.3g} ms a step")
        return made

    def _unchanged(self, files: Mapping[str, str]) -> bool:
        return all(_digest_or_none(self._folder / name) == own for name, own in files.items())

    def _imported(self) -> dict[str, str]:
        """Return digests of the imported files below the function's folder; a file that changes meanwhile is an error.

        Files of installed packages are not the user's: their versions are recorded.
        """
        found = {}
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            path = None if not isinstance(file, str) else Path(os.path.abspath(file))
            if path is None or not path.is_relative_to(self._folder) or "site-packages" in path.parts:
                continue
            own = _digest_or_none(path)
            if own is not None:
                found[path.relative_to(self._folder).as_posix()] = own
        if changed := [name for name, own in self._files.items() if found.get(name, own) != own]:
            raise ConfigError(
                f"canary: {changed[0]} was changed while its seeds were trained",
                "Run the same command again: what was trained by the old file is made again.",
            )
        self._files |= found
        return found


def shard_digests(loaded: Manifest) -> tuple[str, str]:
    """Return digests of the shards that are trained on, and of those that are held out: split, name, bytes."""
    held_out = {split.name for split in loaded.core.splits if split.held_out}
    rows = loaded.table("shards", ["split", "uri", "sha256", "status"]).to_pylist()

    def digest(kind: bool) -> str:
        own = (row for row in rows if (row["split"] in held_out) == kind)
        return digest_json([[row[name] for name in ("split", "uri", "sha256", "status")] for row in own])

    return digest(False), digest(True)


def _stored(path: Path) -> dict[str, Any] | None:
    """Return the file of a training; None where it is absent or damaged."""
    try:
        made: dict[str, Any] = json.loads(read_safely(path))
        SeedRun(**{name: made[name] for name in SeedRun.model_fields})
        whole = isinstance(made["files"], dict) and isinstance(made["key"], str) and made["step_seconds"] > 0
        return made if whole and (made["tokens_per_sec"] or 1) > 0 and dt.datetime.fromisoformat(made["at"]) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _written(path: Path, content: bytes) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as error:
        raise ConfigError(f"canary: {path} cannot be written: {error.strerror or error}") from None
    return path


def _digest_or_none(path: Path) -> str | None:
    try:
        return f"sha256:{hashlib.sha256(read_safely(path)).hexdigest()}"
    except OSError:
        return None


def _machine() -> str:
    """Return what seconds of a step belong to: the machine, its processor, and the device."""
    device = ""
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        device = sys.modules["torch"].cuda.get_device_name()
    parts = platform.node(), platform.machine(), f"{os.cpu_count()} cores", device
    return ", ".join(part for part in parts if part)


def canary_text(record: CanaryRecord) -> str:
    """Return what the terminal shows of a canary."""
    core = record.core
    shown = sorted(core.metrics, key=lambda own: (own.metric not in LOSSES, own.state == "same"))
    table = Table(
        title="Metrics",
        columns=(
            *names("metric"),
            *numbers("pairs", "baseline", "canary", "difference", "95 % of it", "limit", "seed sd"),
            *words("state"),
        ),
        rows=tuple(map(_row, shown[: MOST_VALUES + len(LOSSES)])),
        number=len(shown),
        noun="metric",
        note="difference: mean over pairs of a seed. limit: half of Student's prediction interval.",
    )
    blocks = [Prose(text="; ".join(core.reasons), tone="bad")] if core.reasons else []
    pairs = [("record", record.id), ("baseline", core.baseline_id), ("manifest", core.canary.manifest)]
    side = core.canary
    runs = f"{len(side.seeds)} seeds of {side.function}, {side.steps} steps each, losses of the last {side.last}"
    pairs += [("runs", runs)]
    if record.run.speed is not None:
        own = record.run.speed
        step = f"{own.canary * 1e3:.3g} ms, {own.ratio:.3f} times the baseline's {own.baseline * 1e3:.3g}"
        pairs.append(("a step", f"{step} (limit {own.limit:.3f}): {own.state.replace('_', ' ')}; in no verdict"))
    facts = Facts(pairs=tuple((name, Name(value)) for name, value in pairs))
    title = _HEADLINES[core.verdict]
    if core.verdict == "pass" and any(own.state == "better" for own in core.metrics):
        title = "PASS: losses are lower, as --expect better says"
    elif core.verdict == "regressed" and not core.metrics:
        title = "REGRESSED: a loss is not finite"
    return terminal.render(title, [*blocks, *([table] if core.metrics else []), facts])


def baseline_text(record: BaselineRecord) -> str:
    """Return what the terminal shows of a baseline."""
    side = record.core
    metrics = [name for name in LOSSES if any(name in run.values for run in side.seeds)]
    table = Table(
        title="Healthy seeds",
        columns=(*numbers("seed"), *numbers(*metrics), *numbers("ms a step"), *words("order", "state")),
        rows=tuple(
            (
                str(run.seed),
                *(f"{run.values[name]:.4f}" if name in run.values else "-" for name in metrics),
                f"{record.run.step_seconds[run.seed] * 1e3:.3g}" if run.seed in record.run.step_seconds else "-",
                Name((run.order or "not known").removeprefix("sha256:")[:12]),
                toned("not healthy: a loss is not finite", "bad") if run.problem else "healthy",
            )
            for run in side.seeds
        ),
        whole=True,
        noun="seed",
    )
    title = f"{len(side.healthy)} healthy seeds of {side.function}, {side.steps} steps each"
    facts = Facts(pairs=(("record", Name(record.id)), ("manifest", Name(side.manifest))))
    return terminal.render(title, [table, facts])


def _row(own: Judged) -> tuple[Cell | str | Name, ...]:
    def number(value: float | None, sign: str = "") -> str:
        return "-" if value is None else f"{value:{sign}.4g}"

    interval = "-" if own.low is None or own.high is None else f"{own.low:+.3g} to {own.high:+.3g}"
    state = own.state.replace("_", " ") + (f": {own.reason}" if own.reason else "")
    return (
        Name(own.metric),
        str(own.pairs),
        number(own.baseline),
        number(own.canary),
        number(own.difference, "+"),
        interval,
        f"±{number(own.limit)}" if own.limit is not None else "-",
        number(own.seed_sd),
        Cell(text=state, tone=_TONES.get(own.state, "")),
    )
