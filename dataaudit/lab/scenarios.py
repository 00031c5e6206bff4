"""The faults that the laboratory injects; their strengths stand in ``scenarios.yaml``, with shams and healthy runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from dataaudit.base.errors import ConfigError
from dataaudit.base.yamlfile import load_yaml

if TYPE_CHECKING:
    from dataaudit.lab.model import Run

Plant = Callable[["Run", float, int], None]
"""Called before each step from the onset on, with the strength and the steps since then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A kind of run."""

    name: str
    family: str
    """healthy, sham, attention, rate, router, data, or another that has no aim of its own."""
    model: str
    """``dense`` or ``experts``."""
    words: str
    """The fault model, for receipts."""
    faults: Mapping[str, float] = field(default_factory=dict)
    """Strength by name of :data:`FAULTS`."""
    start: bool = False
    """Whether it is there from the first step on."""
    quick: bool = False
    """Whether ``--quick`` runs it."""

    @property
    def healthy(self) -> bool:
        """Whether its alarms are false ones."""
        return self.family in {"healthy", "sham"}

    def plant(self, run: Run, since: int) -> None:
        """Plant its faults, so many steps behind the onset."""
        for name, strength in self.faults.items():
            FAULTS[name](run, strength, since)


def _attention(fault: Callable[[Any, float], Any]) -> Plant:
    """Return what gives attention a fault of a strength, made of the functions of ``rounding``, which needs torch."""

    def plant(run: Run, strength: float, since: int) -> None:
        from dataaudit.lab import rounding

        if since == 0:
            run.attention(fault(rounding, strength))

    return plant


def _rate(*, grows: bool, routers: bool = False) -> Plant:
    def plant(run: Run, factor: float, since: int) -> None:
        if grows or since == 0:
            for group in run.optimizer.param_groups[1 if routers else 0 :]:
                group["lr"] *= factor

    return plant


def _spoilt(run: Run, over: float, since: int) -> None:
    run.spoilt = min(1.0, (since + 1) / over)


def _matrices(run: Run, factor: float, since: int) -> None:
    if since == 0:
        run.scale_weights(factor)


def _rows(run: Run, rows: float, _since: int) -> None:
    run.rows = int(rows)


def _moments(run: Run, _strength: float, _since: int) -> None:
    for state in run.optimizer.state.values():
        for name in ("exp_avg", "exp_avg_sq"):
            state[name].copy_(state[name].bfloat16())


FAULTS: Final[Mapping[str, Plant]] = {
    "stored_bits": _attention(lambda by, ulps: by.read_back(lambda out: by.shifted(out, int(ulps)))),
    "biased_sums": _attention(lambda by, part: by.read_back(lambda out: by.cut(out, 7, biased=True), part)),
    "output_cut": _attention(lambda by, bits: by.passed_on(lambda out: by.cut(out, int(bits), biased=True))),
    "output_rounded_at_random": _attention(
        lambda by, bits: by.passed_on(lambda out: by.cut(out, int(bits), biased=False))
    ),
    "rate": _rate(grows=False),
    "rate_grows": _rate(grows=True),
    "router_rate": _rate(grows=False, routers=True),
    "router_rate_grows": _rate(grows=True, routers=True),
    "tokens_spoilt_over": _spoilt,
    "matrices": _matrices,
    "rows": _rows,
    "moments_in_bfloat16": _moments,
}
SCENARIOS: Final = tuple(
    Scenario(**own)
    for own in load_yaml(resources.files("dataaudit.lab").joinpath("scenarios.yaml").read_text("utf-8"), where="")
)
BY_NAME: Final = {item.name: item for item in SCENARIOS}


def scenarios_of(names: str, *, quick: bool) -> tuple[Scenario, ...]:
    """Return the scenarios of a list of names with commas; without names all, or those of ``--quick``."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in BY_NAME]:
        raise ConfigError(f"lab: no scenario {unknown[0]}", f"There are {', '.join(BY_NAME)}.")
    return tuple(item for item in SCENARIOS if (item.name in wanted if wanted else item.quick or not quick))
