"""dataaudit: audits LLM pre-training corpora and writes a versioned, reproducible manifest.

One direction of flow, one folder a step::

    shards --corpus--> DocBatch --stages--> partials + keyed tables --link--> counts and tables
           --manifest--> a published directory --report--> what people read

``engine`` is the only part that knows Dask; ``manifest`` is the only way from the data side to
anything that reads results. Import layers are kept by import-linter (see ``pyproject.toml``).
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
