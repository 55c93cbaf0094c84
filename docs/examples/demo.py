"""A server with live pages, and real stock prices replayed through it.

    make demo

Opens <http://127.0.0.1:PORT/demo/>: a market, the buses of a city, a chat. Meanwhile a publisher
replays a data set and a subscriber prints it, each in a process of its own, as they would run on
machines of their own. The subscriber asks for history, so that it misses nothing however late it
comes, and ends when it has seen every message; Ctrl-C ends the rest. `--once` runs these two alone.
"""

import contextlib
import os
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
MDSERVER = [sys.executable, "-m", "mdserver.cli.main"]
FEEDS = ("market.py", "vehicles.py")
MESSAGES = 560
MESSAGES_PER_S = 100


def main() -> int:
    """Runs all, and gives the exit status of the first that failed, or 0."""
    once = "--once" in sys.argv[1:]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = [*MDSERVER, "run", "--set", "Listen=127.0.0.1:0", "--set", "Entitlement=None"]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            ready = server.stdout.readline()
            if not ready:
                return server.wait()
            sys.stdout.write(ready)
            sys.stdout.flush()
            url = ready.split()[-1]
            if once:
                return replay(url)
            with feeds(url):
                show(f"{url}/demo/")
                return replay(url) or wait(f"{url}/demo/")
        except KeyboardInterrupt:
            return 0
        finally:
            server.send_signal(signal.SIGTERM)


@contextlib.contextmanager
def feeds(url: str) -> Iterator[None]:
    """Publishes what the pages show, until the end of the `with` block."""
    running = []
    try:
        for feed in FEEDS:
            lines = subprocess.Popen([sys.executable, str(HERE / feed)], stdout=subprocess.PIPE)
            pub = [*MDSERVER, "pub", "--stdin", "--server", url]
            running += [lines, subprocess.Popen(pub, stdin=lines.stdout)]
            assert lines.stdout is not None
            lines.stdout.close()
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()


def show(url: str) -> None:
    """Opens a page if there is a screen."""
    if sys.platform != "linux" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        webbrowser.open(url)


def wait(url: str) -> int:
    """Says where the pages are, and waits for Ctrl-C."""
    print(f"Open {url} in a browser; Ctrl-C ends the demo.", flush=True)
    signal.pause()
    return 0


def replay(url: str) -> int:
    """Publishes the data set to the server at this URL while a subscriber shows it."""
    to = ["--server", url]
    sub = [*MDSERVER, "sub", "/stocks/**", "--history", "1000", "--count", str(MESSAGES), *to]
    pub = [*MDSERVER, "pub", "--stdin", "--rate", str(MESSAGES_PER_S), *to]
    rows = [sys.executable, str(HERE / "stocks.py")]
    with (
        subprocess.Popen(sub) as subscriber,
        subprocess.Popen(rows, stdout=subprocess.PIPE) as source,
        subprocess.Popen(pub, stdin=source.stdout) as publisher,
    ):
        try:
            assert source.stdout is not None
            source.stdout.close()
            if published := publisher.wait():
                return published
            return source.wait() or subscriber.wait()
        finally:
            for process in (subscriber, source, publisher):
                process.terminate()  # those that have not ended, after an error or Ctrl-C


if __name__ == "__main__":
    sys.exit(main())
