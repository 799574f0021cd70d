"""Groups in the hands of an administrator, and the offsets of those who commit without joining."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.structs import OffsetAndMetadata as AioOffset
from confluent_kafka.admin import AdminClient

from tests.compat.conftest import MakeTopic, unused_name
from tests.kit.clients.confluent import QUIET
from tests.kit.clients.groups import EACH, NOTHING, PARTITIONS, commit_all, committed, partitions_of, write
from tests.kit.clients.members import CONSUMER, COOPERATIVE, EAGER, KINDS, Crowd, Wish
from tests.kit.clients.model import DEADLINE_S
from tests.kit.clients.python import KafkaConsumer, TopicPartition
from tests.kit.clients.sdk import SDK_KINDS
from tests.kit.isolated import Isolated, closed_later, killable

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka.errors import GroupIdNotFoundError
    from kafka.structs import OffsetAndMetadata

HERE = "where I was"

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


class MemberSeen(NamedTuple):
    """A member as a description shows it; `given`: topics and partitions of its assignment."""

    client_id: str
    host: str
    instance: str | None
    given: list[tuple[str, int]]


class GroupSeen(NamedTuple):
    """A described group."""

    state: ck.ConsumerGroupState
    type: ck.ConsumerGroupType
    assignor: str
    members: list[MemberSeen]


class GroupAdmin:
    """librdkafka's AdminClient, for `Isolated`."""

    def __init__(self, address: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": address, "log_level": QUIET})

    def listing(self, **filters: Any) -> dict[str, ck.ConsumerGroupState]:
        """The state of each group."""
        answer = self._admin.list_consumer_groups(**filters).result(DEADLINE_S)
        assert not answer.errors
        return {each.group_id: each.state for each in answer.valid}

    def describe(self, *groups: str) -> dict[str, GroupSeen]:
        """Describe groups."""
        asked = self._admin.describe_consumer_groups(list(groups))
        return {group: self._seen(each.result(DEADLINE_S)) for group, each in asked.items()}

    @staticmethod
    def _seen(group: Any) -> GroupSeen:
        members = [
            MemberSeen(
                member.client_id,
                member.host.strip("/"),
                member.group_instance_id,
                sorted((each.topic, each.partition) for each in member.assignment.topic_partitions),
            )
            for member in group.members
        ]
        return GroupSeen(group.state, group.type, group.partition_assignor, members)

    def close(self) -> None:
        """The client ends with its process."""


@pytest.fixture
def admin(group_address: str) -> Iterator[Isolated]:
    with Isolated(GroupAdmin, group_address) as client:
        yield client


@pytest.fixture
def python_admin(group_address: str) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=group_address)) as client:
        yield client


@killable
def librdkafka_commits(address: str, group: str, topic: str) -> tuple[int, str]:
    settings = {"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False, "log_level": QUIET}
    consumer = ck.Consumer(settings)
    closed_later(consumer.close)
    consumer.assign([ck.TopicPartition(topic, 0)])
    consumer.commit(offsets=[ck.TopicPartition(topic, 0, 3, metadata=HERE)], asynchronous=False)
    (found,) = consumer.committed([ck.TopicPartition(topic, 0)], DEADLINE_S)
    # It sends the NUL at the end of the C string too, and brokers keep it.
    return found.offset, found.metadata.rstrip("\0")


def aiokafka_commits(address: str, group: str, topic: str) -> tuple[int, str]:
    topic_partition = AioTopicPartition(topic, 0)

    async def commit() -> tuple[int, str]:
        async with AIOKafkaConsumer(bootstrap_servers=address, group_id=group, enable_auto_commit=False) as consumer:
            consumer.assign([topic_partition])
            await consumer.commit({topic_partition: AioOffset(3, HERE)})
            return await consumer.committed(topic_partition), HERE  # it does not show the metadata

    return asyncio.run(commit())


def kafka_python_commits(address: str, group: str, topic: str) -> tuple[int, str]:
    topic_partition = TopicPartition(topic, 0)
    with closing(KafkaConsumer(bootstrap_servers=address, group_id=group, enable_auto_commit=False)) as consumer:
        consumer.assign([topic_partition])
        consumer.commit({topic_partition: OffsetAndMetadata(3, HERE, -1)})
        found = consumer.committed(topic_partition, metadata=True)
        return found.offset, found.metadata


@pytest.mark.parametrize("commit", [librdkafka_commits, aiokafka_commits, kafka_python_commits])
def test_commits_without_membership(
    group_address: str,
    crowd: Crowd,
    admin: Isolated,
    new_group_topic: MakeTopic,
    commit: Callable[[str, str, str], tuple[int, str]],
) -> None:
    """Who assigns itself partitions keeps its offsets in a group without members; a member goes on from there."""
    topic, group = new_group_topic(), unused_name("simple")
    (*_, fourth, fifth) = write(group_address, topic, partitions=1)
    assert commit(group_address, group, topic) == (3, HERE)
    described = admin.describe(group)[group]
    assert (described.state, described.members) == (ck.ConsumerGroupState.EMPTY, [])
    assert admin.listing()[group] == ck.ConsumerGroupState.EMPTY
    member = crowd.join(EAGER, Wish(group, (topic,)))
    crowd.read([fourth, fifth], member)
    assert member.seen == [fourth, fifth]


def names(admin: Isolated, **filters: Any) -> set[str]:
    return set(admin.listing(**filters))


def test_list_and_describe_groups(
    group_address: str, crowd: Crowd, admin: Isolated, new_group_topic: MakeTopic
) -> None:
    """Listed by state and type, described with members, host, instance and assignment; unknown ones are DEAD."""
    topic = new_group_topic(PARTITIONS)
    classic, consumer, empty = (unused_name(stem) for stem in ("classic", "consumer", "empty"))
    first = crowd.join(COOPERATIVE, Wish(classic, (topic,), instance="one"))
    second = crowd.join(CONSUMER, Wish(consumer, (topic,)))
    crowd.share(partitions_of(topic), first)
    crowd.share(partitions_of(topic), second)
    librdkafka_commits(group_address, empty, topic)
    mine = {classic, consumer, empty}
    states, types = ck.ConsumerGroupState, ck.ConsumerGroupType
    assert names(admin) & mine == mine
    assert names(admin, states={states.STABLE}) & mine == {classic, consumer}
    assert names(admin, states={states.EMPTY}) & mine == {empty}
    assert names(admin, types={types.CONSUMER}) & mine == {consumer}
    assert names(admin, types={types.CLASSIC}) & mine == {classic, empty}

    seen = admin.describe(classic, consumer, "no-such-group")
    assert {group: each.state for group, each in seen.items()} == {
        classic: states.STABLE,
        consumer: states.STABLE,
        "no-such-group": states.DEAD,
    }
    assert (seen[classic].type, seen[consumer].type) == (types.CLASSIC, types.CONSUMER)
    assert (seen[classic].assignor, seen[consumer].assignor) == ("cooperative-sticky", "uniform")
    for group, instance in ((classic, "one"), (consumer, None)):
        assert seen[group].members == [MemberSeen("rdkafka", "127.0.0.1", instance, partitions_of(topic))]


@pytest.mark.parametrize("kind", [*KINDS, *SDK_KINDS], ids=lambda kind: kind.name)
def test_delete_offsets_and_groups(
    group_address: str,
    crowd: Crowd,
    admin: Isolated,
    python_admin: KafkaAdminClient,
    new_group_topic: MakeTopic,
    kind: Any,
) -> None:
    """Set and delete offsets, delete groups; each is rejected for a group with members."""
    topic, group = new_group_topic(2), unused_name("ending")
    old = new_group_topic()
    write(group_address, topic, partitions=2)
    librdkafka_commits(group_address, group, old)
    member = crowd.join(kind, Wish(group, (topic,)))
    crowd.share(partitions_of(topic, 2), member)
    commit_all([member], partitions_of(topic, 2))
    here, elsewhere = TopicPartition(topic, 0), TopicPartition(old, 0)

    def deleted(*wanted: TopicPartition) -> list[str]:
        answer = python_admin.delete_group_offsets(group, wanted)
        return [answer[topic_partition].__name__ for topic_partition in wanted]

    assert deleted(here, elsewhere) == ["GroupSubscribedToTopicError", "NoError"]
    assert committed(group_address, group, [(topic, 0), (old, 0)]) == {(topic, 0): EACH, (old, 0): NOTHING}
    moved = python_admin.alter_group_offsets(group, {here: OffsetAndMetadata(1, "", -1)})
    assert moved[here].__name__ == "UnknownMemberIdError"
    assert python_admin.delete_groups([group, "no-such-group"]) == {
        group: "NonEmptyGroupError",
        "no-such-group": "GroupIdNotFoundError",
    }

    member.leave()
    moved = python_admin.alter_group_offsets(group, {here: OffsetAndMetadata(1, "moved", -1)})
    assert moved[here].__name__ == "NoError"
    assert committed(group_address, group, partitions_of(topic, 2)) == {(topic, 0): 1, (topic, 1): EACH}
    assert deleted(here) == ["NoError"]
    assert committed(group_address, group, partitions_of(topic, 2)) == {(topic, 0): NOTHING, (topic, 1): EACH}
    assert python_admin.delete_groups([group]) == {group: "OK"}
    assert committed(group_address, group, partitions_of(topic, 2)) == dict.fromkeys(partitions_of(topic, 2), NOTHING)
    assert group not in names(admin)
    with pytest.raises(GroupIdNotFoundError):
        deleted(here)
