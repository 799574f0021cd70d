"""`sticky`: everybody keeps what he has, and only what makes the group more even moves.

The way of UniformHeterogeneousAssignmentBuilder.java, which the `uniform` assignor takes where subscriptions differ:
what is free goes to the least loaded subscribers, topic after topic; then partitions move from the most to the least
loaded subscriber of their topic while that makes them more even.
Promise: no single partition could still move to a subscriber with two partitions less than its owner, unless ROUNDS_MAX
did not suffice, which takes chains of overlapping subscriptions of that length.
"""

from heapq import heapify, heappop, heappush, heapreplace

from kafkalite.state.groups.assignors.spec import Assignment, Holdings, Members, Topics, keep_targets, subscribers

ROUNDS_MAX = 16


def assign(members: Members, topics: Topics) -> dict[str, Assignment]:
    """Answer the partitions of every member."""
    holdings, free = keep_targets(members, topics)
    by_topic = subscribers(members, topics)
    order = _hardest_first(by_topic, topics)
    _deal_out(holdings, [topic_id for topic_id in order if topic_id in free], free, by_topic)
    shared = [topic_id for topic_id in order if len(by_topic[topic_id]) > 1]
    for _ in range(ROUNDS_MAX):
        if not _balance_all(holdings, shared, by_topic):
            break
    return holdings.assignment()


def _hardest_first(by_topic: dict[bytes, list[str]], topics: Topics) -> list[bytes]:
    """Many partitions for few subscribers come first: there is the least choice."""

    def difficulty(topic_id: bytes) -> tuple[float, int]:
        count = len(by_topic[topic_id])
        return (-topics[topic_id] / count, count)

    return sorted(by_topic, key=difficulty)


def _deal_out(
    holdings: Holdings, order: list[bytes], free: dict[bytes, list[int]], by_topic: dict[bytes, list[str]]
) -> None:
    """Give partitions without an owner to the least loaded subscribers, topic after topic.

    Neighbours in the order that have the same subscribers share one heap.
    """
    least: list[tuple[int, int]] = []
    member_ids: list[str] = []
    for topic_id in order:
        if by_topic[topic_id] is not member_ids:
            member_ids = by_topic[topic_id]
            least = [(holdings.size[member_id], index) for index, member_id in enumerate(member_ids)]
            heapify(least)
        for partition in free[topic_id]:
            size, index = least[0]
            heapreplace(least, (size + 1, index))
            holdings.give(member_ids[index], topic_id, partition)


def _balance_all(holdings: Holdings, order: list[bytes], by_topic: dict[bytes, list[str]]) -> int:
    """Balance one topic after the other; answer how many partitions moved.

    Subscribers that were found even stay so until a partition moves: other topics with the same list are passed over.
    """
    even: set[int] = set()  # lists of subscribers, by identity
    moved = 0
    for topic_id in order:
        member_ids = by_topic[topic_id]
        if id(member_ids) in even:
            continue
        moved_here = _balance(holdings, topic_id, member_ids)
        if moved_here:
            even.clear()
            moved += moved_here
        elif _is_even(holdings, member_ids):
            even.add(id(member_ids))
    return moved


def _is_even(holdings: Holdings, member_ids: list[str]) -> bool:
    sizes = [holdings.size[member_id] for member_id in member_ids]
    return max(sizes) - min(sizes) < 2


def _balance(holdings: Holdings, topic_id: bytes, member_ids: list[str]) -> int:
    """Move partitions of one topic from the most to the least loaded; answer how many moved.

    An entry of a heap counts only while the size in it is true: a member that gave or got stands in both heaps.
    No member both gives and gets: the largest size never grows, the smallest never shrinks.
    """
    size = holdings.size
    ascending: dict[str, list[int]] = {}  # the partitions of the topic that each giver has left
    if _is_even(holdings, member_ids):
        return 0
    least = [(size[member_id], index) for index, member_id in enumerate(member_ids)]
    most = [(-size[member_id], -index) for index, member_id in enumerate(member_ids)]
    heapify(least)
    heapify(most)
    moved = 0
    while most:
        if -most[0][0] != size[member_ids[-most[0][1]]]:
            heappop(most)
            continue
        if least[0][0] != size[member_ids[least[0][1]]]:
            heappop(least)
            continue
        giver, taker = member_ids[-most[0][1]], member_ids[least[0][1]]
        if size[giver] - size[taker] < 2:
            break
        if not holdings.owned[giver].get(topic_id):
            heappop(most)
            continue
        if giver not in ascending:
            ascending[giver] = sorted(holdings.owned[giver][topic_id])
        partition = ascending[giver].pop()
        holdings.take(giver, topic_id, partition)
        holdings.give(taker, topic_id, partition)
        moved += 1
        for index in (-most[0][1], least[0][1]):
            heappush(least, (size[member_ids[index]], index))
            heappush(most, (-size[member_ids[index]], -index))
    return moved
