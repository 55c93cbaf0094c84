"""Servers without Kafka, and without the extra for it."""

import subprocess
import sys
from pathlib import Path

from tests.kafka.test_properties import files


def test_without_the_extra_one_line_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['confluent_kafka'] = None\n"
        "from mdserver.cli.main import main; main()"
    )
    arguments = ["run"]
    for one in files(tmp_path):
        arguments += ["--set", one]
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    told = [line for line in done.stderr.splitlines() if "ClusterEngine" in line]
    assert len(told) == 1
    assert "confluent_kafka is not installed" in told[0]
    assert "pip install 'mdserver[kafka]'" in told[0]
    assert "Traceback" not in done.stderr


def test_a_server_without_kafka_loads_nothing_of_it() -> None:
    program = (
        "import sys\n"
        "from mdserver.config import load\n"
        "from mdserver.server.app import build\n"
        "build(load(overrides=['Listen=127.0.0.1:0', 'Entitlement=None']).config)\n"
        "assert not [n for n in sys.modules if n in ('confluent_kafka', 'javaproperties')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
