"""The release gate: a policy, a manifest, a verdict that explains itself."""

from dataaudit.callable_package import make_callable

make_callable(__name__)
