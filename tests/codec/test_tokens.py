"""Tokens: what they grant, and every way to forge one that has a name."""

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from mdserver.codec.tokens import TokenKey, TokenVerifier, hmac_key, jwks_keys, pem_key
from mdserver.core.events import StatusName
from mdserver.core.inputs import Denied, Grants
from mdserver.errors import ConfigError

SECRET = b"a secret of 32 bytes or more...."
NOW_S = 1_800_000_000
NOW = NOW_S * 1_000_000_000
CLAIMS: dict[str, Any] = {
    "exp": NOW_S + 60,
    "permissions": {"sub": ["/a/*"], "pub": ["/b/c"], "all": ["/c/**"]},
    "sub": "ann",
}
GRANTS = Grants(
    subscribe=("/a/*", "/c/**"), publish=("/b/c", "/c/**"), expires=NOW + 60 * 10**9, user="ann"
)
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())


def public_pem(private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def signed(
    key: Any = SECRET,
    algorithm: str = "HS256",
    headers: dict[str, Any] | None = None,
    **changed: Any,
) -> str:
    claims = {name: value for name, value in (CLAIMS | changed).items() if value is not None}
    return jwt.encode(claims, key, algorithm, headers=headers)


def forged(header: dict[str, Any], claims: object = CLAIMS, signature: bytes = b"") -> str:
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def jwk(public: Any, **more: object) -> dict[str, Any]:
    if isinstance(public, bytes):
        kty, made = "oct", {"k": base64.urlsafe_b64encode(public).rstrip(b"=").decode()}
        return {"kty": kty, **made, **more}
    kind = jwt.algorithms.RSAAlgorithm if isinstance(public, rsa.RSAPublicKey) else None
    maker: Any = kind or jwt.algorithms.ECAlgorithm
    return maker.to_jwk(public, as_dict=True) | more


def denied(verifier: TokenVerifier, token: str) -> Denied:
    verdict = verifier.verify(token, NOW)
    assert isinstance(verdict, Denied)
    assert verdict.reason.endswith(".")
    return verdict


HMAC = TokenVerifier([hmac_key(SECRET)])


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
def test_hmac_signatures(algorithm: str) -> None:
    assert HMAC.verify(signed(SECRET, algorithm), NOW) == GRANTS


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512"])
def test_rsa_signatures(algorithm: str) -> None:
    assert TokenVerifier([pem_key(public_pem(RSA))]).verify(signed(RSA, algorithm), NOW) == GRANTS


def test_elliptic_signatures() -> None:
    assert TokenVerifier([pem_key(public_pem(EC))]).verify(signed(EC, "ES256"), NOW) == GRANTS


@pytest.mark.parametrize(
    ("token", "part"),
    [
        (signed(b"another secret of 32 bytes......"), "signature"),
        (signed() + "!", "no JSON Web Token"),
        (signed()[:-3], "signature"),
        (signed().replace(".", "..", 1), "no JSON Web Token"),
        ("", "no JSON Web Token"),
        ("a.b.c", "no JSON Web Token"),
        ("\ud800.a.b", "no JSON Web Token"),
        ("x" * 20_000, "16384 bytes"),
        (forged({"alg": "none"}), "'none'"),
        (forged({"alg": "None"}), "'None'"),
        (forged({"alg": "nOnE"}, signature=b"x"), "'nOnE'"),
        (forged({"alg": ""}), "''"),
        (forged({"alg": ["HS256"]}), "'HS256'"),
        (forged({}), "None"),
        (forged({"alg": "HS256"}), "signature"),
        (forged({"alg": "HS256", "crit": ["exp"]}), "no JSON Web Token"),
        (signed(RSA, "RS256"), "'RS256'"),
        (jwt.encode(CLAIMS, RSA, "PS256"), "'PS256'"),
        (signed(exp=None), "`exp`"),
        (signed(exp=NOW_S * 10**400), "`exp`"),
        (signed(nbf=NOW_S + 5), "not valid yet"),
        (signed(permissions=None), "`permissions`"),
        (signed(permissions=["/a/b"]), "`permissions`"),
        (signed(permissions={"sub": "/a/b"}), "permissions.sub"),
        (signed(permissions={"all": ["/a/b", 5]}), "permissions.all"),
    ],
)
def test_what_is_not_accepted(token: str, part: str) -> None:
    verdict = denied(HMAC, token)
    assert part in verdict.reason
    assert verdict.status is StatusName.TOKEN_INVALID


@pytest.mark.parametrize("exp", ["soon", True, [1]])
def test_an_expiry_is_a_number(exp: object) -> None:
    head, _, _ = signed().split(".")
    payload = base64.urlsafe_b64encode(json.dumps(CLAIMS | {"exp": exp}).encode()).rstrip(b"=")
    signing_input = f"{head}.{payload.decode()}".encode()
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
        signing_input, SECRET
    )
    token = f"{signing_input.decode()}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    assert "`exp`" in denied(HMAC, token).reason


def test_expired_tokens_have_their_own_status() -> None:
    assert HMAC.verify(signed(exp=NOW_S + 1), NOW) != GRANTS
    for exp in (NOW_S, NOW_S - 1, 0, -1):
        assert denied(HMAC, signed(exp=exp)).status is StatusName.TOKEN_EXPIRED
    verdict = HMAC.verify(signed(exp=NOW_S + 0.5, nbf=NOW_S), NOW)
    assert isinstance(verdict, Grants)
    assert verdict.expires == NOW + 500_000_000


def test_a_public_key_is_no_hmac_secret() -> None:
    """Key confusion: an HS256 signature made with the public key's text."""
    pem = public_pem(RSA)
    head = {"alg": "HS256", "typ": "JWT"}
    unsigned = forged(head).rpartition(".")[0]
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    signature = base64.urlsafe_b64encode(algorithm.sign(unsigned.encode(), pem)).rstrip(b"=")
    token = f"{unsigned}.{signature.decode()}"
    assert "'HS256'" in denied(TokenVerifier([pem_key(pem)]), token).reason
    both = TokenVerifier([pem_key(pem), hmac_key(SECRET)])
    assert "signature" in denied(both, token).reason


def test_audience_and_issuer() -> None:
    verifier = TokenVerifier([hmac_key(SECRET)], audience="mdserver", issuer="login")
    assert verifier.verify(signed(aud="mdserver", iss="login"), NOW) == GRANTS
    assert verifier.verify(signed(aud=["x", "mdserver"], iss="login"), NOW) == GRANTS
    assert "audience" in denied(verifier, signed(aud="other", iss="login")).reason
    assert "audience" in denied(verifier, signed(iss="login")).reason
    assert "issuer" in denied(verifier, signed(aud="mdserver", iss="x")).reason
    assert "issuer" in denied(verifier, signed(aud="mdserver")).reason
    assert HMAC.verify(signed(aud="any", iss="any"), NOW) == GRANTS


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def test_a_key_set_and_its_rotation() -> None:
    other = rsa.generate_private_key(65537, 2048)
    old, new = jwk(RSA.public_key(), kid="old"), jwk(other.public_key(), kid="new", use="sig")
    verifier = TokenVerifier(jwks_keys(key_set(old, new, jwk(EC.public_key()))))
    assert verifier.verify(signed(RSA, "RS256", {"kid": "old"}), NOW) == GRANTS
    assert verifier.verify(signed(other, "RS512", {"kid": "new"}), NOW) == GRANTS
    assert verifier.verify(signed(other, "RS256"), NOW) == GRANTS
    assert verifier.verify(signed(EC, "ES256", {"kid": "any"}), NOW) == GRANTS
    assert "signature" in denied(verifier, signed(RSA, "RS256", {"kid": "new"})).reason
    assert "'gone'" in denied(verifier, signed(RSA, "RS256", {"kid": "gone"})).reason
    rotated = TokenVerifier(jwks_keys(key_set(new)))
    assert "'old'" in denied(rotated, signed(RSA, "RS256", {"kid": "old"})).reason


def test_a_key_of_a_set_keeps_to_its_algorithm() -> None:
    verifier = TokenVerifier(jwks_keys(key_set(jwk(RSA.public_key(), alg="RS512"))))
    assert verifier.verify(signed(RSA, "RS512"), NOW) == GRANTS
    assert "'RS256'" in denied(verifier, signed(RSA, "RS256")).reason


def test_secrets_of_a_set() -> None:
    verifier = TokenVerifier(jwks_keys(key_set(jwk(SECRET, kid="s"))))
    assert verifier.verify(signed(headers={"kid": "s"}), NOW) == GRANTS


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": 5}',
        b'{"keys": [5]}',
        b'{"keys": []}',
        b"\xff",
        b"[" * 100_000,
        key_set(jwk(RSA.public_key(), use="enc")),
        key_set(jwk(RSA.public_key(), key_ops=["encrypt"])),
        key_set(jwk(RSA.public_key(), alg="HS256")),
        key_set(jwk(RSA.public_key(), alg="RSA-OAEP")),
        key_set(jwk(SECRET, alg="RS256")),
        key_set(jwk(b"short")),
        key_set({"kty": "EC", "crv": "P-521", "x": "", "y": ""}),
        key_set({"kty": "RSA", "n": "", "e": ""}),
        key_set({"kty": 5}),
        key_set({}),
    ],
)
def test_a_set_without_a_usable_key(text: bytes) -> None:
    with pytest.raises(ConfigError, match="JWK set"):
        jwks_keys(text)


def test_keys_that_are_none() -> None:
    with pytest.raises(ConfigError, match="32 bytes"):
        hmac_key(b"short")
    with pytest.raises(ConfigError, match="no public key"):
        pem_key(b"-----BEGIN")
    with pytest.raises(ConfigError, match="2048 bits"):
        pem_key(public_pem(rsa.generate_private_key(65537, 1024)))  # noqa: S505 - the point
    with pytest.raises(ConfigError, match="P-256"):
        pem_key(public_pem(ec.generate_private_key(ec.SECP384R1())))


def test_a_key_does_not_show_itself() -> None:
    assert "secret" not in repr(hmac_key(SECRET))
    assert repr(TokenKey(("HS256",), b"x", "kid")) == "TokenKey(algorithms=('HS256',), name='kid')"


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(
    st.text()
    | st.builds(
        forged,
        st.dictionaries(
            st.sampled_from(["alg", "typ", "kid", "crit", "b64"]),
            JSONS | st.just("HS256"),
        ),
        JSONS,
        st.binary(max_size=40),
    )
)
def test_any_text_is_denied(token: str) -> None:
    assert isinstance(HMAC.verify(token, NOW), Denied)


@given(st.dictionaries(st.sampled_from(["exp", "nbf", "permissions", "sub", "aud"]), JSONS))
def test_any_signed_claims_get_a_verdict(claims: dict[str, Any]) -> None:
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    unsigned = forged({"alg": "HS256"}, claims).rpartition(".")[0]
    signature = base64.urlsafe_b64encode(algorithm.sign(unsigned.encode(), SECRET)).rstrip(b"=")
    verdict = HMAC.verify(f"{unsigned}.{signature.decode()}", NOW)
    assert isinstance(verdict, Grants | Denied)
