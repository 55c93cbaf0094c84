"""JMX over RMI, for jconsole and similar tools, by a bridge: a Java program that serves the MBeans.

RMI exists only in Java, so `JmxBridge.java` beside this module implements it. It runs as a process
of its own, and this module sends it the MBeans every few seconds. It ends when its input ends, so
it never outlives the server. Secrets go through its input and not through arguments, which every
user of the machine can read. When it ends by itself, it is started again after a pause.

The protocol, in lines of fields that tabs separate:

    to the bridge, once          listen HOST PORT NAME; user USER PASSWORD and tls STORE PASSWORD,
                                 if there are any; end
    from the bridge, once        ready PORT, or failed REASON if it cannot serve; lines before it
                                 are warnings of Java, and skipped
    to the bridge, repeatedly    bean NAME, and attr NAME TYPE VALUE for each attribute, for each
                                 MBean; end
    from the bridge              what it prints before it ends
"""

import base64
import os
import re
import secrets
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import cast

import structlog
import trio
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificates

from mdserver import limits
from mdserver.core.text import safe_text
from mdserver.errors import StartError
from mdserver.server.monitor.mbeans import Beans, Value, type_of
from mdserver.server.settings import BridgeSettings
from mdserver.server.tls import KeyStore

SOURCE = Path(__file__).parent / "JmxBridge.java"
OPTIONS = (
    *("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError"),
    # Of connections of clients, each of which occupies a thread.
    "-Dsun.rmi.transport.tcp.maxConnectionThreads=50",
    "-Dsun.rmi.transport.tcp.readTimeout=60000",
    # A folder without classes: otherwise Java would take them from the folder that it runs in.
    *("-cp", str(SOURCE.parent)),
)
_BREAKS = re.compile(r"[\t\r\n]")
log = structlog.get_logger()


class JmxBridge:
    """The process that serves RMI; `beans` returns the MBeans that it serves.

    Raises StartError if there is no Java, or if the certificate cannot be used.
    """

    def __init__(self, settings: BridgeSettings, beans: Callable[[], Beans]) -> None:
        java = shutil.which("java")
        if java is None:
            raise StartError(
                f"MonitorJMX.Listen = {settings.listen} needs Java 17 or later, and `java` is not "
                "on the PATH (Debian: openjdk-17-jdk-headless)"
            )
        self._command = [str(Path(java).absolute()), *OPTIONS, str(SOURCE)]
        self._beans = beans
        host, port = settings.listen
        wildcard = host in ("0.0.0.0", "::", "*")  # noqa: S104 - is compared
        # The RMI registry refers clients to this name, so it must be one that they can reach.
        named = socket.gethostname() if wildcard else host
        lines = [line("listen", "0.0.0.0" if host == "*" else host, str(port), named)]  # noqa: S104
        if settings.password:
            lines.append(line("user", settings.user, settings.password))
        if settings.key_store is not None:
            lines.append(line("tls", *pkcs12_of(settings.key_store)))
        self._named = named
        self._greeting = "".join([*lines, "end\n"]).encode()

    async def run(self) -> None:
        """Keep the bridge running until cancelled; nothing that goes wrong with it is raised."""
        while True:
            try:
                reason = await self._serve()
            except Exception as error:  # the server must not end with its bridge
                log.exception("jmx bridge failed")
                reason = safe_text(repr(error), limits.JMX_REASON_CHARS_MAX)
            log.warning("jmx bridge ended", reason=reason, again_s=limits.JMX_RESTART_S)
            await trio.sleep(limits.JMX_RESTART_S)

    async def _serve(self) -> str:
        """Run the bridge once, until it ends; return the reason."""
        try:
            process = await trio.lowlevel.open_process(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd="/",
                # JAVA_TOOL_OPTIONS would change the program, and the rest may hold secrets.
                env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"},
            )
        except (OSError, RuntimeError) as error:
            return f"{self._command[0]} cannot be started: {error}."
        assert process.stdin is not None
        assert process.stdout is not None
        said = b""
        try:
            with trio.fail_after(limits.JMX_START_S):
                await process.stdin.send_all(self._greeting)
                word, rest = await outcome(process.stdout)
            if word != "ready":
                return safe_text(rest, limits.JMX_REASON_CHARS_MAX) or "It ended."
            name = f"[{self._named}]" if ":" in self._named else self._named
            url = f"service:jmx:rmi:///jndi/rmi://{name}:{rest}/jmxrmi"
            log.info("jmx", url=url)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tell, process.stdin, nursery.cancel_scope)
                async for part in process.stdout:
                    said = bytes(part)
                nursery.cancel_scope.cancel()
            return (
                safe_text(said.decode(errors="replace"), limits.JMX_REASON_CHARS_MAX) or "It ended."
            )
        except trio.TooSlowError:
            return f"It did not start within {limits.JMX_START_S} s."
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return "It ended."
        finally:
            process.kill()
            with trio.CancelScope(shield=True), trio.move_on_after(limits.JMX_END_S):
                await process.wait()
                await process.stdin.aclose()
                await process.stdout.aclose()

    async def _tell(self, stdin: trio.abc.SendStream, ended: trio.CancelScope) -> None:
        """Send the MBeans to the bridge every few seconds; end it if it no longer reads them."""
        try:
            while True:
                with trio.fail_after(limits.JMX_START_S):
                    await stdin.send_all(told(self._beans()))
                await trio.sleep(limits.JMX_INTERVAL_S)
        except (trio.BrokenResourceError, trio.TooSlowError):
            ended.cancel()


async def outcome(stream: trio.abc.ReceiveStream) -> tuple[str, str]:
    """Return "ready" or "failed" and the rest of that line; "" and all output if there is none."""
    said = b""
    async for part in stream:
        said += part
        for each in said.split(b"\n")[:-1]:
            word, _, rest = each.decode(errors="replace").partition("\t")
            if word in ("ready", "failed"):
                return word, rest.rstrip("\r")
        if len(said) > limits.JMX_OUTPUT_BYTES_MAX:
            break
    return "", said.decode(errors="replace")


def told(beans: Beans) -> bytes:
    """Return the MBeans as lines for the bridge."""
    lines = []
    for name, values in beans.items():
        lines.append(line("bean", name))
        lines += [line("attr", key, type_of(value), shown(value)) for key, value in values.items()]
    return "".join([*lines, "end\n"]).encode()


def shown(value: Value) -> str:
    """Return a value in the form that Java parses."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def line(*parts: str) -> str:
    """Return a line for the bridge; tabs and line breaks within a part become spaces."""
    return "\t".join(_BREAKS.sub(" ", part) for part in parts) + "\n"


def pkcs12_of(store: KeyStore) -> tuple[str, str]:
    """Return key and certificates as a PKCS #12 store in base64, and its password.

    Java reads no PEM files. The password is random and used only for this transfer. Raises
    StartError if the files cannot be used.
    """
    try:
        chain = load_pem_x509_certificates(store.chain.read_bytes())
        key = load_pem_private_key((store.key or store.chain).read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise StartError(f"MonitorJMX.Encryption: {store.chain} cannot be used: {error}") from None
    password = secrets.token_urlsafe(16)
    locked = BestAvailableEncryption(password.encode())
    try:
        content = pkcs12.serialize_key_and_certificates(
            b"mdserver", cast(pkcs12.PKCS12PrivateKeyTypes, key), chain[0], chain[1:], locked
        )
    except (TypeError, ValueError) as error:
        raise StartError(f"MonitorJMX.Encryption: {store.chain} cannot be used: {error}") from None
    return base64.b64encode(content).decode(), password
