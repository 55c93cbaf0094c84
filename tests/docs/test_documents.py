"""Commands in the documents work, and print what the documents say.

A block is run if its fence says so; what stands on port 8800 in a document stands on the port of a
live server here, and the commands that speak to a server are told so.

- ```` ```console ````: lines that begin with `$ ` are commands for bash in the top folder of the
  repository, the lines after them what they print. `...` stands for any text, a line `...` for any
  lines.
- ```` ```console background ````: the same, with one command that runs while the blocks after it
  do and must have ended, by itself, at the end of the document.
- ```` ```console server ````: one command that runs a server at port 8443 until the end of the
  document; here it has a free port.
- ```` ```python ````: a program, followed by ```` ```text output ```` if what it prints matters.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import pytest
from attrs import frozen

from mdserver.bench.processes import free_ports
from tests.live import READY, LiveServer, lines_about, wait_for_line

TOP = Path(__file__).parents[2]
DOCUMENTS = [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```([a-z]+(?: [a-z ]+)?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUNNABLE = ("console", "console background", "console server", "python")
COMMAND_TIMEOUT_S = 30
SERVER_OPTION = """
mdserver() {
    case $1 in
        pub|sub|snapshot) command mdserver "$@" --server "$LIVE_SERVER_URL" ;;
        *) command mdserver "$@" ;;
    esac
}
"""


@frozen
class Step:
    """One command of a document, and what it says that the command prints."""

    kind: str
    command: str
    expected: str | None


def steps(text: str) -> Iterator[Step]:
    """The commands of a document in order."""
    blocks = [(match[1], match[2]) for match in FENCE.finditer(text)]
    for index, (info, body) in enumerate(blocks):
        if info == "python":
            after = blocks[index + 1] if index + 1 < len(blocks) else ("", "")
            yield Step(info, body, after[1] if after[0] == "text output" else None)
        elif info in RUNNABLE:
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, expected = _split_command(part)
                yield Step(info, command, expected)


def _split_command(part: str) -> tuple[str, str, str]:
    lines = part.splitlines(keepends=True)
    end = 1
    while lines[end - 1].rstrip("\n").endswith("\\"):
        end += 1
    return "".join(lines[:end]), "", "".join(lines[end:])


def fits(expected: str, printed: str) -> bool:
    """Whether output is what a document says, `...` standing for anything."""
    pattern = "".join(
        "(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*?") + "\n"
        for line in expected.strip().splitlines()
    )
    lines = "".join(f"{line}\n" for line in printed.strip().splitlines())
    return re.fullmatch(pattern, lines) is not None


def start(step: Step, server: LiveServer, second_port: int) -> subprocess.Popen[str]:
    command = step.command.replace("8800", str(server.port)).replace("8443", str(second_port))
    arguments = (
        [sys.executable, "-c", command]
        if step.kind == "python"
        else ["bash", "-euo", "pipefail", "-c", SERVER_OPTION + command]
    )
    environment = {key: value for key, value in os.environ.items() if "MDSERVER" not in key}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    if step.kind != "python":
        environment["LIVE_SERVER_URL"] = server.url
    return subprocess.Popen(
        arguments,
        cwd=TOP,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def end(process: subprocess.Popen[str]) -> None:
    """End a server and the shell that it runs in."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)


def finish(step: Step, process: subprocess.Popen[str], server: LiveServer) -> None:
    printed, _ = process.communicate(timeout=COMMAND_TIMEOUT_S)
    assert process.returncode == 0, f"$ {step.command}{printed}"
    if step.expected is not None:
        expected = step.expected.replace("8800", str(server.port))
        assert fits(expected, printed), (
            f"$ {step.command}--- expected\n{expected}--- printed\n{printed}"
        )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_says_is_so(document: Path, server: LiveServer, folder: Path) -> None:
    background: list[tuple[Step, subprocess.Popen[str]]] = []
    servers: list[subprocess.Popen[str]] = []
    (second_port,) = free_ports(1)
    try:
        for step in steps(document.read_text(encoding="utf-8")):
            access = folder / "audit-access.log"
            earlier = len(lines_about(access, '"subscribe'))
            process = start(step, server, second_port)
            if step.kind == "console server":
                servers.append(process)
                assert process.stdout is not None
                lines = list(takewhile(lambda line: not READY.match(line), process.stdout))
                assert process.poll() is None, lines
            elif step.kind == "console background":
                background.append((step, process))
                wait_for_line(access, '"subscribe', earlier)
            else:
                finish(step, process, server)
        for step, process in background:
            finish(step, process, server)
    finally:
        for process in servers:
            end(process)
        for _, process in background:
            process.kill()
        for process in (*servers, *(process for _, process in background)):
            process.communicate()


LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(document: Path) -> None:
    targets = LINK.findall(document.read_text(encoding="utf-8"))
    files = [target for target in targets if "://" not in target]
    assert [file for file in files if not (document.parent / file).exists()] == []


def test_output_fits_with_its_gaps() -> None:
    assert fits("a ... c\n", "a b c\n")
    assert fits("first\n...\nlast", "first\n1\n2\nlast\n")
    assert not fits("a ... c\n", "a b d\n")
    assert not fits("a.c", "abc")


def test_commands_and_what_they_print_are_told_apart() -> None:
    text = (
        "```console\n$ one \\\n  more\nout\n$ two\n```\n```python\nx\n```\n```text output\ny\n```\n"
    )
    assert list(steps(text)) == [
        Step("console", "one \\\n  more\n", "out\n"),
        Step("console", "two\n", ""),
        Step("python", "x\n", "y\n"),
    ]
