"""A server, a publisher that replays real stock prices, and a subscriber that prints them.

    make demo

Three processes, as they would run on three machines. The subscriber asks for history, so that it
misses nothing however late it comes, and ends when it has seen every message.
"""

import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
MDSERVER = [sys.executable, "-m", "mdserver.cli.main"]
MESSAGES = 560
MESSAGES_PER_S = 100


def main() -> int:
    """Runs the three, and gives the exit status of the first that failed, or 0."""
    run = [*MDSERVER, "run", "--set", "Listen=127.0.0.1:0", "--set", "Entitlement=None"]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            ready = server.stdout.readline()
            if not ready:
                return server.wait()
            sys.stdout.write(ready)
            sys.stdout.flush()
            return replay(ready.split()[-1])
        finally:
            server.send_signal(signal.SIGTERM)


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
        assert source.stdout is not None
        source.stdout.close()
        if published := publisher.wait():
            subscriber.terminate()
            return published
        return source.wait() or subscriber.wait()


if __name__ == "__main__":
    sys.exit(main())
