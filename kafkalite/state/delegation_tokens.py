"""Decides about delegation tokens: which are created, renewed and expired, and which a principal may see (KIP-48).

1. issued <= expiry <= longest lifetime: no renewal moves the expiry behind `max_ms`.
2. Only the owner and the renewers change a token. An expired token changes no more, it can only be removed.
3. All times are wall clock times in ms: brokers of a cluster compare them with their own clocks.

Source: DelegationTokenManagerZk.scala of Apache Kafka 3.9, DelegationTokenControlManager.java of 4.3.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Principal

NO_TIME = -1  # of a response with an error
TIME_MAX = 2**63 - 1


class Token(NamedTuple):
    """A delegation token; its HMAC is computed from the id.

    Arguments:
        token_id: a UUID as text, the user name of logins.
        owner: is authenticated by a login with the token.
        requester: has created it.
        renewers: may change it, besides the owner.
        issued_ms: the creation.
        max_ms: the end of the longest lifetime.
        expiry_ms: the end of logins, unless it is renewed.
    """

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    max_ms: int
    expiry_ms: int

    def is_expired(self, now_ms: int) -> bool:
        """Return whether no login is accepted any more."""
        return self.max_ms < now_ms or self.expiry_ms < now_ms

    def belongs_to(self, principal: Principal) -> bool:
        """Return whether a principal is the owner or a renewer."""
        return principal == self.owner or principal in self.renewers


class TokenTimes(NamedTuple):
    """The times of tokens.

    Arguments:
        lifetime_ms: `delegation.token.max.lifetime.ms`.
        renewal_ms: `delegation.token.expiry.time.ms`.
    """

    lifetime_ms: int
    renewal_ms: int


class Change(NamedTuple):
    """What becomes of a token.

    Arguments:
        error: a Kafka error code; 0: the change is made.
        token: that is stored; None: it is removed, or there is an error.
        expiry_ms: for the response.
    """

    error: int = 0
    token: Token | None = None
    expiry_ms: int = NO_TIME


def create(
    token_id: str,
    owner: Principal,
    requester: Principal,
    renewers: Sequence[Principal],
    lifetime_ms: int,
    times: TokenTimes,
    now_ms: int,
) -> Token:
    """Return a new token.

    Arguments:
        token_id: that no other token has.
        owner, requester, renewers: of the token.
        lifetime_ms: the longest lifetime; 0 or less = that of the broker, which is also the limit.
        times: of the broker.
        now_ms: wall clock time.
    """
    lifetime = times.lifetime_ms if lifetime_ms <= 0 else min(lifetime_ms, times.lifetime_ms)
    max_ms = min(now_ms + lifetime, TIME_MAX)
    expiry_ms = min(max_ms, now_ms + times.renewal_ms)
    return Token(token_id, owner, requester, tuple(dict.fromkeys(renewers)), now_ms, max_ms, expiry_ms)


def renew(token: Token, principal: Principal, period_ms: int, renewal_ms: int, now_ms: int) -> Change:
    """Return the renewal of a token.

    Arguments:
        token: as stored.
        principal: that renews it.
        period_ms: from now on; a negative one = `renewal_ms`.
        renewal_ms: `delegation.token.expiry.time.ms`.
        now_ms: wall clock time.
    """
    return _move_expiry(token, principal, now_ms + (renewal_ms if period_ms < 0 else period_ms), now_ms)


def expire(token: Token, principal: Principal, period_ms: int, now_ms: int) -> Change:
    """Return the change of a token that expires in a period; a negative one removes it, also an expired one.

    Arguments:
        token: as stored.
        principal: that expires it.
        period_ms: from now on.
        now_ms: wall clock time.
    """
    if period_ms >= 0:
        return _move_expiry(token, principal, now_ms + period_ms, now_ms)
    if not token.belongs_to(principal):
        return Change(KafkaErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    return Change(expiry_ms=now_ms)


def _move_expiry(token: Token, principal: Principal, expiry_ms: int, now_ms: int) -> Change:
    if not token.belongs_to(principal):
        return Change(KafkaErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    if token.is_expired(now_ms):
        return Change(KafkaErrorCode.DELEGATION_TOKEN_EXPIRED)
    moved = token._replace(expiry_ms=min(token.max_ms, expiry_ms))
    return Change(token=moved, expiry_ms=moved.expiry_ms)


def remove_expired(token: Token, now_ms: int) -> Change:
    """Return the removal of an expired token; one that was renewed meanwhile stays."""
    return Change() if token.is_expired(now_ms) else Change(token=token, expiry_ms=token.expiry_ms)


def may_see(
    token: Token, principal: Principal, owners: AbstractSet[Principal] | None, allowed: Callable[[Token], bool]
) -> bool:
    """Return whether a description for a principal has a token (DelegationTokenManager.filterToken).

    Arguments:
        token: to describe.
        principal: that asks.
        owners: of which the description is, as owners or renewers; None = all. A client may name a million.
        allowed: whether the ACLs allow the principal to describe the token of another owner.
    """
    if owners is not None and token.owner not in owners and not any(each in owners for each in token.renewers):
        return False
    return token.belongs_to(principal) or allowed(token)
