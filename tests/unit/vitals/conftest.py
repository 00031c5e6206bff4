"""Vitals are tested with one thread of torch's."""

import importlib.util

import pytest


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """Give torch one thread: with two, inductor's code is not the same from run to run, be it looked at or not.

    It adds the gradient of an embedding's rows in the order in which threads come.
    """
    if importlib.util.find_spec("torch") is None:
        yield
        return
    import torch

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def nothing_of_ours_fails(request, monkeypatch):
    """Let what fails at the ends of a step be seen, where a test is not of that."""
    if importlib.util.find_spec("torch") is None or request.module.__name__.endswith("test_harm"):
        return
    from dataaudit.vitals.vitals import Vitals

    def call(_self, _what, what):
        what()
        return True

    monkeypatch.setattr(Vitals, "_safely", call)
