"""Reads the group: who reads which topics with how many streams, and the partitions of these topics.

Everything read is watched, except registrations, which never change, and topics that concern other members only.

1. A member whose registration is not valid, or whose pattern RE2 rejects, is reported and gets no partitions; a topic
   whose node is not valid has none. The other members and topics continue.
2. A range concerns the topics of this member only; round robin all topics of the group.
3. Without live brokers there is no view, and `/brokers/ids` is watched.

Source: AssignmentContext in PartitionAssignor.scala, and ZkUtils.scala, of Apache Kafka 1.1.1.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from kafkalite.coordination.znodes import BROKER_IDS, TOPICS, decode_topic, topic_path
from kafkalite.coordination.znodes.consumers import (
    STATIC,
    Registration,
    StreamId,
    decode_registration,
    id_path,
    ids_path,
)
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite_sdk.zk.membership.assignors import ROUND_ROBIN, Assignment, assign_range, assign_round_robin
from kafkalite_sdk.zk.membership.effects import Children, Get
from kafkalite_sdk.zk.membership.errors import NotRegisteredError
from kafkalite_sdk.zk.membership.reads import read_nodes
from kafkalite_sdk.zk.membership.settings import MembershipSettings
from kafkalite_sdk.zk.membership.state import MemberState
from kafkalite_sdk.zk.membership.steps import Procedure
from kafkalite_sdk.zk.membership.subscription import is_topic_name, streams_by_topic

Subscribed: TypeAlias = Mapping[str, Mapping[str, int]]
"""By consumer, its number of streams of each topic."""


class GroupView(NamedTuple):
    """A group: the streams that read each topic, and the numbers of the topic's partitions."""

    streams: Mapping[str, Sequence[StreamId]]
    partitions: Mapping[str, Sequence[int]]


def compute_assignment(view: GroupView, settings: MembershipSettings) -> Assignment:
    """The stream that owns each partition."""
    if settings.strategy == ROUND_ROBIN:
        return assign_round_robin(view.streams, view.partitions, settings.round_robin_release)
    return assign_range(view.streams, view.partitions)


def read_group(state: MemberState) -> Procedure[GroupView | None]:
    """The group now, None = no broker is alive. Raises CoordinationError, NotRegisteredError."""
    settings = state.settings
    group_ids = ids_path(settings.group)
    ids, brokers = yield from read_nodes(state, [Children(group_ids, watch=True), Children(BROKER_IDS)])
    if not brokers:
        [brokers] = yield from read_nodes(state, [Children(BROKER_IDS, watch=True)])
        if not brokers:
            return None
    if settings.consumer_id not in (ids or ()):
        raise NotRegisteredError(f"{id_path(settings.group, settings.consumer_id)}: the registration was deleted")
    members = yield from _read_members(state, ids)
    names = yield from _read_topic_names(state, members)
    subscribed = {each: _topics(state, each, registration, names) for each, registration in members.items()}
    partitions = yield from _read_partitions(state, _wanted_topics(state, subscribed))
    return GroupView(_streams(subscribed, partitions), partitions)


def _read_members(state: MemberState, ids: Sequence[str]) -> Procedure[dict[str, Registration]]:
    settings = state.settings
    paths = [id_path(settings.group, each) for each in ids]
    contents = yield from read_nodes(state, [Get(path) for path in paths])
    members = {settings.consumer_id: settings.subscription}
    for consumer_id, path, data in zip(ids, paths, contents, strict=True):
        if data is None or consumer_id == settings.consumer_id:
            continue  # a member that has left meanwhile: the watch of the ids fires
        try:
            members[consumer_id] = decode_registration(path, data)
        except ZnodeError as error:
            state.report(error)
    return members


def _read_topic_names(state: MemberState, members: Mapping[str, Registration]) -> Procedure[Sequence[str]]:
    """The names of all topics, if a pattern needs them.

    They are watched only where a new topic may change this member's partitions: it is stopped by nothing else.
    """
    settings = state.settings
    patterns = any(each.pattern != STATIC for each in members.values())
    if not patterns:
        return ()
    watch = settings.subscription.pattern != STATIC or settings.strategy == ROUND_ROBIN
    [names] = yield from read_nodes(state, [Children(TOPICS, watch)])
    return names or ()


def _wanted_topics(state: MemberState, subscribed: Subscribed) -> list[str]:
    settings = state.settings
    readers = subscribed if settings.strategy == ROUND_ROBIN else [settings.consumer_id]
    return sorted(filter(is_topic_name, {topic for each in readers for topic in subscribed[each]}))


def _read_partitions(state: MemberState, topics: Sequence[str]) -> Procedure[dict[str, Sequence[int]]]:
    """The partitions of the topics that exist."""
    contents = yield from read_nodes(state, [Get(topic_path(topic), watch=True) for topic in topics])
    partitions: dict[str, Sequence[int]] = {}
    for topic, data in zip(topics, contents, strict=True):
        if data is None:
            continue
        try:
            partitions[topic] = sorted(decode_topic(topic_path(topic), data).replicas)
        except ZnodeError as error:
            state.report(error)
    return partitions


def _streams(subscribed: Subscribed, partitions: Collection[str]) -> dict[str, list[StreamId]]:
    streams: dict[str, list[StreamId]] = {topic: [] for topic in partitions}
    for consumer_id, topics in subscribed.items():
        for topic, count in topics.items():
            if topic in streams:
                streams[topic] += [StreamId(consumer_id, number) for number in range(count)]
    return streams


def _topics(
    state: MemberState, consumer_id: str, registration: Registration, names: Collection[str]
) -> Mapping[str, int]:
    try:
        return streams_by_topic(registration, names, state.settings.excludes_internal)
    except ValueError as error:
        state.report(ZnodeError(f"{id_path(state.settings.group, consumer_id)}: {error}"))
        return {}
