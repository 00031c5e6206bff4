"""Print how large the package is and how it is built, in numbers that a change can be compared by: `make house`."""

import ast
import re
import statistics
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dataaudit"
WORDS = ("one", "ones", "held", "told", "said", "stretch", "twin", "twins", "found", "place", "fate", "waits")
"""Words that the names of the field take the place of; `held out` is of the field."""


class Module:
    """A file of the package: its tree, and what it imports of the package."""

    def __init__(self, path):
        self.path = path
        self.text = path.read_text("utf-8")
        self.tree = ast.parse(self.text)
        parts = path.relative_to(ROOT).with_suffix("").parts
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def room(self):
        """The folder below the package, or the package itself."""
        parts = self.path.relative_to(PACKAGE).parts
        return parts[0] if len(parts) > 1 else "(top)"

    @property
    def lines(self):
        """Lines, empty ones with them."""
        return self.text.count("\n")

    @property
    def statements(self):
        """Statements, docstrings left out."""
        every = [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt)]
        return len(every) - len(self.docstrings)

    @property
    def docstrings(self):
        """Expressions that are a text alone: docstrings, and what stands below an attribute."""
        return [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ]

    def imports(self):
        """Return the dotted names that it imports of the package, wherever in the file."""
        names = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dataaudit"):
                names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names if alias.name.startswith("dataaudit")}
        return names


def one_sibling(modules):
    """Return the files that only a single other file imports, one of the same folder."""
    by_name = {module.name: module for module in modules}
    users = Counter()
    user_of = {}
    for module in modules:
        for name in module.imports() & by_name.keys():
            if by_name[name] is not module:
                users[name] += 1
                user_of[name] = module
    return sorted(
        name
        for name, number in users.items()
        if number == 1
        and by_name[name].path.parent == user_of[name].path.parent
        and by_name[name].path.stem != "__init__"
    )


def metric_names(modules):
    """Return how many files outside of its folder name each metric whose name is no plain word, by metric."""
    from dataaudit.metrics.registry import FAMILY_OF, METRICS

    found = {}
    for name in METRICS:
        if "_" in name:
            folder = PACKAGE / "metrics" / FAMILY_OF[name].name
            pattern = re.compile(rf"\b{name}\b")
            found[name] = sum(
                bool(pattern.search(module.text)) for module in modules if folder not in module.path.parents
            )
    return found


def lines_of(pattern, folder=ROOT):
    """Return the lines of the files that git knows by a pattern."""
    names = subprocess.check_output(["git", "ls-files", pattern], cwd=folder, text=True).splitlines()
    return sum((folder / name).read_text("utf-8", errors="ignore").count("\n") for name in names)


def main():
    """Print a line for each number."""
    modules = [Module(path) for path in sorted(PACKAGE.rglob("*.py"))]
    docstrings = sum(node.end_lineno - node.lineno + 1 for module in modules for node in module.docstrings)
    lines = [module.lines for module in modules]
    print(f"files                     {len(modules):,}")
    print(f"lines                     {sum(lines):,} (median {statistics.median(lines):.0f}, most {max(lines)})")
    print(f"statements                {sum(module.statements for module in modules):,}")
    print(f"lines of docstrings       {docstrings:,}")
    print(f"files above 500 lines     {sum(number > 500 for number in lines)}")
    print(f"files that serve another  {len(one_sibling(modules))}")
    names = metric_names(modules)
    print(
        f"files outside its folder  {statistics.mean(names.values()):.2f} name a metric,"
        f" most {max(names, key=names.get)}"
    )
    for pattern in (
        "dataaudit/**.yaml",
        "dataaudit/**.jinja",
        "pipelines/**",
        "tests/**.py",
        "benchmarks/**.py",
        "docs/**.md",
    ):
        print(f"lines of {pattern:<17}{lines_of(pattern):,}")
    rooms = Counter(module.room for module in modules)
    sizes = Counter()
    for module in modules:
        sizes[module.room] += module.lines
    print(
        "rooms                     " + ", ".join(f"{room} {rooms[room]}/{size:,}" for room, size in sizes.most_common())
    )
    texts = [re.sub(r"held[-_\s]out", "", module.text).replace("_", " ") for module in modules]
    words = Counter(word for text in texts for word in re.findall(r"\b[a-z]+\b", text))
    print("words                     " + ", ".join(f"{word} {words[word]:,}" for word in WORDS))


if __name__ == "__main__":
    main()
