"""Assignors of the classic protocol, which the leader of a group runs: built-in ones and those of other packages.

The algorithms of the built-in ones are in `kafkalite.state.groups.assignors`, which brokers use for consumer groups.

Pure. `range`, `roundrobin` and `sticky` are eager: all partitions are revoked before a rebalance. With
`cooperative-sticky` members keep their partitions during a rebalance, and a partition is assigned to its new owner one
rebalance after its old owner has revoked it (KIP-429). A package offers an assignor by the entry point group
`kafkalite.assignors`; the name of the entry point is the name of the assignor, its value a `ClassicAssignor` or a class
without arguments that implements it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from kafkalite.model import TopicPartition
from kafkalite.state.groups.assignors import ASSIGNORS, MemberSpec
from kafkalite_sdk.membership.user_data import generation_data, previous_assignment_data

PLUGINS = "kafkalite.assignors"

Assignment = Mapping[str, frozenset[TopicPartition]]
"""Partitions by member id."""


class MemberSubscription(NamedTuple):
    """The subscription of a member, as an assignor sees it.

    Attributes:
        topics: that the member reads.
        owned: its partitions before the rebalance, as far as its assignor reports them.
        generation: in which it owned them, -1 = unknown.
        instance_id: of a static member, else None.
        rack_id: of its client, None = unknown.
        user_data: of the assignor, None = none.
        version: of the subscription's bytes.
    """

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    instance_id: str | None = None
    rack_id: str | None = None
    user_data: bytes | None = None
    version: int = 3


class ClassicAssignor(Protocol):
    """Assigns partitions to the members of a classic group.

    Attributes:
        name: the same in all clients of a group.
        cooperative: whether members keep their partitions during a rebalance. The leader withholds partitions that
            another member still owns; the assignor does not have to.
    """

    @property
    def name(self) -> str: ...

    @property
    def cooperative(self) -> bool: ...

    def user_data(self, owned: frozenset[TopicPartition], generation: int) -> bytes | None:
        """The user data of this member's subscription.

        Arguments:
            owned: its last assignment.
            generation: of this assignment, -1 = there was none.
        """

    def assign(self, members: Mapping[str, MemberSubscription], partitions: Mapping[str, int]) -> Assignment:
        """Assign all partitions.

        Arguments:
            members: by member id.
            partitions: number of partitions by topic, of those topics that exist.

        Returns: the partitions of every member.
        """


@runtime_checkable
class AssignmentData(Protocol):
    """What a `ClassicAssignor` may have besides, to send user data with assignments and to receive it."""

    def assignment_data(self, member_id: str) -> bytes | None:
        """The user data of a member's assignment, after `assign` has returned it; None = none."""

    def on_assignment(self, partitions: frozenset[TopicPartition], user_data: bytes | None) -> None:
        """Called with each assignment of this member, before it takes effect.

        Arguments:
            partitions: that are assigned.
            user_data: from `assignment_data` of the leader's assignor.
        """


class BuiltinAssignor:
    """An assignor of `kafkalite.state.groups.assignors`."""

    def __init__(self, name: str, algorithm: str, *, cooperative: bool = False, data: str = "") -> None:
        self.name = name
        self.cooperative = cooperative
        self._assign = ASSIGNORS[algorithm]
        self._data = data

    def __repr__(self) -> str:
        return f"<assignor {self.name}>"

    def user_data(self, owned: frozenset[TopicPartition], generation: int) -> bytes | None:
        if self._data == "assignment" and generation >= 0:
            return previous_assignment_data(owned, generation)
        return generation_data(generation) if self._data == "generation" else None

    def assign(self, members: Mapping[str, MemberSubscription], partitions: Mapping[str, int]) -> Assignment:
        owned = valid_owners(members)
        specs = {
            member_id: MemberSpec(
                frozenset(topic.encode() for topic in member.topics),
                by_topic_key(owned[member_id], partitions),
                member.instance_id,
                member.rack_id,
            )
            for member_id, member in members.items()
        }
        assigned = self._assign(specs, {topic.encode(): partitions[topic] for topic in sorted(partitions)})
        return {
            member_id: frozenset(
                TopicPartition(key.decode(), number) for key, numbers in topics.items() for number in numbers
            )
            for member_id, topics in assigned.items()
        }


def by_topic_key(owned: frozenset[TopicPartition], partitions: Mapping[str, int]) -> dict[bytes, frozenset[int]]:
    """Existing partitions by key of the topic."""
    numbers: dict[bytes, set[int]] = {}
    for topic, number in owned:
        if number < partitions.get(topic, 0):
            numbers.setdefault(topic.encode(), set()).add(number)
    return {key: frozenset(found) for key, found in numbers.items()}


def valid_owners(members: Mapping[str, MemberSubscription]) -> dict[str, frozenset[TopicPartition]]:
    """The owned partitions of each member. Of several claims of a partition the newest generation is valid; equal ones
    are all invalid (AbstractStickyAssignor.java).
    """
    newest: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id, member in members.items():
        for partition in member.owned:
            generation, _ = newest.get(partition, (member.generation - 1, None))
            if member.generation > generation:
                newest[partition] = member.generation, member_id
            elif member.generation == generation:
                newest[partition] = generation, None
    return {
        member_id: frozenset(each for each in member.owned if newest[each][1] == member_id)
        for member_id, member in members.items()
    }


def without_transfers(members: Mapping[str, MemberSubscription], assigned: Assignment) -> Assignment:
    """A cooperative assignment without the partitions that another member still owns: that member revokes them first,
    and the rebalance that follows assigns them.
    """
    claimed = {partition for member in members.values() for partition in member.owned}
    owned = valid_owners(members)
    return {
        member_id: frozenset(each for each in partitions if each in owned[member_id] or each not in claimed)
        for member_id, partitions in assigned.items()
    }


BUILT_IN: dict[str, ClassicAssignor] = {
    each.name: each
    for each in (
        BuiltinAssignor("range", "range"),
        BuiltinAssignor("roundrobin", "roundrobin"),
        BuiltinAssignor("sticky", "uniform", data="assignment"),
        BuiltinAssignor("cooperative-sticky", "uniform", cooperative=True, data="generation"),
    )
}
DEFAULT_ASSIGNORS: tuple[ClassicAssignor, ...] = (BUILT_IN["range"], BUILT_IN["cooperative-sticky"])


def assignors_named(names: Sequence[str | ClassicAssignor]) -> tuple[ClassicAssignor, ...]:
    """The assignors of these names; an object is used as it is.

    Raises:
        ValueError: a name is neither built in nor an entry point. TypeError: one name in place of a list.
    """
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise TypeError(f'partition_assignment_strategy is {names!r}, expected a list such as ["range"]')
    return tuple(_named(each) if isinstance(each, str) else each for each in names)


def _named(name: str) -> ClassicAssignor:
    if name in BUILT_IN:
        return BUILT_IN[name]
    from importlib.metadata import entry_points  # 10 ms of import, for a plugin only

    offered = entry_points(group=PLUGINS)
    if name not in offered.names:
        known = ", ".join(sorted({*BUILT_IN, *offered.names}))
        raise ValueError(f"assignor {name!r} is unknown; known: {known}; packages add more by {PLUGINS}")
    loaded = offered[name].load()
    assignor: ClassicAssignor = loaded() if isinstance(loaded, type) else loaded
    return assignor
