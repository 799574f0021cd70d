"""`roundrobin`: all partitions are dealt out like cards, topic after topic (RoundRobinAssignor.java).

Promise: with equal subscriptions no member has more than one partition above any other. A member that is not subscribed
to the topic is passed over. Not sticky.
"""

from itertools import cycle

from kafkalite.state.groups.assignors.spec import Assignment, Holdings, Members, Topics, in_order, subscribed


def assign(members: Members, topics: Topics) -> dict[str, Assignment]:
    """Answer the partitions of every member."""
    holdings = Holdings(members)
    candidates = cycle(in_order(members))
    for topic_id in subscribed(members, topics):
        for partition in range(topics[topic_id]):
            owner = next(member_id for member_id in candidates if topic_id in members[member_id].topics)
            holdings.give(owner, topic_id, partition)
    return holdings.assignment()
