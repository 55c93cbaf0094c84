"""Debian's Firefox, without a window, over WebDriver BiDi, which it speaks itself.

Debian has no geckodriver for it. A page is driven by scripts: `evaluate` gives their JSON values.
"""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

LISTENING = "WebDriver BiDi listening on "
WAIT_S = 120
LOOK_AGAIN_S = 0.05


class Firefox:
    """One tab."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._commands = 0
        self.command("session.new", capabilities={})
        self._context = self.command("browsingContext.getTree")["contexts"][0]["context"]

    def command(self, method: str, **parameters: Any) -> Any:
        """Return the result of a command (WebDriver BiDi, section 3)."""
        self._commands += 1
        wanted = {"id": self._commands, "method": method, "params": parameters}
        self._connection.send(json.dumps(wanted))
        while True:
            told = json.loads(self._connection.recv(WAIT_S))
            if told.get("id") == self._commands:
                assert told["type"] == "success", told
                return told["result"]

    def get(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        self.command("browsingContext.navigate", context=self._context, url=url, wait="complete")

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Have another tab in front until the end of the `with` block."""
        made = self.command("browsingContext.create", type="tab", background=False)
        try:
            yield
        finally:
            self.command("browsingContext.close", context=made["context"])
            self.command("browsingContext.activate", context=self._context)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page, or of what it promises."""
        told = self.command(
            "script.evaluate",
            target={"context": self._context},
            expression=f"(async () => JSON.stringify(await ({expression})))()",
            awaitPromise=True,
        )
        assert told["type"] == "success", told
        return json.loads(told["result"].get("value", "null"))

    def wait_for(self, expression: str, wanted: str) -> None:
        """Wait until the text that an expression gives holds another text."""
        deadline = time.monotonic() + WAIT_S
        while wanted not in (found := str(self.evaluate(expression))):
            assert time.monotonic() < deadline, f"{wanted!r} is not in {found!r}"
            time.sleep(LOOK_AGAIN_S)


@contextmanager
def firefox(program: str, profile: Path) -> Iterator[Firefox]:
    """Run Firefox until the end of the `with` block, with a profile of its own."""
    command = [program, "--headless", "--no-remote", "--profile", str(profile)]
    with subprocess.Popen(
        [*command, "--remote-debugging-port", "0", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            address = next(line for line in process.stderr if line.startswith(LISTENING))
            url = address.removeprefix(LISTENING).strip()
            # What it says later is read, so that it never waits for a reader.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            with connect(f"{url}/session", max_size=None) as connection:
                yield Firefox(connection)
        finally:
            process.terminate()
            try:
                process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
