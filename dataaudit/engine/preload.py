"""Preload of local Dask workers: no Ctrl-C, no pages, one thread for libraries; and the certificates of their cluster.

Without certificates every user of the machine could connect to the scheduler, a worker or a nanny, and run code as its
user.
"""

from __future__ import annotations

import atexit
import os
import signal
import ssl
from typing import Any

import pyarrow as pa
from distributed.security import Security

from dataaudit.base.process import tune_process
from dataaudit.engine.sandbox import end_child


def dask_setup(worker: Any) -> None:
    """Called by Dask in the worker's process; the name is Dask's."""
    serve_no_pages(worker)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    tune_process()


def dask_teardown(worker: Any) -> None:
    """Called by Dask when the worker closes; the name is Dask's.

    All that a worker leaves is on disk by then: taking tables of a tokenizer apart piece by piece only keeps the
    command from ending.
    """
    del worker
    end_child()
    atexit.register(os._exit, 0)  # registered last, so it runs first


class LocalSecurity(Security):
    """TLS with one key for all processes of a cluster, made for it and kept in memory alone.

    Made by :meth:`temporary`. Workers get it through the pipe that starts them.
    """

    def _get_tls_context(self, tls: dict[str, Any], purpose: ssl.Purpose) -> ssl.SSLContext:
        """Return a context. OpenSSL reads keys from files alone, and Dask would write one to a folder on disk."""
        descriptor = os.memfd_create("dataaudit-tls")
        try:
            os.write(descriptor, f"{tls['key']}{tls['cert']}".encode())
            path = f"/proc/self/fd/{descriptor}"
            context: ssl.SSLContext = super()._get_tls_context({**tls, "cert": path, "key": path}, purpose)
        finally:
            os.close(descriptor)
        return context


def serve_no_pages(server: Any) -> None:
    """Stop what serves pages of a scheduler or worker of such a cluster: they have no certificates to ask for."""
    if isinstance(server.security, LocalSecurity):
        server.http_server.stop()
