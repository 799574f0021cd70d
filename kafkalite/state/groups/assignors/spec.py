"""Arguments and result of an assignor, and what several assignors share.

Rules: an assignor is a function of its arguments alone, so that the same group has the same assignment. Every partition
of a subscribed topic has exactly one owner, which subscribes to the topic. Topics are assigned in the order of
`topics`; the caller passes them sorted by name.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

Assignment = Mapping[bytes, frozenset[int]]
"""Partitions by topic id; a topic without partitions does not appear."""

NOTHING: Assignment = {}


class MemberSpec(NamedTuple):
    """One member.

    Arguments:
        topics: ids of the topics to which it subscribes; those that do not exist are ignored.
        target: its previous assignment.
        instance_id: of a static member, else None.
        rack_id: of its client, None = unknown.
    """

    topics: frozenset[bytes]
    target: Assignment = NOTHING
    instance_id: str | None = None
    rack_id: str | None = None


Members = Mapping[str, MemberSpec]
Topics = Mapping[bytes, int]
"""Number of partitions by topic id."""

Assignor = Callable[[Members, Topics], dict[str, Assignment]]


class Holdings:
    """An incomplete assignment: the partitions of each member, and their number."""

    def __init__(self, members: Members) -> None:
        self.owned: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in members}
        self.size: dict[str, int] = dict.fromkeys(members, 0)

    def assign(self, member_id: str, topic_id: bytes, partition: int) -> None:
        """Assign a partition that has no owner."""
        self.owned[member_id].setdefault(topic_id, set()).add(partition)
        self.size[member_id] += 1

    def revoke(self, member_id: str, topic_id: bytes, partition: int) -> None:
        """Revoke a partition from its owner."""
        self.owned[member_id][topic_id].remove(partition)
        self.size[member_id] -= 1

    def assignment(self) -> dict[str, Assignment]:
        """The assignment of every member, also of those without partitions."""
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in topics.items() if partitions}
            for member_id, topics in self.owned.items()
        }


def keep_targets(members: Members, topics: Topics) -> tuple[Holdings, dict[bytes, list[int]]]:
    """The previous assignment as far as it is still valid, and the free partitions of each topic.

    A member keeps the partitions that exist and to whose topics it subscribes. If two members had a partition, the
    first by member id keeps it. Topics without subscribers are ignored.
    """
    holdings = Holdings(members)
    free = {topic_id: set(range(topics[topic_id])) for topic_id in subscribed_topics(members, topics)}
    for member_id in sorted(members):
        member = members[member_id]
        for topic_id, partitions in member.target.items():
            if topic_id not in member.topics or topic_id not in free:
                continue
            kept = free[topic_id] & partitions
            free[topic_id] -= kept
            holdings.owned[member_id][topic_id] = kept
            holdings.size[member_id] += len(kept)
    return holdings, {topic_id: sorted(partitions) for topic_id, partitions in free.items() if partitions}


def subscribed_topics(members: Members, topics: Topics) -> list[bytes]:
    """The topics that exist and have a subscriber, in the order of `topics`."""
    wanted = set().union(*{member.topics for member in members.values()}) if members else set()
    return [topic_id for topic_id in topics if topic_id in wanted]


def subscribers(members: Members, topics: Topics) -> dict[bytes, list[str]]:
    """The subscribers of each topic that exists, in the order of `in_order`.

    Topics with the same subscribers share one list: there are as many lists as combinations of subscriptions.
    """
    rank = {member_id: at for at, member_id in enumerate(in_order(members))}
    alike: dict[frozenset[bytes], list[str]] = {}
    for member_id in rank:
        alike.setdefault(members[member_id].topics, []).append(member_id)
    groups = list(alike.values())
    combinations: dict[bytes, list[int]] = {topic_id: [] for topic_id in subscribed_topics(members, topics)}
    for at, subscription in enumerate(alike):
        for topic_id in subscription & combinations.keys():
            combinations[topic_id].append(at)
    merged: dict[tuple[int, ...], list[str]] = {}
    for combination in set(map(tuple, combinations.values())):
        merged[combination] = sorted(
            [member_id for at in combination for member_id in groups[at]], key=rank.__getitem__
        )
    return {topic_id: merged[tuple(combination)] for topic_id, combination in combinations.items()}


def in_order(members: Members) -> list[str]:
    """The member ids, static members first by instance id, so that a restarted static member keeps its position."""
    return sorted(members, key=lambda member_id: _sort_key(member_id, members[member_id].instance_id))


def _sort_key(member_id: str, instance_id: str | None) -> tuple[bool, str, str]:
    return (instance_id is None, instance_id or member_id, member_id)
