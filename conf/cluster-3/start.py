"""Start the three members of this folder, say when they serve clients and what to try with them.

    python conf/cluster-3/start.py [MDSERVER]

Ctrl-C ends them. What they log goes to build/cluster/member-N.log.
"""

import http.client
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
LOGS = Path("build/cluster")
NUMBERS = (1, 2, 3)
READY_TIMEOUT_S = 60
POLL_S = 0.1
TRY = """
Members 1, 2 and 3 serve clients at 127.0.0.1:8801, 8802 and 8803 and log to {logs}/member-*.log.
What each of them does is shown at http://127.0.0.1:4001/, 4002 and 4003. Try, in other terminals:

  {mdserver} sub '/demo/**' --server ws://127.0.0.1:8803
  {mdserver} pub /demo/one hello --server ws://127.0.0.1:8801
  {mdserver} cluster status --monitor http://127.0.0.1:4001
  kill -9 {victim}     # member 1: publications through the others go on
  {mdserver} cluster status --monitor http://127.0.0.1:4002

Then start member 1 again, and it recovers:

  MDSERVER_CLUSTERPASSWORD={password} {mdserver} run --config conf/cluster-3/member-1.conf
"""


def main() -> int:
    """Run until Ctrl-C or until every member has ended; return the exit status."""
    mdserver = sys.argv[1] if len(sys.argv) > 1 else "mdserver"
    password = os.environ.setdefault("MDSERVER_CLUSTERPASSWORD", secrets.token_hex(16))
    LOGS.mkdir(parents=True, exist_ok=True)
    members = {number: start(mdserver, number) for number in NUMBERS}
    try:
        problem = wait_until_ready(members)
        if problem is not None:
            print(problem, file=sys.stderr)
            return 1
        victim = members[1].pid
        print(
            TRY.format(mdserver=mdserver, victim=victim, password=password, logs=LOGS), flush=True
        )
        for member in members.values():
            member.wait()
    except KeyboardInterrupt:
        pass
    finally:
        for member in members.values():
            member.send_signal(signal.SIGTERM)
        for member in members.values():
            member.wait()
    return 0


def start(mdserver: str, number: int) -> subprocess.Popen[bytes]:
    """Start one member in a session of its own, so that Ctrl-C reaches it through here alone."""
    command = [mdserver, "run", "--config", str(HERE / f"member-{number}.conf")]
    with log_of(number).open("wb") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )


def log_of(number: int) -> Path:
    """Return where a member logs."""
    return LOGS / f"member-{number}.log"


def wait_until_ready(members: dict[int, subprocess.Popen[bytes]]) -> str | None:
    """Wait until every member serves clients; return what is wrong if one does not."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    waiting = list(members)
    while waiting:
        for number in list(waiting):
            if members[number].poll() is not None:
                lines = log_of(number).read_text(errors="replace").splitlines()
                return f"member {number} ended: {lines[-1] if lines else 'it said nothing'}"
            if ready(8800 + number):
                waiting.remove(number)
        if time.monotonic() > deadline:
            names = ", ".join(map(str, waiting))
            return f"not ready after {READY_TIMEOUT_S} s: member {names}; see {LOGS}"
        time.sleep(POLL_S)
    return None


def ready(port: int) -> bool:
    """Return whether the member at this port takes publications."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
