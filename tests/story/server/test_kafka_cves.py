"""Vulnerabilities of Apache Kafka whose rules are those of requests and ACLs. Each check fails with a planted copy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Principal
from kafkalite.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkalite.server.requests.authorization.guards import by_key, records
from kafkalite.server.requests.authorization.table import GROUP, READ, TABLE, Check, Effect, Right
from kafkalite.state.authorizer.acls import (
    Acl,
    AclBinding,
    AclOperation,
    AclResourceType,
    PermissionType,
    ResourcePattern,
)
from kafkalite.state.authorizer.standard import StandardAuthorizer
from tests.kit.authorization_matrix import create
from tests.kit.authorized_broker import AuthorizedBroker, authorized
from tests.kit.server import batch, fetch_request, fetched, outcomes, produce_request, running
from tests.story.server import test_acls
from tests.story.server.test_acls import SECURED, creation, delete

ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"
DENIED_TOPIC = KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED
DENIED_GROUP = KafkaErrorCode.GROUP_AUTHORIZATION_FAILED
DENIED_ID = KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
RIGHTS = Path(__file__).resolve().parents[3] / "docs" / "authorization.md"
Plant = Callable[[pytest.MonkeyPatch], None]


def allow(operation: AclOperation, resource_type: AclResourceType, name: str) -> AclBinding:
    return AclBinding(ResourcePattern(resource_type, name), Acl(ALICE, "*", operation, PermissionType.ALLOW))


async def ask(broker: AuthorizedBroker, request: Any, version: int) -> Any:
    """Send a request as alice."""
    wire = broker.connect(ALICE)
    wire.send((request, version))
    return await wire.answer()


async def cve_2018_1288() -> None:
    """A consumer that names itself a broker would be a replica, in sync, without a quota: it needs ClusterAction."""
    async with authorized() as broker:
        await create(broker, "orders")
        broker.replace([allow(AclOperation.READ, AclResourceType.TOPIC, "orders")])
        answer = await ask(broker, fetch_request("orders", (0, 0), replica_id=1), 12)
        assert fetched(answer)["orders", 0].error_code == DENIED_TOPIC
        answer = await ask(broker, fetch_request("orders", (0, 0)), 12)
        assert fetched(answer)["orders", 0].error_code == 0


async def cve_2018_17196() -> None:
    """Write on the topic alone does not write for a transactional id, also in a request that names none."""
    transactional = batch(b"value", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    async with authorized() as broker:
        await create(broker, "orders")
        broker.replace([allow(AclOperation.WRITE, AclResourceType.TOPIC, "orders")])
        for named in ("loader", None):
            answer = await ask(broker, produce_request("orders", (0, transactional), transactional_id=named), 11)
            assert [each.error_code for each in outcomes(answer)] == [DENIED_ID], named
        answer = await ask(broker, produce_request("orders", (0, batch(b"value"))), 11)
        assert [each.error_code for each in outcomes(answer)] == [0]


async def cve_2024_27309() -> None:
    """After one ACL of a resource is removed, all others stay in force: here one that allows, and one that denies."""
    async with running(settings=SECURED) as client:
        everyone = creation(principal="User:*")
        carol = creation(principal=CAROL, permission_type=PermissionType.DENY)
        assert await test_acls.create(client, everyone, carol, creation(principal=BOB)) == [0, 0, 0]
        for principal in (BOB, "User:absent"):
            await delete(client, principal_filter=principal)
            assert allows(client, ALICE) and not allows(client, CAROL), principal


def allows(client: Any, principal: str) -> bool:
    return test_acls.allows(client, "orders", principal=Principal(*principal.split(":")))


async def cve_2026_41115() -> None:
    """ConsumerGroupDescribe needs Describe on the group, as documented; Kafka's documentation named Read."""
    line = "| 69 | ConsumerGroupDescribe | Describe on Group |"
    assert any(each.startswith(line) for each in RIGHTS.read_text().splitlines())
    async with authorized() as broker:
        for operation, code in ((None, DENIED_GROUP), (AclOperation.DESCRIBE, 0), (AclOperation.READ, 0)):
            rights = [] if operation is None else [allow(operation, AclResourceType.GROUP, "billing")]
            broker.replace(rights)
            (found,) = (await ask(broker, ConsumerGroupDescribeRequest(group_ids=["billing"]), 1)).groups
            refused = found.error_code == DENIED_GROUP
            assert refused == (code == DENIED_GROUP), (operation, found.error_code)


CHECKS: dict[str, Callable[[], Awaitable[None]]] = {
    each.__name__: each for each in (cve_2018_1288, cve_2018_17196, cve_2024_27309, cve_2026_41115)
}


@pytest.mark.parametrize("name", CHECKS)
async def test_vulnerability_is_absent(name: str) -> None:
    await CHECKS[name]()


def serve_replicas_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(by_key.GUARDS, 1, lambda _call, request: request)


def ignore_transactional_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "is_transactional", lambda _request: False)


def keep_one_acl_after_a_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    replace = StandardAuthorizer.replace

    def replace_by_one(self: StandardAuthorizer, pattern: ResourcePattern, acls: Iterable[Acl]) -> None:
        after, before = list(acls), self._acls.get(pattern) or ()
        replace(self, pattern, after[:1] if len(after) < len(before) else after)

    monkeypatch.setattr(StandardAuthorizer, "replace", replace_by_one)


def require_read_of_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = (Check(Right(READ, GROUP), Effect.FILTER, "group_ids"), *TABLE[69].checks[1:])
    monkeypatch.setitem(TABLE, 69, TABLE[69]._replace(checks=checks))


PLANTED: dict[str, Plant] = {
    "cve_2018_1288": serve_replicas_of_all,
    "cve_2018_17196": ignore_transactional_batches,
    "cve_2024_27309": keep_one_acl_after_a_removal,
    "cve_2026_41115": require_read_of_the_group,
}


@pytest.mark.parametrize("name", CHECKS)
async def test_planted_vulnerability_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[name](monkeypatch)
    with pytest.raises(AssertionError):
        await CHECKS[name]()
