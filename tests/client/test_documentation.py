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
FIRST = "/stocks/IBM 193 {'volume': '6.62M'}"
PRINTED = [
    FIRST,
    FIRST,
    FIRST,
    """the last one has position 1 1000
PUBLISH_FAILED: Subject 'no slash' does not start with '/': subjects look like '/a/b'.""",
    "144",
    "SERVER_UP {server}",
    """200 {"epoch":1,"seq":1}""",
    """200 {"epoch": 1, "seq": 1}""",
]
FASTAPI = """
import asyncio

async def post():
    heard, said = iter([{"type": "http.request", "body": b""}]), []

    async def receive():
        return next(heard)

    async def send(event):
        said.append(event)

    scope = {"type": "http", "method": "POST", "path": "/prices/IBM", "query_string": b"price=193"}
    async with app.router.lifespan_context(app):
        await app(scope | {"headers": []}, receive, send)
    print(said[0]["status"], said[1]["body"].decode())

asyncio.run(post())
"""
DJANGO = """
from django.conf import settings
from django.test import RequestFactory

settings.configure(ALLOWED_HOSTS=["*"])
post = RequestFactory().post("/prices/IBM", "193", content_type="text/plain")
answer = publish_price(post, "IBM")
print(answer.status_code, answer.content.decode())
"""


def program(example: str) -> str:
    """A program that uses an example; those of web services need somebody to call them."""
    if "fastapi" in example:
        return example + FASTAPI
    return example + DJANGO if "django" in example else example


@pytest.mark.parametrize(("example", "printed"), list(zip(EXAMPLES, PRINTED, strict=True)))
async def test_examples(example: str, printed: str) -> None:
    async with serving(broker=BrokerSettings(policy=Policy.NONE)) as server:
        address = server.urls[0].removeprefix("http://")
        with trio.fail_after(60):
            ran = await trio.run_process(
                [sys.executable, "-c", program(example).replace("127.0.0.1:8800", address)],
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
    assert ran.stderr.decode() == ""
    assert ran.stdout.decode() == printed.replace("{server}", address) + "\n"
