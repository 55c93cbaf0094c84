"""Entitlement tokens: from JSON Web Tokens (RFC 7519) to grants.

The key decides which algorithms a signature may have, never the token (RFC 8725, section 3.1). So
nobody can use a public key as an HMAC secret, and `alg: none` fits no key. The clock is an
argument.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import jwt
import msgspec
from attrs import field, frozen
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from mdserver import limits
from mdserver.core.events import StatusName
from mdserver.core.inputs import Denied, Grants
from mdserver.core.text import safe_text
from mdserver.errors import ConfigError

HMAC_ALGORITHMS: tuple[str, ...] = ("HS256", "HS384", "HS512")
RSA_ALGORITHMS: tuple[str, ...] = ("RS256", "RS384", "RS512")
EC_ALGORITHMS: tuple[str, ...] = ("ES256",)
RSA_BITS_MIN = 2048  # RFC 7518 section 3.3
KEYS_MAX = 100

# Signatures only: claims are checked here, because PyJWT asks the system for the time.
_SIGNATURE_ONLY: Any = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}

_PARTS = 3
_NO_TOKEN = (jwt.PyJWTError, ValueError, TypeError, RecursionError)


@frozen
class TokenKey:
    """A key that verifies signatures, and the algorithms that it is for."""

    algorithms: tuple[str, ...]
    key: Any = field(repr=False)
    name: str | None = None
    """The `kid` of a JWK; a token that names another is not checked with this key."""


def hmac_key(secret: bytes) -> TokenKey:
    """Return a key of HS256, HS384 and HS512.

    Raises ConfigError if it is too short (RFC 7518, section 3.2).
    """
    if len(secret) < 32:
        raise ConfigError(f"an HMAC secret needs 32 bytes or more, this has {len(secret)}")
    return TokenKey(HMAC_ALGORITHMS, secret)


def pem_key(pem: bytes) -> TokenKey:
    """Return the public key in a PEM text: RSA, or EC on P-256.

    Raises ConfigError for anything else.
    """
    try:
        return _public_key(load_pem_public_key(pem), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError("this is no public key in PEM form") from None


def jwks_keys(text: bytes) -> tuple[TokenKey, ...]:
    """Return the signature keys of a JWK set (RFC 7517): `oct`, `RSA`, and `EC` with P-256.

    Keys of other types or for encryption are left out, as section 5 asks. Raises ConfigError if the
    set is malformed or no usable key is left.
    """
    try:
        members = msgspec.json.decode(text, type=_KeySet).keys
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ConfigError("this is no JWK set: an object with a list `keys`, at most 100") from None
    keys = [_jwk(member) for member in members if _is_for_signatures(member)]
    usable = tuple(key for key in keys if key is not None)
    if not usable:
        raise ConfigError("this JWK set has no key for HS256/384/512, RS256/384/512 or ES256")
    return usable


class _KeySet(msgspec.Struct):
    keys: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=KEYS_MAX)]


def _is_for_signatures(member: dict[str, Any]) -> bool:
    return member.get("use", "sig") == "sig" and "verify" in member.get("key_ops", ["verify"])


def _jwk(member: dict[str, Any]) -> TokenKey | None:
    algorithm = member.get("alg")
    name = member.get("kid")
    try:
        if member.get("kty") == "oct":
            decoded = jwt.PyJWK(member, algorithm or "HS256").key
            made = hmac_key(decoded) if isinstance(decoded, bytes) else None
        else:
            made = _public_key(jwt.PyJWK(member, algorithm or None).key, None)
    except (jwt.PyJWTError, ValueError, TypeError, ConfigError):
        return None
    if made is None or (algorithm is not None and algorithm not in made.algorithms):
        return None
    algorithms = made.algorithms if algorithm is None else (algorithm,)
    return TokenKey(algorithms, made.key, name if isinstance(name, str) else None)


def _public_key(key: object, name: str | None) -> TokenKey:
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < RSA_BITS_MIN:
            raise ConfigError(f"an RSA key needs {RSA_BITS_MIN} bits or more")
        return TokenKey(RSA_ALGORITHMS, key, name)
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        return TokenKey(EC_ALGORITHMS, key, name)
    raise ConfigError("expected a public RSA key, or a public EC key on the curve P-256")


class TokenVerifier:
    """Verifies tokens with given keys; when keys, audience or issuer change, make a new one."""

    def __init__(
        self, keys: Sequence[TokenKey], audience: str | None = None, issuer: str | None = None
    ) -> None:
        self._keys = tuple(keys)
        self._audience = audience
        self._issuer = issuer

    def verify(self, token: str, now: int) -> Grants | Denied:
        """Return what a token grants at `now` (ns since the Unix epoch), or why it grants nothing.

        It returns a verdict for every text and never raises. The reason is fit for the client.
        """
        if len(token) > limits.TOKEN_BYTES_MAX:
            return _invalid(f"A token may have {limits.TOKEN_BYTES_MAX} bytes.")
        parts = token.count(".") + 1
        if parts != _PARTS:
            count = "1 part" if parts == 1 else f"{parts} parts"
            return _no_token(f"it has {count}, not three with dots between them")
        try:
            header = jwt.get_unverified_header(token)
        except _NO_TOKEN as error:
            return _unreadable(error)
        claims = self._signed_claims(token, header)
        if isinstance(claims, Denied):
            return claims
        if not (_is_unicode(header) and _is_unicode(claims)):
            return _invalid("The token's header and claims have to be valid Unicode.")
        return self._check_names(claims) or _grants(claims, now)

    def _signed_claims(self, token: str, header: dict[str, Any]) -> dict[str, Any] | Denied:
        """Return the claims of a token that one of the keys has signed, or why there are none."""
        algorithm, name = header.get("alg"), header.get("kid")
        fitting = [key for key in self._keys if algorithm in key.algorithms]
        if not fitting:
            return _invalid(f"Tokens signed with {_shown(algorithm)} are not accepted here.")
        fitting = [key for key in fitting if name is None or key.name in (None, name)]
        if not fitting:
            return _invalid(f"The token's key (`kid`) {_shown(name)} is not known here.")
        for key in fitting:
            try:
                claims = jwt.decode(
                    token, key.key, algorithms=[str(algorithm)], options=_SIGNATURE_ONLY
                )
            except jwt.InvalidSignatureError:
                continue
            except _NO_TOKEN as error:
                return _unreadable(error)
            return dict(claims)
        return _invalid("The token's signature is not valid.")

    def _check_names(self, claims: dict[str, Any]) -> Denied | None:
        if self._issuer is not None and claims.get("iss") != self._issuer:
            return _invalid("The token comes from another issuer (`iss`).")
        if self._audience is not None:
            audience = claims.get("aud")
            if self._audience not in (audience if isinstance(audience, list) else [audience]):
                return _invalid("The token is for another audience (`aud`).")
        return None


def _grants(claims: dict[str, Any], now: int) -> Grants | Denied:
    """Return what verified claims grant at `now`, or why they grant nothing."""
    expires = _nanoseconds(claims.get("exp"))
    if expires is None:
        return _invalid("The token has no claim `exp` (seconds since 1970).")
    untimely = _check_times(claims, expires, now)
    if untimely is not None:
        return untimely
    permissions = claims.get("permissions")
    if not isinstance(permissions, dict):
        return _invalid("The token has no claim `permissions` (an object with sub, pub, all).")
    patterns: dict[str, tuple[str, ...]] = {}
    for name in ("sub", "pub", "all"):
        listed = permissions.get(name, [])
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            return _invalid(f"The token's `permissions.{name}` has to be a list of strings.")
        patterns[name] = tuple(listed)
    user = claims.get("sub")
    return Grants(
        subscribe=patterns["sub"] + patterns["all"],
        publish=patterns["pub"] + patterns["all"],
        expires=expires,
        user=user[: limits.PUBLISHER_BYTES_MAX] if isinstance(user, str) else None,
    )


def _check_times(claims: dict[str, Any], expires: int, now: int) -> Denied | None:
    """Return why a token is not valid now, None if it is.

    Clocks may be wrong, so the reason says what time it is by the server's.
    """
    if expires <= now:
        said = f"The token expired {_apart(now - expires)} ago by the server's clock{_clock(now)}."
        return Denied(said, StatusName.TOKEN_EXPIRED)
    if "nbf" in claims:
        begins = _nanoseconds(claims["nbf"])
        if begins is None:
            return _invalid("The token's `nbf` has to be a number (seconds since 1970).")
        if begins > now:
            return _invalid(
                "The token is not valid yet (`nbf`): it will be in "
                f"{_apart(begins - now)} by the server's clock{_clock(now)}."
            )
    return None


def _apart(duration: int) -> str:
    """Return a duration (ns) in words: rounded up to seconds, then in the largest units."""
    seconds = -(-duration // limits.NS_PER_S)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    if hours > 47:
        return f"{hours // 24} days"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{seconds} s"


def _clock(now: int) -> str:
    """Return the server's time, so that a refused client can compare clocks."""
    return f" ({datetime.fromtimestamp(now // limits.NS_PER_S, UTC):%Y-%m-%d %H:%M:%S} UTC)"


def _nanoseconds(claim: object) -> int | None:
    """Return a NumericDate (RFC 7519 section 2) in ns; None if it is no number, or too large."""
    if isinstance(claim, bool) or not isinstance(claim, int | float):
        return None
    return int(claim * limits.NS_PER_S) if abs(claim) < 2**53 else None


def _is_unicode(part: dict[str, Any]) -> bool:
    """Return whether all names and texts can be encoded: JSON can spell half a surrogate pair."""
    try:
        json.dumps(part, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


def _unreadable(error: Exception) -> Denied:
    if isinstance(error, jwt.PyJWTError) and not isinstance(error, jwt.DecodeError):
        # The library's text may quote what the token says.
        return _no_token(safe_text(error))
    return _no_token("a part of it cannot be read, as if it was not copied whole")


def _no_token(reason: str) -> Denied:
    return _invalid(f"That is no JSON Web Token that can be used here: {reason}.")


def _shown(value: object) -> str:
    return safe_text(repr(value), 60)


def _invalid(reason: str) -> Denied:
    return Denied(reason, StatusName.TOKEN_INVALID)
