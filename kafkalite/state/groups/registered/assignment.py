"""Assignment of a registered group: which partitions its members own, and where they start to read.

Assignors assign the partitions 0 to n - 1 of topics known by id. Here topics are known by name and claimed partitions
are excluded: the free ones are renumbered for the assignor, and its result is translated back.
"""

from collections.abc import Collection, Iterable, Mapping

from kafkalite.model import TopicPartition
from kafkalite.state.groups.assignors import ASSIGNORS, MemberSpec
from kafkalite.state.groups.registered.group import RegisteredGroup
from kafkalite.state.groups.registered.member import NO_PARTITIONS, RegisteredGroupMember
from kafkalite.state.groups.registered.requests import BY_RESET_POLICY, FROM_LOG_START


def waits_for_pattern(group: RegisteredGroup) -> bool:
    """Whether a member reads the topics of the pattern, and these are not known yet."""
    unknown = group.definition.pattern is not None and group.matched is None
    return unknown and any(not member.registration.topics for member in group.assigned_members())


def sizes(group: RegisteredGroup, names: Iterable[str]) -> dict[str, int]:
    """The number of partitions of each of these topics that exists."""
    found = {name: group.topics.by_name(name) for name in names}
    return {name: topic.partitions for name, topic in found.items() if topic is not None}


def is_outdated(group: RegisteredGroup) -> bool:
    """Whether the members own other partitions than they are to read, because topics or members have changed."""
    if waits_for_pattern(group):
        return False  # checked again once the pattern is resolved
    assigned = group.assigned_members()
    names = {name for member in assigned for name in group.topics_of(member)}
    claimed = set().union(*group.claims.values())
    wanted = {(name, number) for name, count in sizes(group, names).items() for number in range(count)} - claimed
    return wanted != {topic_partition for member in assigned for topic_partition in member.owned} - claimed


def start_offsets(group: RegisteredGroup, member: RegisteredGroupMember) -> dict[str, dict[int, int]]:
    """The start offset of each partition that a member owns, by topic."""
    first = dict(group.definition.first_topics or ())
    starts: dict[str, dict[int, int]] = {}
    for topic, number in sorted(member.owned):
        offset = group.offsets.committed_offset(group.name, topic, number)
        if offset < 0:
            offset = BY_RESET_POLICY if number < first.get(topic, 0) else FROM_LOG_START
        starts.setdefault(topic, {})[number] = offset
    return starts


def new_assignment(group: RegisteredGroup) -> Mapping[RegisteredGroupMember, frozenset[TopicPartition]]:
    """The partitions of each member of the assignment: its share and its claims."""
    assigned = {member.name: member for member in group.assigned_members()}
    wanted = {name: group.topics_of(member) for name, member in assigned.items()}
    shares = assign(
        group.definition.assignor,
        wanted,
        {name: member.owned for name, member in assigned.items()},
        sizes(group, {topic for topics in wanted.values() for topic in topics}),
        NO_PARTITIONS.union(*group.claims.values()),
    )
    return {member: member.registration.claims.union(shares[name]) for name, member in assigned.items()}


def assign(
    assignor: str,
    wanted: Mapping[str, Collection[str]],
    owned: Mapping[str, Collection[TopicPartition]],
    partitions: Mapping[str, int],
    claimed: Collection[TopicPartition],
) -> dict[str, list[TopicPartition]]:
    """Assign all partitions that are not claimed.

    Arguments:
        assignor: a name of `ASSIGNORS`.
        wanted: the topics of each member.
        owned: the previous partitions of each member, for sticky assignors.
        partitions: the number of partitions of each topic that exists.
        claimed: partitions that are not assigned.

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
    assigned = ASSIGNORS[assignor](members, {name.encode(): len(numbers) for name, numbers in free.items()})
    by_key = {name.encode(): name for name in free}
    return {
        member: [
            TopicPartition(by_key[key], free[by_key[key]][at])
            for key, numbers in topics.items()
            for at in sorted(numbers)
        ]
        for member, topics in assigned.items()
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
