"""Sections: where the server listens, and encryption."""

import enum
from pathlib import Path
from typing import cast

import attrs

from mdserver import limits
from mdserver.config import values
from mdserver.config.parameter import parameter
from mdserver.config.values import Address
from mdserver.limits import NS_PER_S


class ProxyProtocol(enum.Enum):
    """Whether proxies announce the client's address at the start of a connection."""

    OFF = "off"
    V2 = "v2"


@attrs.frozen(kw_only=True, slots=False)
class Listening:
    """Listening"""

    listen: tuple[Address, ...] = parameter(
        "Listen",
        values.listed(values.address(80), 64, "a comma list of `host:port`"),
        (Address("127.0.0.1", 8800),),
        """Where clients connect without TLS: WebSocket and HTTP share each port. `*` stands for
        every address of the host, IPv4 and IPv6; an IPv6 address stands in brackets; a missing
        port means 80, port 0 lets the system choose one.""",
    )
    node_name: str = parameter(
        "NodeName",
        values.text(128),
        "mdserver",
        """How this server calls itself: clients see it as `member` in `connected`, and it stands
        in logs.""",
    )
    run_as_user: str | None = parameter(
        "RunAsUser",
        values.optional(values.text(64), ""),
        None,
        """As which user the server runs once it listens, before its first client, if it is started
        as root. `LogFolder` has to belong to that user, who also has to be able to read the files
        that SIGHUP reads again. Groups that the user has not are given up; if they cannot be, the
        server does not start. Empty leaves user and groups as they are.""",
    )
    allowed_origins: tuple[str, ...] = parameter(
        "AllowedOrigins",
        values.listed(values.text(512), 256, "a comma list of origins, or `*`"),
        ("*",),
        """Web pages of which origins (`https://www.example.com`) may connect from a browser; `*`
        allows all. Other origins are refused with 403. Programs that send no Origin header are not
        concerned. The listener for operators is never there for a foreign page.""",
    )
    allowed_hosts: tuple[str, ...] = parameter(
        "AllowedHosts",
        values.listed(values.text(255), 256, "a comma list of names without ports, or `*`"),
        (),
        """By which names clients may call this server, in the Host header of their requests; others
        are refused with 421, so that no web page can have its own name point to this server.
        Addresses and `localhost` are always allowed. Empty: at loopback addresses nothing else is,
        at other addresses every name is. `*` allows every name. A proxy in front of a loopback
        address that passes the Host header on needs its name here.""",
    )
    proxy_address_list: tuple[values.Network, ...] = parameter(
        "ProxyAddressList",
        values.listed(values.NETWORK, 1000, "a comma list of IP addresses and networks"),
        (),
        """The proxies in front of this server: addresses and networks such as `127.0.0.1,
        10.1.0.0/24`. Of them, and of nobody else, the server believes who the client is: by the
        header `X-Forwarded-For`, and with `ProxyProtocol = v2` by the PROXY protocol. That address
        then counts for limits, `PublishAllowFromAddressList` and audit.""",
    )
    proxy_protocol: ProxyProtocol = parameter(
        "ProxyProtocol",
        values.choice(ProxyProtocol),
        ProxyProtocol.OFF,
        """With `v2` each connection from `ProxyAddressList` has to begin with a header of the PROXY
        protocol, version 2, before TLS as well; one without is closed, and the server log says so.
        Others may connect without such a header. It is for `Listen` and `ListenEncrypted`, not for
        the listener of operators.""",
    )


@attrs.frozen(kw_only=True, slots=False)
class Encryption:
    """Encryption"""

    listen_encrypted: tuple[Address, ...] = parameter(
        "ListenEncrypted",
        values.listed(values.address(443), 64, "a comma list of `host:port`"),
        (),
        """Where clients connect with TLS 1.2 or newer, as in `Listen`; a missing port means
        443.""",
    )
    key_store: tuple[Path, ...] = parameter(
        "KeyStore",
        values.listed(values.PATH, 2, "one path, or two with a comma between them"),
        (),
        """The certificate for `ListenEncrypted`, in PEM: one file with the chain and the private
        key, or `chain.pem, key.pem`. SIGHUP reads the files again, for new connections.""",
    )
    key_stores: tuple[tuple[Address, tuple[Path, ...]], ...] = cast(
        "tuple[tuple[Address, tuple[Path, ...]], ...]",
        parameter(
            "KeyStore.host:port",
            values.listed(values.PATH, 2, "one path, or two with a comma between them"),
            (),
            """The same for one address of `ListenEncrypted`, written as it is there. It cannot be
            set in the environment.""",
            per=values.address(443),
        ),
    )
    strict_transport_security: int = parameter(
        "StrictTransportSecurity",
        values.duration(0, 2 * 365 * 86400 * NS_PER_S),
        limits.STRICT_TRANSPORT_SECURITY_S * NS_PER_S,
        """For how long a browser that came over TLS uses nothing else for this host name, at any
        port (the header Strict-Transport-Security). 0 does not ask for it: where pages of the same
        host name are served without TLS.""",
    )
    cipher_list: str = parameter(
        "CipherList",
        values.text(2000),
        limits.TLS_CIPHERS,
        """Which ciphers of TLS 1.2 are allowed, in the form of OpenSSL; those of TLS 1.3 always
        are.""",
    )
