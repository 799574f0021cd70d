"""Nodes and HMACs of delegation tokens equal those of Apache Kafka 3.9; changes are made by compare-and-set."""

from __future__ import annotations

import json
from base64 import b64encode
from functools import partial
from typing import Any

import pytest

from kafkalite.clock import Outcome
from kafkalite.cluster.tokens.changes import TokenChange
from kafkalite.cluster.tokens.nodes import decode, encode
from kafkalite.cluster.tokens.store import DelegationTokens, token_hmac
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.coordination.znodes.tokens import TOKEN_CHANGES, decode_token_change, token_change
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Principal
from kafkalite.state.delegation_tokens import Change, Token, TokenTimes, expire, renew
from tests.unit.cluster.configs.test_quota_writes import DelayedSession
from tests.unit.cluster.controller.kit import Service

TOKEN_ID = "2YmNVPWYSxaqdDyKpNGZyg"
PATH = f"/delegation_token/tokens/{TOKEN_ID}"
# What DelegationTokenManager.createHmac and DelegationTokenInfoZNode.encode of 3.9.2 return.
SECRET_KEY = "the secret key"
HMAC = "KXExudxR3uzuDczhUf3bu/Nyw5ka6mpTYJ3Sn7b8FuRiSMWBZdidfO1UkoqYdAx/4XPXco/jUUq1opAVBH6UbQ=="
NODE = (
    '{"issueTimestamp":1700000000000,"renewers":["User%3Abob","User%3Ac%3Ad"],'
    '"tokenRequester":"User%3ACN%3Db%20%7E%2A%2CO%3D%C3%BC","tokenId":"2YmNVPWYSxaqdDyKpNGZyg",'
    '"owner":"User%3Aalice","expiryTimestamp":1700086400000,"maxTimestamp":1700600000000,"version":3}'
)
OWNER = Principal("User", "alice")
TOKEN = Token(
    TOKEN_ID,
    OWNER,
    Principal("User", "CN=b ~*,O=ü"),
    (Principal("User", "bob"), Principal("User", "c:d")),
    1_700_000_000_000,
    1_700_600_000_000,
    1_700_086_400_000,
)
DAY = 86_400_000
TIMES = TokenTimes(7 * DAY, DAY)
NOT_FOUND = Change(KafkaErrorCode.DELEGATION_TOKEN_NOT_FOUND)


def test_hmac_is_that_of_apache_kafka() -> None:
    assert b64encode(token_hmac(SECRET_KEY, TOKEN_ID)).decode() == HMAC


def test_node_is_that_of_apache_kafka() -> None:
    assert json.loads(encode(TOKEN)) == json.loads(NODE)
    assert decode(PATH, NODE.encode()) == TOKEN
    former = json.dumps({**json.loads(NODE), "version": 1, "tokenRequester": None})
    assert decode(PATH, former.encode()) == TOKEN._replace(requester=OWNER)


@pytest.mark.parametrize(
    "fields",
    [
        {"version": 4},
        {"version": 0},
        {"owner": "alice"},
        {"owner": None},
        {"renewers": "User:bob"},
        {"renewers": ["bob"]},
        {"expiryTimestamp": "1"},
        {"maxTimestamp": 2**63},
        {"issueTimestamp": -1},
        {"tokenId": "another"},
        {"tokenRequester": None},
    ],
)
def test_invalid_node_names_its_path(fields: dict[str, Any]) -> None:
    with pytest.raises(ZnodeError, match=PATH):
        decode(PATH, json.dumps({**json.loads(NODE), **fields}).encode())


def test_notification_is_the_id() -> None:
    assert token_change(TOKEN_ID).data == TOKEN_ID.encode()
    assert decode_token_change("/x", TOKEN_ID.encode()) == (TOKEN_ID,)
    for data in (b"", b"a/b", b"\xff", b"a\n"):
        with pytest.raises(ZnodeError):
            decode_token_change("/x", data)


class Tree:
    """The tokens of a broker over a session whose responses can be lost, and the tree below."""

    def __init__(self) -> None:
        self.service = Service()
        self.session = self.service.connect()
        self.clock = self.service.clock
        self.tokens = DelegationTokens(self.session, self.clock, SECRET_KEY, TIMES, notify=True, owned_max=2)
        self.tokens.load(Outcome.result)

    def create(self, token: Token) -> Change:
        ends: list[Change] = []
        self.tokens.create(token, ends.append)
        return ends.pop()

    def change(self, decide: Any) -> Change:
        ends: list[Change] = []
        self.tokens.change(token_hmac(SECRET_KEY, TOKEN_ID), decide, ends.append)
        return ends.pop()

    def stored(self) -> Token | None:
        return decode(PATH, self.service.data(PATH)) if self.service.exists(PATH) else None

    def notified(self) -> list[bytes]:
        names = self.service.do(partial(self.service.admin.children, TOKEN_CHANGES))[0]
        return [self.service.data(f"{TOKEN_CHANGES}/{name}") for name in names]


NOW = TOKEN.issued_ms
RENEW = partial(renew, principal=OWNER, period_ms=-1, renewal_ms=2 * DAY, now_ms=NOW + 1)
REMOVE = partial(expire, principal=OWNER, period_ms=-1, now_ms=NOW + 1)
RENEWED = TOKEN._replace(expiry_ms=NOW + 1 + 2 * DAY)


def test_each_change_is_stored_applied_and_notified() -> None:
    tree = Tree()
    assert tree.create(TOKEN) == Change(token=TOKEN, expiry_ms=TOKEN.expiry_ms) and tree.stored() == TOKEN
    assert tree.change(RENEW).expiry_ms == RENEWED.expiry_ms
    assert tree.stored() == RENEWED and [*tree.tokens.all()] == [RENEWED]
    assert tree.change(REMOVE) == Change(expiry_ms=NOW + 1)
    assert tree.stored() is None and not tree.tokens.all()
    assert tree.change(RENEW) == NOT_FOUND
    assert tree.notified() == [TOKEN_ID.encode()] * 3


def test_refused_change_writes_nothing() -> None:
    tree = Tree()
    tree.create(TOKEN)
    other = Principal("User", "mallory")
    refused = tree.change(partial(expire, principal=other, period_ms=-1, now_ms=NOW))
    assert refused == Change(KafkaErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    assert tree.stored() == TOKEN and len(tree.notified()) == 1


def test_change_is_decided_on_what_another_broker_has_stored() -> None:
    tree = Tree()
    tree.create(TOKEN)
    tree.service.write(PATH, encode(TOKEN._replace(expiry_ms=NOW)))
    assert tree.change(RENEW) == Change(KafkaErrorCode.DELEGATION_TOKEN_EXPIRED)
    tree.service.delete(PATH)
    assert tree.change(RENEW) == NOT_FOUND


@pytest.mark.parametrize("executed", [True, False])
def test_change_is_read_back_after_a_lost_response(executed: bool) -> None:
    for step in ("create", "renew", "remove"):
        tree = Tree()
        if step != "create":
            tree.create(TOKEN)
        tree.session.lose, tree.session.executed = 1, executed
        change = tree.create(TOKEN) if step == "create" else tree.change(RENEW if step == "renew" else REMOVE)
        assert change.error == (0 if executed else KafkaErrorCode.KAFKA_STORAGE_ERROR), step
        before = None if step == "create" else TOKEN
        after = {"create": TOKEN, "renew": RENEWED, "remove": None}[step]
        assert tree.stored() == (after if executed else before)
        assert [*tree.tokens.all()] == [each for each in (after if executed else before,) if each is not None]


def test_concurrent_renewals_are_made_one_after_the_other() -> None:
    tree = Tree()
    tree.create(TOKEN)
    session = DelayedSession(tree.session)
    ends: list[Change] = []
    TokenChange(session, TOKEN_ID, RENEW, notify=True, then=ends.append).start()
    session.step()  # it has read the node, then another broker writes
    tree.service.write(PATH, encode(TOKEN._replace(renewers=())))
    while session.calls:
        session.step()
    assert [each.token for each in ends] == [RENEWED._replace(renewers=())] == [tree.stored()]


def test_large_token_is_refused() -> None:
    tree = Tree()
    token = TOKEN._replace(renewers=tuple(Principal("User", f"{at:04}" + 32_000 * "x") for at in range(32)))
    assert tree.create(token) == Change(KafkaErrorCode.INVALID_REQUEST) and tree.stored() is None


def test_token_that_cannot_be_read_does_not_exist(caplog: pytest.LogCaptureFixture) -> None:
    tree = Tree()
    tree.create(TOKEN)
    tree.service.write(PATH, b"{")
    assert tree.change(RENEW) == NOT_FOUND
    tree.tokens.refresh(TOKEN_ID)
    assert tree.tokens.login(TOKEN_ID) is None and not tree.tokens.all() and f"{PATH}: not JSON" in caplog.text
    tree.service.write(PATH, encode(TOKEN))
    tree.tokens.reload()
    assert [*tree.tokens.all()] == [TOKEN]


def test_login_and_removal_end_with_the_expiry() -> None:
    tree = Tree()
    now_ms = tree.clock.wall_ms()
    token = TOKEN._replace(issued_ms=now_ms, expiry_ms=now_ms + 5_000, max_ms=now_ms + 9_000)
    tree.create(token)
    found = tree.tokens.login(TOKEN_ID)
    assert found is not None and (found.owner, found.password) == ("alice", HMAC)
    assert found.expires_at == token.expiry_ms / 1000
    tree.tokens.remove_expired()
    assert tree.stored() == token
    tree.clock.advance(5_001)
    assert tree.tokens.login(TOKEN_ID) is None
    tree.tokens.remove_expired()
    assert tree.stored() is None and not tree.tokens.all()


def test_token_whose_owner_is_no_user_is_no_login() -> None:
    """A login authenticates a name: the group `alice` would become the user `alice`."""
    tree = Tree()
    now_ms = tree.clock.wall_ms()
    token = TOKEN._replace(issued_ms=now_ms, expiry_ms=now_ms + 5_000, max_ms=now_ms + 9_000)
    tree.create(token._replace(owner=Principal("Group", "alice")))
    assert tree.tokens.login(TOKEN_ID) is None
    tree.service.write(PATH, encode(token))
    tree.tokens.refresh(TOKEN_ID)
    assert tree.tokens.login(TOKEN_ID) is not None


REFUSED = Change(KafkaErrorCode.POLICY_VIOLATION)


def test_owner_has_a_limited_number_of_tokens(caplog: pytest.LogCaptureFixture) -> None:
    """Tokens that other brokers create and remove count, too."""
    tree = Tree()
    first, second, third = [TOKEN._replace(token_id=f"{TOKEN_ID[:-1]}{at}") for at in range(3)]
    for token in (first, second, TOKEN):
        assert tree.create(token) == (REFUSED if token is TOKEN else Change(token=token, expiry_ms=token.expiry_ms))
    assert tree.stored() is None and f"no delegation token is created for {OWNER}: it has 2" in caplog.text
    other = TOKEN._replace(owner=Principal("Group", "alice"))
    assert tree.create(other).token == other, "the limit is that of each owner"
    tree.service.write(PATH, encode(TOKEN))  # another owner, by another program
    tree.tokens.refresh(TOKEN_ID)
    tree.service.delete(f"/delegation_token/tokens/{first.token_id}")
    tree.tokens.reload()
    assert tree.create(third) == REFUSED, "two of three are left"
    assert tree.change(REMOVE) == Change(expiry_ms=NOW + 1)
    assert tree.create(third).token == third and tree.create(first) == REFUSED


def test_tokens_that_are_being_created_count() -> None:
    tree = Tree()
    tree.tokens._session = session = DelayedSession(tree.session)
    ends: list[Change] = []
    for at in range(3):
        tree.tokens.create(TOKEN._replace(token_id=f"{TOKEN_ID[:-1]}{at}"), ends.append)
    assert ends == [REFUSED]
    tree.session.lose, tree.session.executed = 1, False
    while session.calls:
        session.step()
    assert [each.error for each in ends] == [REFUSED.error, 0, KafkaErrorCode.KAFKA_STORAGE_ERROR]
    tree.tokens._session = tree.session
    assert tree.create(TOKEN).error == 0 and tree.create(TOKEN._replace(token_id="x")) == REFUSED


def test_no_secret_in_texts() -> None:
    tree = Tree()
    tree.create(TOKEN)
    for text in (repr(tree.tokens), repr(tree.tokens.login(TOKEN_ID)), repr(TOKEN)):
        assert SECRET_KEY not in text and HMAC not in text
