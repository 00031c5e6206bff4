"""The list of shards and documents that loaders leave out: append-only, with evidence."""

from dataaudit.callable_package import make_callable

make_callable(__name__)
