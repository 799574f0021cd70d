"""Consumers of both protocols that read and commit, and a model that validates their commits.

The model, `World`, records the last owner, the rewinds and the committed offset of each partition from the responses to
clients, and validates each commit that the broker accepts. Commits may be sent late, also after their sender stopped.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.effects import Token
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import Commit, CommitResult, PartitionCommit, TopicFetch
from tests.kit.consumer_groups import FakeTopics
from tests.story.groups.simulated_shard import Shard, committing

TopicPartition = tuple[str, int]


class Position(NamedTuple):
    """The position of a reader in a partition, and the number of rewinds when it started."""

    rewinds: int
    offset: int


class Sent(NamedTuple):
    """A commit that has not arrived yet."""

    member_id: str
    generation: int
    positions: dict[TopicPartition, Position]


@dataclass
class World:
    """One group, its topics, and the expected owners and offsets of its partitions."""

    shard: Shard[GroupMachine]
    topics: FakeTopics
    dice: random.Random
    group: str = "g"
    receivers: "dict[TopicPartition, tuple[int, Reader]]" = field(
        default_factory=dict
    )  # the last consumer that received a partition, and the number of the response
    rewinds: Counter[TopicPartition] = field(default_factory=Counter)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    sizes_at_assignment: dict[str, int] = field(default_factory=dict)  # of the topics
    restarts: int = 0  # of the broker or, after its deletion, of the group: generations may be used again
    # By restart and generation: the instance or member id of the leader, and the generation of the assignments.
    leaders: dict[tuple[int, int], str] = field(default_factory=dict)
    assigned: dict[tuple[int, int], bytes | None] = field(default_factory=dict)
    faults: bool = True  # requests time out, members join again without a reason

    def sizes(self) -> dict[str, int]:
        """How many partitions each topic has."""
        return {name: topic.partitions for name, topic in self.topics.topics.items()}

    def committed_of(self, topic_partition: TopicPartition) -> int:
        """The result of OffsetFetch, which is the last committed offset."""
        topic, partition = topic_partition
        (found,) = self.shard.machine.offsets.fetch(self.group, [TopicFetch(topic, [partition])], require_stable=True)
        assert found.offset == self.committed.get(topic_partition, -1), "a committed offset is lost or wrong"
        return max(found.offset, 0)

    def take(self, sender: "Reader", sent: Sent) -> list[int]:
        """A commit arrives; returns its error codes."""
        topic_partitions = sorted(sent.positions)
        asked = [
            PartitionCommit(t, p, sent.positions[t, p].offset, topic_id=self.topics.topics[t].topic_id)
            for t, p in topic_partitions
        ]
        request = Commit(self.group, asked, sent.member_id, sent.generation, sender.instance)
        token = self.shard.ask(committing(request))
        done = self.shard.answers[token]
        assert isinstance(done, CommitResult)
        for topic_partition, error in zip(topic_partitions, done.errors if not done.error else (), strict=False):
            if error == Error.NONE:
                self._check(sender, topic_partition, sent.positions[topic_partition])
        return [done.error] if done.error else list(done.errors)

    def _check(self, sender: "Reader", topic_partition: TopicPartition, position: Position) -> None:
        assert self.receivers[topic_partition][1] is sender, f"{topic_partition} has another owner since"
        assert position.rewinds == self.rewinds[topic_partition], f"{topic_partition} was rewound since"
        assert position.offset >= self.committed.get(topic_partition, 0), (
            f"{topic_partition}: the committed offset decreased"
        )
        self.committed[topic_partition] = position.offset

    def rewind(self, topic_partition: TopicPartition, offset: int) -> None:
        """An administrator sets the offset of a partition."""
        topic, partition = topic_partition
        wanted = [PartitionCommit(topic, partition, offset, topic_id=self.topics.topics[topic].topic_id)]
        token = self.shard.ask(lambda machine, token, now: machine.rewind(self.group, wanted, token, now))
        done = self.shard.answers[token]
        assert isinstance(done, CommitResult)
        if not done.error:
            self.committed[topic_partition] = offset
            self.rewinds[topic_partition] += 1


class Reader:
    """A consumer of either protocol: its positions and its commits."""

    def __init__(self, world: World, name: str, instance: str | None) -> None:
        self.world, self.name, self.instance = world, name, instance
        self.member_id = ""
        self.generation = -1
        self.owns_in = -1  # the generation, or member epoch, with which it commits
        self.alive = True
        self.positions: dict[TopicPartition, Position] = {}
        self.outbox: list[Sent] = []

    @property
    def stable(self) -> bool:
        """Whether it has a final assignment."""
        raise NotImplementedError

    def step(self) -> None:
        """Send the next request of a consumer."""
        raise NotImplementedError

    def leave(self) -> None:
        """Leave the group."""
        raise NotImplementedError

    def dropped(self, tokens: set[Token]) -> None:
        """The broker stopped before it answered these requests."""

    def read(self) -> None:
        """Read from all partitions, and commit sometimes."""
        for topic_partition, position in self.positions.items():
            self.positions[topic_partition] = position._replace(offset=position.offset + self.world.dice.randrange(3))
        if self.world.dice.random() < 0.3:
            self.commit()
        if self.world.dice.random() < 0.5:
            self.send()

    def commit(self) -> None:
        if self.positions:
            self.outbox.append(Sent(self.member_id, self.owns_in, dict(self.positions)))

    def send(self) -> None:
        """Commits arrive in order; a revoked partition may be rewound before."""
        dice = self.world.dice
        while self.outbox:
            sent = self.outbox.pop(0)
            given_up = sorted(sent.positions.keys() - self.positions.keys())
            if given_up and dice.random() < 0.1:
                self.world.rewind(dice.choice(given_up), dice.randrange(5))
            self.world.take(self, sent)

    def own(self, topic_partitions: set[TopicPartition], received: Token = None) -> bool:
        """Give up what is not among these, with a last commit, and take over the rest, as the answer to the token
        `received` says; whether it gave up anything.
        """
        lost = self.positions.keys() - topic_partitions
        if lost:
            self.commit()
            if self.world.dice.random() < 0.7:
                self.send()
        for topic_partition in lost:
            del self.positions[topic_partition]
        for topic_partition in sorted(topic_partitions - self.positions.keys()):
            receiver = self.world.shard.order[received], self
            self.world.receivers[topic_partition] = max(
                receiver, self.world.receivers.get(topic_partition, receiver), key=lambda each: each[0]
            )
            self.positions[topic_partition] = Position(
                self.world.rewinds[topic_partition], self.world.committed_of(topic_partition)
            )
        return bool(lost)

    def lose(self) -> None:
        """All partitions are lost: no last commit. Earlier commits arrive before the next request."""
        self.send()
        self.positions.clear()
