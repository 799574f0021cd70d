"""The consumer groups of a shard that read a topic: by its name, or by a pattern that matched it.

Invariant: `follow` is called with each record before it is applied, in replay and in normal operation.
"""

from collections.abc import Set

from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.groups_by_topic import GroupsByTopic, RegexMatches
from kafkalite.state.groups.records import (
    ConsumerGroupMemberMetadata,
    ConsumerGroupRegularExpression,
    ConsumerGroupTombstone,
)


class SubscribedTopicSet:
    """The topics that one group reads, as a container."""

    __slots__ = ("_group", "_matches", "_named")

    def __init__(self, group: str, named: GroupsByTopic, matches: RegexMatches) -> None:
        self._group = group
        self._named = named
        self._matches = matches

    def __contains__(self, topic: object) -> bool:
        if not isinstance(topic, str):
            return False
        if self._named.refers(self._group, topic):
            return True
        return any(topic in match.names for match in self._matches.of(self._group))


class SubscribedGroups:
    """The index of a shard."""

    def __init__(self) -> None:
        self._named = GroupsByTopic()
        self._matches = RegexMatches()

    def of_any(self, topics: Set[str]) -> set[str]:
        """The groups that read one of these topics."""
        found = set(self._matches.reading(topics))
        for topic in topics:
            found |= self._named.of(topic)
        return found

    def topics_of(self, group: str) -> SubscribedTopicSet:
        """The topics that a group reads, now and later."""
        return SubscribedTopicSet(group, self._named, self._matches)

    def follow(self, group: ConsumerGroup, record: object) -> object:
        """Update the index from a record of a group; returns the record to apply, which may share its topics."""
        if isinstance(record, ConsumerGroupMemberMetadata):
            self._named.replace(group.group_id, names_of(group, record.member_id), set(record.subscribed_topic_names))
        elif isinstance(record, ConsumerGroupRegularExpression):
            topics = self._matches.put(record.group, record.pattern, record.topics)
            return record._replace(topics=topics)
        elif isinstance(record, ConsumerGroupTombstone):
            if record.of is ConsumerGroupMemberMetadata:
                self._named.replace(group.group_id, names_of(group, record.key), set())
            elif record.of is ConsumerGroupRegularExpression:
                self._matches.remove(group.group_id, record.key)
        return record

    def forget(self, group: ConsumerGroup) -> None:
        """A group is deleted."""
        for member_id in group.members:
            self._named.replace(group.group_id, names_of(group, member_id), set())
        self._matches.remove_group(group.group_id)


def names_of(group: ConsumerGroup, member_id: str) -> set[str]:
    """The topics that a member is subscribed to by name."""
    member = group.members.get(member_id)
    return set() if member is None else set(member.subscribed_topic_names)
