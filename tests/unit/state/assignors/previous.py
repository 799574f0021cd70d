"""The uniform and sticky assignors as they were before they became O(n log n): the oracle of the faster ones."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace

from kafkalite.state.groups.assignors.spec import (
    Assignment,
    Holdings,
    Members,
    Topics,
    in_order,
    keep_targets,
    subscribed_topics,
)

BALANCE_PASSES_MAX = 16


def uniform(members: Members, topics: Topics) -> dict[str, Assignment]:
    if len({member.topics for member in members.values()}) > 1:
        return sticky(members, topics)
    holdings, free = keep_targets(members, topics)
    quotas = _quotas(holdings, sum(holdings.size.values()) + sum(map(len, free.values())))
    loose = [(topic_id, partition) for topic_id, partitions in free.items() for partition in partitions]
    for member_id, quota in quotas.items():
        loose.extend(_surrender(holdings, member_id, quota))
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
    return {member_id: quota + (position < surplus) for position, member_id in enumerate(order)}


def _surrender(holdings: Holdings, member_id: str, quota: int) -> Iterator[tuple[bytes, int]]:
    owned = holdings.owned[member_id]
    while holdings.size[member_id] > quota:
        topic_id = max(owned, key=lambda topic_id: (len(owned[topic_id]), topic_id))
        partition = max(owned[topic_id])
        holdings.revoke(member_id, topic_id, partition)
        yield topic_id, partition


def sticky(members: Members, topics: Topics) -> dict[str, Assignment]:
    holdings, free = keep_targets(members, topics)
    by_topic = subscribers(members, topics)
    order = _hardest_first(by_topic, topics)
    for topic_id in order:
        _deal_out(holdings, topic_id, free.get(topic_id, []), by_topic[topic_id])
    shared = [topic_id for topic_id in order if len(by_topic[topic_id]) > 1]
    for _ in range(BALANCE_PASSES_MAX):
        if not sum([_balance(holdings, topic_id, by_topic[topic_id]) for topic_id in shared]):
            break
    return holdings.assignment()


def _hardest_first(by_topic: dict[bytes, list[str]], topics: Topics) -> list[bytes]:

    def difficulty(topic_id: bytes) -> tuple[float, int]:
        count = len(by_topic[topic_id])
        return (-topics[topic_id] / count, count)

    return sorted(by_topic, key=difficulty)


def _deal_out(holdings: Holdings, topic_id: bytes, partitions: list[int], member_ids: list[str]) -> None:
    least = [(holdings.size[member_id], position) for position, member_id in enumerate(member_ids)]
    heapify(least)
    for partition in partitions:
        size, position = least[0]
        heapreplace(least, (size + 1, position))
        holdings.assign(member_ids[position], topic_id, partition)


def _balance(holdings: Holdings, topic_id: bytes, member_ids: list[str]) -> int:
    size = holdings.size
    if max(map(size.__getitem__, member_ids)) - min(map(size.__getitem__, member_ids)) < 2:
        return 0
    least = [(size[member_id], position) for position, member_id in enumerate(member_ids)]
    most = [(-size[member_id], -position) for position, member_id in enumerate(member_ids)]
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
        for position in (-most[0][1], least[0][1]):
            heappush(least, (size[member_ids[position]], position))
            heappush(most, (-size[member_ids[position]], -position))
    return moved


def _move(holdings: Holdings, topic_id: bytes, giver: str, taker: str) -> None:
    partition = max(holdings.owned[giver][topic_id])
    holdings.revoke(giver, topic_id, partition)
    holdings.assign(taker, topic_id, partition)


def subscribers(members: Members, topics: Topics) -> dict[bytes, list[str]]:
    found: dict[bytes, list[str]] = {topic_id: [] for topic_id in subscribed_topics(members, topics)}
    for member_id in in_order(members):
        for topic_id in members[member_id].topics:
            if topic_id in found:
                found[topic_id].append(member_id)
    return found
