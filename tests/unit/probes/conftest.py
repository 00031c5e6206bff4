"""What several files of these tests probe."""

import pytest
from probe_world import World


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("world"))
