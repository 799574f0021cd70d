"""The `sticky` assignor: members keep their partitions; partitions move only if that makes the assignment more even.

The algorithm of UniformHeterogeneousAssignmentBuilder.java, which `uniform` uses for unequal subscriptions: free
partitions are assigned to the least loaded subscribers, topic after topic; then partitions move from the most to the
least loaded subscriber of their topic while that makes them more even.
Guarantee: no partition can move to a subscriber with two partitions less than its owner, unless BALANCE_PASSES_MAX did
not suffice, which takes chains of overlapping subscriptions of that length.
"""

from heapq import heapify, heappop, heappush, heapreplace

from kafkalite.state.groups.assignors.spec import Assignment, Holdings, Members, Topics, keep_targets, subscribers

BALANCE_PASSES_MAX = 16


def assign(members: Members, topics: Topics) -> dict[str, Assignment]:
    """The partitions of every member."""
    holdings, free = keep_targets(members, topics)
    by_topic = subscribers(members, topics)
    order = _hardest_first(by_topic, topics)
    _assign_free(holdings, [topic_id for topic_id in order if topic_id in free], free, by_topic)
    shared = [topic_id for topic_id in order if len(by_topic[topic_id]) > 1]
    for _ in range(BALANCE_PASSES_MAX):
        if not _balance_all(holdings, shared, by_topic):
            break
    return holdings.assignment()


def _hardest_first(by_topic: dict[bytes, list[str]], topics: Topics) -> list[bytes]:
    """Topics with many partitions for few subscribers first: they leave the least choice."""

    def difficulty(topic_id: bytes) -> tuple[float, int]:
        count = len(by_topic[topic_id])
        return (-topics[topic_id] / count, count)

    return sorted(by_topic, key=difficulty)


def _assign_free(
    holdings: Holdings, order: list[bytes], free: dict[bytes, list[int]], by_topic: dict[bytes, list[str]]
) -> None:
    """Assign free partitions to the least loaded subscribers, topic after topic.

    Consecutive topics with the same subscribers share one heap.
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
            holdings.assign(member_ids[index], topic_id, partition)


def _balance_all(holdings: Holdings, order: list[bytes], by_topic: dict[bytes, list[str]]) -> int:
    """Balance all topics; returns the number of partitions that moved.

    Subscribers that are even stay so until a partition moves: other topics with the same subscribers are skipped.
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
    """Move partitions of one topic from the most to the least loaded subscribers; returns how many moved.

    A heap entry is valid only while its size is correct: a member whose size changed is in both heaps again. No member
    both loses and receives partitions: the largest size never grows, the smallest never shrinks.
    """
    size = holdings.size
    ascending: dict[str, list[int]] = {}  # the remaining partitions of the topic of each member that loses some
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
        donor, receiver = member_ids[-most[0][1]], member_ids[least[0][1]]
        if size[donor] - size[receiver] < 2:
            break
        if not holdings.owned[donor].get(topic_id):
            heappop(most)
            continue
        if donor not in ascending:
            ascending[donor] = sorted(holdings.owned[donor][topic_id])
        partition = ascending[donor].pop()
        holdings.revoke(donor, topic_id, partition)
        holdings.assign(receiver, topic_id, partition)
        moved += 1
        for index in (-most[0][1], least[0][1]):
            heappush(least, (size[member_ids[index]], index))
            heappush(most, (-size[member_ids[index]], -index))
    return moved
