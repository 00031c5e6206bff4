"""What people read: tables in the terminal, made from a manifest and nothing else."""

from dataaudit.callable_package import make_callable

make_callable(__name__)
