"""A corpus for the end-to-end tests, made once."""

from __future__ import annotations

import pytest
from corpus import CONFIG, write_corpus
from running import build


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A folder with `data/` in every format, `config.yaml`, and nothing built yet."""
    root = tmp_path_factory.mktemp("corpus")
    write_corpus(root / "data", per_shard=150)
    (root / "config.yaml").write_text(CONFIG, encoding="utf-8")
    return root


@pytest.fixture(scope="session")
def expected(corpus, tmp_path_factory):
    """The manifest of that corpus, built in the plainest way."""
    folder = tmp_path_factory.mktemp("expected")
    return build(corpus / "config.yaml", manifest=folder / "manifest")[1]
