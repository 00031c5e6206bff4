"""What libraries say of a document reaches nobody."""

from __future__ import annotations

import logging
import sys
import warnings

from dataaudit.detectors.judges import quiet


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
    """Also when a library raises."""
    try:
        with quiet():
            raise ValueError("a line of the document")
    except ValueError:
        pass
    print("after")
    assert capfd.readouterr().out == "after\n"
