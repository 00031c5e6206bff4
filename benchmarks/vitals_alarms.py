"""Incidents of healthy runs that are simulated, by schedule: how often vitals name a fault where there is none.

python benchmarks/vitals_alarms.py --seeds 8 --steps 1200 --every 1

Each run draws its own noise: no two schedules share it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from common import options

from dataaudit.vitals.alarms import Alarms

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "unit" / "vitals"))
import healthy_runs as runs


def main() -> None:
    """Print a row for each schedule, and the bound of all."""
    given = options(__doc__, seeds=8, first=100, steps=1200, every=1, schedules=list(runs.SCHEDULES))
    total = steps = 0
    print("| schedule | runs | steps | series | incidents | judged at the end |\n|---|---|---|---|---|---|")
    for place, schedule in enumerate(runs.SCHEDULES):
        if schedule not in given.schedules:
            continue
        number, judged, series = 0, 0, 0
        for seed in range(given.first, given.first + given.seeds):
            own = seed * len(runs.SCHEDULES) + place
            keys, values, rate, tokens = runs.healthy(schedule, given.steps, own)
            alarms = Alarms(keys)
            found = runs.judged(alarms, keys, values, rate, tokens, every=given.every)
            number += len(runs.incidents(found))
            for step, one in found:
                if one.kind == "alarm":
                    print(f"seed {own}, step {step}: {one.detail}", file=sys.stderr)
            cover = alarms.coverage().values()
            judged, series = judged + sum(one["judged"] for one in cover), series + sum(one["series"] for one in cover)
        total, steps = total + number, steps + given.seeds * given.steps
        row = (
            schedule,
            given.seeds,
            given.seeds * given.steps,
            series // given.seeds,
            number,
            f"{judged / series:.0%}",
        )
        print(f"| {' | '.join(map(str, row))} |", flush=True)
    bound = {0: 3.0, 1: 4.75, 2: 6.3, 3: 7.76}.get(total, total + 2 * total**0.5 + 2)
    print(f"{total} incidents in {steps:,} steps: at most {bound / steps:.1e} a step (95 %)")


if __name__ == "__main__":
    main()
