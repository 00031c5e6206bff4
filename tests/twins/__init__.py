"""Slow twins of kernels: plain Python that imports the standard library alone, so it shares no code with them."""
