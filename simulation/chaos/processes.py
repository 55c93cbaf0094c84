"""Processes that never outlive the run, however it ends."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import IO

import trio

COMMAND_TIMEOUT_S = 20


def bound_to_us() -> list[str]:
    """Goes before a command: the kernel kills it when this process ends (prctl(2), PDEATHSIG).

    It holds for the thread that starts the process, so that has to be the main one.
    """
    return ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []


def begin(
    command: list[str], stdout: int | IO[bytes], environment: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a process that ends with this one, and that Ctrl-C at the terminal does not reach."""
    return subprocess.Popen(
        [*bound_to_us(), *command],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=None if stdout == subprocess.PIPE else stdout,
        env=environment,
        process_group=0,
    )


def why_not(what: str, tools: Mapping[str, str], command: list[str]) -> str | None:
    """Return why `what` cannot be done here, tried by a command; None if it can.

    `tools` are the programs that it needs, with the packages that have them.
    """
    absent = [f"{tool} ({package})" for tool, package in tools.items() if not shutil.which(tool)]
    if absent:
        return f"missing programs: {', '.join(absent)}"
    try:
        tried = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{what} took longer than {COMMAND_TIMEOUT_S} s"
    if tried.returncode:
        *_, last = ["no reason given", *tried.stderr.splitlines()]
        return f"not permitted here: {last}"
    return None


def end(process: "subprocess.Popen[bytes]") -> None:
    """kill -9, and take its exit status."""
    process.kill()
    process.wait()


async def ended(process: "subprocess.Popen[bytes]") -> int:
    """Wait for the end of a process; its exit status, negative for a signal."""
    if process.poll() is not None:
        return process.returncode
    descriptor = os.pidfd_open(process.pid)
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)
    return process.wait()


async def begun(command: list[str]) -> "subprocess.Popen[bytes]":
    """Start a process as `begin` does, and wait until it says a line. Raises trio.TooSlowError."""
    process = begin(command, subprocess.PIPE)
    assert process.stdout is not None
    try:
        with trio.fail_after(COMMAND_TIMEOUT_S):
            await trio.to_thread.run_sync(process.stdout.readline, abandon_on_cancel=True)
    except BaseException:
        end(process)
        raise
    process.stdout.close()
    return process


async def run(*command: str, stdin: str = "") -> None:
    """Run a command to its end. Raises RuntimeError with what it said where it fails."""
    with trio.fail_after(COMMAND_TIMEOUT_S):
        done = await trio.run_process(
            command,
            stdin=stdin.encode(),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            process_group=0,  # Ctrl-C ends the run, and none of its commands before that
        )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.decode().strip()}")
