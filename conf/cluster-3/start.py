"""Starts the three members of this folder and prints what to try; Ctrl-C ends them."""

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TRY = """
Three members serve clients at 127.0.0.1:8801, 8802 and 8803. Try, in other terminals:

  {mdserver} sub '/demo/**' --server ws://127.0.0.1:8803
  {mdserver} pub /demo/one hello --server ws://127.0.0.1:8801
  {mdserver} cluster status --monitor http://127.0.0.1:4001
  kill -9 {victim}     # member 1: publications through the others go on
  {mdserver} cluster status --monitor http://127.0.0.1:4002

Then start member 1 again, and it recovers:

  MDSERVER_CLUSTERPASSWORD={password} {mdserver} run --config conf/cluster-3/member-1.conf
"""


def main() -> None:
    """Runs until Ctrl-C or until every member has ended."""
    mdserver = sys.argv[1]
    password = os.environ.setdefault("MDSERVER_CLUSTERPASSWORD", secrets.token_hex(16))
    members = [
        subprocess.Popen([mdserver, "run", "--config", str(HERE / f"member-{number}.conf")])
        for number in (1, 2, 3)
    ]
    print(TRY.format(mdserver=mdserver, victim=members[0].pid, password=password), flush=True)
    try:
        for member in members:
            member.wait()
    except KeyboardInterrupt:
        for member in members:
            member.send_signal(signal.SIGTERM)
        for member in members:
            member.wait()


if __name__ == "__main__":
    main()
