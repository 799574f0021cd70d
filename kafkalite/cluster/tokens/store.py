"""The delegation tokens of the tree in memory, as logins and requests need them.

1. The broker reads all tokens before it accepts connections, and again with each session.
2. A change is applied at this broker when it is durable, before its response is sent. Other brokers read the token
   when they see the notification.
3. The HMAC of a token is computed from its id with the secret key, which all brokers share. A token that cannot be read
   does not exist, and is logged.
4. A token whose owner is not of the type User is no login: a login authenticates the name of a user.
5. An owner has a limited number of tokens; expired ones count until they are removed. Each broker counts those that it
   knows: several brokers that create tokens at the same moment may exceed it.

Source: DelegationTokenManagerZk.scala, DelegationTokenCache.java of Apache Kafka 3.9.
"""

import hmac
import logging
from base64 import b64encode
from collections.abc import Callable, Collection
from functools import partial

from kafkalite.clock import Clock, Then
from kafkalite.cluster.node_store import NodeStore
from kafkalite.cluster.tokens.changes import Decide, TokenChange
from kafkalite.cluster.tokens.nodes import read_all, read_token
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import USER, Principal
from kafkalite.net.sasl.scram import TokenLogin
from kafkalite.rate_limited_log import RateLimitedLog
from kafkalite.state.delegation_tokens import Change, Token, TokenTimes, remove_expired

LOGGER = logging.getLogger("kafkalite.authentication")
HASH = "sha512"

Changed = Callable[[Change], object]


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """Return the HMAC of a token: its base64 is the password of logins (DelegationTokenManager.createHmac)."""
    return hmac.digest(secret_key.encode(), token_id.encode(), HASH)


class DelegationTokens(NodeStore[str, Token | None]):
    """Reads and changes the tokens.

    Arguments:
        session: with the coordination service.
        clock: of the broker.
        secret_key: `delegation.token.secret.key`.
        times: of new and renewed tokens.
        notify: whether other brokers are notified of changes.
        owned_max: `kafkalite.delegation.token.max.per.owner`.

    Attributes:
        times: as above.
    """

    def __init__(
        self,
        session: Coordination,
        clock: Clock,
        secret_key: str,
        times: TokenTimes,
        *,
        notify: bool,
        owned_max: int,
    ) -> None:
        super().__init__(session, clock, "delegation tokens", None)
        self.times = times
        self._secret_key = secret_key
        self._notify = notify
        self._tokens: dict[str, Token] = {}
        self._ids: dict[bytes, str] = {}  # by HMAC
        self._owned: dict[Principal, set[str]] = {}  # the ids by owner, with those that are being created
        self._owned_max = owned_max
        self._refusals = RateLimitedLog(LOGGER, clock)

    def __repr__(self) -> str:
        return f"DelegationTokens({len(self._tokens)} tokens)"

    # Reads.

    def _read_all(self, then: Then) -> None:
        read_all(self._session, then)

    def _read(self, key: str, then: Then) -> None:
        read_token(self._session, key, then)

    def _known(self) -> Collection[str]:
        return self._tokens.keys()

    def _apply(self, key: str, value: Token | ZnodeError | None) -> None:
        former = self._tokens.get(key)
        if former is not None:
            self._disown(former)
        if isinstance(value, Token):
            if former is None:
                self._ids[self.hmac_of(value)] = key
            self._tokens[key] = value
            self._owned.setdefault(value.owner, set()).add(key)
            return
        if isinstance(value, ZnodeError):
            LOGGER.error("%s; the token is not accepted until the node is corrected or deleted", value)
        if former is not None:
            del self._tokens[key], self._ids[self.hmac_of(former)]

    def _disown(self, token: Token) -> None:
        owned = self._owned.get(token.owner, set())
        owned.discard(token.token_id)
        if not owned:
            self._owned.pop(token.owner, None)

    # What logins and requests ask.

    def all(self) -> Collection[Token]:
        """Return all tokens, expired ones until they are removed."""
        return self._tokens.values()

    def hmac_of(self, token: Token) -> bytes:
        """Return the HMAC of a token."""
        return token_hmac(self._secret_key, token.token_id)

    def login(self, token_id: str) -> TokenLogin | None:
        """Return what a login with a token needs; None: no user has a token with this id, or it is expired."""
        token = self._tokens.get(token_id)
        if token is None or token.owner.type != USER or token.is_expired(self._clock.wall_ms()):
            return None
        return TokenLogin(token.owner.name, b64encode(self.hmac_of(token)).decode(), token.expiry_ms / 1000)

    # Changes.

    def create(self, token: Token, then: Changed) -> None:
        """Store a new token; `then` is called once with the change or its error, POLICY_VIOLATION above the limit."""
        owned = self._owned.setdefault(token.owner, set())
        if len(owned) >= self._owned_max:
            text = "no delegation token is created for %s: it has %d (kafkalite.delegation.token.max.per.owner)"
            self._refusals(logging.WARNING, "tokens of an owner", text, token.owner, len(owned))
            then(Change(KafkaErrorCode.POLICY_VIOLATION))
            return
        owned.add(token.token_id)  # before it is durable: many may be created at once

        def created(change: Change) -> None:
            if change.error and token.token_id not in self._tokens:  # else a notification has shown it
                self._disown(token)
            then(change)

        self._start(token.token_id, token, created)

    def change(self, token_hmac: bytes, decide: Decide, then: Changed) -> None:
        """Change the token with this HMAC; `then` is called once with the change or its error."""
        token_id = self._ids.get(token_hmac)
        if token_id is None:
            then(Change(KafkaErrorCode.DELEGATION_TOKEN_NOT_FOUND))
        else:
            self._start(token_id, decide, then)

    def remove_expired(self) -> None:
        """Remove the tokens that are expired; a failed removal is repeated by the next call."""
        now_ms = self._clock.wall_ms()
        for token in [each for each in self._tokens.values() if each.is_expired(now_ms)]:
            decide = partial(remove_expired, now_ms=now_ms)
            self._start(token.token_id, decide, partial(self._expired, token))

    def _expired(self, token: Token, change: Change) -> None:
        if change.error and change.error != KafkaErrorCode.DELEGATION_TOKEN_NOT_FOUND:
            text = "the expired delegation token %s of %s was not removed: %s"
            LOGGER.warning(text, token.token_id, token.owner, KafkaErrorCode(change.error).name)

    def _start(self, token_id: str, change: Decide | Token, then: Changed) -> None:
        def changed(end: Change) -> None:
            if not end.error:
                self._log(token_id, end.token)
                self._apply_change(token_id, end.token)
            then(end)

        TokenChange(self._session, token_id, change, notify=self._notify, then=changed).start()

    def _log(self, token_id: str, token: Token | None) -> None:
        former = self._tokens.get(token_id)
        if token is None:
            LOGGER.info("delegation token %s of %s is removed", token_id, former.owner if former else "?")
        elif token != former:
            what = "created" if former is None else "changed"
            text = "delegation token %s of %s is %s, it expires at %d ms"
            LOGGER.info(text, token_id, token.owner, what, token.expiry_ms)
