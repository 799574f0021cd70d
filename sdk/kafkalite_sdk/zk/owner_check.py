"""Checks the owners of a group's partitions: each partition of a subscribed topic has one live owner.

The rules are those of VerifyConsumerRebalance.scala, and these: the node of an owner belongs to the session that has
registered the consumer, and each owner node is that of a partition that a registered consumer reads. Internal topics
belong to a pattern only where they have owners: whether a consumer excludes them is a setting of the consumer
(`exclude.internal.topics`) that ZooKeeper does not have.

Pure.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from kafkalite.coordination.znodes import consumers
from kafkalite.coordination.znodes.consumers import StreamId
from kafkalite.model import TopicPartition
from kafkalite_sdk.zk.groups import Owner, RegisteredConsumer, ZooKeeperGroup
from kafkalite_sdk.zk.membership.subscription import INTERNAL_TOPICS
from kafkalite_sdk.zk.membership.subscription import streams_by_topic as subscribed_streams

Topics = Mapping[str, Collection[int]]
Streams = dict[str, frozenset[StreamId]]


class OwnershipProblem(NamedTuple):
    """A partition, and what is wrong with its owner."""

    partition: TopicPartition
    reason: str


class OwnershipReport(NamedTuple):
    """The result of a check.

    Attributes:
        partitions: number of partitions of the subscribed topics.
        problems: by partition.
        invalid: by path of a node of the group, why it is invalid.
    """

    partitions: int
    problems: list[OwnershipProblem]
    invalid: dict[str, str]


def check_owners(group: ZooKeeperGroup, topics: Topics) -> OwnershipReport:
    """Check the owners of all partitions of the subscribed topics.

    Arguments:
        group: as it was read.
        topics: the partitions of each topic of the cluster.
    """
    invalid = {path: reason for path, reason in group.problems.items() if "/offsets/" not in path}
    streams = stream_ids(group, topics, invalid)
    wanted = {TopicPartition(topic, number) for topic in streams for number in topics.get(topic, ())}
    problems = [
        OwnershipProblem(each, reason)
        for each in sorted({*wanted, *group.owners})
        for reason in _problems(group, each, each in wanted, streams.get(each.topic, frozenset()))
    ]
    return OwnershipReport(len(wanted), problems, invalid)


def stream_ids(group: ZooKeeperGroup, topics: Topics, invalid: dict[str, str]) -> Streams:
    """The ids of all streams that read each topic.

    Arguments:
        group: as it was read.
        topics: of the cluster.
        invalid: receives the reasons why patterns are invalid, by the path of the registration.
    """
    shown = {each.topic for each in group.owners} | (topics.keys() - INTERNAL_TOPICS)
    streams: Streams = {}
    for consumer_id, consumer in group.consumers.items():
        try:
            counts = subscribed_streams(consumer.subscription, shown & topics.keys(), excludes_internal=False)
        except ValueError as error:
            invalid[consumers.id_path(group.group, consumer_id)] = str(error)
            continue
        for topic, count in counts.items():
            ids = frozenset(StreamId(consumer_id, number) for number in range(count))
            streams[topic] = streams.get(topic, frozenset()) | ids
    return streams


def _problems(
    group: ZooKeeperGroup, partition: TopicPartition, wanted: bool, streams: Collection[StreamId]
) -> Iterator[str]:
    owner = group.owners.get(partition)
    if owner is None:
        if consumers.owner_path(group.group, *partition) not in group.problems:
            yield "no owner"
    elif (consumer := group.consumers.get(owner.stream.consumer_id)) is None:
        yield f"owner {owner.stream} is not registered"
    elif not wanted:
        yield f"owner {owner.stream}, but no registered consumer reads this partition"
    elif owner.stream not in streams:
        yield f"owner {owner.stream} is no stream of a consumer that reads the topic"
    else:
        yield from _session_problems(owner, consumer)


def _session_problems(owner: Owner, consumer: RegisteredConsumer) -> Iterator[str]:
    if owner.session_id == 0:
        yield f"owner {owner.stream}: the node is not ephemeral, so it stays when the consumer ends"
    elif owner.session_id != consumer.session_id:
        yield f"owner {owner.stream}: the node belongs to another session than the registration of the consumer"
