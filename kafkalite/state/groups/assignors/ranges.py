"""The `range` assignor: each subscriber of a topic is assigned consecutive partitions (RangeAssignor.java).

Guarantee: the numbers of partitions of one topic differ by one at most; the first members in order have the surplus.
Members have the same order for every topic: members with the same subscription own the same partitions of topics of
equal size, which stream joins need. Not sticky: previous assignments have no influence.
"""

from kafkalite.state.groups.assignors.spec import Assignment, Members, Topics, subscribers


def assign(members: Members, topics: Topics) -> dict[str, Assignment]:
    """The partitions of every member."""
    owned: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic_id, member_ids in subscribers(members, topics).items():
        quota, surplus = divmod(topics[topic_id], len(member_ids))
        start = 0
        for index, member_id in enumerate(member_ids):
            end = start + quota + (index < surplus)
            if end > start:
                owned[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(owned)
