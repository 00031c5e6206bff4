"""What an annotator is, and how those that are needed are loaded and run in order.

An annotator has a model: a frozen, picklable dataclass that is found before a scan and sent to workers, where it is
loaded once. Adding one is a module with an :class:`~dataaudit.corpus.batch.Annotation`, a model and what it loads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, ParamSpec, Protocol, TypeVar

from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.corpus.texts import text_digests

P = ParamSpec("P")
R = TypeVar("R")


class Annotator(Protocol):
    """Says one thing of every document of a batch."""

    def annotate(self, batch: DocBatch) -> Any:
        """Return the annotation of a batch that has those it needs."""
        ...


class AnnotatorModel(Protocol):
    """What an annotator is made of; picklable, and the same on every worker."""

    annotation: ClassVar[Annotation[Any]]
    """What it says."""
    needs: ClassVar[tuple[Annotation[Any], ...]]
    """What it has to know of the documents before."""

    def decisive(self) -> Any:
        """Return what decides its answers, as plain JSON values; None when the program alone does."""
        ...

    def load(self) -> Annotator:
        """Return the annotator, loaded once in a thread.

        Raises:
            ClusterError: It cannot be loaded here, which is no shard's fault.
            DetectorError: It is not the one that was found before the scan.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotators:
    """Everything that the stages of a scan need to know of a batch, and nothing else."""

    chosen: tuple[tuple[Annotation[Any], Annotator], ...]
    """In an order in which each finds what it needs."""

    def annotate(self, batch: DocBatch) -> DocBatch:
        """Return a batch with its digests and all that is asked for."""
        return self.look(replace(batch, digests=text_digests(batch.texts)))

    def look(self, batch: DocBatch) -> DocBatch:
        """Return a batch with all that is asked for; it needs digests only where an annotator looks at them."""
        full = batch
        for annotation, annotator in self.chosen:
            full = full.annotated(annotation, annotator.annotate(full))
        return full


class LoadedLast(Generic[P, R]):
    """Keeps what a function loaded last, for each thread: detectors have state of their own while they look."""

    def __init__(self, load: Callable[P, R]) -> None:
        self._load = load
        self._held = threading.local()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Load, unless this thread's last call was for the same."""
        given = args, kwargs
        if getattr(self._held, "given", None) != given:
            self._held.given = None  # what was held is given back before the next is loaded
            self._held.loaded = None
            self._held.loaded = self._load(*args, **kwargs)
            self._held.given = given
        loaded: R = self._held.loaded
        return loaded


def load_annotators(needs: Iterable[Annotation[Any]], models: Sequence[AnnotatorModel]) -> Annotators:
    """Load what is needed, and what that needs.

    Args:
        needs: What somebody wants to know of the documents.
        models: What is there to find it with.

    Raises:
        ClusterError: One cannot be loaded here.
        DetectorError: One is not what was found before the scan.
    """
    ordered = in_order(needs, models)
    return Annotators(chosen=tuple((model.annotation, model.load()) for model in ordered))


def in_order(needs: Iterable[Annotation[Any]], models: Sequence[AnnotatorModel]) -> list[AnnotatorModel]:
    """Return the models of what is needed, and of what these need, in an order in which each finds what it needs."""
    known = {model.annotation: model for model in models}
    ordered: dict[Annotation[Any], AnnotatorModel] = {}

    def add(annotation: Annotation[Any]) -> None:
        if annotation in ordered:
            return
        assert annotation in known, f"what finds {annotation.name} is prepared when a stage needs it"
        for one in known[annotation].needs:
            add(one)
        ordered[annotation] = known[annotation]

    for annotation in sorted(set(needs), key=lambda one: one.name):
        add(annotation)
    return list(ordered.values())
