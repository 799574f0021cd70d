"""The index of the registered groups that read a topic equals a scan of all groups, and visits only these groups."""

import random
from collections.abc import Iterable

import pytest

from kafkalite.state.groups.registered.groups import RegisteredGroups
from tests.kit.seeds import chosen_seed
from tests.kit.work import calls_in
from tests.story.groups.simulated_shard import check_changed_topics
from tests.unit.state.groups.registered_rig import SESSION_MS, Rig

SEED = chosen_seed()
TOPICS = ["a", "b", "c", "d"]
GROUPS = ["g", "h", "i"]
CONSUMERS = ["one", "two", "three"]


def concerned(groups: RegisteredGroups, topics: Iterable[str]) -> set[str]:
    """A scan of all members of all groups."""
    changed = frozenset(topics)
    return {
        name
        for name, group in groups.groups.items()
        if group.definition.pattern is not None or group.reads_any(changed)
    }


class History:
    """Random requests to three groups of a shard."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.rig = Rig()

    def step(self) -> None:
        """Run one operation."""
        operations = [
            self.register,
            self.define,
            self.leave,
            self.wait,
            self.delete,
            self.resolve,
            self.change,
            self.restart,
        ]
        self.dice.choices(operations, [10, 3, 3, 3, 2, 3, 2, 1])[0]()

    def group(self) -> str:
        return self.dice.choice(GROUPS)

    def names(self) -> list[str]:
        return self.dice.sample(TOPICS, self.dice.randint(0, 2))

    def register(self) -> None:
        claims = [(name, 0) for name in self.dice.sample(["a", "b"], self.dice.randint(0, 1))]
        self.rig.ask(self.dice.choice(CONSUMERS), *self.names(), claims=claims, group=self.group())

    def define(self) -> None:
        pattern, topics = self.dice.choice([(".*", ()), (None, ("a", "b")), (None, ("c",))])
        self.rig.create(group=self.group(), topics=topics, pattern=pattern, ephemeral=self.dice.random() < 0.5)

    def leave(self) -> None:
        self.rig.leave(self.dice.choice(CONSUMERS), group=self.group())

    def wait(self) -> None:
        """Sessions expire and rebalances time out."""
        self.rig.shard.advance(self.dice.choice([100, SESSION_MS, 70_000]))

    def delete(self) -> None:
        self.rig.delete(self.group())

    def resolve(self) -> None:
        if self.rig.shard.questions:
            self.rig.resolve(*self.names())

    def change(self) -> None:
        self.rig.change_topics(*self.names())

    def restart(self) -> None:
        self.rig.shard.restart()

    def judge(self) -> None:
        groups = self.rig.shard.machine.registered
        for topic in TOPICS:
            assert set(groups.topic_readers.readers_of([topic])) == concerned(groups, [topic]), topic
        assert len(groups.topic_readers.readers_of(TOPICS)) == len(concerned(groups, TOPICS))


def test_index_equals_full_scan_after_random_operations() -> None:
    print(f"KAFKALITE_SEED={SEED}")
    for seed in range(SEED, SEED + 20):
        history = History(seed)
        for _ in range(150):
            history.step()
            history.judge()


def test_index_is_empty_after_all_groups_are_deleted() -> None:
    rig = Rig()
    for group in GROUPS:
        rig.ask("one", "a", claims=[("b", 0)], group=group)
    rig.create(group="defined", topics=(), pattern=".*")
    rig.shard.advance(SESSION_MS)
    for group in (*GROUPS, "defined"):
        assert rig.delete(group) == 0
    readers = rig.shard.machine.registered.topic_readers
    assert not readers.readers_of(TOPICS) and not readers._named._groups


@pytest.mark.parametrize("claims", [(), [("b", 1)]])
def test_topic_change_visits_only_reading_groups(claims: list[tuple[str, int]]) -> None:
    def work(others: int) -> int:
        rig = Rig()
        for at in range(others):
            rig.ask("one", "a", group=f"other{at}")
        rig.ask("one", *([] if claims else ["b"]), claims=claims, group="g")
        machine = rig.shard.machine.registered
        return calls_in(lambda: check_changed_topics(machine, ["b", "new"], rig.shard.now))

    assert work(1_000) == work(10)
