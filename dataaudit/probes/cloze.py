"""``microbench_score``: a cloze set made of the corpus itself, and tasks of lm-evaluation-harness."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from dataaudit.base.errors import CatchErrors, ConfigError
from dataaudit.manifest.canonical import canonical_json, digest_json
from dataaudit.probes.corpus import Corpus
from dataaudit.probes.estimates import Units, share_bounds
from dataaudit.probes.models import Decoding, Ids, Model
from dataaudit.probes.report import EvalArtifacts, Number, Outcome, artifacts_of, digest_rows, harness
from dataaudit.probes.store import Progress, Store

BEGINNING, ENDING, CHOICES = 64, 16, 4
"""Tokens that are given, tokens of an ending, endings to choose from."""
_GROUP = 16
_OF_ITEMS = frozenset({"acc", "acc_norm", "exact_match"})
"""Scores of a harness that are shares of items."""


class Item(NamedTuple):
    """A beginning, and endings of which the first is its own."""

    beginning: Ids
    endings: tuple[Ids, ...]


@dataclass(frozen=True, kw_only=True)
class Cloze:
    """Which of four endings goes on with the beginning of a held-out document; guessing gives a quarter.

    The wrong endings stand at the same tokens of other held-out documents of the same source. The most likely ending
    per token is chosen; a tie is wrong.
    """

    name: ClassVar[str] = "cloze"
    version: ClassVar[int] = 1
    items: tuple[Item, ...]
    progress: Progress | None = None
    doubt: str = ""
    """Why documents of items may have been trained on."""

    @classmethod
    def of(cls, corpus: Corpus, *, items: int = 200, seed: int = 0, progress: Progress | None = None) -> Self:
        """Return the set of a manifest: of held-out documents that do not leak, as many as there are at most."""
        length = BEGINNING + ENDING
        drawn = corpus.sample(held_out=True, limit=4 * items, least=length, seed=seed)
        made: list[Item] = []
        if drawn is not None:
            sources = np.array(drawn.labels["source"])
            for source in np.unique(sources).tolist():
                rows = [drawn.rows[at][:length] for at in np.flatnonzero((sources == source) & ~drawn.leaked)]
                for at, row in enumerate(rows):
                    others = [rows[(at + shift) % len(rows)][BEGINNING:] for shift in range(1, len(rows))]
                    wrong = [own for own in others if not np.array_equal(own, row[BEGINNING:])][: CHOICES - 1]
                    if len(wrong) == CHOICES - 1:
                        made.append(Item(row[:BEGINNING], (row[BEGINNING:], *wrong)))
        doubt = "" if drawn is None else drawn.doubt
        return cls(items=tuple(made[:: max(1, len(made) // items)][:items]), progress=progress, doubt=doubt)

    def artifacts(self, model: Model) -> EvalArtifacts:
        """Return what its numbers depend on."""
        prompts = digest_rows([row for item in self.items for row in (item.beginning, *item.endings)])
        beginning = min(BEGINNING, model.context - ENDING - len(model.tokenizer.start))  # a short context cuts it
        templates = f"beginning={beginning} ending={ENDING} choices={CHOICES}"
        return artifacts_of(model, harness(self.name, self.version), prompts, templates=templates)

    def run(self, model: Model, store: Store, previous: Mapping[str, np.ndarray]) -> Outcome:
        """Score all endings."""
        del previous
        made = Outcome(notes=[f"cloze: {self.doubt}"] if self.doubt else [])

        def right(_: int, part: Sequence[Item]) -> list[float] | None:
            begin = model.tokenizer.start
            pairs = [(np.concatenate([begin, item.beginning]), ending) for item in part for ending in item.endings]
            if (scored := model.scored(pairs)) is None:
                return None
            table = np.array([losses.mean() for losses in scored]).reshape(len(part), CHOICES)
            first, others = table[:, 0], table[:, 1:].min(1)
            return [*np.where(np.isnan(first + others), np.nan, first < others).tolist()]

        outcomes = store.grouped(self.items, _GROUP, right, "cloze items", self.progress)
        if outcomes is None:
            made.absent("microbench_score", "ratio", "no_losses", task="cloze")
        else:
            made.add("microbench_score", Units.of(np.array(outcomes, np.float64)), "ratio of items", task="cloze")
        return made


@dataclass(frozen=True, kw_only=True)
class HarnessTasks:
    """Tasks of lm-evaluation-harness, on any model that probes take.

    Args:
        tasks: Their names; or what ``lm_eval.simple_evaluate`` takes.
        limit: Documents of a task, at most.
        seed: Of the harness.
        manager: A ``TaskManager`` with tasks of your own.
    """

    name: ClassVar[str] = "lm_eval"
    tasks: tuple[Any, ...]
    limit: int | None = None
    seed: int = 0
    manager: Any = None

    def artifacts(self, model: Model) -> EvalArtifacts:
        """Return what its numbers depend on: the harness pins the prompts of a task by its version."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            own = version("lm_eval")
        except PackageNotFoundError:
            own = "not installed"
        prompts, decoding = digest_json([str(task) for task in self.tasks]), canonical_json({"seed": self.seed})
        templates = f"limit={self.limit}"
        return artifacts_of(model, f"lm_eval {own}", prompts, templates=templates, decoding=decoding.decode())

    def run(self, model: Model, store: Store, previous: Mapping[str, np.ndarray]) -> Outcome:
        """Evaluate all tasks; what the harness gives with a standard error has an interval."""
        del store, previous
        made = Outcome()
        try:
            import lm_eval
        except ImportError:
            made.absent("microbench_score", "ratio", "not_installed: pip install lm-eval")
            return made
        seeds = {f"{kind}_seed": self.seed for kind in ("random", "numpy_random", "torch_random", "fewshot_random")}
        with CatchErrors() as call:
            results: Any = lm_eval.simple_evaluate(
                model=_wrapped(model),
                tasks=list(self.tasks),
                limit=self.limit,
                bootstrap_iters=0,
                task_manager=self.manager,
                **seeds,
            )
        if call.error is not None:
            raise ConfigError(f"lm-evaluation-harness cannot run {', '.join(map(str, self.tasks))} ({call.origin})")
        for task, own in sorted(results["results"].items()):
            for key, value in sorted(own.items()):
                metric, comma, _ = key.partition(",")
                if comma and not metric.endswith("_stderr") and isinstance(value, int | float):
                    made.numbers.append(
                        _number(task, metric, float(value), own.get(key.replace(",", "_stderr,")), results)
                    )
        return made


def _number(task: str, metric: str, value: float, error: Any, results: Mapping[str, Any]) -> Number:
    error = float(error) if isinstance(error, int | float) and math.isfinite(error) else None
    units = int(results.get("n-samples", {}).get(task, {}).get("effective", 0))
    low, high = (None, None) if error is None else (value - 1.959964 * error, value + 1.959964 * error)
    if error is not None and metric in _OF_ITEMS and units and (value in {0, 1} or (error > 0 and 0 < value < 1)):
        low, high = share_bounds(value, error, units)
    return Number(
        metric="microbench_score",
        stat=metric,
        scope={"task": task},
        unit="ratio",
        value=value,
        low=low,
        high=high,
        units=units,
        reason="" if error is not None else "no_standard_error",
    )


def _wrapped(model: Model) -> Any:
    """Return a model of the harness that asks ours."""
    from lm_eval.api.model import LM

    class Wrapped(LM):
        def loglikelihood(self, requests: Sequence[Any], **_: Any) -> list[tuple[float, bool]]:
            pairs = [
                (self._ids(context) if context else model.tokenizer.start, self._ids(text))
                for context, text in (request.args for request in requests)
            ]
            return [(total, False) for total in self._totals(pairs)]

        def loglikelihood_rolling(self, requests: Sequence[Any], **_: Any) -> list[float]:
            texts = [self._ids(request.args[0])[: model.context - 1] for request in requests]
            return self._totals([(model.tokenizer.start, ids) for ids in texts])

        def generate_until(self, requests: Sequence[Any], **_: Any) -> list[str]:
            made = []
            for number, request in enumerate(requests):
                text, given = request.args
                tokens = int(given.get("max_gen_toks", 64))
                decoding = Decoding(tokens=tokens, temperature=float(given.get("temperature", 0.0)))
                output = model.tokenizer.decode(model.continued([self._ids(text)], [number], decoding)[0].tolist())
                for stop in given.get("until", ()):
                    output = output.split(stop)[0]
                made.append(output)
            return made

        @staticmethod
        def _ids(text: str) -> Ids:
            return model.tokenizer.encode(text)

        @staticmethod
        def _totals(pairs: list[tuple[Ids, Ids]]) -> list[float]:
            if (scored := model.scored(pairs)) is None:
                raise ConfigError("the model has no losses")
            return [-float(losses.sum()) for losses in scored]

    return Wrapped()
