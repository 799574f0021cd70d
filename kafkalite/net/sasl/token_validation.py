"""Verifies JSON Web Tokens of OAUTHBEARER: signature, expiry, issuer and audience (RFC 7515, 7519, 8725).

1. Only the algorithms in `ALGORITHMS` are accepted, whatever a token states: neither `none` nor an HMAC.
2. A token must have a signature by a known key, and the claims exp, iat, iss, aud and a name.
3. A session ends with its token; that of a token which has just expired, with the permitted difference of the clocks.
4. Reasons have no part of a token but the name of an algorithm, a key or a claim. Clients never receive them. What is
   of the token is quoted and bounded: the log has one line a minute for all that differ in it.

Source: BrokerJwtValidator.java, ClaimValidationUtils.java of Apache Kafka 4.3. Deviation: issuer and audience are
required, and the header cannot name a key by URL or contain one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkalite.config.oauthbearer import OAuthBearerSettings
from kafkalite.net.sasl.oauthbearer import TokenRejection
from kafkalite.net.sasl.steps import Authenticated

if TYPE_CHECKING:
    from joserfc.jwk import GuestProtocol, Key

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519")
REASON_CHARACTERS_MAX = 200
NAME_CHARACTERS_MAX = 1_000
HEADER_BYTES_MAX = 8_192
SECONDS_MAX = 1e11  # of a time in a claim: beyond it is none in seconds


class InvalidToken(Exception):
    """Why a token is not accepted."""


class TokenValidator:
    """Verifies the tokens of a listener; a call runs as a job.

    Arguments:
        settings: of the listener.
        now: the time in seconds of the epoch.

    Attributes:
        keys: the current keys, replaced as a whole; empty: not read yet, no token is accepted.
        lacks_key: a token named a key that is not among them; the next read of the keys resets it.
    """

    def __init__(self, settings: OAuthBearerSettings, now: Callable[[], float]) -> None:
        self.keys: Sequence[Key] = ()
        self.lacks_key = False
        self._settings = settings
        self._now = now

    def __call__(self, token: str, extensions: Mapping[str, str]) -> Authenticated | TokenRejection:
        """Return the user that presents a token, or why it is not accepted."""
        from joserfc.errors import JoseError

        try:
            return self._check(self._verified(token))
        except InvalidToken as error:
            return TokenRejection(str(error))
        except (JoseError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
            return TokenRejection(_shown(error))

    def _verified(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token whose signature is valid."""
        from joserfc import jws, jwt

        registry = jws.JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
        registry.max_header_length = HEADER_BYTES_MAX
        return jwt.decode(token, self._key_of, ALGORITHMS, registry).claims

    def _key_of(self, token: "GuestProtocol") -> "Key":
        """Return the key that a header names; without a name the only key."""
        header, keys = token.headers(), self.keys
        key_id, algorithm = header.get("kid"), header.get("alg")
        for key in keys:
            if key.kid == key_id or (key_id is None and len(keys) == 1):
                if key.alg not in (None, algorithm):
                    raise InvalidToken(f"the key is for algorithm {key.alg}, the token has {_quoted(algorithm)}")
                return key
        self.lacks_key = True
        if key_id is None:
            raise InvalidToken(f"the token names no key (header kid), and there are {len(keys)} keys")
        raise InvalidToken(f"there is no key {_quoted(key_id)}")

    def _check(self, claims: Mapping[str, Any]) -> Authenticated:
        settings, now = self._settings, self._now()
        expires_at = _seconds(claims, "exp")
        _seconds(claims, "iat")
        if now - settings.skew_s >= expires_at:
            raise InvalidToken("the token has expired")
        if "nbf" in claims and _seconds(claims, "nbf") - settings.skew_s > now:
            raise InvalidToken("the token is not valid yet: claim nbf")
        if claims.get("iss") != settings.issuer:
            raise InvalidToken("the token has another issuer: claim iss")
        if not {*_texts(claims, "aud")}.intersection(settings.audiences):
            raise InvalidToken("the token has another audience: claim aud")
        _texts(claims, settings.scope_claim)
        ends_at = expires_at if now < expires_at else expires_at + settings.skew_s
        return Authenticated(_name(claims, settings.sub_claim), expires_at=ends_at)


def _seconds(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= SECONDS_MAX:
        raise InvalidToken(f"the token has no time in claim {name}")
    return float(value)


def _texts(claims: Mapping[str, Any], name: str) -> list[str]:
    """Return the texts of a claim that has one or a list; none if it is absent."""
    value = claims.get(name, [])
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise InvalidToken(f"claim {name} is neither a text nor a list of texts")
    return texts


def _name(claims: Mapping[str, Any], claim: str) -> str:
    name = claims.get(claim)
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > NAME_CHARACTERS_MAX:
        raise InvalidToken(f"the token has no name in claim {claim}")
    return name


def _shown(error: Exception) -> str:
    """Return an error for the log; a header may have any characters."""
    return f"the token is not valid: {type(error).__name__} {_quoted(error)}"


def _quoted(value: object) -> str:
    """Return the beginning of something that a token has, or that an error says about it."""
    return ascii(str(value))[:REASON_CHARACTERS_MAX]
