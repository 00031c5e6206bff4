import gc
import weakref

import pytest

from dataaudit.base.errors import CatchErrors


class _Text:
    """What a weak reference can follow."""


def raise_(error):
    raise error


def test_a_call_that_goes_well_leaves_no_error():
    with CatchErrors() as call:
        pass
    assert (call.error, call.kind, call.origin) == (None, "", "")


def test_an_error_of_any_class_becomes_its_kind_and_its_line_without_its_words():
    for error in (
        ValueError("secret"),
        OSError("secret"),
        MemoryError("secret"),
        type("Odd", (Exception,), {})("secret"),
    ):
        with CatchErrors() as call:
            raise_(error)
        assert call.error is error
        assert call.kind == type(error).__name__
        assert call.origin.startswith(f"{call.kind} at test_guarded.py:")
        assert "secret" not in call.origin + call.kind


def test_what_the_caller_names_passes_with_its_subclasses():
    with pytest.raises(FileNotFoundError), CatchErrors(OSError, MemoryError):
        raise FileNotFoundError


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, type("PanicException", (BaseException,), {})])
def test_what_is_no_error_passes(kind):
    with pytest.raises(kind), CatchErrors():
        raise kind


def test_an_error_that_is_kept_keeps_no_document_alive():
    def read():
        text = _Text()
        seen.append(weakref.ref(text))
        raise ValueError

    seen = []
    gc.disable()
    try:
        with CatchErrors() as call:
            read()
        assert call.error is not None
        assert seen[0]() is None
    finally:
        gc.enable()
