"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) without channel binding: neither side sends the password.

Invariants:
1. The number of iterations is bounded on both sides: a broker cannot make a client hash for hours (CVE-2026-10143), or
   weaken the hash. The limits are those of Apache Kafka (ScramMechanism.java).
2. Each side compares the nonce of every message (CVE-2024-56128) and all secrets in constant time.
3. The hash of a password runs as a job. A client keeps the keys of its last salts, so it hashes once, not once per
   connection.
4. A login of a user that does not exist has the same messages, in the same time, as one with a wrong password. Its salt
   is derived from the name and a secret that all brokers of the cluster have, so it never changes, as that of a known
   user, and has the form of all salts (`net/sasl/salts`). Its iterations are those of most users, so that their number
   names no existing user. Only users with another number of iterations, or whose client chose a salt of another form,
   can be recognised. Tokens, known or not, have such a salt and 4,096 iterations.
5. The extension `tokenauth=true` makes the user name the id of a delegation token, and the base64 of its HMAC the
   password; the owner of the token is authenticated, until the token expires (KIP-48).

Deviation: names and passwords are used as UTF-8 without SASLprep, as Apache Kafka does (ScramFormatter.java); a
prepared password would not match the credentials that its tools create.
"""

import hashlib
import hmac
import secrets
from base64 import b64encode
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from kafkalite.errors import AuthenticationError
from kafkalite.net.sasl.plain import check_credentials
from kafkalite.net.sasl.salts import derived_salt, new_salt
from kafkalite.net.sasl.scram_messages import (
    TOKEN_AUTH,
    ClientFirst,
    ServerFirst,
    parse_client_final,
    parse_client_first,
    parse_server_final,
    parse_server_first,
    sasl_name,
)
from kafkalite.net.sasl.steps import Authenticated, ClientSteps, Job, ServerSteps, login_of

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 16_384
NONCE_BYTES = 24
SECRET_BYTES = 16
TOKENS_MAX = 1_000  # whose hashed password a broker keeps
KEYS_MAX = 8  # brokers of one cluster have the same salt for a user; while it changes, they may differ
NO_CHANNEL_BINDING = "n,,"


class ScramCredential(NamedTuple):
    """The secrets of a user that a broker stores; the password cannot be derived from them.

    Attributes:
        salt, iterations: of the hash.
        stored_key: verifies the client.
        server_key: proves the broker to the client.
    """

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


class ScramKeys(NamedTuple):
    """What a client derives from a password."""

    client_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return "ScramKeys()"


class TokenLogin(NamedTuple):
    """What a login with a delegation token needs.

    Attributes:
        owner: name of the user that is authenticated.
        password: base64 of the HMAC.
        expires_at: seconds of the epoch.
    """

    owner: str
    password: str
    expires_at: float

    def __repr__(self) -> str:
        return f"TokenLogin(owner={self.owner!r}, expires_at={self.expires_at!r})"


def derive_keys(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramKeys:
    """Hash a password; 1.5 ms of CPU time for 4,096 iterations of SHA-256, 12 ms for 16,384 of SHA-512.

    Arguments:
        mechanism: "SCRAM-SHA-256" or "SCRAM-SHA-512".
        password, salt, iterations: of the user.
    """
    return _keys_of(mechanism, hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations))


def _keys_of(mechanism: str, salted: bytes) -> ScramKeys:
    return ScramKeys(_hmac(mechanism, salted, b"Client Key"), _hmac(mechanism, salted, b"Server Key"))


def make_credential(
    mechanism: str, password: str, salt: bytes | None = None, iterations: int = 4096
) -> ScramCredential:
    """Return what a broker stores for a user (AlterUserScramCredentials).

    Arguments:
        mechanism: "SCRAM-SHA-256" or "SCRAM-SHA-512".
        password: of the user.
        salt: None = a random one.
        iterations: 4,096 to 16,384.

    Raises:
        ValueError: the number of iterations is outside the limits.
    """
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(f"{iterations} iterations, expected {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    salt = new_salt() if salt is None else salt
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


def credential_of(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return what a broker stores for a salted password.

    Arguments:
        mechanism: "SCRAM-SHA-256" or "SCRAM-SHA-512".
        salted_password: the hash of the password.
        salt, iterations: of the hash.
    """
    keys = _keys_of(mechanism, salted_password)
    return ScramCredential(salt, iterations, _digest(mechanism, keys.client_key), keys.server_key)


def digest_size(mechanism: str) -> int:
    """Return the number of bytes of a hash, and so of a salted password."""
    return hashlib.new(HASHES[mechanism]).digest_size


def _hmac(mechanism: str, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, HASHES[mechanism])


def _digest(mechanism: str, data: bytes) -> bytes:
    return hashlib.new(HASHES[mechanism], data).digest()


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _new_nonce() -> str:
    return secrets.token_urlsafe(NONCE_BYTES)


class ScramClient:
    """SCRAM on the client.

    Arguments:
        mechanism: "SCRAM-SHA-256" or "SCRAM-SHA-512".
        username, password: the credentials.
        new_nonce: returns a nonce; a constant one in tests.
        is_token: the credentials are the id of a delegation token and the base64 of its HMAC.

    Raises:
        ValueError: one of the credentials is empty or contains NUL.
    """

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        new_nonce: Callable[[], str] = _new_nonce,
        *,
        is_token: bool = False,
    ) -> None:
        check_credentials(username, password)
        self.name = mechanism
        self._extension = f",{TOKEN_AUTH}=true" if is_token else ""
        self._username = username
        self._password = password
        self._new_nonce = new_nonce
        self._keys: dict[tuple[bytes, int], ScramKeys] = {}

    def __repr__(self) -> str:
        return f"ScramClient({self.name!r}, {self._username!r})"

    async def begin(self, host: str) -> ClientSteps:
        return self._steps()

    def _steps(self) -> ClientSteps:
        nonce = self._new_nonce()
        first = f"n={sasl_name(self._username)},r={nonce}{self._extension}"
        answer = yield f"{NO_CHANNEL_BINDING}{first}".encode()
        offer = parse_server_first(answer)
        _check_offer(offer, nonce)
        keys = self._keys.get((offer.salt, offer.iterations))
        if keys is None:
            keys = yield Job(lambda: derive_keys(self.name, self._password, offer.salt, offer.iterations))
        final = f"c={_base64(NO_CHANNEL_BINDING.encode())},r={offer.nonce}"
        signed = f"{first},{offer.text},{final}".encode()
        proof = _xor(keys.client_key, _hmac(self.name, _digest(self.name, keys.client_key), signed))
        answer = yield f"{final},p={_base64(proof)}".encode()
        if not hmac.compare_digest(parse_server_final(answer), _hmac(self.name, keys.server_key, signed)):
            raise AuthenticationError("the broker does not know the password of this user; is it the right cluster?")
        self._keep(offer, keys)

    def _keep(self, offer: ServerFirst, keys: ScramKeys) -> None:
        """Keep the keys of a broker that has proved to know the password."""
        self._keys.pop((offer.salt, offer.iterations), None)
        while len(self._keys) >= KEYS_MAX:
            del self._keys[next(iter(self._keys))]
        self._keys[offer.salt, offer.iterations] = keys


def _check_offer(offer: ServerFirst, nonce: str) -> None:
    if not offer.nonce.startswith(nonce) or offer.nonce == nonce:
        raise AuthenticationError(
            "the nonce in the answer of the broker is not that of the client; is a proxy between them?"
        )
    if not ITERATIONS_MIN <= offer.iterations <= ITERATIONS_MAX:
        raise AuthenticationError(
            f"the broker requires {offer.iterations} SCRAM iterations, allowed are {ITERATIONS_MIN} to "
            f"{ITERATIONS_MAX}; create the user's credential again with a number in these limits"
        )


class ScramServer:
    """SCRAM on the broker.

    Arguments:
        mechanism: "SCRAM-SHA-256" or "SCRAM-SHA-512".
        find: returns the credential of a user, or None.
        new_nonce: returns a nonce; a constant one in tests.
        find_token: returns a delegation token by its id, or None.
        iterations: returns the number that an unknown user shows: that of most users, 4,096 to 16,384.
        secret: returns the secret for the salts of unknown users and of tokens; None = a random one.
    """

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], ScramCredential | None],
        new_nonce: Callable[[], str] = _new_nonce,
        find_token: Callable[[str], TokenLogin | None] = lambda _token_id: None,
        *,
        iterations: Callable[[], int] = lambda: ITERATIONS_MIN,
        secret: Callable[[], bytes] | None = None,
    ) -> None:
        self.name = mechanism
        self._find = find
        self._find_token = find_token
        self._iterations = iterations
        self._tokens: dict[str, ScramCredential] = {}  # by password
        self._new_nonce = new_nonce
        self._random = secrets.token_bytes(SECRET_BYTES)
        self._secret = secret or (lambda: self._random)

    def begin(self, message: bytes) -> ServerSteps:
        first = parse_client_first(message)
        with login_of(first.username):
            return (yield from self._exchange(first))

    def _exchange(self, first: ClientFirst) -> ServerSteps:
        if first.authorization_id not in ("", first.username):
            raise AuthenticationError("the authorization id differs from the user name")
        salt = self._salt(first)  # of each name, so that an unknown one takes no longer
        token = self._find_token(first.username) if first.is_token else None
        if token is not None:
            credential: ScramCredential | None = yield from self._hashed(token.password, salt)
        else:
            credential = None if first.is_token else self._find(first.username)
        if credential is not None and not ITERATIONS_MIN <= credential.iterations <= ITERATIONS_MAX:
            raise AuthenticationError(f"the credential has {credential.iterations} iterations; create it again")
        shown = self._unknown_user(first, salt) if credential is None else credential
        nonce = first.nonce + self._new_nonce()
        offer = f"r={nonce},s={_base64(shown.salt)},i={shown.iterations}"
        final = parse_client_final((yield offer.encode()))
        signed = f"{first.bare},{offer},{final.without_proof}".encode()
        verified = self._verify(shown, final.proof, signed)
        right = final.channel_binding == first.header.encode() and hmac.compare_digest(final.nonce, nonce)
        if credential is None or not (verified and right):
            raise AuthenticationError("invalid user name or password")
        answer = f"v={_base64(_hmac(self.name, shown.server_key, signed))}".encode()
        return self._by_token(first.username, answer) if first.is_token else Authenticated(first.username, answer)

    def _by_token(self, token_id: str, answer: bytes) -> Authenticated:
        """Return the owner of a token as it is now: a client may have waited between its two messages."""
        token = self._find_token(token_id)
        if token is None:
            raise AuthenticationError("the delegation token was removed, or has expired")
        return Authenticated(token.owner, answer, token.expires_at, by_token=True)

    def _hashed(self, password: str, salt: bytes) -> Generator[Job, Any, ScramCredential]:
        """Return the credential of a token's password; a job hashes one that is not kept."""
        credential = self._tokens.get(password)
        if credential is None:
            credential = yield Job(lambda: make_credential(self.name, password, salt))
            while len(self._tokens) >= TOKENS_MAX:
                del self._tokens[next(iter(self._tokens))]
            self._tokens[password] = credential
        return credential

    def _unknown_user(self, first: ClientFirst, salt: bytes) -> ScramCredential:
        """Return a credential that no password matches; salt and iterations are those of a user or token."""
        iterations = ITERATIONS_MIN if first.is_token else self._iterations()
        return ScramCredential(salt, iterations, _digest(self.name, self._random), self._random)

    def _salt(self, first: ClientFirst) -> bytes:
        """Return the salt of a name without a stored credential: the same at each broker, and after a restart."""
        subject = (self.name, "token" if first.is_token else "user", first.username)
        return derived_salt(_hmac(self.name, self._secret(), "\0".join(subject).encode()))

    def _verify(self, credential: ScramCredential, proof: bytes, signed: bytes) -> bool:
        signature = _hmac(self.name, credential.stored_key, signed)
        if len(proof) != len(signature):
            return False
        return hmac.compare_digest(_digest(self.name, _xor(proof, signature)), credential.stored_key)


def _base64(data: bytes) -> str:
    return b64encode(data).decode()
