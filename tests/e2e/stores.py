"""A real S3 server over HTTP with a failing proxy before it, and corpora copied to it."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import boto3
from faulty_http import Proxy

CANARY = "canary-Secret-Key-7731"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "canary-Access-Key-7731",
    "AWS_SECRET_ACCESS_KEY": CANARY,
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
}


@dataclass
class Store:
    """An S3 server."""

    direct: str
    """Its address."""
    proxy: Proxy
    """What stands before it."""
    address: str
    """The address of the proxy, which ``AWS_ENDPOINT_URL`` names."""

    def client(self):
        """Return a client that does not pass the proxy."""
        return boto3.client(
            "s3", endpoint_url=self.direct, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y"
        )

    def copy(self, folder, bucket, prefix=""):
        """Copy a folder into a bucket, made if need be."""
        client = self.client()
        client.create_bucket(Bucket=bucket)
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                client.put_object(Bucket=bucket, Key=prefix + str(path.relative_to(folder)), Body=path.read_bytes())


@contextlib.contextmanager
def running_store():
    """Start a moto server and the proxy; the environment names the proxy as the endpoint."""
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from moto.server import ThreadedMotoServer

        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
    host, port = server.get_host_and_port()
    proxy = Proxy(upstream=(host, port))
    address = proxy.start()
    names = {**ENVIRONMENT, "AWS_ENDPOINT_URL": address}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield Store(direct=f"http://{host}:{port}", proxy=proxy, address=urlsplit(address).geturl())
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        proxy.close()
        server.stop()
