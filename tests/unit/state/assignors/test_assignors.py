"""The guarantees of the assignors while members join and leave, subscribe to other topics, and topics grow.

A failure prints how to replay it; KAFKALITE_SEED chooses other histories.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st

from kafkalite.state.groups.assignors import ASSIGNORS, Assignment, Assignor, MemberSpec
from tests.kit.seeds import chosen_seed

SEED = chosen_seed()
TOPIC_IDS = [bytes([topic]) * 16 for topic in range(1, 6)]
MEMBER_IDS = [f"member-{number}" for number in range(8)]

EVERYTHING = frozenset(TOPIC_IDS)
subscriptions = st.frozensets(st.sampled_from(TOPIC_IDS), min_size=0, max_size=5)
changes = st.one_of(
    st.tuples(st.just("join"), st.sampled_from(MEMBER_IDS), subscriptions),
    st.tuples(st.just("leave"), st.sampled_from(MEMBER_IDS)),
    st.tuples(st.just("grow"), st.sampled_from(TOPIC_IDS), st.integers(0, 7)),
    st.tuples(st.just("delete"), st.sampled_from(TOPIC_IDS)),
)
histories = st.lists(changes, min_size=1, max_size=25)
sizes = st.dictionaries(st.sampled_from(TOPIC_IDS), st.integers(0, 12), max_size=5)

Owned = dict[str, Assignment]
Kept = dict[str, set[tuple[bytes, int]]]
Topics = dict[bytes, int]


def many(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test on many topics with many changes."""
    print(f"KAFKALITE_SEED={SEED}")
    quick = settings(max_examples=200, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
    return hypothesis_seed(SEED)(quick(given(topics=sizes, changes=histories)(test)))


class History:
    """A group that changes, with a new assignment after each change."""

    def __init__(self, assign: Assignor, topics: Topics, *, alike: bool = False) -> None:
        self.assign, self.topics, self.alike = assign, dict(sorted(topics.items())), alike
        self.members: dict[str, MemberSpec] = {}

    def change(self, what: str, subject: Any, value: Any = None) -> None:
        if what == "join":
            topics = EVERYTHING if self.alike else value
            old = self.members.get(subject)
            self.members[subject] = MemberSpec(topics, old.target if old else {})
        elif what == "leave":
            self.members.pop(subject, None)
        elif what == "grow":
            self.topics[subject] = self.topics.get(subject, 0) + value
        else:
            self.topics.pop(subject, None)
        self.topics = dict(sorted(self.topics.items()))

    def through(self, changes: list[Any]) -> Iterator[tuple[Kept, Owned]]:
        """After each change: what every member could keep, and what it owns."""
        for change in changes:
            self.change(*change)
            kept = self.kept()
            yield kept, self.rebalance()

    def rebalance(self) -> Owned:
        """Assign, keep the result as targets, and return it."""
        owned = self.assign(self.members, self.topics)
        self.members = {name: member._replace(target=owned[name]) for name, member in self.members.items()}
        return owned

    def kept(self) -> Kept:
        """What every member owned and could keep."""
        return {
            name: {
                (topic, partition)
                for topic, partitions in member.target.items()
                if topic in member.topics
                for partition in partitions
                if partition < self.topics.get(topic, 0)
            }
            for name, member in self.members.items()
        }


def flat(assignment: Assignment) -> set[tuple[bytes, int]]:
    return {(topic, partition) for topic, partitions in assignment.items() for partition in partitions}


def check_owners(history: History, owned: Owned) -> None:
    assert set(owned) == set(history.members)
    everything = [position for assignment in owned.values() for position in flat(assignment)]
    assert len(everything) == len(set(everything)), "a partition has two owners"
    wanted = {topic for member in history.members.values() for topic in member.topics}
    assert set(everything) == {(t, p) for t, count in history.topics.items() if t in wanted for p in range(count)}
    for name, assignment in owned.items():
        assert set(assignment) <= history.members[name].topics, "a member owns what it is not subscribed to"
        assert all(assignment.values()), "a topic without partitions is named"


@pytest.mark.parametrize("name", ASSIGNORS)
@many
def test_every_partition_has_exactly_one_owner(name: str, topics: Topics, changes: list[Any]) -> None:
    history = History(ASSIGNORS[name], topics)
    for _, owned in history.through(changes):
        check_owners(history, owned)


@pytest.mark.parametrize("name", ASSIGNORS)
@many
def test_assignment_is_deterministic(name: str, topics: Topics, changes: list[Any]) -> None:
    history = History(ASSIGNORS[name], topics)
    for change in changes:
        history.change(*change)
        reversed_members = dict(reversed(history.members.items()))
        assert ASSIGNORS[name](reversed_members, history.topics) == history.rebalance()


@pytest.mark.parametrize("name", ["uniform", "sticky"])
@many
def test_unchanged_group_keeps_assignment(name: str, topics: Topics, changes: list[Any]) -> None:
    history = History(ASSIGNORS[name], topics)
    for change in changes:
        history.change(*change)
    assert history.rebalance() == history.rebalance()


@pytest.mark.parametrize("name", ["uniform", "sticky"])
@many
def test_no_single_move_makes_assignment_more_even(name: str, topics: Topics, changes: list[Any]) -> None:
    history = History(ASSIGNORS[name], topics)
    for _, owned in history.through(changes):
        size = {member: len(flat(assignment)) for member, assignment in owned.items()}
        for giver, assignment in owned.items():
            for taker, member in history.members.items():
                shared = set(assignment) & member.topics
                assert not shared or size[giver] - size[taker] < 2, (giver, taker)


@many
def test_uniform_moves_fewest_partitions(topics: Topics, changes: list[Any]) -> None:
    """With equal subscriptions the least number of moves is known: what each member owns above its share."""
    history = History(ASSIGNORS["uniform"], topics, alike=True)
    for kept, owned in history.through(changes):
        if not owned:
            continue
        quota, surplus = divmod(sum(history.topics.values()), len(owned))
        above = sorted((len(topic_partitions) for topic_partitions in kept.values()), reverse=True)
        least = sum(max(0, held - quota - (position < surplus)) for position, held in enumerate(above))
        assert sum(len(kept[member] - flat(owned[member])) for member in owned) == least


@many
def test_partitions_move_only_from_members_above_their_share(topics: Topics, changes: list[Any]) -> None:
    history = History(ASSIGNORS["uniform"], topics, alike=True)
    for kept, owned in history.through(changes):
        share = sum(history.topics.values()) // max(1, len(owned))
        for member, topic_partitions in kept.items():
            assert topic_partitions <= flat(owned[member]) or len(topic_partitions) > share


@many
def test_range_assigns_consecutive_partitions_in_member_order(topics: Topics, changes: list[Any]) -> None:
    history = History(ASSIGNORS["range"], topics)
    for _, owned in history.through(changes):
        for topic, count in history.topics.items():
            runs = [
                sorted(owned[name].get(topic, ())) for name in sorted(owned) if topic in history.members[name].topics
            ]
            assert [partition for run in runs for partition in run] == list(range(count if runs else 0))
            assert [len(run) for run in runs] == sorted(map(len, runs), reverse=True)
            assert not runs or len(runs[0]) - len(runs[-1]) <= 1


@many
def test_roundrobin_is_even_with_equal_subscriptions(topics: Topics, changes: list[Any]) -> None:
    history = History(ASSIGNORS["roundrobin"], topics, alike=True)
    for _, owned in history.through(changes):
        counts = [len(flat(assignment)) for assignment in owned.values()]
        assert not counts or max(counts) - min(counts) <= 1


def test_range_of_static_member_is_independent_of_member_id() -> None:
    topics = {TOPIC_IDS[0]: 6}

    def group(*ids: str) -> dict[str, MemberSpec]:
        return {ids[at]: MemberSpec(EVERYTHING, instance_id=f"host-{at}") for at in range(len(ids))}

    before = ASSIGNORS["range"](group("zz", "mm", "aa"), topics)
    after = ASSIGNORS["range"](group("zz", "00", "aa"), topics)
    assert after["00"] == before["mm"] == {TOPIC_IDS[0]: frozenset({2, 3})}


def test_range_copartitions_topics_of_equal_size() -> None:
    members = {name: MemberSpec(EVERYTHING) for name in ("a", "b", "c")}
    owned = ASSIGNORS["range"](members, {TOPIC_IDS[0]: 7, TOPIC_IDS[1]: 7})
    assert all(assignment[TOPIC_IDS[0]] == assignment[TOPIC_IDS[1]] for assignment in owned.values())


def test_partition_claimed_by_two_members_has_one_owner() -> None:
    claim = {TOPIC_IDS[0]: frozenset({0, 1})}
    for name in ("uniform", "sticky"):
        members = {"a": MemberSpec(EVERYTHING, claim), "b": MemberSpec(EVERYTHING, claim)}
        owned = ASSIGNORS[name](members, {TOPIC_IDS[0]: 2})
        assert sorted(map(len, map(flat, owned.values()))) == [1, 1]
