"""The SDK's Admin and confluent-kafka's AdminClient: the same calls on the same broker have the same answers.

What kafkalite does not serve yet is tested on Apache Kafka 4.4, and on kafkalite for its error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kafkalite_sdk import Admin, Consumer, Producer, TopicPartition
from kafkalite_sdk import admin as sdk
from kafkalite_sdk.admin import quotas
from kafkalite_sdk.rpc import Connection

from kafkalite.cli.main import main
from kafkalite.errors import (
    ElectionNotNeededError,
    GroupIdNotFoundError,
    LogDirNotFoundError,
    NoReassignmentInProgressError,
    ResourceNotFoundError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from tests.compat.conftest import MakeTopic, topic_maker, unused_name
from tests.kit import jvm
from tests.kit.brokers import AGAINST, Broker, broker_under_test, wait_until
from tests.kit.clients.confluent_answers import confluent_answer
from tests.kit.clients.sdk_answers import sdk_answer

DEADLINE_S = 120
START_MS = int(time.time() - 3_600) * 1000  # within the default retention
TIMES_MS = (START_MS, START_MS + 2_000, START_MS + 1_000)
LIBRDKAFKAS = "Broker: "  # the beginning of librdkafka's own texts
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
ALICE = sdk.Acl(sdk.AclResource.TOPIC, "orders", "User:alice", sdk.AclOperation.READ)
BOB = sdk.Acl(
    sdk.AclResource.GROUP,
    "billing-",
    "User:bob",
    sdk.AclOperation.DESCRIBE,
    sdk.Permission.DENY,
    sdk.Pattern.PREFIXED,
    "10.0.0.1",
)


@pytest.fixture
async def admin(address: str) -> AsyncIterator[Admin]:
    async with Admin(address) as open_admin:
        yield open_admin


async def both(admin: Admin, address: str, question: str, *arguments: Any) -> Any:
    """The answer of the SDK, which is that of confluent-kafka; librdkafka has own texts for errors without one."""
    theirs = await asyncio.to_thread(confluent_answer, address, question, *arguments)
    ours = await sdk_answer(admin, question, *arguments)
    if question == "committed":
        theirs = [cut(one, other) for one, other in zip(theirs, ours, strict=True)]
    assert without_own_texts(ours, theirs) == theirs
    return ours


def cut(theirs: tuple[Any, ...], ours: tuple[Any, ...]) -> tuple[Any, ...]:
    """Their committed offset, with metadata as long as ours.

    librdkafka stores metadata without a NUL at the end, up to which confluent-kafka reads: bytes of its memory follow.
    """
    *offset, metadata = theirs
    return (*offset, metadata[: len(ours[-1])] if ours[-1] else metadata)


def without_own_texts(ours: Any, theirs: Any) -> Any:
    """Our answer, with librdkafka's text where its version of the request has no message, or the broker sends none."""
    if isinstance(ours, dict):
        assert isinstance(theirs, dict)
        return {key: without_own_texts(without_name(key, each), theirs.get(key)) for key, each in ours.items()}
    if isinstance(ours, tuple) and isinstance(theirs, tuple) and str(theirs[1]).startswith(LIBRDKAFKAS):
        return ours[0], theirs[1]
    return ours


def without_name(name: Any, ours: Any) -> Any:
    """Our (error, text) without the name of the topic that the SDK puts before a text of the broker."""
    if isinstance(ours, tuple) and len(ours) == 2 and isinstance(ours[1], str):
        return ours[0], ours[1].removeprefix(f"{name}: ")
    return ours


async def write(address: str, topic: str) -> None:
    async with Producer(address) as producer:
        for time_ms in TIMES_MS:
            producer.send(topic, b"x", partition=0, timestamp_ms=time_ms)
        await producer.flush()


async def test_cluster_topics_and_configs(admin: Admin, address: str, new_topic: MakeTopic) -> None:
    one = await asyncio.to_thread(new_topic, 3, **{"retention.ms": "86400000"})
    await both(admin, address, "cluster")
    found = await both(admin, address, "topics", [one, "no-such-topic"])
    assert len(found[one][1]) == 3 and found["no-such-topic"][0] == 3
    configs = await both(admin, address, "configs", [("topic", one), ("broker", "1")])
    assert configs["topic", one]["retention.ms"][:2] == ("86400000", 1)


async def test_rejected_changes(admin: Admin, address: str, topic: str) -> None:
    new = [
        (topic, 1, 1, {}),
        ("a/b", 1, 1, {}),
        ("x" * 250, 1, 1, {}),
        (unused_name("no-partitions"), 0, 1, {}),
        (unused_name("too-many-replicas"), 1, 3, {}),
        (unused_name("bad-value"), 1, 1, {"retention.ms": "soon"}),
        (unused_name("bad-key"), 1, 1, {"no.such.key": "1"}),
        (unused_name("valid"), 2, 1, {"retention.ms": "5"}),
    ]
    found = await both(admin, address, "created", new)
    assert [each and each[0] for each in found.values()] and not found[new[-1][0]]
    await both(admin, address, "grown", {topic: 1, "no-such-topic": 2})
    await both(admin, address, "altered", {topic: {"retention.ms": "soon"}, "no-such-topic": {"retention.ms": "1"}})
    await both(admin, address, "deleted", ["no-such-topic"])


async def test_changed_configs(admin: Admin, address: str, topic: str) -> None:
    await both(admin, address, "altered", {topic: {"retention.ms": "7000", "cleanup.policy": "compact"}})
    await both(admin, address, "altered", {topic: {"retention.ms": None}})
    async with asyncio.timeout(DEADLINE_S):
        while True:  # Apache Kafka's broker learns it after its controller
            found = (await sdk_answer(admin, "configs", [("topic", topic)]))["topic", topic]
            if found["cleanup.policy"][:2] == ("compact", 1) and found["retention.ms"][1] == 5:
                break
    await both(admin, address, "configs", [("topic", topic)])


async def test_offsets_and_deleted_records(admin: Admin, address: str, new_topic: MakeTopic) -> None:
    topic = await asyncio.to_thread(new_topic, 2)
    await write(address, topic)
    for time_ms, offset in ((-1, 3), (-2, 0), (-3, 1), (TIMES_MS[2], 1), (TIMES_MS[1] + 1, -1)):
        found = await both(admin, address, "offsets", {(topic, 0): time_ms})
        assert found[topic, 0][0] == offset
    await both(admin, address, "records_deleted", {(topic, 0): 2, (topic, 1): 1})
    assert (await both(admin, address, "offsets", {(topic, 0): -2}))[topic, 0][0] == 2
    states = await admin.partitions.producers([TopicPartition(topic, 0)])
    assert [each.last_sequence for each in states[TopicPartition(topic, 0)]] == [2]
    by_broker = await admin.cluster.log_directories(partitions=[TopicPartition(topic, 0)])
    directories = [each for found in by_broker.values() for each in found.values() if each.replicas]
    assert [each.replicas[TopicPartition(topic, 0)].size > 0 for each in directories] == [True]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_group_with_a_member(admin: Admin, address: str, new_topic: MakeTopic, protocol: str) -> None:
    topic, group = await asyncio.to_thread(new_topic, 3), unused_name(f"group-{protocol}")
    await write(address, topic)
    settings: dict[str, Any] = {"group_protocol": protocol, "auto_offset_reset": "earliest", "client_id": "reader"}
    async with (
        asyncio.timeout(DEADLINE_S),
        Consumer(address, group=group, enable_auto_commit=False, **settings) as reader,
    ):
        reader.subscribe(topic)
        while not await reader.poll(timeout=0.1):
            pass
        await reader.commit()
        kind, state, _, _, members = await both(admin, address, "group", group)
        assert (kind, state, len(members)) == (protocol, "STABLE", 1)
        assert members[0][4] == [(topic, number) for number in range(3)]
        assert (group, protocol, "STABLE") in await both(admin, address, "groups")
        assert (topic, 0, 3, "") in await both(admin, address, "committed", group)
        assert (await both(admin, address, "groups_deleted", [group]))[group][0] == 68
        lag = (await admin.groups.lag(group))[group]
        assert lag.total == 0 and lag.partitions[TopicPartition(topic, 0)].member == lag.group.members[0]


async def test_offsets_of_a_group_without_members(admin: Admin, address: str, topic: str) -> None:
    group, other = unused_name("offsets"), unused_name("offsets")
    await write(address, topic)
    assert await both(admin, address, "committed_by", group, [(topic, 0, 1, "by hand")]) == {(topic, 0): True}
    assert await both(admin, address, "committed", group) == [(topic, 0, 1, "by hand")]
    assert (await both(admin, address, "group", group))[1] == "EMPTY"
    assert (await admin.groups.lag(group))[group].partitions[TopicPartition(topic, 0)].lag == 2
    assert (await admin.group_offsets.delete(group, [TopicPartition(topic, 0)])).check()
    assert await both(admin, address, "committed", group) == []
    assert await both(admin, address, "committed", other) == []
    assert (await admin.groups.delete(other)).errors[other].code == GroupIdNotFoundError.code
    (await admin.group_offsets.alter(group, {TopicPartition(topic, 0): 3})).check()
    assert await both(admin, address, "committed", group) == [(topic, 0, 3, "")]
    (await admin.groups.delete(group)).check()
    assert await both(admin, address, "committed", group) == []


async def test_removed_member_joins_again(admin: Admin, address: str, topic: str) -> None:
    group = unused_name("removed")
    settings: dict[str, Any] = {"group_protocol": "classic", "group_instance_id": "one", "heartbeat_interval_ms": 100}
    async with asyncio.timeout(DEADLINE_S), Consumer(address, group=group, **settings) as reader:
        reader.subscribe(topic)
        while not reader.assignment():
            await reader.poll(timeout=0.1)
        (removed,) = (await admin.groups.remove_members(group)).check()
        assert removed.instance_id == "one"
        while not (await admin.groups.describe(group))[group].members:
            await reader.poll(timeout=0.1)
        (await admin.groups.remove_members(group)).check()


async def test_offsets_before(address: str, new_topic: MakeTopic) -> None:
    topic = await asyncio.to_thread(new_topic, **{"segment.bytes": str(1 << 20)})
    async with Producer(address, max_request_size=1 << 20) as producer:
        for _ in range(3):
            await producer.send(topic, bytes(700_000))
    async with Connection(address) as connection:
        if AGAINST == "kafka":
            with pytest.raises(UnsupportedVersionError, match="neither ListOffsets v0"):
                await connection.offsets_before(topic, 0, -1, 9)
        else:
            assert await connection.offsets_before(topic, 0, -1, 9) == [3, 2, 1, 0]
            assert await connection.offsets_before(topic, 0, -1, 2) == [3, 2]
            assert await connection.offsets_before(topic, 0, -2, 9) == [0]


async def test_leaders_are_elected_and_resources_listed(address: str, new_topic: MakeTopic) -> None:
    topic = await asyncio.to_thread(new_topic)
    async with asyncio.timeout(DEADLINE_S), Admin(address) as admin:
        elections = await both(admin, address, "elected", [(topic, 0), ("no-such-topic", 0)])
        assert elections[topic, 0][0] == ElectionNotNeededError.code
        assert sdk.Resource.topic(topic) in await admin.configs.resources(sdk.ResourceType.TOPIC)
        assert (await admin.cluster.update_features({"group.version": 99}, validate_only=True)).errors


async def test_quotas_are_stored(address: str) -> None:
    entity = sdk.QuotaEntity.of({quotas.USER: "alice", quotas.CLIENT_ID: quotas.DEFAULT})
    limits: dict[str, float | None] = {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2048.0}
    async with asyncio.timeout(DEADLINE_S), Admin(address) as admin:
        (await admin.quotas.alter({entity: limits})).check()
        await eventually(lambda: admin.quotas.describe({quotas.USER: "alice"}), {entity: limits})
        assert await admin.quotas.describe({quotas.USER: "alice"}, strict=True) == {}
        (await admin.quotas.alter({entity: dict.fromkeys(limits)})).check()
        await eventually(lambda: admin.quotas.describe({quotas.USER: "alice"}), {})


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Apache Kafka 4.4 with an authorizer and two log directories."""
    directory = tmp_path_factory.mktemp("kafka")
    settings = {**AUTHORIZER, "log.dirs": f"{directory}/data,{directory}/more"}
    with broker_under_test(directory, settings, "kafka") as running:
        yield running


@pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}")
@pytest.mark.xdist_group("sdk-admin-kafka")
async def test_what_only_apache_kafka_serves(kafka: Broker) -> None:
    address = kafka.address
    topic = await asyncio.to_thread(topic_maker(address, "kafka"))
    partition = TopicPartition(topic, 0)
    async with asyncio.timeout(DEADLINE_S), Admin(address) as admin:
        (await admin.partitions.reassign({partition: [1]})).check()
        cancelled = await admin.partitions.reassign({partition: None})
        assert isinstance(cancelled.errors[partition], NoReassignmentInProgressError)
        assert await admin.partitions.reassignments() == {}

        (await admin.acls.create(ALICE, BOB)).check()
        await eventually(lambda: admin.acls.list(), (ALICE, BOB))
        await both(admin, address, "acls")
        assert await admin.acls.list(sdk.AclFilter(principal="User:bob")) == (BOB,)
        removed = sdk.AclFilter(resource=sdk.AclResource.TOPIC)
        assert (await admin.acls.delete(removed))[removed] == (ALICE,)
        await eventually(lambda: admin.acls.list(), (BOB,))

        key = sdk.UserMechanism("alice", sdk.ScramMechanism.SCRAM_SHA_512)
        (await admin.users.alter({key: sdk.NewCredential("secret", 4096)})).check()
        await eventually(lambda: sdk_answer(admin, "users"), {"alice": {2: 4096}})
        await both(admin, address, "users")
        (await admin.users.alter({key: None})).check()
        await eventually(lambda: sdk_answer(admin, "users"), {})
        assert isinstance((await admin.users.describe("alice")).errors["alice"], ResourceNotFoundError)

        features = await admin.cluster.features()
        assert features.finalized["metadata.version"] <= features.supported["metadata.version"][1]
        level = features.finalized["group.version"]
        (await admin.cluster.update_features({"group.version": level}, validate_only=True)).check()

        assert await admin.transactions.list() == ()
        missing = await admin.transactions.describe("nobody")
        assert isinstance(missing.errors["nobody"], TransactionalIdNotFoundError)


@pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}")
@pytest.mark.xdist_group("sdk-admin-kafka")
def test_quota_command_on_apache_kafka(kafka: Broker) -> None:
    def run(*arguments: str) -> str:
        done = CliRunner().invoke(main, ["quota", *arguments, "--bootstrap-server", kafka.address])
        assert done.exit_code == 0, done.output
        return done.output

    assert "added: producer_byte_rate=1024 of user alice" in run("add", "-u", "alice", "producer_byte_rate=1024")
    wait_until(lambda: "user alice" in run("list"), "the quota")
    run("remove", "-u", "alice")
    wait_until(lambda: "user alice" not in run("list"), "its removal")


@pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}")
@pytest.mark.xdist_group("sdk-admin-kafka")
async def test_replica_is_moved_to_another_log_directory(kafka: Broker) -> None:
    await move_replica(kafka.address)


async def test_replica_is_moved_to_another_log_directory_of_kafkalite(tmp_path: Path) -> None:
    with broker_under_test(tmp_path, {"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}, "kafkalite") as running:
        await move_replica(running.address)


async def move_replica(address: str) -> None:
    """Move a partition of broker 1, which has two log directories, to the other one."""
    topic = await asyncio.to_thread(topic_maker(address, "moved"))
    await write(address, topic)
    partition, replica = TopicPartition(topic, 0), sdk.Replica(1, topic, 0)
    async with asyncio.timeout(DEADLINE_S), Admin(address) as admin:

        async def directories() -> dict[bool, list[str]]:
            """The paths that have the partition, or do not."""
            found: dict[bool, list[str]] = {True: [], False: []}
            for path, each in (await admin.cluster.log_directories())[1].items():
                found[partition in each.replicas].append(path)
            return found

        before = await directories()
        ((old,), (new,)) = before[True], before[False]
        unknown = sdk.Replica(1, "no-such-topic", 0)
        rejected = await admin.cluster.move_replicas({replica: "/no/such/directory", unknown: new})
        assert isinstance(rejected.errors[replica], LogDirNotFoundError)
        assert isinstance(rejected.errors[unknown], UnknownTopicOrPartitionError)
        assert await directories() == before
        (await admin.cluster.move_replicas({replica: new})).check()
        await eventually(directories, {True: [new], False: [old]})
        async with Consumer(address) as consumer:
            consumer.assign([partition])
            consumer.seek_to_beginning()
            for time_ms in TIMES_MS:
                assert (await anext(consumer)).timestamp_ms == time_ms


async def eventually(read: Any, wanted: Any) -> None:
    """Read until a change of the controller has reached the broker; each read waits for a response."""
    while await read() != wanted:
        pass


@pytest.fixture
async def kafkalites_admin(tmp_path: Path) -> AsyncIterator[Admin]:
    """An Admin of this project's broker, also with AGAINST=kafka."""
    with broker_under_test(tmp_path, {}, "kafkalite") as running:
        async with Admin(running.address) as open_admin:
            yield open_admin


async def test_unsupported_request_names_its_key(kafkalites_admin: Admin) -> None:
    """Only a broker in a cluster has the key."""
    outcomes = await kafkalites_admin.cluster.coordination()
    with pytest.raises(UnsupportedVersionError, match=r"\(key 10007\)"):
        outcomes.check()


async def test_registered_group_is_created_and_rewound_with_its_member(kafkalites_admin: Admin) -> None:
    admin, topic, group = kafkalites_admin, "orders", "registered"
    (await admin.topics.create(topic)).check()
    partition, address = TopicPartition(topic, 0), bootstrap_of(await admin.cluster.describe())
    await write(address, topic)
    assert await admin.groups.create(group, topics=[topic]) == 1
    with pytest.raises(ValueError, match="topics or pattern, not both"):
        await admin.groups.create(group, topics=[topic], pattern="o.*")
    settings: dict[str, Any] = {"group_protocol": "registered", "auto_offset_reset": "earliest"}
    async with (
        asyncio.timeout(DEADLINE_S),
        Consumer(address, group=group, enable_auto_commit=False, **settings) as reader,
    ):
        reader.subscribe(topic)
        read = await read_to(reader, 2)
        await reader.commit()
        described = (await admin.groups.describe(group))[group]
        assert (described.type, described.state, list(described.owners)) == ("registered", "Stable", [partition])
        assert [each.type for each in await admin.groups.list(types=["registered"])] == ["registered"]
        assert (await admin.group_offsets.rewind(group, {partition: 1})).check() == {partition: 1}
        assert await read_to(reader, 2) == read[1:]
        assert (await admin.group_offsets.rewind_to_times(group, {partition: TIMES_MS[1]})).check() == {partition: 1}
    lag = (await admin.groups.lag(group, ages=True))[group].partitions[partition]
    assert lag.committed is not None and (lag.committed.offset, lag.log_end, lag.lag) == (1, 3, 2)
    assert lag.age_s is not None and lag.age_s > 0


def bootstrap_of(cluster: sdk.ClusterDescription) -> str:
    (broker,) = cluster.brokers
    return f"{broker.host}:{broker.port}"


async def read_to(reader: Consumer[Any, Any], offset: int) -> list[int]:
    """Poll until the record of this offset was read; the offsets of all that were read."""
    read: list[int] = []
    while not read or read[-1] != offset:
        read += [each.offset for each in await reader.poll(timeout=0.1)]
    return read
