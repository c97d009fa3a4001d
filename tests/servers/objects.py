"""A server that speaks like S3, for blobs in an object store."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def serving() -> Iterator[str]:
    """Its address."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@contextmanager
def bucket(address: str, name: str, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """A new one, and all that a client has to know of it in the environment."""
    import urllib.request

    for variable, value in {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests",
        "AWS_REGION": "us-east-1",
    }.items():
        patch.setenv(variable, value)
    urllib.request.urlopen(urllib.request.Request(f"{address}/{name}", method="PUT")).close()
    yield f"s3://{name}/some/prefix"
