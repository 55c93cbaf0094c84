"""An object store for tests that speaks the protocol of S3, in a process of its own."""

import contextlib
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection

BUCKET = "mdserver"
# Not in a thread of the tests: deltalake asks it while it holds the lock of the interpreter.
SERVER = """
import signal
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
signal.pause()
"""


@contextlib.contextmanager
def live_store() -> Iterator[str]:
    """Run a store with an empty bucket; yield the bucket's URI.

    The environment has what clients need until the end of the block. Raises ModuleNotFoundError if
    moto is not installed.
    """
    importlib.import_module("moto")
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("PUT", f"/{BUCKET}")
        assert connection.getresponse().status == 200
        connection.close()
        with environment(
            AWS_ACCESS_KEY_ID="test",
            AWS_SECRET_ACCESS_KEY="test",
            AWS_REGION="us-east-1",
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
            AWS_ALLOW_HTTP="true",
        ):
            yield f"s3://{BUCKET}"
    finally:
        process.kill()
        process.communicate()


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
