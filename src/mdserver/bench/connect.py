"""The cost of connecting, and of connections that are idle."""

import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import frozen

from mdserver.bench import processes
from mdserver.bench.certificate import certificate
from mdserver.bench.connections import Connections
from mdserver.bench.encodings import Encoding
from mdserver.bench.processes import BenchError
from mdserver.bench.results import Row
from mdserver.bench.target import (
    Running,
    opened,
    own_subject,
)
from mdserver.bench.verify import Verifier
from mdserver.core.commands import Subscribe


@frozen
class ConnectLoad:
    """The load: the number of connections, `window` of them opened at a time."""

    encoding: Encoding
    connections: int
    window: int = 64
    running: Running | None = None
    settings: Sequence[str] = ()


def encrypted(load: ConnectLoad, bench: str, progress: Callable[[str], None]) -> list[Row]:
    """Measure the same over TLS, with full handshakes and with sessions that are resumed.

    Raises BenchError as `measure` does, or if the server did not resume the sessions.
    """
    with certificate() as tls:
        return [measure(load, bench, progress, tls, resume) for resume in (False, True)]


def measure(
    load: ConnectLoad,
    bench: str,
    progress: Callable[[str], None],
    tls: tuple[Path, ssl.SSLContext] | None = None,
    resume: bool = False,
) -> Row:
    """Connect, upgrade and subscribe, each step followed until the server has carried it out.

    `tls` is the key store of the server and the context of the clients. Raises BenchError if a
    connection is refused or makes no progress.
    """
    encoding = load.encoding
    with (
        processes.running_on(processes.cores()[1]),
        opened(load.running, load.settings, store=tls and tls[0]) as target,
        Connections(
            target.addresses,
            encoding.client,
            Verifier(0),
            tls[1] if tls is not None else target.running.context(),
            resume,
        ) as connections,
    ):
        opening = target.opening(encoding, [Subscribe(subjects=[own_subject()])])
        # What the first connection loads once is no cost of a connection.
        connections.open(1, opening)
        progress(f"{load.connections:,} connections, {load.window} at a time")
        resident_kib = target.resident_kib
        cpu_s = target.cpu_s
        seconds = connections.open(load.connections, opening, load.window)
        cpu_s = target.cpu_s - cpu_s
        connections.fence()
        now_kib = target.resident_kib
        if resume and connections.resumed < load.connections:
            raise BenchError(f"only {connections.resumed} TLS sessions were resumed")
    mode = f"{load.window} at a time"
    if tls is not None:
        mode += ", TLS resumed" if resume else ", TLS"
    return Row(
        bench=bench,
        mode=mode,
        encoding=encoding.name,
        connections=load.connections,
        count=load.connections,
        seconds=seconds,
        per_s=load.connections / seconds,
        per_cpu_s=load.connections / cpu_s if cpu_s else None,
        resident_kib=now_kib,
        kib_each=None
        if now_kib is None or resident_kib is None
        else (now_kib - resident_kib) / load.connections,
    )
