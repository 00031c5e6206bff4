"""The partials of one shard as the driver sees them: merged over its parts, and not held."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from dataaudit.engine.planned import Plan
from dataaudit.engine.state_folder import StateFolderError
from dataaudit.engine.store import Entry, PartialStore, entry_at, entry_of
from dataaudit.errors import limit_hint
from dataaudit.link.step import DamagedEntryError
from dataaudit.link.stored import Stored
from dataaudit.stages.base import Stage, merge
from dataaudit.stages.partial import Partial, fold_table, group


@contextmanager
def _reading(path: Callable[[], object]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateFolderError(
            f"{path()} cannot be read: {error.strerror or type(error).__name__}",
            limit_hint(error) or "Check the disk, or remove the file: what it holds is computed again.",
        ) from None


@dataclass(slots=True)
class Damage:
    """Reads entries; those that are absent or damaged are removed and told of together."""

    store: PartialStore
    """Where the entries are."""
    names: list[str] = field(default_factory=list)
    """``kind/key`` of what was removed."""

    def read(self, kind: str, key: str) -> Entry | None:
        """Return an entry, or None when it is absent or damaged.

        Raises:
            StateFolderError: It cannot be read.
        """
        with _reading(lambda: self.store.root / self.store.file_of(kind, key)):
            entry = self.store.read(kind, key)
        if entry is None:
            self.remove(kind, key)
        return entry

    def remove(self, kind: str, key: str) -> None:
        """Remove an entry with its rows."""
        self.store.remove(kind, key)
        self.names.append(f"{kind}/{key}")

    def tell(self) -> None:
        """Raise when something was removed.

        Raises:
            DamagedEntryError: It was.
        """
        if self.names:
            raise DamagedEntryError(self.names)


@dataclass(slots=True)
class Missing:
    """Reads entries on a worker; notes those that are absent or damaged."""

    names: set[str] = field(default_factory=set)
    """``kind/key`` of each."""

    def read(self, address: str) -> Entry | None:
        """Return an entry, or None when it is absent or damaged.

        Raises:
            StateFolderError: It cannot be read.
        """
        with _reading(lambda: Stored.at(address).path):
            entry = entry_at(address)
        if entry is None:
            self.names.add(entry_of(address))
        return entry


class ShardPartials(Mapping[str, Partial]):
    """The merged partials of one shard by stage, read each time they are asked for: those of all are too much to hold.

    Args:
        plan: The plan.
        place: Where it holds the shard.
        stages: All stages, by name.
        store: Where the partials of its parts are.
    """

    __slots__ = ("_place", "_plan", "_stages", "_store")

    def __init__(self, plan: Plan, place: int, stages: Mapping[str, Stage], store: PartialStore) -> None:
        self._plan, self._place = plan, place
        self._stages, self._store = stages, store

    def __getitem__(self, name: str) -> Partial:
        if name not in self:
            raise KeyError(name)
        damage = Damage(self._store)
        entries = [damage.read(name, keys[name]) for keys in self._plan.keys(self._place)]
        damage.tell()
        return merge_parts(self._stages[name], entries)

    def __contains__(self, name: object) -> bool:
        return name in self._plan.stages(self._place)  # the default would read and merge the partial

    def __iter__(self) -> Iterator[str]:
        return iter(self._plan.stages(self._place))

    def __len__(self) -> int:
        return len(self._plan.stages(self._place))


def merge_parts(stage: Stage, entries: Sequence[Entry | None]) -> Partial:
    """Return the partial of a shard from those of its parts; one alone is merged as it was written.

    Args:
        stage: The stage.
        entries: One a part; None for those that are absent or damaged.
    """
    partials = [entry.tables for entry in entries if entry is not None]
    return partials[0] if len(partials) == 1 else merge(stage, partials)


def fold_partial(stage: Stage, partial: Partial, kept: pa.Array) -> Partial:
    """Return a partial with the sources that are not kept folded into ``other``."""
    shapes = stage.shapes()
    return {name: group(shapes[name], fold_table(table, kept)) for name, table in partial.items()}
