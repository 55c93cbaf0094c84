"""Sections: who may do what."""

import enum
from pathlib import Path

import attrs

from mdserver import limits
from mdserver.config import values
from mdserver.config.parameter import parameter
from mdserver.limits import NS_PER_MS, NS_PER_S


class Entitlement(enum.Enum):
    """The authority that decides what a client may do."""

    NONE = "None"
    BASIC = "Basic"
    JWT = "JWT"
    CUSTOM = "Custom"


@attrs.frozen(kw_only=True, slots=False)
class Rights:
    """Entitlement"""

    entitlement: Entitlement = parameter(
        "Entitlement",
        values.choice(Entitlement),
        Entitlement.BASIC,
        """Who may do what. `None`: everybody may subscribe and publish. `Basic`: everybody may
        subscribe, only clients with the token `EntitlementAllowToken` may publish. `JWT`: the
        claim `permissions` of a client's token says what it may do. `Custom`: the class
        `EntitlementCustom.Class` decides.""",
    )
    entitlement_allow_token: str = parameter(
        "EntitlementAllowToken",
        values.text(limits.TOKEN_BYTES_MAX),
        "",
        """The token with which a client may publish under `Entitlement = Basic`. While it is empty
        nobody may publish. A client that connected with another token has to renew it.""",
        reloadable=True,
        secret=True,
    )
    publish_allow_from_address_list: tuple[values.Network, ...] | None = parameter(
        "PublishAllowFromAddressList",
        values.optional(
            values.listed(values.NETWORK, 1000, "a comma list of IP addresses and networks"), "*"
        ),
        None,
        """From which addresses clients may publish, whatever else allows it: addresses and
        networks such as `192.0.2.7, 10.0.0.0/8, fd00::/8`. `*` stands for every address; an empty
        list for none.""",
        reloadable=True,
    )


@attrs.frozen(kw_only=True, slots=False)
class Tokens:
    """Entitlement = JWT"""

    jwt_hmac_secret_file: Path | None = parameter(
        "EntitlementJWT.HmacSecretFile",
        values.optional(values.PATH, ""),
        None,
        """The file with the secret of HS256, HS384 and HS512: at least 32 bytes; a line end at the
        end of the file does not count. SIGHUP reads it again, as it does the other two files. At
        least one of the three is needed.""",
        reloadable=True,
    )
    jwt_public_key_file: Path | None = parameter(
        "EntitlementJWT.PublicKeyFile",
        values.optional(values.PATH, ""),
        None,
        """The file with the public key (PEM) of RS256, RS384 and RS512, or of ES256.""",
        reloadable=True,
    )
    jwt_jwks_file: Path | None = parameter(
        "EntitlementJWT.JwksFile",
        values.optional(values.PATH, ""),
        None,
        """A JWK set (RFC 7517): several keys at the same time, for instance an old and a new one. A
        token that names a key (`kid`) is checked with that key only.""",
        reloadable=True,
    )
    jwt_audience: str = parameter(
        "EntitlementJWT.Audience",
        values.text(512),
        "",
        """Which audience (`aud`) a token has to be for; empty does not ask.""",
        reloadable=True,
    )
    jwt_issuer: str = parameter(
        "EntitlementJWT.Issuer",
        values.text(512),
        "",
        """Which issuer (`iss`) a token has to come from; empty does not ask.""",
        reloadable=True,
    )
    jwt_renew_token_before: int = parameter(
        "EntitlementJWT.RenewTokenBeforeSeconds",
        values.duration(0, 86400 * NS_PER_S),
        limits.TOKEN_RENEW_BEFORE_S * NS_PER_S,
        """How long before its token expires a client is notified (`TOKEN_TO_EXPIRE`), so that it
        can renew the token without a gap.""",
    )


@attrs.frozen(kw_only=True, slots=False)
class Custom:
    """Entitlement = Custom"""

    custom_class: str = parameter(
        "EntitlementCustom.Class",
        values.text(512),
        "",
        """The Python class that decides, `package.module:Class`, found as Python finds modules
        (installed, or in `PYTHONPATH`). docs/security.md says what it has to offer.""",
    )
    custom_deadline: int = parameter(
        "EntitlementCustom.Deadline",
        values.duration(10 * NS_PER_MS, 600 * NS_PER_S),
        limits.VERDICT_DEADLINE_S * NS_PER_S,
        """How long the class may take for an answer; a later one is a denial.""",
    )
