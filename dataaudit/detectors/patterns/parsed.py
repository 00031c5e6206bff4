"""Python's own parser of regular expressions, and the names in its trees: no public module gives them."""

from __future__ import annotations

import importlib
from typing import Any

codes: Any = importlib.import_module("re._constants")
"""Names of the nodes: ``LITERAL``, ``SUBPATTERN``, ``MAX_REPEAT``, ..."""
parser: Any = importlib.import_module("re._parser")
"""``parser.parse(regex, flags)`` returns the tree: pairs of a name and its value."""
