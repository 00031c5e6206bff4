"""The release gate: policy, facts, verdict. Here: the policies that come with the package, by name."""

from __future__ import annotations

from pathlib import Path

BUILTIN = ("canary", "release-gate", "strict")
_PACKAGE = Path(__file__).parents[2]


def policy_path(given: Path) -> Path:
    """Return the file of a built-in policy by its name, unless such a file exists; else the path as it was given."""
    return given if str(given) not in BUILTIN or given.exists() else builtin_path(str(given))


def builtin_path(name: str) -> Path:
    """Return the file of a policy that comes with the package."""
    shipped = _PACKAGE / "policies"  # the wheel has them there; a checkout keeps them in pipelines/
    return (shipped if shipped.is_dir() else _PACKAGE.parent / "pipelines") / f"{name}.yaml"
