"""The faults that the laboratory injects, with their strengths, and the shams and healthy runs beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dataaudit.base.errors import ConfigError

if TYPE_CHECKING:
    from dataaudit.lab.training import Run

Plant = Callable[["Run", int], None]
"""Called before each step from the onset on, with the steps since then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A kind of run."""

    name: str
    family: str
    """healthy, sham, attention, rate, router, data, or another that has no aim of its own."""
    model: str
    """``dense`` or ``experts``."""
    words: str
    """The fault model, for receipts: what is wrong, and how it is injected."""
    plant: Plant | None = None
    start: bool = False
    """Whether it is there from the first step on."""
    quick: bool = False
    """Whether ``--quick`` runs it."""

    @property
    def healthy(self) -> bool:
        """Whether its alarms are false ones."""
        return self.family in {"healthy", "sham"}


def _rate(factor: float, group: int | None = None) -> Plant:
    def plant(run: Run, since: int) -> None:
        for at, own in enumerate(run.optimizer.param_groups):
            if since == 0 and group in {None, at}:
                own["lr"] *= factor

    return plant


def _creep(factor: float, group: int | None = None) -> Plant:
    def plant(run: Run, _since: int) -> None:
        for at, own in enumerate(run.optimizer.param_groups):
            if group in {None, at}:
                own["lr"] *= factor

    return plant


def _attention(make: Callable[[], Any]) -> Plant:
    def plant(run: Run, since: int) -> None:
        if since == 0:
            run.attention(make())

    return plant


def _bits(ulps: int) -> Plant:
    def make() -> Any:
        from dataaudit.lab.rounding import read_back, shifted

        return read_back(lambda output: shifted(output, ulps))

    return _attention(make)


def _biased(part: float) -> Plant:
    def make() -> Any:
        from dataaudit.lab.rounding import cut, read_back

        return read_back(lambda output: cut(output, 7, biased=True), part)

    return _attention(make)


def _rounds(bits: int, *, biased: bool) -> Plant:
    def make() -> Any:
        from dataaudit.lab.rounding import cut, passed_on

        return passed_on(lambda output: cut(output, bits, biased=biased))

    return _attention(make)


def _few_rows(run: Run, _since: int) -> None:
    run.rows = 1


def _moments(run: Run, _since: int) -> None:
    for state in run.optimizer.state.values():
        for name in ("exp_avg", "exp_avg_sq"):
            state[name].copy_(state[name].bfloat16())


def _spoilt(over: int) -> Plant:
    def plant(run: Run, since: int) -> None:
        run.spoilt = min(1.0, (since + 1) / over)

    return plant


def _wide(factor: float) -> Plant:
    def plant(run: Run, since: int) -> None:
        if since == 0:
            run.scale_weights(factor)

    return plant


def _both(*plants: Plant) -> Plant:
    def plant(run: Run, since: int) -> None:
        for own in plants:
            own(run, since)

    return plant


SCENARIOS: Final[tuple[Scenario, ...]] = (
    Scenario(name="healthy_dense", family="healthy", model="dense", words="no fault", quick=True),
    Scenario(name="healthy_experts", family="healthy", model="experts", words="no fault", quick=True),
    Scenario(
        name="attention_bits",
        family="attention",
        model="experts",
        words="attention's backward pass reads an output whose bfloat16 bits are 64 units in the last place too high",
        plant=_bits(64),
        quick=True,
    ),
    Scenario(
        name="rate_creep",
        family="rate",
        model="dense",
        words="the learning rate of all weights grows by 1 % a step",
        plant=_creep(1.01),
        quick=True,
    ),
    Scenario(
        name="router_creep",
        family="router",
        model="experts",
        words="the learning rate of routers grows by 3 % a step",
        plant=_creep(1.03, group=1),
        quick=True,
    ),
    Scenario(
        name="data_spoilt",
        family="data",
        model="dense",
        words="tokens are replaced by random ones, a share that grows by 1 / 3000 a step",
        plant=_spoilt(3_000),
        quick=True,
    ),
    Scenario(
        name="attention_bias",
        family="attention",
        model="dense",
        words="rowsum(dO * O) of attention's backward pass is too small by 0.3 % of its absolute terms, and the output "
        "that it reads is cut to bfloat16 towards minus infinity",
        plant=_biased(0.003),
    ),
    Scenario(
        name="sham_rounding",
        family="sham",
        model="dense",
        words="attention's output is rounded to bfloat16 at random, right in the mean",
        plant=_rounds(7, biased=False),
    ),
    Scenario(
        name="sham_rate", family="sham", model="experts", words="the learning rate is 1.05 times as large", plant=_rate(1.05)
    ),
    Scenario(
        name="combined",
        family="combined",
        model="experts",
        words="attention as in attention_bias at 0.1 %, and a rate that grows by 0.5 % a step",
        plant=_both(_biased(0.001), _creep(1.005)),
    ),
    Scenario(
        name="rate_start",
        family="rate",
        model="dense",
        words="the learning rate is 8 times as large from the first step on",
        plant=_rate(8.0),
        start=True,
    ),
    Scenario(
        name="initialisation",
        family="initialisation",
        model="dense",
        words="all matrices of the layers begin 4 times as large",
        plant=_wide(4.0),
        start=True,
    ),
    Scenario(
        name="rate_jump", family="rate", model="dense", words="the learning rate is 8 times as large", plant=_rate(8.0)
    ),
    Scenario(
        name="router_jump",
        family="router",
        model="experts",
        words="the learning rate of routers is 30 times as large",
        plant=_rate(30.0, group=1),
    ),
    Scenario(
        name="attention_rounding",
        family="attention",
        model="dense",
        words="attention's output is cut to 1 bit of mantissa, towards minus infinity",
        plant=_rounds(1, biased=True),
    ),
    Scenario(name="few_rows", family="batch", model="dense", words="a batch has 1 row in place of 8", plant=_few_rows),
    Scenario(
        name="moments", family="precision", model="dense", words="Adam's moments are kept in bfloat16", plant=_moments
    ),
)
"""In the order in which a seed runs them."""
BY_NAME: Final = {item.name: item for item in SCENARIOS}


def scenarios_of(names: str, *, quick: bool) -> tuple[Scenario, ...]:
    """Return the scenarios of a list of names with commas; without names all, or those of ``--quick``.

    Raises:
        ConfigError: A name is not known.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in BY_NAME]:
        raise ConfigError(f"lab: no scenario {unknown[0]}", f"There are {', '.join(BY_NAME)}.")
    return tuple(item for item in SCENARIOS if (item.name in wanted if wanted else item.quick or not quick))
