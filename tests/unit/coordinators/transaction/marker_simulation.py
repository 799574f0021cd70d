"""Markers of many transactions under faults, by a seed.

Requests fail, are rejected or late, leaders and brokers change, topics are deleted, and shards are loaded again.
"""

from __future__ import annotations

import random
from collections import Counter

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import TopicPartition
from kafkalite.state.transactions.states import TransactionState
from tests.unit.coordinators.transaction.marker_world import World

PAUSE_MS = 1_300  # longer than any pause with its jitter


class MarkerSimulation:
    """A coordinator on broker 1 of four.

    Attributes:
        wanted: the partitions of each transaction.
        marked: how often a partition got the marker of a producer.
    """

    def __init__(self, seed: str) -> None:
        self.dice = random.Random(seed)
        self.topics = {f"t{index}": [self.dice.randint(1, 4) for _ in range(4)] for index in range(4)}
        self.world = World(self.topics, brokers=range(1, 5), seed=self.dice.randrange(1 << 30))
        self.wanted: dict[str, set[TopicPartition]] = {}
        self.marked: Counter[tuple[int, TopicPartition]] = Counter()
        self._deleted: set[str] = set()
        self._checked = 0

    def run(self, steps: int) -> None:
        """Let faults happen between transactions."""
        choices = [self.prepare] * 6 + [self.answer] * 8 + [self.move, self.change_brokers, self.load_again]
        if self.dice.random() < 0.5:
            choices.append(self.delete)
        for _ in range(steps):
            self.dice.choice(choices)()
            self.world.clock.advance(self.dice.choice((0, 0, 10, 200)))
            self.check()

    def end(self) -> None:
        """Without faults every transaction is completed."""
        self.world.brokers = {1, 2, 3, 4}
        for name, leaders in self.topics.items():
            self.topics[name] = [self.dice.randint(1, 4) for _ in leaders]
        self.world.image_changed()
        while self.world.calls or len(self.world.sender):
            if self.world.calls:
                self.answer(faulty=False)
            else:
                before = self.world.clock.timers
                self.world.clock.advance(PAUSE_MS)
                assert before or not len(self.world.sender), "a transaction waits for nothing"
        self.check()
        assert sorted(self.world.completed) == sorted(self.wanted)

    def prepare(self) -> None:
        name = str(len(self.wanted))
        names = sorted(self.topics) + sorted(self._deleted)
        count = self.dice.randrange(6)
        self.wanted[name] = {TopicPartition(self.dice.choice(names), self.dice.randrange(4)) for _ in range(count)}
        self.world.prepare(name, *sorted(self.wanted[name]))

    def answer(self, *, faulty: bool = True) -> None:
        """End one of the requests in flight."""
        if not self.world.calls:
            return
        call = self.world.calls.pop(self.dice.randrange(len(self.world.calls)))
        if faulty and self.dice.random() < 0.25:
            call.fail(self.dice.choice((Error.REQUEST_TIMED_OUT, Error.COORDINATOR_NOT_AVAILABLE)))
            return
        errors = []
        for marker, partitions in call.markers.items():
            for each in partitions:
                if faulty and self.dice.random() < 0.2:
                    error = self.dice.choice((Error.NOT_LEADER_OR_FOLLOWER, Error.KAFKA_STORAGE_ERROR))
                    errors.append((marker.producer_id, each, error))
                else:
                    self.marked[marker.producer_id, each] += 1
        call.answer(*errors)

    def move(self) -> None:
        """A topic has other leaders, or none."""
        name = self.dice.choice(sorted(self.topics))
        self.topics[name] = [self.dice.choice((-1, 1, 2, 3, 4)) for _ in self.topics[name]]
        self.world.image_changed()

    def delete(self) -> None:
        if len(self.topics) > 2:
            name = self.dice.choice(sorted(self.topics))
            self._deleted.add(name)
            del self.topics[name], self.world.tree[name]
            self.world.image_changed()

    def change_brokers(self) -> None:
        self.world.brokers = {1, *self.dice.sample((2, 3, 4), 2)}
        self.world.image_changed()

    def load_again(self) -> None:
        """The machine of the shard is dropped, and another one sends its prepared transactions again."""
        self.world.sender.forget(0)
        for name, metadata in sorted(self.world.machine.transactions.items()):
            if metadata.state is TransactionState.PREPARE_COMMIT:
                self.world.prepare(name, *sorted(metadata.partitions))

    def check(self) -> None:
        """Each completed transaction has its marker in every partition that exists."""
        self.marked.update((marker.producer_id, each) for marker, each in self.world.written)
        self.world.written.clear()
        for name in self.world.completed[self._checked :]:
            missing = [
                each
                for each in self.wanted[name]
                if each.topic not in self._deleted and not self.marked[int(name), each]
            ]
            assert not missing, (name, missing)
        self._checked = len(self.world.completed)
