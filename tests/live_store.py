"""An object store for tests that speaks the protocol of S3, in a thread of this process."""

import contextlib
import os
from collections.abc import Iterator
from http.client import HTTPConnection

BUCKET = "mdserver"


@contextlib.contextmanager
def live_store() -> Iterator[str]:
    """Run a store with an empty bucket; yield the bucket's URI.

    The environment has what clients need until the end of the block.
    """
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - only tests of stores need it

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        connection = HTTPConnection(host, port, timeout=60)
        connection.request("PUT", f"/{BUCKET}")
        assert connection.getresponse().status == 200
        connection.close()
        with environment(
            AWS_ACCESS_KEY_ID="test",
            AWS_SECRET_ACCESS_KEY="test",
            AWS_REGION="us-east-1",
            AWS_ENDPOINT_URL=f"http://{host}:{port}",
            AWS_ALLOW_HTTP="true",
        ):
            yield f"s3://{BUCKET}"
    finally:
        server.stop()


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set variables of the environment until the end of the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
