"""Where shards lie: files of this machine, of stores that fsspec knows, of web servers, and rows of datasets.

What is outside of this folder has a path, which may be a :class:`~dataaudit.scan.corpus.storage.address.RemotePath` or
a :class:`~dataaudit.scan.corpus.storage.hub.RowsPath`, and lists, stats and opens it without asking which.
"""
