"""The `uniform` assignor: all members own the same number of partitions, and keep as many as that allows.

Source: UniformAssignor.java and UniformHomogeneousAssignmentBuilder.java. For equal subscriptions one
pass suffices: each member has a quota, and the surplus is assigned to the members that own most. (Kafka assigns it to
the first members in its hash order, which moves more partitions.) For unequal subscriptions it is `sticky`.
Guarantee with equal subscriptions: the numbers of partitions differ by one at most, and no assignment that is as even
moves fewer partitions.
"""

from collections.abc import Iterator
from heapq import heapify, heapreplace

from kafkalite.state.groups.assignors import sticky
from kafkalite.state.groups.assignors.spec import Assignment, Holdings, Members, Topics, keep_targets


def assign(members: Members, topics: Topics) -> dict[str, Assignment]:
    """The partitions of every member."""
    if len({member.topics for member in members.values()}) > 1:
        return sticky.assign(members, topics)
    holdings, free = keep_targets(members, topics)
    quotas = _quotas(holdings, sum(holdings.size.values()) + sum(map(len, free.values())))
    loose = [(topic_id, partition) for topic_id, partitions in free.items() for partition in partitions]
    for member_id, quota in quotas.items():
        loose.extend(_revoke_surplus(holdings, member_id, quota))
    rest = iter(loose)
    for member_id, quota in quotas.items():
        while holdings.size[member_id] < quota:
            topic_id, partition = next(rest)
            holdings.assign(member_id, topic_id, partition)
    return holdings.assignment()


def _quotas(holdings: Holdings, partitions: int) -> dict[str, int]:
    order = sorted(holdings.size, key=lambda member_id: (-holdings.size[member_id], member_id))
    if not order:
        return {}
    quota, surplus = divmod(partitions, len(order))
    return {member_id: quota + (index < surplus) for index, member_id in enumerate(order)}


def _revoke_surplus(holdings: Holdings, member_id: str, quota: int) -> Iterator[tuple[bytes, int]]:
    """Revoke partitions above the quota: the highest partitions of the topic of which the member owns most; of topics
    with equal counts, the one with the highest id.
    """
    if holdings.size[member_id] <= quota:
        return
    owned = holdings.owned[member_id]
    by_id = sorted(owned, reverse=True)
    largest = [(-len(owned[topic_id]), index) for index, topic_id in enumerate(by_id)]
    heapify(largest)
    ascending: dict[bytes, list[int]] = {}
    while holdings.size[member_id] > quota:
        count, index = largest[0]
        topic_id = by_id[index]
        if topic_id not in ascending:
            ascending[topic_id] = sorted(owned[topic_id])
        partition = ascending[topic_id].pop()
        holdings.revoke(member_id, topic_id, partition)
        heapreplace(largest, (count + 1, index))
        yield topic_id, partition
