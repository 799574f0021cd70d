"""Which tokens of OAUTHBEARER a broker accepts: crafted tokens, damaged and unusual key sets."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey

from kafkalite.config.broker import BrokerConfig
from kafkalite.net.sasl.oauthbearer import TokenRejection
from kafkalite.net.sasl.steps import Authenticated
from kafkalite.net.sasl.token_keys import BYTES_MAX, parse_keys, read_keys
from kafkalite.net.sasl.token_validation import TokenValidator
from tests.kit.tokens import AUDIENCE, ISSUER, USER, Issuer, claims, oauth_settings, segment

URL = "https://issuer.example/keys"
EC, RSA, OTHER = Issuer(), Issuer(rsa=True), Issuer()
NOW = claims()["iat"]
SKEW_S = 30  # the default of sasl.oauthbearer.clock.skew.seconds


def validator(issuer: Issuer = EC, **settings: str) -> TokenValidator:
    security = BrokerConfig(
        {
            "listeners": "SASL_PLAINTEXT://h:9092,PLAINTEXT://h:9093",
            "kafkalite.sasl.oauthbearer.allowed.urls": URL,
            **oauth_settings(URL),
            **settings,
        }
    ).listener_security("SASL_PLAINTEXT")
    assert security.oauthbearer is not None
    found = TokenValidator(security.oauthbearer, lambda: NOW)
    found.keys = parse_keys(issuer.document())
    return found


def rejected(token: str, issuer: Issuer = EC) -> str:
    found = validator(issuer)(token, {})
    assert isinstance(found, TokenRejection), token
    return found.reason


def test_signed_token_names_the_principal_and_the_end_of_the_session() -> None:
    """A token that has expired within the permitted difference of the clocks still begins a session."""
    assert validator()(EC.token(exp=NOW + 60), {}) == Authenticated(USER, expires_at=NOW + 60)
    assert validator()(EC.token(exp=NOW - 29), {}) == Authenticated(USER, expires_at=NOW - 29 + SKEW_S)


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS512"])
def test_algorithms_of_an_rsa_key(algorithm: str) -> None:
    assert isinstance(validator(RSA)(RSA.token(algorithm), {}), Authenticated)


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", "HS256", "HS512", "RS1", "ES256K", "dir", "EdDSA"])
@pytest.mark.parametrize("signature", [b"", b"x" * 64], ids=["unsigned", "garbage"])
def test_tokens_without_a_signature_are_rejected_cve_2026_33557(algorithm: str, signature: bytes) -> None:
    """Kafka's DefaultJwtValidator accepted any token. Planted: `jwt.decode` of the claims without the signature."""
    assert "not valid" in rejected(EC.unsigned(algorithm, signature))


@pytest.mark.parametrize(
    "secret",
    [
        lambda: RSA.keys[0].as_pem(private=False),
        lambda: RSA.keys[0].as_pem(private=False).strip(),
        lambda: RSA.keys[0].as_der(private=False),
        lambda: RSA.document(),
        lambda: RSA.keys[0].as_dict(private=False)["n"].encode(),
    ],
    ids=["pem", "stripped", "der", "jwks", "modulus"],
)
def test_hmac_with_a_public_key_is_rejected(secret: Callable[[], bytes]) -> None:
    assert "not valid" in rejected(RSA.hmac_with_public_key(secret()), RSA)


def test_symmetric_key_of_a_key_set_is_never_used() -> None:
    secret: Any = OctKey.import_key(b"s" * 32, {"kid": "first"})
    both = json.dumps({"keys": [secret.as_dict(), *json.loads(EC.document())["keys"]]}).encode()
    assert [each.key_type for each in parse_keys(both)] == ["EC"]
    with pytest.raises(ValueError, match="no public key"):
        parse_keys(json.dumps({"keys": [secret.as_dict()]}).encode())


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"exp": None}, "exp"),
        ({"exp": "9999999999"}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": 1e300}, "exp"),
        ({"exp": 10**400}, "exp"),
        ({"exp": float("nan")}, "exp"),
        ({"exp": NOW - 31}, "expired"),
        ({"iat": None}, "iat"),
        ({"nbf": NOW + 31}, "nbf"),
        ({"iss": None}, "iss"),
        ({"iss": ISSUER + "/"}, "iss"),
        ({"iss": [ISSUER]}, "iss"),
        ({"aud": None}, "aud"),
        ({"aud": "another"}, "aud"),
        ({"aud": []}, "aud"),
        ({"aud": {AUDIENCE: 1}}, "aud"),
        ({"aud": [AUDIENCE, 1]}, "aud"),
        ({"sub": None}, "sub"),
        ({"sub": " "}, "sub"),
        ({"sub": 7}, "sub"),
        ({"sub": "alice\nbob"}, "sub"),
        ({"sub": "x" * 1001}, "sub"),
        ({"scope": 7}, "scope"),
    ],
)
def test_claims_that_are_missing_or_wrong(changed: dict[str, Any], reason: str) -> None:
    assert reason in rejected(EC.token(**changed))


@pytest.mark.parametrize(
    "changed",
    [{"aud": ["a", AUDIENCE]}, {"nbf": NOW + 29}, {"exp": NOW - 29}, {"scope": "read write"}, {"scope": ["a", "b"]}],
)
def test_claims_that_are_unusual_and_valid(changed: dict[str, Any]) -> None:
    assert isinstance(validator()(EC.token(**changed), {}), Authenticated)


def test_names_of_claims_are_settings() -> None:
    found = validator(**{"sasl.oauthbearer.sub.claim.name": "client_id", "sasl.oauthbearer.scope.claim.name": "scp"})
    assert found(EC.token(client_id="billing", scope=7, exp=NOW + 300), {}) == Authenticated(
        "billing", expires_at=NOW + 300
    )
    assert isinstance(found(EC.token(client_id="billing", scp=7), {}), TokenRejection)


def test_signature_of_another_key_is_rejected() -> None:
    assert "not valid" in rejected(OTHER.token(header={"kid": "first"}))
    head, body, signature = EC.token().split(".")
    forged = ".".join((head, segment(claims(sub="admin")), signature))
    assert "not valid" in rejected(forged)
    assert "not valid" in rejected(f"{head}.{body}.")
    own: Any = ECKey.generate_key("P-256", {"kid": "first"})
    embedded = Issuer()
    embedded.keys = [own]
    assert "not valid" in rejected(embedded.token(header={"jwk": own.as_dict(private=False)}))


def test_unknown_key_is_reported_for_an_early_read() -> None:
    found = validator()
    outcome = found(EC.token(header={"kid": "new\nkey"}), {})
    assert outcome == TokenRejection("there is no key 'new\\nkey'") and found.lacks_key
    two = validator()
    two.keys = [*two.keys, *parse_keys(OTHER.document())]
    without = two(EC.token(header={"kid": None}), {})
    assert without == TokenRejection("the token names no key (header kid), and there are 2 keys") and two.lacks_key
    assert isinstance(validator()(EC.token(header={"kid": None}), {}), Authenticated)
    nothing = validator()
    nothing.keys = ()
    assert isinstance(nothing(EC.token(), {}), TokenRejection)


def test_key_is_used_for_its_algorithm_only() -> None:
    (key,) = json.loads(RSA.document())["keys"]
    found = validator(RSA)
    found.keys = parse_keys(json.dumps({"keys": [{**key, "alg": "RS256"}]}).encode())
    assert isinstance(found(RSA.token("RS256"), {}), Authenticated)
    assert isinstance(found(RSA.token("PS256"), {}), TokenRejection)
    assert isinstance(found(RSA.token("PS256", {"kid": None}), {}), TokenRejection)


@pytest.mark.parametrize("token", ["", "a.b.c", "...", "a.b", "é.b.c", "e30.e30.", "a.b.c.d.e", ". . .", "." * 300])
def test_malformed_tokens(token: str) -> None:
    rejected(token)


def test_header_of_any_size_and_reasons_without_the_token() -> None:
    assert isinstance(validator()(EC.token(header={"x5t": "x" * 1000}), {}), Authenticated)
    token = EC.unsigned("x" * 10_000)
    assert token not in rejected(token)
    assert len(rejected(EC.token(header={"kid": "k" * 5000}))) < 300


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": []}', b'{"keys": [1, {"kty": "RSA"}]}', b"[" * 100_000],
)
def test_documents_without_keys(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"no JSON Web Key Set|no public key"):
        parse_keys(data)


def test_keys_that_must_not_be_used() -> None:
    (key,) = json.loads(RSA.document())["keys"]
    weak = {**key, "n": key["n"][:170]}
    for other in ({**key, "use": "enc"}, {**key, "key_ops": ["encrypt"]}, weak, {**key, "n": "!"}, {**key, "e": None}):
        with pytest.raises(ValueError, match="no public key"):
            parse_keys(json.dumps({"keys": [other]}).encode())
    (curve,) = json.loads(EC.document())["keys"]
    later = json.dumps({"keys": [{**curve, "crv": "P-999"}, {**curve, "kty": "AKP"}, curve]}).encode()
    assert len(parse_keys(later)) == 1
    private: Any = [each.as_dict(private=True) for each in EC.keys]
    (public,) = parse_keys(json.dumps({"keys": private}).encode())
    assert not public.is_private


def test_file_is_bounded(tmp_path: Any) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(b" " * (BYTES_MAX + 1))
    settings = {"kafkalite.sasl.oauthbearer.allowed.files": str(path), **oauth_settings(path.as_uri())}
    security = BrokerConfig({"listeners": "SASL_PLAINTEXT://h:9092,PLAINTEXT://h:9093", **settings}).listener_security(
        "SASL_PLAINTEXT"
    )
    assert security.oauthbearer is not None
    with pytest.raises(ValueError, match="more than"):
        read_keys(security.oauthbearer)
    path.unlink()
    with pytest.raises(ValueError, match="No such file"):
        read_keys(security.oauthbearer)
