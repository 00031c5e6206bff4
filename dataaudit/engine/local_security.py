"""Certificates for one local cluster: whoever has not its key can neither ask its processes nor be asked by them.

Without them every user of the machine could connect to the scheduler, a worker or a nanny, and run code as its user.
"""

from __future__ import annotations

import os
import ssl
from typing import Any

from distributed.security import Security


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
