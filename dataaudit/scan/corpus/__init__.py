"""Shards, readers, text and tokens: everything between files on disk and a :class:`DocBatch`."""
