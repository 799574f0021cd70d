"""Who owns what in a new generation: the assignors by name, over what nobody has claimed.

Assignors deal out partitions 0 to n - 1 of topics known by id. Here topics are known by name, and claimed partitions
are left out: what is free is numbered anew, and translated back.
"""

from collections.abc import Collection, Mapping

from kafkalite.state.groups.assignors import ASSIGNORS, MemberSpec
from kafkalite.state.groups.records import TopicPartition

__all__ = ["assign"]


def assign(
    assignor: str,
    wanted: Mapping[str, Collection[str]],
    owned: Mapping[str, Collection[TopicPartition]],
    partitions: Mapping[str, int],
    claimed: Collection[TopicPartition],
) -> dict[str, list[TopicPartition]]:
    """Deal out all partitions that are not claimed.

    Arguments:
        assignor: a name of `ASSIGNORS`.
        wanted: the topics of each member.
        owned: what each member has had so far, for assignors that let it keep what it can.
        partitions: the topics that exist, each with its number of partitions.
        claimed: what is not to be assigned.

    Returns: the partitions of every member.
    """
    free = {
        name: [number for number in range(partitions[name]) if (name, number) not in claimed]
        for name in sorted(partitions)
    }
    topic_partitions = {name: {number: at for at, number in enumerate(numbers)} for name, numbers in free.items()}
    members = {
        member: MemberSpec(
            frozenset(name.encode() for name in topics), _numbered(owned.get(member, ()), topic_partitions)
        )
        for member, topics in wanted.items()
    }
    dealt = ASSIGNORS[assignor](members, {name.encode(): len(numbers) for name, numbers in free.items()})
    by_key = {name.encode(): name for name in free}
    return {
        member: [(by_key[key], free[by_key[key]][at]) for key, numbers in topics.items() for at in sorted(numbers)]
        for member, topics in dealt.items()
    }


def _numbered(
    owned: Collection[TopicPartition], topic_partitions: Mapping[str, Mapping[int, int]]
) -> dict[bytes, frozenset[int]]:
    kept: dict[bytes, set[int]] = {}
    for name, number in owned:
        at = topic_partitions.get(name, {}).get(number)
        if at is not None:
            kept.setdefault(name.encode(), set()).add(at)
    return {key: frozenset(numbers) for key, numbers in kept.items()}
