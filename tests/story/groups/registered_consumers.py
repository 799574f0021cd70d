"""Consumers of a simulated registered group: they register, heartbeat, read and commit by a seeded dice."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.classic_requests import Leave, LeaveOf
from kafkalite.state.effects import Token
from kafkalite.state.group_records import Place
from kafkalite.state.group_shard import GroupShard
from kafkalite.state.offsets import Commit, CommitOf, CommitsDone
from kafkalite.state.registered_requests import (
    ConsumerRegistered,
    HeartbeatAnswered,
    HeartbeatPlus,
    RegisterConsumer,
)
from tests.story.groups.shard import Shard, committing

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
    claims: frozenset[Place]
    judge_commit: Callable[["Consumer", Place, int], None]  # is told of every partition of which a commit is taken
    judge_alive: Callable[["Consumer", int], None]  # is told of every heartbeat without an error
    generation: int = -1
    positions: dict[Place, int] = field(default_factory=dict)
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
        self.waits_for = self.shard.ask(lambda machine, token, now: machine.kinds.register(request, token, now))

    def heartbeat(self) -> int:
        """Say that it is alive; the error."""
        beat = HeartbeatPlus(self.group, self.name, self.generation)
        token = self.shard.ask(lambda machine, token, now: machine.registered.heartbeat(beat, token, now))
        answer = self.shard.answers[token]
        assert isinstance(answer, HeartbeatAnswered)
        if not answer.error:
            self.judge_alive(self, answer.generation)
            self.generation = answer.generation
        return answer.error

    def commit(self) -> None:
        """Commit all positions, whoever owns the partitions by now."""
        places = sorted(self.positions)
        commits = [CommitOf(topic, number, self.positions[topic, number]) for topic, number in places]
        request = Commit(self.group, commits, self.name, self.generation)
        token = self.shard.ask(committing(request))
        done = self.shard.answers[token]
        assert isinstance(done, CommitsDone)
        for place, error in zip(places, done.errors, strict=not done.error):
            if not error:
                self.judge_commit(self, place, self.positions[place])

    def leave(self) -> None:
        """Go, and say so."""
        self.alive = False
        request = Leave(self.group, (LeaveOf(self.name),))
        self.shard.ask(lambda machine, token, now: machine.kinds.leave(request, token, now))

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
        for place in self.positions:
            self.positions[place] += self.dice.randrange(3)
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
