"""Brings the file tree of the README up to date: ``python tests/golden/make_readme_tree.py``.

A path that is in the tree keeps its line; a new module gets the first line of its docstring, cut where it must be.
"""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
COLUMN, WIDTH = 35, 120
BLOCK = re.compile(r"(<!-- tree -->\n```\n)(.*?)(```)", re.DOTALL)


def described(text: str, left: int) -> str:
    """Return a docstring's first line without markup, cut at a comma or colon when it is too long."""
    line = text.split("\n", maxsplit=1)[0].replace("``", "").replace("`", "").rstrip(".")
    if len(line) <= left:
        return line
    marks = [match.start() for match in re.finditer(r"[,:;] ", line) if match.start() <= left]
    return line[: marks[-1]] if marks else line[: line.rfind(" ", 0, left)]


def known_lines(tree: str) -> tuple[dict[str, str], list[str]]:
    """Return the description of every path of a tree, and the lines after the package's."""
    found: dict[str, str] = {}
    folders: list[str] = []
    rest: list[str] = []
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name, _, text = line.strip().partition("  ")
        folders = folders[:depth]
        found["".join(folders) + name] = text.strip()
        if name.endswith("/"):
            folders.append(name)
        if rest or (depth == 0 and name != "dataaudit/"):
            rest.append(line)
    return found, rest


def package_lines(known: dict[str, str]) -> list[str]:
    """Return the lines of the package: modules of a folder first, then its folders."""
    listed = subprocess.run(["git", "ls-files", "dataaudit"], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = sorted(name for name in listed.stdout.split() if name.endswith(".py"))

    def line(path: str, source: str) -> str:
        depth = path.rstrip("/").count("/")
        shown = "  " * depth + path.rstrip("/").split("/")[-1] + ("/" if path.endswith("/") else "")
        doc = ast.get_docstring(ast.parse((ROOT / source).read_text(encoding="utf-8"))) or ""
        text = known.get(path) or described(doc, WIDTH - COLUMN)
        return f"{shown:<{COLUMN}}{text}".rstrip()

    def folder(path: str) -> list[str]:
        own = [name for name in modules if name.startswith(path) and "/" not in name.removeprefix(path)]
        below = sorted({path + name.removeprefix(path).split("/")[0] + "/" for name in modules
                        if name.startswith(path) and "/" in name.removeprefix(path)})  # fmt: skip
        lines = [line(name, name) for name in own if not name.endswith("/__init__.py")]
        for one in below:
            lines += [line(one, f"{one}__init__.py"), *folder(one)]
        return lines

    return ["dataaudit/", *folder("dataaudit/")]


def main() -> None:
    """Rewrite the README's tree."""
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    found = BLOCK.search(text)
    assert found
    known, rest = known_lines(found[2])
    tree = "\n".join([*package_lines(known), *rest]) + "\n"
    readme.write_text(text[: found.start(2)] + tree + text[found.end(2) :], encoding="utf-8")


if __name__ == "__main__":
    main()
