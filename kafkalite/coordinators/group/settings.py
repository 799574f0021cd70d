"""Builds the state machine of a group shard from the broker's settings, the settings of groups and the topics."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from kafkalite.cluster.metadata.image import ClusterImage, ClusterTables
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.group import group_values
from kafkalite.coordinators.group.consumer_protocol_serde import ConsumerProtocolSerde, topic_partitions
from kafkalite.errors import DecodeError
from kafkalite.model import TopicPartition
from kafkalite.protocol.stored.consumer_protocol import (
    read_assignment,
    read_subscribed_topics,
    read_subscription,
)
from kafkalite.state.groups.classic.settings import ClassicSettings
from kafkalite.state.groups.consumer.groups import ConsumerGroups
from kafkalite.state.groups.consumer.requests import ConsumerGroupSettings, MigrationPolicy, Topic
from kafkalite.state.groups.counts import GroupCounts
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.member_memory import MemberMemory
from kafkalite.state.groups.offsets.manager import OffsetSettings

MINUTE_MS = 60_000
# Without the Python frame of `Topic(...)`: a member may be subscribed to thousands of topics.
_topic: Callable[[tuple[bytes, str, int]], Topic] = partial(tuple.__new__, Topic)


class GroupHost(Protocol):
    """The broker, as groups need it: its settings, the settings of groups, and the cluster metadata."""

    config: BrokerConfig

    @property
    def group_configs(self) -> Mapping[str, Mapping[str, str]]: ...

    @property
    def tables(self) -> ClusterTables: ...

    @property
    def image(self) -> ClusterImage: ...


class CurrentTopics:
    """The current topics of the cluster, for group machines."""

    def __init__(self, host: GroupHost) -> None:
        self._host = host

    def by_name(self, name: str) -> Topic | None:
        """The topic with this name, None if there is none."""
        topic = self._host.tables.topics.get(name)
        return None if topic is None else _topic((topic.topic_id, topic.name, len(topic.partitions)))

    def by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id, None if there is none."""
        topic = self._host.image.topics_by_id.get(topic_id)
        return None if topic is None else _topic((topic.topic_id, topic.name, len(topic.partitions)))


class GroupSettings:
    """The settings of each consumer group: its own settings override those of the broker (KIP-848)."""

    def __init__(self, host: GroupHost) -> None:
        self._host = host
        self._made: dict[str, tuple[BrokerConfig, Mapping[str, str], ConsumerGroupSettings]] = {}
        self._broker: tuple[BrokerConfig, ConsumerGroupSettings] | None = None

    def of(self, group: str) -> ConsumerGroupSettings:
        """The settings of a group. Every heartbeat reads them: they are cached per configuration."""
        config, texts = self._host.config, self._host.group_configs.get(group)
        if not texts:
            if self._broker is None or self._broker[0] is not config:
                self._broker = config, settings_of(config, {})
            return self._broker[1]
        made = self._made.get(group)
        if made is None or made[0] is not config or made[1] is not texts:
            if len(self._made) > len(self._host.group_configs):  # some are of groups that no longer have settings
                self._made.clear()
            made = self._made[group] = config, texts, settings_of(config, texts)
        return made[2]


def settings_of(config: BrokerConfig, texts: Mapping[str, str]) -> ConsumerGroupSettings:
    """The settings of a group that has these values of its own."""
    values = group_values(config.values, texts)
    return ConsumerGroupSettings(
        session_timeout_ms=values["consumer.session.timeout.ms"],
        heartbeat_interval_ms=values["consumer.heartbeat.interval.ms"],
        assignment_interval_ms=values["consumer.assignment.interval.ms"],
        regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        max_size=config.group_consumer_max_size,
        assignors=config.group_consumer_assignors,
        migration=MigrationPolicy(config.group_consumer_migration_policy),
    )


def topics_of(subscription: bytes) -> frozenset[str] | None:
    """The topics of a consumer's subscription in a classic group, None if it is malformed."""
    try:
        return frozenset(read_subscribed_topics(subscription))
    except DecodeError:
        return None


def partitions_of(assignment: bytes) -> frozenset[TopicPartition] | None:
    """The partitions of a consumer's assignment in a classic group, None if it is malformed."""
    try:
        return topic_partitions(read_assignment(assignment).assigned_partitions)
    except DecodeError:
        return None


def held_of(subscription: bytes) -> frozenset[TopicPartition] | None:
    """The partitions that a consumer of a classic group owned when it joined, None if its subscription is malformed."""
    try:
        return topic_partitions(read_subscription(subscription).owned_partitions)
    except DecodeError:
        return None


def machine(host: GroupHost, counts: GroupCounts, memory: MemberMemory) -> GroupMachine:
    """Create the empty machine of a shard; `counts` and `memory` are those of the broker."""
    config = host.config
    classic = ClassicSettings(
        session_min_ms=config.group_min_session_timeout_ms,
        session_max_ms=config.group_max_session_timeout_ms,
        initial_delay_ms=config.group_initial_rebalance_delay_ms,
        members_max=config.group_max_size,
        topics_of=topics_of,
        partitions_of=partitions_of,
        held_of=held_of,
    )
    offsets = OffsetSettings(config.offsets_retention_minutes * MINUTE_MS, config.offset_metadata_max_bytes)
    consumers = ConsumerGroups(CurrentTopics(host), GroupSettings(host).of, ConsumerProtocolSerde())
    return GroupMachine(classic, offsets, consumers, counts, memory)
