"""Reference implementations of kernels: plain Python of the standard library alone, which shares no code with them."""
