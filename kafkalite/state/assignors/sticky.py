"""`sticky`: everybody keeps what he has, and only what makes the group more even moves.

The way of UniformHeterogeneousAssignmentBuilder.java, which the `uniform` assignor takes where subscriptions differ:
what is free goes to the least loaded subscribers, topic after topic; then partitions move from the most to the least
loaded subscriber of their topic while that makes them more even.
Promise: no single partition could still move to a subscriber with two partitions less than its owner, unless ROUNDS_MAX
did not suffice, which takes chains of overlapping subscriptions of that length.
"""

from heapq import heapify, heappop, heappush, heapreplace

from kafkalite.state.assignors.spec import Assignment, Holdings, Members, Topics, keep_targets, subscribers

ROUNDS_MAX = 16


def assign(members: Members, topics: Topics) -> dict[str, Assignment]:
    """Answer the partitions of every member."""
    holdings, free = keep_targets(members, topics)
    by_topic = subscribers(members, topics)
    order = _hardest_first(by_topic, topics)
    for topic_id in order:
        _deal_out(holdings, topic_id, free.get(topic_id, []), by_topic[topic_id])
    shared = [topic_id for topic_id in order if len(by_topic[topic_id]) > 1]
    for _ in range(ROUNDS_MAX):
        if not sum([_balance(holdings, topic_id, by_topic[topic_id]) for topic_id in shared]):
            break
    return holdings.assignment()


def _hardest_first(by_topic: dict[bytes, list[str]], topics: Topics) -> list[bytes]:
    """Many partitions for few subscribers come first: there is the least choice."""

    def difficulty(topic_id: bytes) -> tuple[float, int]:
        count = len(by_topic[topic_id])
        return (-topics[topic_id] / count, count)

    return sorted(by_topic, key=difficulty)


def _deal_out(holdings: Holdings, topic_id: bytes, partitions: list[int], member_ids: list[str]) -> None:
    least = [(holdings.size[member_id], place) for place, member_id in enumerate(member_ids)]
    heapify(least)
    for partition in partitions:
        size, place = least[0]
        heapreplace(least, (size + 1, place))
        holdings.give(member_ids[place], topic_id, partition)


def _balance(holdings: Holdings, topic_id: bytes, member_ids: list[str]) -> int:
    """Move partitions of one topic from the most to the least loaded; answer how many moved.

    An entry of a heap counts only while the size in it is true: a member that gave or got stands in both heaps.
    """
    size = holdings.size
    if max(map(size.__getitem__, member_ids)) - min(map(size.__getitem__, member_ids)) < 2:
        return 0
    least = [(size[member_id], place) for place, member_id in enumerate(member_ids)]
    most = [(-size[member_id], -place) for place, member_id in enumerate(member_ids)]
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
        _move(holdings, topic_id, giver, taker)
        moved += 1
        for place in (-most[0][1], least[0][1]):
            heappush(least, (size[member_ids[place]], place))
            heappush(most, (-size[member_ids[place]], -place))
    return moved


def _move(holdings: Holdings, topic_id: bytes, giver: str, taker: str) -> None:
    partition = max(holdings.owned[giver][topic_id])
    holdings.take(giver, topic_id, partition)
    holdings.give(taker, topic_id, partition)
