"""Random consumers of a registered group: they register, heartbeat, read and commit."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import TopicPartition
from kafkalite.state.effects import Token
from kafkalite.state.groups.classic.requests import Leave, LeaveOf
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import Commit, CommitResult, PartitionCommit
from kafkalite.state.groups.registered.requests import (
    ConsumerRegistered,
    HeartbeatAnswered,
    HeartbeatPlus,
    RegisterConsumer,
)
from tests.story.groups.simulated_shard import Shard, committing

REBALANCE_MAX_MS = 20_000
GIVES_UP = {Error.GROUP_MAX_SIZE_REACHED}
CLAIM_REFUSED = {Error.UNRELEASED_INSTANCE_ID, Error.UNKNOWN_TOPIC_OR_PARTITION}


@dataclass(eq=False)
class Consumer:
    """One client process. `step` sends its next request if the last one was answered."""

    shard: Shard[GroupMachine]
    group: str
    name: str
    dice: random.Random
    topics: tuple[str, ...]
    claims: frozenset[TopicPartition]
    check_commit: Callable[["Consumer", TopicPartition, int], None]  # called for every accepted commit of a partition
    check_heartbeat: Callable[["Consumer", int], None]  # called for every heartbeat without an error
    generation: int = -1
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    alive: bool = True
    pending: Token = None
    registrations: int = 0

    def __post_init__(self) -> None:
        self.session_ms = self.dice.randrange(6_000, 30_000)
        self.rebalance_ms = self.dice.randrange(2_000, REBALANCE_MAX_MS)

    def step(self) -> None:
        """Handle the last response and send the next request."""
        if self.pending is not None:
            self._wait()
        elif self.generation == -1:
            if self.dice.random() < 0.7:  # otherwise the application is busy
                self.register()
        elif self.dice.random() < 0.04:
            self.register()  # the response was lost
        else:
            self._work()

    def register(self) -> None:
        request = RegisterConsumer(
            self.group, self.name, self.topics, self.claims, self.session_ms, self.rebalance_ms, "client", "host"
        )
        self.pending = self.shard.ask(lambda machine, token, now: machine.registry.register(request, token, now))

    def heartbeat(self) -> int:
        """Send a heartbeat; returns the error."""
        fast_heartbeat = HeartbeatPlus(self.group, self.name, self.generation)
        token = self.shard.ask(lambda machine, token, now: machine.registered.heartbeat(fast_heartbeat, token, now))
        answer = self.shard.answers[token]
        assert isinstance(answer, HeartbeatAnswered)
        if not answer.error:
            self.check_heartbeat(self, answer.generation)
            self.generation = answer.generation
        return answer.error

    def commit(self) -> None:
        """Commit all positions, even of partitions that have another owner."""
        topic_partitions = sorted(self.positions)
        commits = [PartitionCommit(topic, number, self.positions[topic, number]) for topic, number in topic_partitions]
        request = Commit(self.group, commits, self.name, self.generation)
        token = self.shard.ask(committing(request))
        done = self.shard.answers[token]
        assert isinstance(done, CommitResult)
        for topic_partition, error in zip(topic_partitions, done.errors, strict=not done.error):
            if not error:
                self.check_commit(self, topic_partition, self.positions[topic_partition])

    def leave(self) -> None:
        """Leave the group."""
        self.alive = False
        request = Leave(self.group, (LeaveOf(self.name),))
        self.shard.ask(lambda machine, token, now: machine.registry.leave(request, token, now))

    def dropped(self, tokens: set[Token]) -> None:
        """The broker stopped: the pending request is repeated."""
        if self.pending in tokens:
            self.pending = None
            self.generation = -1

    def _wait(self) -> None:
        if self.pending in self.shard.answers:
            answer = self.shard.answers[self.pending]
            assert isinstance(answer, ConsumerRegistered)
            self.pending = None
            self._take(answer)
        elif self.dice.random() < 0.2:
            generation = self.generation
            self.heartbeat()  # on its other connection
            assert self.generation == generation, "a heartbeat returned a new generation during a delayed registration"
        elif self.generation != -1 and self.dice.random() < 0.2:
            self.commit()
        elif self.dice.random() < 0.03:
            self.pending = None  # it times out, and repeats the request
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
