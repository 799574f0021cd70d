"""Consumers of a simulated registered group: they register, heartbeat, read and commit by a seeded dice."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import TopicPartition
from kafkalite.state.effects import Token
from kafkalite.state.groups.classic.requests import Leave, LeaveOf
from kafkalite.state.groups.offsets.manager import Commit, CommitResult, PartitionCommit
from kafkalite.state.groups.registered.requests import (
    ConsumerRegistered,
    HeartbeatAnswered,
    HeartbeatPlus,
    RegisterConsumer,
)
from kafkalite.state.groups.shard import GroupShard
from tests.story.groups.simulated_shard import Shard, committing

REBALANCE_MAX_MS = 20_000
GIVES_UP = {Error.GROUP_MAX_SIZE_REACHED}
CLAIM_REFUSED = {Error.UNRELEASED_INSTANCE_ID, Error.UNKNOWN_TOPIC_OR_PARTITION}


@dataclass(eq=False)
class Consumer:
    """One client process. `step` does the next thing that a consumer would do, as far as it has an answer."""

    shard: Shard[GroupShard]
    group: str
    name: str
    dice: random.Random
    topics: tuple[str, ...]
    claims: frozenset[TopicPartition]
    judge_commit: Callable[
        ["Consumer", TopicPartition, int], None
    ]  # is told of every partition of which a commit is taken
    judge_alive: Callable[["Consumer", int], None]  # is told of every heartbeat without an error
    generation: int = -1
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    alive: bool = True
    waits_for: Token = None
    registrations: int = 0

    def __post_init__(self) -> None:
        self.session_ms = self.dice.randrange(6_000, 30_000)
        self.rebalance_ms = self.dice.randrange(2_000, REBALANCE_MAX_MS)

    def step(self) -> None:
        """Take the answer that came, and ask the next thing."""
        if self.waits_for is not None:
            self._wait()
        elif self.generation == -1:
            if self.dice.random() < 0.7:  # else the application is busy
                self.register()
        elif self.dice.random() < 0.04:
            self.register()  # it lost the answer
        else:
            self._work()

    def register(self) -> None:
        request = RegisterConsumer(
            self.group, self.name, self.topics, self.claims, self.session_ms, self.rebalance_ms, "client", "host"
        )
        self.waits_for = self.shard.ask(lambda machine, token, now: machine.registry.register(request, token, now))

    def heartbeat(self) -> int:
        """Say that it is alive; the error."""
        fast_heartbeat = HeartbeatPlus(self.group, self.name, self.generation)
        token = self.shard.ask(lambda machine, token, now: machine.registered.heartbeat(fast_heartbeat, token, now))
        answer = self.shard.answers[token]
        assert isinstance(answer, HeartbeatAnswered)
        if not answer.error:
            self.judge_alive(self, answer.generation)
            self.generation = answer.generation
        return answer.error

    def commit(self) -> None:
        """Commit all positions, whoever owns the partitions by now."""
        topic_partitions = sorted(self.positions)
        commits = [PartitionCommit(topic, number, self.positions[topic, number]) for topic, number in topic_partitions]
        request = Commit(self.group, commits, self.name, self.generation)
        token = self.shard.ask(committing(request))
        done = self.shard.answers[token]
        assert isinstance(done, CommitResult)
        for topic_partition, error in zip(topic_partitions, done.errors, strict=not done.error):
            if not error:
                self.judge_commit(self, topic_partition, self.positions[topic_partition])

    def leave(self) -> None:
        """Go, and say so."""
        self.alive = False
        request = Leave(self.group, (LeaveOf(self.name),))
        self.shard.ask(lambda machine, token, now: machine.registry.leave(request, token, now))

    def dropped(self, tokens: set[Token]) -> None:
        """The broker stopped: what was asked is asked again."""
        if self.waits_for in tokens:
            self.waits_for = None
            self.generation = -1

    def _wait(self) -> None:
        if self.waits_for in self.shard.answers:
            answer = self.shard.answers[self.waits_for]
            assert isinstance(answer, ConsumerRegistered)
            self.waits_for = None
            self._take(answer)
        elif self.dice.random() < 0.2:
            generation = self.generation
            self.heartbeat()  # on its other connection
            assert self.generation == generation, "who waits for a registration is told a generation before"
        elif self.generation != -1 and self.dice.random() < 0.2:
            self.commit()
        elif self.dice.random() < 0.03:
            self.waits_for = None  # it lost patience, and asks again
            self.register()

    def _work(self) -> None:
        for topic_partition in self.positions:
            self.positions[topic_partition] += self.dice.randrange(3)
        if self.dice.random() < 0.3:
            self.commit()
        error = self.heartbeat()
        if error == Error.REBALANCE_IN_PROGRESS:
            if self.dice.random() < 0.5:
                self.commit()
            if self.dice.random() < 0.6:
                self.register()
            elif self.dice.random() < 0.5:
                self.generation = -1
        elif error:
            assert error in (Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION), error
            self.generation, self.positions = -1, {}

    def _take(self, answer: ConsumerRegistered) -> None:
        if answer.error:
            self.generation = -1
            if answer.error in CLAIM_REFUSED:
                self.claims = frozenset()
            self.alive = answer.error not in GIVES_UP
            return
        self.registrations += 1
        self.generation = answer.generation
        self.positions = {
            (topic, number): max(start, 0)
            for topic, starts in answer.partitions.items()
            for number, start in starts.items()
        }
