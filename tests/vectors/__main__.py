"""Plays every dialogue with a server: `python -m tests.vectors ws://127.0.0.1:8800`.

The server has to allow everybody everything (`Entitlement = None`) and to have the default limits.
"""

import secrets
import sys

import trio

from tests.vectors.dialogue import cases
from tests.vectors.live import play_live


def main(arguments: list[str]) -> int:
    """Exit status 0 if the server did its part in all of them."""
    if len(arguments) != 1:
        print("usage: python -m tests.vectors URL", file=sys.stderr)
        return 2
    failed = 0
    for name, encoding in cases():
        try:
            events = trio.run(play_live, arguments[0], name, encoding, secrets.token_hex(6))
        except* (AssertionError, trio.TooSlowError, OSError) as errors:
            failed += 1
            print(f"FAILED  {name} ({encoding}): {errors.exceptions[0]}")
        else:
            print(f"ok      {name} ({encoding}): {events} events")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
