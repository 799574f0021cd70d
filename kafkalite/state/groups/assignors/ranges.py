"""`range`: of each topic every subscriber gets one run of neighbouring partitions (RangeAssignor.java).

Promise: of one topic no subscriber has more than one partition above any other; the first in order get the surplus.
Members stand in the same order for every topic, so members with the same subscription own the same partitions of topics
of the same size, which joins need. Not sticky: what a member owned does not count.
"""

from kafkalite.state.groups.assignors.spec import Assignment, Members, Topics, subscribers


def assign(members: Members, topics: Topics) -> dict[str, Assignment]:
    """Answer the partitions of every member."""
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
