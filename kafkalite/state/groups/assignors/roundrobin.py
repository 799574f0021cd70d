"""The `roundrobin` assignor: assigns partitions to the members in turn, topic after topic (RoundRobinAssignor.java).

Guarantee: with equal subscriptions the numbers of partitions differ by one at most. A member that is not subscribed to
the topic is skipped. Not sticky.
"""

from itertools import cycle

from kafkalite.state.groups.assignors.spec import Assignment, Holdings, Members, Topics, in_order, subscribed_topics


def assign(members: Members, topics: Topics) -> dict[str, Assignment]:
    """The partitions of every member."""
    holdings = Holdings(members)
    candidates = cycle(in_order(members))
    for topic_id in subscribed_topics(members, topics):
        for partition in range(topics[topic_id]):
            owner = next(member_id for member_id in candidates if topic_id in members[member_id].topics)
            holdings.assign(owner, topic_id, partition)
    return holdings.assignment()
