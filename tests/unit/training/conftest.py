"""What several files of these tests train on."""

import pytest
from made_corpus import MadeCorpus
from made_run import make_shards, write_run

from dataaudit.training.attribution.run_data import load_data
from dataaudit.training.documents import Documents, byte_encoder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A corpus in every format, with its manifest."""
    return MadeCorpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def corpus(made):
    """It, opened."""
    return made.open()


@pytest.fixture(scope="module")
def documents(corpus):
    """Its documents as bytes, each with an end."""
    return Documents(corpus, "train", byte_encoder(end=0))


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    """A manifest of twelve shards, for runs that were never trained."""
    folder = tmp_path_factory.mktemp("made") / "manifest"
    make_shards(folder)
    return folder


@pytest.fixture
def written(tmp_path, manifest):
    """Return a function that writes the log of a run with something planted and returns its data."""

    def write(made, *plants, **more):
        write_run(tmp_path / "run", manifest, made, *plants, **more)
        return load_data(tmp_path / "run", manifest)

    return write


@pytest.fixture(scope="module")
def one_thread():
    """Matrices as small as those of these tests are multiplied faster by one thread."""
    torch = pytest.importorskip("torch", reason="its threads are counted")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
