"""The topics that a consumer group reads, looked up once for a command.

A member may be subscribed to thousands of topics, and a heartbeat that changes the group needs them four times: for
the hash that shows a change of topics, for the assignor, and for the subscription of each member.
"""

import hashlib
from functools import cached_property

from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.requests import Topic, TopicLookup


class SubscribedTopics:
    """The topics of a group, found at first use.

    Arguments:
        group: its subscriptions do not change while this is used.
        topics: the topics as they are now.
    """

    def __init__(self, group: ConsumerGroup, topics: TopicLookup) -> None:
        self._group = group
        self._topics = topics
        self._ids: dict[tuple[tuple[str, ...], str], frozenset[bytes]] = {}

    @cached_property
    def found(self) -> dict[str, Topic]:
        """All existing topics that a member is subscribed to, by name."""
        by_name = self._topics.by_name
        return {name: topic for name in self._group.subscribed_topics() if (topic := by_name(name)) is not None}

    def hash(self) -> int:
        """A number that changes when a subscribed topic is created, deleted, recreated or grows; 0 = there is none.

        Kafka's own hash (KIP-1101) includes racks and is computed otherwise: a group that comes from there gets a new
        target assignment once.
        """
        if not self.found:
            return 0
        # The text is stored as a hash with each group: another one would start a group epoch in all of them.
        rows = [
            f"Topic(topic_id={topic_id!r}, name={name!r}, partitions={partitions!r})"
            for topic_id, name, partitions in sorted(self.found.values())
        ]
        digest = hashlib.blake2b(f"[{', '.join(rows)}]".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)

    def ids_of(self, member_id: str) -> frozenset[bytes]:
        """The ids of the existing topics that a member is subscribed to; equal subscriptions share one set."""
        member, found = self._group.members[member_id], self.found
        subscription = member.subscribed_topic_names, member.subscribed_topic_regex
        ids = self._ids.get(subscription)
        if ids is None:
            names = self._group.topics_of(member_id)
            ids = self._ids[subscription] = frozenset([found[name].topic_id for name in names if name in found])
        return ids
