"""An HTTP server on a free local port, in threads of the test's process."""

import sys
import threading
from http.server import ThreadingHTTPServer


class LocalServer(ThreadingHTTPServer):
    """Serves until it is closed.

    A client that hangs up is its own affair: nothing is printed of it, since the standard error of this process may be
    the one that a test reads.

    Args:
        handler: The class that answers.
    """

    daemon_threads = True

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def handle_error(self, request, client_address):
        """Print what went wrong, unless the client hung up."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def close(self):
        """End it."""
        self.shutdown()
        self.server_close()
        self._thread.join()
