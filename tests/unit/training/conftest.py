"""What several files of these tests train on."""

from __future__ import annotations

import pytest
from made_corpus import MadeCorpus


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A corpus in every format, with its manifest."""
    return MadeCorpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def corpus(made):
    """It, opened."""
    return made.open()
