"""From a topic to its readers: the indexes agree with a walk over all groups, and cost nothing for other groups."""

import random

import pytest

from kafkalite.state.groups.consumer.groups import ConsumerGroups
from kafkalite.state.groups.consumer.requests import ConsumerGroupSettings
from kafkalite.state.groups.offsets.store import OffsetStore
from kafkalite.state.groups.records import (
    CONSUMER,
    ConsumerGroupMemberMetadata,
    ConsumerGroupRegularExpression,
    ConsumerGroupTombstone,
    GroupDeleted,
    OffsetCommitted,
)
from tests.kit.seeds import chosen_seed
from tests.kit.work import calls_in
from tests.unit.state.groups.test_machine import NoTopics

SEED = chosen_seed()
TOPICS = [f"t{at}" for at in range(6)]
GROUPS = ["g", "h", "i"]
MEMBERS = ["m", "n"]
PATTERNS = ["t.*", "t[0-3]"]


@pytest.fixture
def dice() -> random.Random:
    print(f"KAFKALITE_SEED={SEED}")
    return random.Random(SEED)


def machine() -> ConsumerGroups:
    return ConsumerGroups(NoTopics(), lambda _: ConsumerGroupSettings())


def member(group: str, member_id: str, names: tuple[str, ...]) -> ConsumerGroupMemberMetadata:
    return ConsumerGroupMemberMetadata(group, member_id, None, None, "", "", names, "", 0, None)


def random_record(dice: random.Random) -> object:
    group, names = dice.choice(GROUPS), tuple(dice.sample(TOPICS, dice.randint(0, 3)))
    records = [
        member(group, dice.choice(MEMBERS), names),
        ConsumerGroupRegularExpression(group, dice.choice(PATTERNS), names, 0, 0),
        ConsumerGroupTombstone(group, ConsumerGroupMemberMetadata, dice.choice(MEMBERS)),
        ConsumerGroupTombstone(group, ConsumerGroupRegularExpression, dice.choice(PATTERNS)),
        GroupDeleted(group, CONSUMER),
    ]
    return dice.choices(records, [5, 5, 3, 3, 1])[0]


def reads(groups: ConsumerGroups, name: str, topic: str) -> bool:
    """The walk over members and patterns."""
    group = groups.groups.get(name)
    if group is None:
        return False
    named = any(topic in each.subscribed_topic_names for each in group.members.values())
    return named or any(topic in each.topics for each in group.patterns.values())


def test_index_of_consumer_groups_agrees_with_a_walk(dice: random.Random) -> None:
    for _ in range(30):
        groups = machine()
        for _ in range(60):
            groups.apply(random_record(dice))
            for topic in TOPICS:
                readers = {name for name in GROUPS if reads(groups, name, topic)}
                assert groups.steps.readers.of_any({topic}) == readers
                assert {name for name in GROUPS if topic in groups.steps.topics_read(name)} == readers
        for name in GROUPS:
            groups.apply(GroupDeleted(name, CONSUMER))
        assert not groups.steps.readers._named._groups and not groups.steps.readers._matches._by_topics


def test_index_of_offsets_agrees_with_a_walk_and_forgets_topics(dice: random.Random) -> None:
    store = OffsetStore()
    for _ in range(2_000):
        group, topic, partition = dice.choice(GROUPS), dice.choice(TOPICS), dice.randrange(3)
        if dice.random() < 0.5:
            store.put(OffsetCommitted(group, topic, partition, 1, -1, "", 0, topic_id=dice.randbytes(16)))
        else:
            store.remove(group, topic, partition)
        for topic in TOPICS:
            readers = {each for each in GROUPS if topic in store.of_group(each)}
            assert store.readers(topic) == readers
            assert (topic in store._topic_ids) == bool(readers)


def test_groups_with_the_same_match_share_it() -> None:
    groups = machine()
    for at in range(50):
        topics = tuple([f"topic{number}" for number in range(100)])  # another object for each group, as of a log
        groups.apply(ConsumerGroupRegularExpression(f"g{at}", "topic.*", topics, 0, 0))
    assert len({id(group.patterns["topic.*"].topics) for group in groups.groups.values()}) == 1


@pytest.mark.parametrize("by_pattern", [False, True])
def test_change_of_a_topic_touches_its_readers_only(by_pattern: bool) -> None:
    def work(others: int) -> int:
        groups = machine()
        for at in range(others):
            groups.apply(member(f"other{at}", "m", () if by_pattern else ("kept",)))
            if by_pattern:
                groups.apply(ConsumerGroupRegularExpression(f"other{at}", "k.*", ("kept",), 0, 0))
        groups.apply(member("g", "m", ("changed",)))
        return calls_in(lambda: groups.topics_changed(["changed", "new"]))

    assert work(1_000) == work(10)


def test_work_to_ask_for_topics_of_a_pattern_does_not_grow_with_its_topics() -> None:
    def work(topics: int) -> int:
        groups = machine()
        groups.apply(ConsumerGroupRegularExpression("g", ".*", tuple([f"t{at}" for at in range(topics)]), 0, 0))
        return calls_in(lambda: "t1" in groups.steps.topics_read("g"))

    assert work(5_000) == work(10)
