"""Refused requests change nothing; kept decisions, fetch sessions and quick heartbeats follow the ACLs."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.protocol.messages.create_acls import CreateAclsRequest
from kafkalite.protocol.messages.delete_acls import DeleteAclsRequest
from kafkalite.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.heartbeat import HeartbeatRequest
from kafkalite.protocol.messages.join_group import JoinGroupRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkalite.protocol.messages.sync_group import SyncGroupRequest
from kafkalite.state.authorizer.acls import (
    Acl,
    AclBinding,
    AclOperation,
    AclResourceType,
    PermissionType,
    ResourcePattern,
)
from tests.kit import members
from tests.kit.authorization_cases import ROOT
from tests.kit.authorization_matrix import create
from tests.kit.authorized_broker import AuthorizedBroker, authorized
from tests.kit.server import Wire, batch, fetch_request, fetched, outcomes, produce_request, values_of

ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"
REFUSED = KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP = "readers"
JOINING = {"rebalance_timeout_ms": 60_000, "topic_partitions": []}


def allow(
    principal: str, operation: AclOperation, name: str = "orders", kind: AclResourceType = AclResourceType.TOPIC
) -> AclBinding:
    return AclBinding(ResourcePattern(kind, name), Acl(principal, "*", operation, PermissionType.ALLOW))


async def values(broker: AuthorizedBroker, topic: str = "orders") -> list[bytes | None]:
    """All values of a topic, as the super user reads them."""
    answer = await broker.as_root(fetch_request(topic, (0, 0), max_bytes=1 << 26), 12)
    return values_of(fetched(answer)[topic, 0].records)


async def produce(wire: Wire, *wanted: bytes, topic: str = "orders") -> list[int]:
    """Produce batches of one record, pipelined; the error codes."""
    wire.send(*((produce_request(topic, (0, batch(each))), 12) for each in wanted))
    return [outcomes(await wire.answer())[0].error_code for _ in wanted]


async def test_refused_batches_are_never_in_the_log() -> None:
    """The write privilege of one of two users is revoked, and granted again, while both produce."""
    both = [allow(each, AclOperation.WRITE) for each in (ALICE, BOB)]
    async with authorized() as broker:
        await create(broker, "orders")
        broker.replace(both)
        wires = {ALICE: broker.connect(ALICE), BOB: broker.connect(BOB)}
        accepted: set[bytes] = set()
        refused: set[bytes] = set()

        async def send(user: str) -> None:
            for index in range(30):
                wanted = [f"{user} {index} {each}".encode() for each in range(5)]
                for value, code in zip(wanted, await produce(wires[user], *wanted), strict=True):
                    assert code in (0, REFUSED)
                    (refused if code else accepted).add(value)
                await asyncio.sleep(0)

        async def change() -> None:
            for index in range(60):
                broker.replace(both[1:] if index % 2 else both)
                await asyncio.sleep(0)

        await asyncio.gather(send(ALICE), send(BOB), change())
        found = await values(broker)
    assert accepted and refused and all(each.startswith(ALICE.encode()) for each in refused)
    assert sorted(map(bytes, filter(None, found))) == sorted(accepted)


async def test_check_comes_before_the_append() -> None:
    async with authorized() as broker:
        await create(broker, "orders")
        assert await produce(broker.connect(ALICE), b"refused") == [REFUSED]
        assert await values(broker) == []


async def test_refused_metadata_creates_no_topic() -> None:
    async with authorized() as broker:
        broker.replace([allow(ALICE, AclOperation.DESCRIBE, "absent")])
        wire = broker.connect(ALICE)
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name="absent")], allow_auto_topic_creation=True
        )
        wire.send((request, 12))
        assert [each.error_code for each in (await wire.answer()).topics] == [REFUSED]
        assert "absent" not in broker.broker.image.topics


async def test_revoked_right_ends_kept_decisions() -> None:
    async with authorized() as broker:
        await create(broker, "orders")
        wire = broker.connect(ALICE)
        broker.replace([allow(ALICE, AclOperation.WRITE)])
        assert await produce(wire, b"1", b"2") == [0, 0]
        broker.replace([])
        assert await produce(wire, b"3") == [REFUSED]
        broker.replace([allow(ALICE, AclOperation.WRITE)])
        assert await produce(wire, b"4") == [0]
        assert await values(broker) == [b"1", b"2", b"4"]


def session_fetch(session_id: int, epoch: int, topics: Iterable[str] = ()) -> FetchRequest:
    asked = FetchRequest.FetchTopic
    part = asked.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[asked(topic=name, partitions=[part]) for name in topics],
        forgotten_topics_data=[],
    )


async def test_kept_decisions_end_with_their_connection() -> None:
    async with authorized() as broker:
        await create(broker, "orders")
        broker.replace([allow(ALICE, AclOperation.WRITE)])
        before = broker.broker.authorizer.kept_bytes  # type: ignore[union-attr]
        alice = broker.connect(ALICE)
        assert await produce(alice, b"value") == [0]
        assert broker.broker.authorizer.kept_bytes > before  # type: ignore[union-attr]
        alice.hang_up()
        assert broker.broker.authorizer.kept_bytes == before  # type: ignore[union-attr]


async def test_session_of_another_principal_is_not_found() -> None:
    async with authorized() as broker:
        await create(broker, "orders")
        broker.replace([allow(each, AclOperation.READ) for each in (ALICE, BOB)])
        wire = broker.connect(ALICE)
        wire.send((session_fetch(0, 0, ["orders"]), 12))
        session_id = (await wire.answer()).session_id
        assert session_id
        for principal, epoch, expected in (
            (BOB, 1, KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            (BOB, -1, 0),  # ends only sessions of its own
            (ALICE, 1, 0),
        ):
            other = broker.connect(principal)
            other.send((session_fetch(session_id, epoch), 12))
            assert (await other.answer()).error_code == expected


async def test_session_is_authorised_again_when_an_acl_has_changed() -> None:
    async with authorized() as broker:
        await create(broker, "orders")
        assert await produce(broker.connect(ROOT), b"1") == [0]
        broker.replace([allow(ALICE, AclOperation.READ)])
        wire = broker.connect(ALICE)
        wire.send((session_fetch(0, 0, ["orders"]), 12))
        opened = await wire.answer()
        assert values_of(fetched(opened)["orders", 0].records) == [b"1"]
        broker.replace([])
        wire.send((session_fetch(opened.session_id, 1), 12))
        found = fetched(await wire.answer())["orders", 0]
        assert (found.error_code, found.records or b"") == (REFUSED, b"")
        broker.replace([allow(ALICE, AclOperation.READ)])
        wire.send((session_fetch(opened.session_id, 2), 12))
        assert values_of(fetched(await wire.answer())["orders", 0].records) == [b"1"]


async def member(wire: Wire) -> str:
    """Join the group alone; the member id."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    join = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    wire.send((join, 3))
    joined = await wire.answer()
    assert joined.error_code == 0, joined
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
    wire.send(
        (SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=joined.member_id, assignments=[assignment]), 3)
    )
    assert (await wire.answer()).error_code == 0
    return str(joined.member_id)


@pytest.mark.parametrize("principal", [ALICE, CAROL])
async def test_heartbeat_of_a_refused_client_is_not_answered_before_dispatch(principal: str) -> None:
    """Of the member itself after its right was revoked, and of a client that never had it."""
    read = allow(ALICE, AclOperation.READ, GROUP, AclResourceType.GROUP)
    async with authorized() as broker:
        broker.replace([read])
        wire = broker.connect(ALICE)
        beat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=await member(wire))
        wire.send((beat, 3))
        assert (await wire.answer()).error_code == 0
        if principal == ALICE:
            broker.replace([])
        else:
            wire = broker.connect(principal)
        wire.send((beat, 3))
        assert (await wire.answer()).error_code == KafkaErrorCode.GROUP_AUTHORIZATION_FAILED
        if principal == ALICE:
            broker.replace([read])
            wire.send((beat, 3))
            assert (await wire.answer()).error_code == 0


@pytest.mark.parametrize(
    "request_",
    [
        (members.create(GROUP, topic_pattern="ord.*"), 0),
        (members.fast_heartbeat(GROUP, "m", 0, subscribed_topic_regex="ord.*", **JOINING), 1),
    ],
    ids=["CreateGroup", "ConsumerGroupHeartbeat"],
)
async def test_a_pattern_of_topics_needs_the_right_to_describe_all_of_them(request_: tuple[Any, int]) -> None:
    """Its matches are found for the group, so a member would learn of topics which it may not describe."""
    read = allow(ALICE, AclOperation.READ, GROUP, AclResourceType.GROUP)
    async with authorized() as broker:
        await create(broker, "orders")
        for topics, code in (("orders", REFUSED), ("*", 0)):
            broker.replace([read, allow(ALICE, AclOperation.DESCRIBE, topics)])
            wire = broker.connect(ALICE)
            wire.send(request_)
            assert (await wire.answer()).error_code == code


NAMES = [f"name-{at}" for at in range(10_000)]
LARGE = {
    "FindCoordinator": (FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES), 6, "coordinators"),
    "OffsetFetch": (
        OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=each) for each in NAMES]),
        8,
        "groups",
    ),
    "DeleteTopics": (
        DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=each) for each in NAMES]),
        6,
        "responses",
    ),
    "DescribeConfigs": (
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name=each) for each in NAMES
            ]
        ),
        4,
        "results",
    ),
    "Metadata": (
        MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=each) for each in NAMES]),
        12,
        "topics",
    ),
}


@pytest.mark.parametrize("name", LARGE)
async def test_checks_of_many_names_do_not_delay_other_requests(name: str) -> None:
    """10,000 refused names take many loop iterations; another client is answered meanwhile."""
    request, version, array = LARGE[name]
    async with authorized() as broker:
        alice, bob = broker.connect(ALICE), broker.connect(BOB)
        alice.send((request, version))
        answered = 0
        while not (found := alice.answers()):
            bob.send((ApiVersionsRequest(), 3))
            await bob.answer()
            answered += 1
            await asyncio.sleep(0)
    entries = getattr(found[0], array)
    assert len(entries) == len(NAMES) and all(each.error_code for each in entries)
    assert answered > 5


MANY = 6_000  # elements, so that the request is handled over several loop iterations
CREATION = CreateAclsRequest.AclCreation(
    resource_type=2,
    resource_name="orders",
    resource_pattern_type=3,
    principal=ALICE,
    host="*",
    operation=3,
    permission_type=3,
)
FILTER = DeleteAclsRequest.DeleteAclsFilter(
    resource_type_filter=2, pattern_type_filter=3, operation=3, permission_type=3
)
QUOTA = AlterClientQuotasRequest.EntryData(
    entity=[AlterClientQuotasRequest.EntryData.EntityData(entity_type="user", entity_name="bob")], ops=[]
)
COMMITTED = OffsetCommitRequest.OffsetCommitRequestTopic
LISTED = ListOffsetsRequest.ListOffsetsTopic
WHOLE = {
    "CreateAcls": (CreateAclsRequest(creations=[CREATION] * MANY), 3),
    "DeleteAcls": (DeleteAclsRequest(filters=[FILTER] * MANY), 3),
    "AlterClientQuotas": (AlterClientQuotasRequest(entries=[QUOTA] * MANY), 1),
    "OffsetCommit": (
        OffsetCommitRequest(
            group_id=GROUP,
            topics=[
                COMMITTED(
                    name="orders",
                    partitions=[COMMITTED.OffsetCommitRequestPartition(partition_index=at) for at in range(MANY)],
                )
            ],
        ),
        8,
    ),
    "ListOffsets": (
        ListOffsetsRequest(
            topics=[
                LISTED(
                    name="orders",
                    partitions=[LISTED.ListOffsetsPartition(partition_index=at, timestamp=-1) for at in range(MANY)],
                )
            ]
        ),
        7,
    ),
}


@pytest.mark.parametrize("name", WHOLE)
async def test_refusals_with_many_entries_do_not_delay_other_requests(name: str) -> None:
    """A client without any right makes the broker build thousands of errors: it does so in steps, here one per loop
    iteration. At once, those of 200,000 entries take more than a second.
    """
    async with authorized() as broker:
        broker.broker.slicer._budget_s = 1e-9
        alice, bob = broker.connect(ALICE), broker.connect(BOB)
        alice.send(WHOLE[name])
        bob.send((ApiVersionsRequest(), 3))
        await bob.answer()
        assert not alice.answers(), "the response to the other request comes first"
        iterations = 0
        while not (found := alice.answers()):
            iterations += 1
            await asyncio.sleep(0)
    (answer,) = found
    (entries,) = (value for each in type(answer).__fields__ if isinstance(value := getattr(answer, each.name), list))
    entries = getattr(entries[0], "partitions", entries)
    assert len(entries) == MANY and all(each.error_code for each in entries)
    assert iterations > MANY / 20


async def test_refused_names_of_metadata_are_encoded_in_steps() -> None:
    """One loop iteration in this test is a step: the checks of all names, then their errors."""
    names = [MetadataRequest.MetadataRequestTopic(name=f"name-{at}") for at in range(MANY)]
    async with authorized() as broker:
        broker.broker.slicer._budget_s = 1e-9
        alice = broker.connect(ALICE)
        alice.send((MetadataRequest(topics=[*names, names[0]]), 12))
        iterations = 0
        while not (found := alice.answers()):
            iterations += 1
            await asyncio.sleep(0)
    assert len(found[0].topics) == MANY and all(each.error_code == REFUSED for each in found[0].topics)
    assert iterations > MANY / 10
