"""How many lines of Python run, counted: work without a clock. What C does for a line is not seen."""

import sys


class Lines:
    """A context in which lines are counted, of every file."""

    def __init__(self):
        self.count = 0
        self._before = None

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_):
        sys.settrace(self._before)

    def _called(self, frame, event, _):
        frame.f_trace_lines = True
        return self._line

    def _line(self, _frame, event, _):
        self.count += event == "line"
        return self._line
