"""A corpus for the end-to-end tests, made once."""

import dataclasses
import os
import signal
from pathlib import Path

import pytest
from browser import started
from corpus import CONFIG, write_corpus
from running import build

from dataaudit.engine import local_runner, sandbox
from dataaudit.engine.sandbox import ONE_THREAD
from dataaudit.scan import annotators

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts jobs in the background so, and what they start would ignore Ctrl-C as they do.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A folder with `data/` in every format, `config.yaml`, and nothing built yet."""
    root = tmp_path_factory.mktemp("corpus")
    write_corpus(root / "data", per_shard=150)
    (root / "config.yaml").write_text(CONFIG, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def browser():
    """One Chromium for all tests of a file."""
    driver = started()
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def store():
    """An empty S3 server behind a proxy that fails on demand."""
    from stores import running_store

    with running_store() as opened:
        yield opened


@pytest.fixture(scope="session")
def expected(corpus, tmp_path_factory):
    """The manifest of that corpus, built in the plainest way."""
    folder = tmp_path_factory.mktemp("expected")
    return build(corpus / "config.yaml", manifest=folder / "manifest")[1]


@pytest.fixture(autouse=True, scope="session")
def _one_child_for_many_builds():
    """Builds of this process read untrusted files in one child, for as long as the environment is the same.

    A build ends its child, and the next one starts another: 3 seconds, of which most builds here are made.
    """
    real, started = sandbox._warm_child, []

    def environment():
        other = {"PYTEST_CURRENT_TEST", *ONE_THREAD}
        return {name: value for name, value in os.environ.items() if name not in other}

    def warm(with_pandas):
        if sandbox._children and started[-1:] != [environment()]:
            sandbox._drop()
        if not sandbox._children:
            started[:] = [environment()]
        return real(with_pandas)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox, "_warm_child", warm)
        patch.setattr(local_runner, "end_child", lambda: None)
        yield
    sandbox.end_child()


@pytest.fixture(autouse=True, scope="session")
def _one_encoder_for_many_builds():
    """Builds of this process load a tokenizer once, whichever state folder its copy lies in."""
    real, held = annotators.load_once, {}

    def load(tokenizer, risks, force_reference, seed):
        key = dataclasses.replace(tokenizer, path=Path()), risks, force_reference, seed
        if key not in held:
            held[key] = real(tokenizer, risks, force_reference, seed)
        return held[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(annotators, "load_once", load)
        yield
