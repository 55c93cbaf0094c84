"""An encrypted listener under sslyze, which tries what attackers try."""

from pathlib import Path

import sslyze
import trio
from sslyze import ScanCommand

from mdserver.server.settings import ServerSettings
from mdserver.server.tls import KeyStore
from tests.server.certificates import make_certificate
from tests.server.serving import LOOPBACK, serving

OLD = (
    ScanCommand.SSL_2_0_CIPHER_SUITES,
    ScanCommand.SSL_3_0_CIPHER_SUITES,
    ScanCommand.TLS_1_0_CIPHER_SUITES,
    ScanCommand.TLS_1_1_CIPHER_SUITES,
)
NEW = (ScanCommand.TLS_1_2_CIPHER_SUITES, ScanCommand.TLS_1_3_CIPHER_SUITES)
ATTACKS = (
    ScanCommand.HEARTBLEED,
    ScanCommand.OPENSSL_CCS_INJECTION,
    ScanCommand.TLS_COMPRESSION,
    ScanCommand.SESSION_RENEGOTIATION,
)


def scan(port: int) -> sslyze.AllScanCommandsAttempts:
    """All results for a listener on 127.0.0.1."""
    scanner = sslyze.Scanner()
    location = sslyze.ServerNetworkLocation("localhost", port, ip_address="127.0.0.1")
    scanner.queue_scans([sslyze.ServerScanRequest(location, scan_commands={*OLD, *NEW, *ATTACKS})])
    (result,) = scanner.get_results()
    assert result.scan_result is not None
    return result.scan_result


async def test_no_old_protocol_no_weak_cipher_no_renegotiation(tmp_path: Path) -> None:
    pem = make_certificate(tmp_path / "server.pem")
    settings = ServerSettings(listen_encrypted=LOOPBACK, key_store=KeyStore(pem))
    async with serving(settings) as server:
        port = int(server.urls[-1].rpartition(":")[2])
        found = await trio.to_thread.run_sync(scan, port)
    for command in OLD:
        assert not getattr(found, command.value).result.accepted_cipher_suites
    for command in NEW:
        suites = getattr(found, command.value).result.accepted_cipher_suites
        names = [suite.cipher_suite.name for suite in suites]
        assert names
        assert all("_GCM_" in name or "CHACHA20" in name for name in names)
        if command is ScanCommand.TLS_1_2_CIPHER_SUITES:
            assert all("_ECDHE_" in name for name in names)
    assert not found.heartbleed.result.is_vulnerable_to_heartbleed
    assert not found.openssl_ccs_injection.result.is_vulnerable_to_ccs_injection
    assert not found.tls_compression.result.supports_compression
    renegotiation = found.session_renegotiation.result
    assert not renegotiation.is_vulnerable_to_client_renegotiation_dos
