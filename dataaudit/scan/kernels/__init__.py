"""Numeric kernels: pure functions on arrays. Each has a slow reference in ``tests/reference`` or its test.

The same names stand for the same arrays: ``data`` or ``values``, uint8[m], valid UTF-8 of n documents, one after
another; ``words`` or ``hashes``, uint64[w], of their words; ``offsets``, int64[n + 1], ascending from 0, where each
begins in these; ``places``, int64, indices of words; ``sizes``, ``counts`` and ``judged``, int64[k], of strata or bins.
"""
