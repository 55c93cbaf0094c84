"""Ask whether a dependency of the server has a known weakness; `make audit`.

Exit status: 0 none is known, 1 there are some, 3 the database could not be reached.
"""

import json
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).parents[1] / "requirements" / "server.txt"
TIMEOUT_S = 15
UNREACHED = 3


def main() -> int:
    """Run pip-audit, and tell apart what it found from what kept it from looking."""
    words = ("--require-hashes", "--disable-pip", "--format", "json", "--progress-spinner", "off")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip_audit",
            *words,
            "--timeout",
            str(TIMEOUT_S),
            "-r",
            REQUIREMENTS,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        parts = json.loads(done.stdout)["dependencies"]
    except (json.JSONDecodeError, KeyError):
        why = done.stderr.strip().splitlines()
        print("audit: the database could not be reached, nothing was checked", file=sys.stderr)
        print(f"audit: {why[-1] if why else 'no reason given'}", file=sys.stderr)
        return UNREACHED
    weak = [(part, each) for part in parts for each in part.get("vulns", ())]
    for part, each in weak:
        fixed = ", ".join(each["fix_versions"]) or "no version yet"
        print(f"{part['name']} {part['version']}: {each['id']}, fixed in {fixed}")
    print(f"audit: {len(parts)} dependencies, {len(weak)} known weaknesses")
    return 1 if weak else 0


if __name__ == "__main__":
    sys.exit(main())
