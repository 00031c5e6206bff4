"""Every kernel states what bounds its work; reference implementations share no code with the kernels."""

import ast
import sys
from pathlib import Path

import pytest
import reference

from dataaudit.scan.kernels import plain_words
from dataaudit.scan.kernels.jit import all_kernels

_ONCE = "a step for each byte, word or gram, and a look-up in a table"
BOUNDS = {
    "characters._search": _ONCE,
    "counting._count": _ONCE,
    "characters._count": _ONCE,
    "pairing._agreements": "a sketch's values, for each document",
    "pairing._form_of_crowd": "documents of a bucket, up to a fixed number of them, for each document",
    "overlap._find": "words of a document, for each of the 16 texts at most that have a phrase of it",
    "faults._count": "one pass, beside a sign 256 bytes ahead; one over every stride of base64",
    "filters._count_documents": "one pass; repeated n-grams by a table of a document, of a few lengths",
    "filters._mark_runs": "one pass for each of few periods, until a run is long enough",
    "items._find_texts": "64 texts a seed; each is compared once for each stretch of its length, with `nearest`",
    "markup._mark": "one pass; beside a word it looks 1,024 bytes ahead, to the next mark of its kind",
    "markup._assemble": _ONCE,
    "minhash._sketch": "permutations, a fixed number for each shingle",
    "minhash._shingles": _ONCE,
    "minhash._bands": "permutations, for each document",
    "minhash._distinct": _ONCE,
    "minhash._intersect": "a step for each element of two sorted lists",
    "items._nearest": "words of a stretch times blocks of 64 words of a text, of 1,024 words at most",
    "ngrams._fill": _ONCE,
    "ngrams._hash_all": _ONCE,
    "normal._collapse": _ONCE,
    "overlap._find_all": _ONCE,
    "overlap._find_long": "a step for each word of a run of hits",
    "overlap._count_own": _ONCE,
    "pairing._form": "documents of a bucket, of a small one",
    "pairing._form_probes": "in a large bucket a fixed number of leaders for each document, in a small one its size",
    "toxic._score": "few features for each letter, of a word of MAX_LETTERS at most; windows of fixed lengths",
    "toxic._list": "few features for each letter, of a word of MAX_LETTERS at most",
    "windows._gather": "words that are copied, of a fixed number of windows",
    "winnow._winnow": "a window of fixed length for each gram",
    "winnow._hash_windows": "words of windows of fixed length",
    "winnow._hash_sequences": "words of the sequences",
    "winnow._extend": "words that two places have in common, for each anchor",
    "words._split": _ONCE,
    "words._unmark": _ONCE,
}


def test_every_kernel_says_what_bounds_it():
    """Whoever adds one says it here, and gives the benchmark a document that is its worst."""
    kernels = {f"{kernel.function.__module__.rpartition('.')[2]}.{kernel.__name__}" for kernel in all_kernels()}
    assert kernels == set(BOUNDS)


TWINS = sorted(Path(reference.__file__).parent.glob("*.py"))
FILES = [*TWINS, Path(plain_words.__file__)]


def imported(path):
    """Return the packages that a file imports, at its top or anywhere in it; ``.`` for a relative import."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." if node.level else node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_imports_the_standard_library_alone(path):
    assert imported(path) <= sys.stdlib_module_names | {"reference"}
    assert not imported(path) & {"importlib", "runpy"}, "a twin that loads modules by name could load what it checks"


def test_every_twin_is_what_some_test_compares_with():
    tests = [path.read_text(encoding="utf-8") for path in Path(reference.__file__).parents[1].glob("**/*.py")]
    for twin in TWINS:
        named = (f"from reference import {twin.stem}", f"from reference.{twin.stem} import")
        assert twin.stem == "__init__" or any(name in test for name in named for test in tests), twin.stem
