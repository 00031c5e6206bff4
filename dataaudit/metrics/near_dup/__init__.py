"""Documents that are nearly the same as an earlier one."""
