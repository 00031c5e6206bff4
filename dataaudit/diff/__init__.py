"""What changed between two manifests, how much of it is noise, and which version bump it means."""

from dataaudit.callable_package import make_callable

make_callable(__name__)
