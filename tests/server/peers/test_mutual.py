"""Encrypted links over real sockets: members of one authority meet, everybody else is told why."""

import socket
import ssl
from pathlib import Path

import pytest
import trio

from mdserver.codec.peer import Side
from mdserver.errors import StartError
from mdserver.server import tls
from mdserver.server.peers.link import receive
from mdserver.server.peers.mutual import MutualIdentity, binding_of
from mdserver.server.tls import KeyStore
from tests.server.certificates import Authority
from tests.server.peers.members import Member, cluster, free_addresses, running


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority.pem")


def identity(authority: Authority, name: str, days: int = 1) -> MutualIdentity:
    """A member's, signed by the authority it trusts."""
    store = KeyStore(authority.issue(authority.file.with_name(f"{name}.pem"), days))
    return MutualIdentity(store, authority.file)


async def complaints(
    folder: Path, dialer: MutualIdentity | None, listener: MutualIdentity | None
) -> tuple[str, str]:
    """What two members that do not meet log of each other."""
    addresses = tuple(sorted(free_addresses(3), key=str))
    left = Member(folder, addresses, 0, identity=dialer)
    right = Member(folder, addresses, 1, identity=listener)
    async with running([left, right]):
        lines = (
            await left.log.saying(f"'peer': '{addresses[1]}'"),
            await right.log.saying("'peer': 'a caller'"),
        )
        assert not left.node.statistics().linked
        assert not right.node.statistics().linked
    assert not [line for line in left.log.lines + right.log.lines if line.startswith("BUG")]
    return lines


async def test_members_of_one_authority_become_a_cluster(
    tmp_path: Path, authority: Authority
) -> None:
    async with cluster(tmp_path, identity(authority, "member")) as members:
        for member in members:
            links = member.peers.links.values()
            assert [link.sock.version() for link in links] == ["TLSv1.3"] * 2
            assert not any("no link" in line for line in member.log.lines)


async def test_a_plain_member_and_an_encrypted_one(tmp_path: Path, authority: Authority) -> None:
    encrypted = identity(authority, "member")
    plain, other = await complaints(tmp_path, None, encrypted)
    assert "ClusterMemberKeyStore is not set at the other member" in other
    assert "refused the link" in plain
    assert "ClusterMemberKeyStore is not set" in plain
    (tmp_path / "2").mkdir()
    dialer, plain = await complaints(tmp_path / "2", encrypted, None)
    assert "the other member's links are not encrypted: set its ClusterMemberKeyStore" in dialer
    assert "the other member's links are encrypted: ClusterMemberKeyStore is not set at" in plain


async def test_members_of_two_authorities(tmp_path: Path, authority: Authority) -> None:
    stranger = identity(Authority(tmp_path / "else.pem"), "stranger")
    dialer, listener = await complaints(tmp_path, stranger, identity(authority, "member"))
    assert "certificate is refused: self-signed certificate in certificate chain" in dialer
    assert "the other member ended the TLS hand-shake and says why: unknown ca" in listener


async def test_an_expired_certificate_is_named_on_both_sides(
    tmp_path: Path, authority: Authority
) -> None:
    expired, valid = identity(authority, "expired", days=-1), identity(authority, "valid")
    dialer, listener = await complaints(tmp_path, expired, valid)
    assert "the other member ended the TLS hand-shake and says why: certificate expired" in dialer
    assert "certificate is refused: certificate has expired" in listener
    (tmp_path / "2").mkdir()
    dialer, listener = await complaints(tmp_path / "2", valid, expired)
    assert "certificate is refused: certificate has expired" in dialer
    assert "says why: certificate expired" in listener


async def test_a_caller_without_a_certificate_is_refused(
    tmp_path: Path, authority: Authority
) -> None:
    async with cluster(tmp_path, identity(authority, "member")) as members:
        context = ssl.create_default_context(cafile=str(authority.file))
        context.check_hostname = False
        stream = await trio.open_ssl_over_tcp_stream(
            "127.0.0.1", members[0].me.port, ssl_context=context
        )
        with trio.fail_after(60), pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
        await trio.aclose_forcefully(stream)
        line = await members[0].log.saying("no link")
        assert "shows no certificate: it needs a ClusterMemberKeyStore" in line
        assert all(len(member.node.statistics().linked) == 2 for member in members)


async def test_a_renewed_certificate_is_shown_on_new_links(
    tmp_path: Path, authority: Authority
) -> None:
    member = identity(authority, "member", days=-1)
    _, listener = await complaints(tmp_path, member, identity(authority, "other"))
    assert "expired" in listener
    authority.issue(tmp_path / "member.pem")
    tls.reload([member])
    (tmp_path / "2").mkdir()
    async with cluster(tmp_path / "2", member) as members:
        assert all(len(m.node.statistics().linked) == 2 for m in members)
    (tmp_path / "member.pem").write_text("no certificate")
    with pytest.raises(StartError, match=r"Cannot use .*member.pem for TLS"):
        tls.reload([member])


def test_an_authority_file_has_certificates(tmp_path: Path, authority: Authority) -> None:
    store = KeyStore(authority.issue(tmp_path / "member.pem"))
    with pytest.raises(StartError, match=r"Cannot read .*missing.pem: No such file"):
        MutualIdentity(store, tmp_path / "missing.pem")
    (tmp_path / "empty.pem").touch()
    with pytest.raises(StartError, match=r"ClusterMemberCertificateAuthority = .*empty.pem"):
        MutualIdentity(store, tmp_path / "empty.pem")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_both_sides_have_the_same_binding_on_no_other_connection(
    authority: Authority, version: ssl.TLSVersion
) -> None:
    member = identity(authority, "member")
    for context in member.contexts.values():
        context.maximum_version = version
    seen: dict[bytes, None] = {}
    for _ in range(2):
        ends = socket.socketpair()
        for end in ends:
            end.setblocking(False)
        shaken: dict[Side, socket.socket] = {}

        async def shake(side: Side, end: socket.socket, into: dict[Side, socket.socket]) -> None:
            into[side] = await member.encrypt(end, side)

        async with trio.open_nursery() as nursery:
            for side, end in zip(Side, ends, strict=True):
                nursery.start_soon(shake, side, end, shaken)
        left, right = shaken[Side.DIALER], shaken[Side.LISTENER]
        assert left.version() == right.version() == version.name.replace("_", ".")
        assert binding_of(left) == binding_of(right) != b""
        seen[binding_of(left)] = None
        left.send(b"x")
        assert await receive(right, bytearray(16)) == b"x"
        left.close()
        right.close()
    assert len(seen) == 2
