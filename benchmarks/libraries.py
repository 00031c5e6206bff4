"""What each requirement costs: megabytes installed, and of those what no other requirement would bring.

``python benchmarks/libraries.py [--extra NAME ...]`` reads what is installed beside it (the RECORD of each package): it
runs in an environment that holds dataaudit with those extras. Prints Markdown, the largest first.
"""

from __future__ import annotations

import argparse
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


@cache
def size_of(name: str) -> int:
    """Return the bytes of a package's files, compiled Python left out."""
    files = distribution(name).files or ()
    paths = (file.locate() for file in files if file.suffix != ".pyc")
    return sum(path.stat().st_size for path in paths if path.is_file())


@cache
def needed_by(name: str, extras: frozenset[str]) -> tuple[Requirement, ...]:
    """Return what a package asks for here."""
    found = []
    for line in distribution(name).requires or ():
        one = Requirement(line)
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            found.append(one)
    return tuple(found)


def closure(roots: list[Requirement]) -> set[str]:
    """Return the names of all packages that some requirements bring."""
    seen: set[tuple[str, frozenset[str]]] = set()
    names, left = set(), list(roots)
    while left:
        one = left.pop()
        name, extras = canonicalize_name(one.name), frozenset(one.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            left += needed_by(name, extras)
        except PackageNotFoundError:
            continue
        names.add(name)
    return names


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extra", action="append", default=[])
    given = parser.parse_args()
    roots = list(needed_by("dataaudit", frozenset(given.extra)))
    whole = closure(roots)
    rows = []
    for root in roots:
        rest = closure([one for one in roots if one is not root])
        with_it = whole - rest
        rows.append((sum(map(size_of, with_it)), root, with_it - {canonicalize_name(root.name)}))
    print(f"{len(whole)} packages, {sum(map(size_of, whole)) / 1e6:.1f} MB\n")
    print("| requirement | itself, MB | what goes with it, MB | of these |\n|---|--:|--:|---|")
    for gone, root, others in sorted(rows, key=lambda row: (-row[0], row[1].name)):
        itself = size_of(root.name) / 1e6 if canonicalize_name(root.name) in whole else 0.0
        print(f"| {root.name} | {itself:.1f} | {gone / 1e6:.1f} | {', '.join(sorted(others))} |")


if __name__ == "__main__":
    main()
