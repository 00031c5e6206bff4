"""What libraries say of a document reaches nobody."""

import logging
import sys
import threading
import warnings

from dataaudit.scan.detectors import judges
from dataaudit.scan.detectors.judges import quiet, silenced


def test_what_libraries_print_warn_and_log_is_dropped(capfd, caplog):
    """On both streams and in their loggers; afterwards everybody speaks as before."""
    with quiet():
        print("a line of the document")
        print("a line of the document", file=sys.stderr)
        sys.stderr.flush()
        warnings.warn("a line of the document", stacklevel=1)
        logging.getLogger("presidio-analyzer").critical("a line of the document")
        logging.getLogger("mine").critical("something else")
    print("after")
    logging.getLogger("transformers").critical("after")
    out, err = capfd.readouterr()
    assert (out, "document" in err) == ("after\n", False)
    assert [record.message for record in caplog.records] == ["something else", "after"]


def test_both_streams_come_back_after_an_error(capfd):
    try:
        with quiet():
            raise ValueError("a line of the document")
    except ValueError:
        pass
    print("after")
    assert capfd.readouterr().out == "after\n"


def test_levels_are_as_before_when_the_last_of_two_threads_has_ended():
    """The second begins while the first is quiet, and ends after it."""
    logger, begun, ended = logging.getLogger("transformers"), threading.Event(), threading.Event()
    before = logger.level

    def second():
        with quiet():
            begun.set()
            ended.wait(timeout=10)

    thread = threading.Thread(target=second)
    with quiet():
        thread.start()
        begun.wait(timeout=10)
    assert not logger.isEnabledFor(logging.CRITICAL)
    ended.set()
    thread.join()
    assert logger.level == before


def test_levels_are_set_once_however_many_units_are_quiet_meanwhile(monkeypatch):
    """Each change empties the caches of all loggers of the process, of which there may be thousands."""
    changes, real = [], logging.Logger.setLevel
    monkeypatch.setattr(logging.Logger, "setLevel", lambda logger, level: changes.append(level) or real(logger, level))
    with silenced:
        for _ in range(10):
            with quiet():
                pass
    assert len(changes) == 2 * len(judges._LOUD)


def test_a_library_that_sets_its_level_when_it_is_imported_is_silenced_by_the_next():
    """And has that level afterwards; so has one of which somebody else set the level."""
    logger = logging.getLogger("huggingface_hub")
    before = logger.level
    try:
        with silenced:
            with quiet():
                logger.setLevel(logging.WARNING)
            with quiet():
                assert not logger.isEnabledFor(logging.CRITICAL)
        assert logger.level == logging.WARNING
        with silenced:
            logger.setLevel(logging.INFO)
        assert logger.level == logging.INFO
    finally:
        logger.setLevel(before)
