"""The list of shards and documents that loaders leave out: append-only, with evidence."""
