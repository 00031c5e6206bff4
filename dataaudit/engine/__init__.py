"""The engine: plan, Dask runner, content-keyed partial store, isolation of bad shards, publishing, token files.

The only package that knows Dask. Nothing here computes a number: stages do, on batches that readers make.
"""
