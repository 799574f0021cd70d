"""Decisions about delegation tokens: times, who may change one, who sees one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Principal
from kafkalite.state.delegation_tokens import (
    TIME_MAX,
    Change,
    Token,
    TokenTimes,
    create,
    expire,
    may_see,
    remove_expired,
    renew,
)

OWNER, RENEWER, OTHER = (Principal("User", name) for name in ("alice", "bob", "mallory"))
NOW, DAY = 1_700_000_000_000, 86_400_000
TIMES = TokenTimes(7 * DAY, DAY)
MISMATCH = Change(KafkaErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
EXPIRED = Change(KafkaErrorCode.DELEGATION_TOKEN_EXPIRED)


def token(lifetime_ms: int = -1, times: TokenTimes = TIMES) -> Token:
    return create("id", OWNER, OTHER, [RENEWER, RENEWER], lifetime_ms, times, NOW)


@pytest.mark.parametrize(
    ("lifetime_ms", "max_ms", "expiry_ms"),
    [
        (-1, 7 * DAY, DAY),
        (0, 7 * DAY, DAY),
        (2 * DAY, 2 * DAY, DAY),
        (1_000, 1_000, 1_000),  # the expiry is never behind the longest lifetime
        (TIME_MAX, 7 * DAY, DAY),  # the lifetime of the broker is the limit
    ],
)
def test_times_of_a_new_token(lifetime_ms: int, max_ms: int, expiry_ms: int) -> None:
    found = token(lifetime_ms)
    assert (found.issued_ms, found.max_ms, found.expiry_ms) == (NOW, NOW + max_ms, NOW + expiry_ms)
    assert found.renewers == (RENEWER,)


def test_times_fit_in_64_bits() -> None:
    found = token(times=TokenTimes(TIME_MAX, TIME_MAX))
    assert (found.max_ms, found.expiry_ms) == (TIME_MAX, TIME_MAX)


@pytest.mark.parametrize(
    ("period_ms", "expiry_ms"), [(-1, 2 * DAY), (0, DAY), (1_000, DAY + 1_000), (9 * DAY, 7 * DAY), (TIME_MAX, 7 * DAY)]
)
@pytest.mark.parametrize("principal", [OWNER, RENEWER])
def test_renewal_moves_the_expiry_up_to_the_longest_lifetime(
    principal: Principal, period_ms: int, expiry_ms: int
) -> None:
    change = renew(token(), principal, period_ms, DAY, NOW + DAY)
    assert change.expiry_ms == NOW + expiry_ms
    assert change.token == token()._replace(expiry_ms=NOW + expiry_ms)


def test_renewal_of_an_expired_token_or_by_another_user_changes_nothing() -> None:
    assert renew(token(), OWNER, -1, DAY, NOW + DAY + 1) == EXPIRED
    assert renew(token(1_000), OWNER, 5_000, DAY, NOW + 1_001) == EXPIRED
    assert renew(token(), OTHER, -1, DAY, NOW) == MISMATCH  # it has requested the token, and does not own it
    assert renew(token(), OTHER, -1, DAY, NOW + DAY + 1) == MISMATCH  # it learns nothing about the expiry


def test_expiry_is_set_or_removes_the_token() -> None:
    assert expire(token(), OWNER, 5_000, NOW).token == token()._replace(expiry_ms=NOW + 5_000)
    assert expire(token(), RENEWER, -1, NOW) == Change(expiry_ms=NOW)
    assert expire(token(), RENEWER, -1, NOW + 9 * DAY) == Change(expiry_ms=NOW + 9 * DAY)  # also an expired one
    assert expire(token(), OWNER, 0, NOW + 9 * DAY) == EXPIRED
    assert expire(token(), OTHER, -1, NOW) == expire(token(), OTHER, 0, NOW) == MISMATCH


def test_token_that_was_renewed_meanwhile_is_not_removed() -> None:
    assert remove_expired(token(), NOW + DAY + 1) == Change()
    renewed = renew(token(), OWNER, -1, DAY, NOW + DAY).token
    assert renewed is not None and remove_expired(renewed, NOW + DAY + 1).token == renewed


def test_who_sees_a_token() -> None:
    def never(_token: Token) -> bool:
        return False

    def always(_token: Token) -> bool:
        return True

    found = token()
    assert may_see(found, OWNER, None, never) and may_see(found, RENEWER, None, never)
    assert not may_see(found, OTHER, None, never) and may_see(found, OTHER, None, always)
    assert may_see(found, RENEWER, {OWNER}, never) and may_see(found, OWNER, {RENEWER}, never)
    assert not may_see(found, OWNER, {OTHER}, always) and not may_see(found, OWNER, set(), always)


def test_description_looks_owners_up() -> None:
    """A request may name a million owners, and is compared with each token."""

    class Owners(set[Principal]):
        def __iter__(self) -> Iterator[Principal]:
            raise AssertionError("each owner is compared")

    assert may_see(token(), RENEWER, Owners([OTHER, RENEWER]), lambda _: False)
    assert not may_see(token(), OWNER, Owners([OTHER]), lambda _: True)
