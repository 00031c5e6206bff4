"""What only a GPU shows of vitals and the monitor: ``make gpu-check``, or ``PYTHONPATH=.:tests python3 -m gpu``.

No environment is made: it runs beside torch, Triton, transformers, NumPy, pyarrow, pydantic, PyYAML, orjson, rfc8785.
A part is a generator of rows, of ``parts.py``. A part that ends its process, or leaves its GPU in error, takes no other
one with it: what is left goes on in another process (docs/howto/gpu-check.md).
"""
