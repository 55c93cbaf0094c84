"""The examples of docs/clients.md run as they stand, against the real server."""

import re
import sys
from pathlib import Path

import pytest
import trio

from mdserver.core.entitlement import Policy
from mdserver.core.settings import BrokerSettings
from tests.server.serving import serving

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PRINTED = [
    "/stocks/IBM 193 {'volume': '6.62M'}",
    """the last one has position 1 1000
PUBLISH_FAILED: Subject 'no slash' does not start with '/': subjects look like '/a/b'.""",
    "144",
    "SERVER_UP {server}",
]


@pytest.mark.parametrize(("example", "printed"), list(zip(EXAMPLES, PRINTED, strict=True)))
async def test_examples(example: str, printed: str) -> None:
    async with serving(broker=BrokerSettings(policy=Policy.NONE)) as server:
        address = server.urls[0].removeprefix("http://")
        with trio.fail_after(20):
            ran = await trio.run_process(
                [sys.executable, "-c", example.replace("127.0.0.1:8800", address)],
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
    assert ran.stderr.decode() == ""
    assert ran.stdout.decode() == printed.replace("{server}", address) + "\n"
