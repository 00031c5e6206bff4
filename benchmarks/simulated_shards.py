"""What a shard costs the driver when there are very many, over a simulated store of results.

    python benchmarks/simulated_shards.py TEXTS [--shards 10000 100000] [--workers 1] [--stages NAME ...] [--folder DIR]

The build is the real one (plan, packs, gathering, link steps, sums, finalizing, publishing), and so are its workers.
Two things are put in its place. Files: a few templates of real text stand for all shards, each under as many paths as
it takes (`//.` and `/.` for the bits of its number), so that no inode is spent, and its digest is that of its number.
Scans: a template is scanned once in each worker; every further shard gets its partials under keys of its own, and
keyed rows of no document, as of documents that nothing else holds. So what is left out is finding and reading
the files, and what grows with documents and not with shards.

Each size runs in a process of its own. Reported are CPU seconds and memory of the driver, of all processes, and files
of the state folder; then the exponents from one size to the next.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

from common import exponents, options
from many_shards import paragraphs, state_files, write_shards

from dataaudit.engine import build as building
from dataaudit.engine.plan_probe import probe_file
from dataaudit.engine.runner import READING, Outcome, ProbeUnit, ScanSettings, ScanUnit
from dataaudit.engine.scan import Scan, join_small
from dataaudit.engine.store import PartialStore
from dataaudit.engine.store_entries import Item, read_pack, stored_name
from dataaudit.metrics.registry import by_stage
from dataaudit.metrics.stages import REQUIRED
from dataaudit.scan.cross_shard.keyed import Stored, is_keyed, keyed_pieces, read_keyed

TEMPLATES = 64
_BITS = 21
_HEAD = 64
"""Bytes before what is stored: magic, and at their end the digest."""


def alias(folder: Path, number: int) -> str:
    """Return a path of the template of a shard that no other shard has."""
    bits = "".join("//." if number >> place & 1 else "/." for place in range(_BITS))
    return f"{folder}{bits}/part-{number % TEMPLATES:07d}.jsonl"


def number_of(path: str) -> int:
    """Return the number of a shard by its path."""
    places = path[: path.rindex("/")].split("/.")
    return sum(1 << place for place, before in enumerate(places[-_BITS - 1 : -1]) if before.endswith("/"))


def simulated_probe(unit: ProbeUnit) -> Outcome:
    """Hash a template, and say the digest of the shard's number."""
    outcome = probe_file(unit)
    assert outcome.probe is not None
    return Outcome(probe=replace(outcome.probe, sha256=hashlib.sha256(str(number_of(unit.path)).encode()).hexdigest()))


@dataclass(frozen=True, slots=True)
class Prepared:
    """An entry of a template, and what is left of it without documents' keyed rows."""

    kind: str
    suffix: str
    body: bytes
    """What its digest is over, beside its name."""
    head: bytes
    """Before its digest."""
    tail: bytes
    """After what its digest is over."""

    def under(self, key: str) -> Item:
        """Return it under another key."""
        name = stored_name(self.kind, key, self.suffix)
        digest = hashlib.sha256(f"{name}\n".encode() + self.body).digest()
        return Item(self.kind, key, self.suffix, [self.head, digest, self.body, self.tail])


def prepared(stored: Stored) -> Prepared:
    """Return an entry of a pack, prepared; keyed rows are left out of it."""
    item = Item.at(stored)
    data, end = b"".join(item.pieces), None
    if is_keyed(stored):
        data = b"".join(keyed_pieces(stored.name, [], read_keyed(str(stored), 0, 256).schema))
        end = _HEAD + int.from_bytes(data[24:32], "little")
    cut = len(data) if end is None else end
    return Prepared(item.kind, item.suffix, data[_HEAD:cut], data[: _HEAD - 32], data[cut:])


_KNOWN: dict[tuple[int, str], list[Prepared]] = {}


@dataclass(frozen=True, slots=True)
class SimulatedScan:
    """Stands for the scan: what the template of a shard left, under the shard's keys."""

    settings: ScanSettings

    def __call__(self, unit: ScanUnit) -> Outcome:
        """Store what a scan would store."""
        (outcome,) = self.together([unit])
        return outcome

    def gains(self, unit: ScanUnit) -> bool:
        """All of them: one pack takes many."""
        del unit
        return True

    def together(self, units: Sequence[ScanUnit]) -> list[Outcome]:
        """Store what scans would store, in one pack; the templates themselves have packs of their own."""
        scanned, items = {}, []
        for unit in units:
            number = number_of(unit.request.path)
            place = number % TEMPLATES, str(self.settings.state)
            if place not in _KNOWN or number < TEMPLATES:
                outcome = Scan(self.settings)(unit)
                assert outcome.reason is None, outcome
                _KNOWN[place] = [prepared(stored) for stored in read_pack(Path(outcome.pack))]
                if number < TEMPLATES:
                    scanned[number] = outcome
                    continue
                Path(outcome.pack).unlink()
            keys = dict(unit.stage_keys) | {READING: unit.reading_key}
            items += [one.under(keys[one.kind]) for one in _KNOWN[place]]
        pack = str(PartialStore(self.settings.state).write_items(items)) if items else ""
        return [scanned.get(number_of(unit.request.path), Outcome(pack=pack)) for unit in units]

    def finish(self, outcomes: Sequence[Outcome]) -> None:
        """Join packs, as the scan does."""
        join_small(self.settings, outcomes)


class Sampled:
    """Samples the memory that is this process's own: without pages of files, which the system can take back."""

    def __init__(self) -> None:
        self.largest = self._since = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(0.05):
            self._note()

    def _note(self) -> None:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        now = int(status.partition("RssAnon:")[2].split()[0])
        self.largest, self._since = max(self.largest, now), max(self._since, now)

    def taken(self) -> int:
        """Return the most kB since it was asked last."""
        self._note()
        since, self._since = self._since, 0
        return since


def print_nothing(_: str) -> None:
    """Take a note."""


def run_one(texts: Path, shards: int, workers: int, work: Path, stages: Sequence[str]) -> dict[str, Any]:
    """Build one manifest in this process, of some stages or all of them; return its costs."""
    from dataaudit.engine import plan_probe as probing
    from dataaudit.engine.cluster import ClusterChoice
    from dataaudit.engine.inputs import prepare
    from dataaudit.engine.job import BuildOptions
    from dataaudit.engine.progress import Progress
    from dataaudit.scan.corpus.shards import Discovery, Shard

    folder = work / "shards"
    write_shards(folder, paragraphs(texts), TEMPLATES, 4)
    given = prepare([str(folder)], work, tokenizer=None, text=None, reference=None, note=print_nothing)
    (split,) = given.config.splits
    off = {name: False for name in by_stage() if stages and name not in (*stages, *REQUIRED)}
    config = given.config.model_copy(update={"stages": given.config.stages | off})

    def discovered(*_: object, **__: object) -> Discovery:
        return Discovery(roots={split: str(folder)}, shards=tuple(map(shard, range(shards))), left_out=())

    def shard(number: int) -> Shard:
        return Shard(
            ordinal=number,
            split=split,
            uri=f"part-{number:07d}.jsonl",
            path=alias(folder, number),
            format="jsonl",
            compression="none",
            skip=None,
            size=sizes[number % TEMPLATES],
        )

    sizes = [(folder / f"part-{number:07d}.jsonl").stat().st_size for number in range(TEMPLATES)]
    patch.multiple(building, discover=discovered, Scan=SimulatedScan).start()
    patch.object(probing, "probe_file", simulated_probe).start()
    phases: dict[str, float] = {}
    peaks: dict[str, int] = {}
    last = [time.process_time()]

    def tell(line: str) -> None:
        now = time.process_time()
        phase = line.partition(":")[0].strip()[:40]
        phases[phase] = phases.get(phase, 0.0) + now - last[0]
        peaks[phase] = max(peaks.get(phase, 0), memory.taken())
        last[0] = now

    options = BuildOptions(target=work / "manifest", state=work / "state", cluster=ClusterChoice(workers=workers))
    begun = time.perf_counter()
    with Sampled() as memory, Progress(tell=tell) as progress:
        built = building.build(config, given.base, root_at_base=given.root_at_base, options=options, progress=progress)
    tell("after the last line")
    seconds = time.perf_counter() - begun
    own, below = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    driver = own.ru_utime + own.ru_stime
    return {
        "shards": shards,
        "id": built.id[:19],
        "wall_s": seconds,
        "driver_cpu_s": driver,
        "cpu_s": driver + below.ru_utime + below.ru_stime,
        "driver_mb": own.ru_maxrss / 1024,
        **state_files(work / "state"),
        "driver_cpu_by_phase_s": {name: round(value, 1) for name, value in phases.items() if value >= 0.5},
        "driver_own_mb": memory.largest / 1024,
        "driver_own_mb_by_phase": {name: value // 1024 for name, value in peaks.items()},
    }


def main() -> None:
    """Run and print a line of JSON a size, then the exponents."""
    given = options(
        __doc__,
        texts=Path,
        shards=[10_000, 100_000],
        workers=1,
        stages=(str, [], *by_stage()),
        folder=(Path, Path(tempfile.gettempdir())),
        here=False,
    )
    if given.here:
        with tempfile.TemporaryDirectory(dir=given.folder) as name:
            found = run_one(given.texts, given.shards[0], given.workers, Path(name), given.stages)
        print(json.dumps({key: round(value, 2) if isinstance(value, float) else value for key, value in found.items()}))
        return
    here = Path(__file__)
    path = os.pathsep.join([str(here.parent), str(here.parent.parent), os.environ.get("PYTHONPATH", "")])
    costs: list[dict[str, Any]] = []
    for shards in sorted(given.shards):
        command = [sys.executable, "-c", "import simulated_shards; simulated_shards.main()", str(given.texts)]
        command += ["--shards", str(shards), "--workers", str(given.workers), "--folder", str(given.folder)]
        command += ["--here", "--stages", *given.stages]
        ended = subprocess.run(
            command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=True
        )
        print(ended.stdout, end="", flush=True)
        costs.append(json.loads(ended.stdout.splitlines()[-1]))
    for before, after in pairwise(costs):
        powers = exponents(before, after, "shards", ("driver_cpu_s", "cpu_s", "driver_mb", "state_files"))
        more = after["shards"] - before["shards"]
        each = {
            "driver_kb": round(1024 * (after["driver_mb"] - before["driver_mb"]) / more, 2),
            "driver_ms": round(1000 * (after["driver_cpu_s"] - before["driver_cpu_s"]) / more, 3),
        }
        print(json.dumps({"exponent": powers, "each_more_shard": each}))


if __name__ == "__main__":
    main()
