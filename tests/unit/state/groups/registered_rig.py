"""A shard with registered groups for tests, from the view of its clients: the group is "g", topics are a and b."""

from collections.abc import Collection
from typing import Any

from kafkalite.model import TopicPartition
from kafkalite.state.effects import Token
from kafkalite.state.groups.classic.requests import ErrorOnly, Leave, LeaveOf, Left
from kafkalite.state.groups.classic.settings import ClassicSettings
from kafkalite.state.groups.consumer.groups import ConsumerGroups
from kafkalite.state.groups.consumer.requests import ConsumerGroupSettings
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import Commit, CommitResult, OffsetSettings, PartitionCommit
from kafkalite.state.groups.registered.group import RegisteredGroup
from kafkalite.state.groups.registered.requests import (
    ConsumerRegistered,
    CreateGroup,
    HeartbeatAnswered,
    HeartbeatPlus,
    RegisterConsumer,
)
from tests.kit.consumer_groups import FakeTopics
from tests.story.groups.simulated_shard import Shard, check_changed_topics

SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Rig:
    """A shard, its topics, and the requests of consumers and administrators."""

    def __init__(self, members_max: int = 100) -> None:
        self.topics = FakeTopics(a=4, b=2)
        self.settings = ClassicSettings(members_max=members_max)
        self.shard = Shard(self._make)

    def _make(self) -> GroupMachine:
        consumers = ConsumerGroups(self.topics, lambda _: ConsumerGroupSettings())
        return GroupMachine(self.settings, OffsetSettings(), consumers)

    @property
    def group(self) -> RegisteredGroup:
        return self.shard.machine.registered.groups["g"]

    def exists(self) -> bool:
        return "g" in self.shard.machine.registered.groups

    def ask(self, consumer: str, *topics: str, claims: Collection[TopicPartition] = (), **changes: Any) -> Token:
        """Register; returns the token of the response."""
        request = RegisterConsumer("g", consumer, topics, frozenset(claims), SESSION_MS, REBALANCE_MS, "client", "host")
        request = request._replace(**changes)
        return self.shard.ask(lambda machine, token, now: machine.registry.register(request, token, now))

    def answer(self, token: Token) -> ConsumerRegistered:
        answer = self.shard.answers[token]
        assert isinstance(answer, ConsumerRegistered)
        return answer

    def register(
        self, consumer: str, *topics: str, claims: Collection[TopicPartition] = (), **changes: Any
    ) -> ConsumerRegistered:
        """Register; the response is not delayed."""
        return self.answer(self.ask(consumer, *topics, claims=claims, **changes))

    def begin(self, *consumers: str) -> None:
        """A generation of consumers that read topic a."""
        tokens = [self.ask(consumer, "a") for consumer in consumers]
        tokens += [self.ask(consumer, "a") for consumer in consumers[:-1]]
        assert not self.answer(tokens[-1]).error
        assert self.group.state.value == "Stable"

    def fast_heartbeat(self, consumer: str, generation: int, session_timeout_ms: int = 0) -> tuple[int, int]:
        """Send a heartbeat; returns error and generation."""
        request = HeartbeatPlus("g", consumer, generation, session_timeout_ms)
        token = self.shard.ask(lambda machine, token, now: machine.registered.heartbeat(request, token, now))
        answer = self.shard.answers[token]
        assert isinstance(answer, HeartbeatAnswered)
        return answer.error, answer.generation

    def leave(self, *consumers: str, group: str = "g") -> list[int]:
        request = Leave(group, tuple(LeaveOf(consumer) for consumer in consumers))
        left = self.shard.answers[self.shard.ask(lambda m, token, now: m.registry.leave(request, token, now))]
        assert isinstance(left, Left)
        return [member.error for member in left.members]

    def create(self, **fields: Any) -> int:
        definition: dict[str, Any] = {"group": "g", "session_timeout_ms": SESSION_MS, "topics": ("a",)} | fields
        request = CreateGroup(**definition)
        done = self.shard.answers[self.shard.ask(lambda m, token, now: m.registry.create(request, token, now))]
        assert isinstance(done, ErrorOnly)
        return done.error

    def commit(self, consumer: str, generation: int, *topic_partitions: TopicPartition, offset: int = 5) -> list[int]:
        """The error of each partition."""
        parts = [PartitionCommit(topic, number, offset) for topic, number in topic_partitions]
        request = Commit("g", parts, consumer, generation)
        done = self.shard.answers[self.shard.ask(lambda m, token, now: m.offsets.commit(request, token, now))]
        assert isinstance(done, CommitResult)
        return list(done.errors) or [done.error] * len(topic_partitions)

    def rewind(self, *topic_partitions: TopicPartition, offset: int = 0) -> None:
        parts = [PartitionCommit(topic, number, offset) for topic, number in topic_partitions]
        token = self.shard.ask(lambda machine, token, now: machine.rewind("g", parts, token, now))
        assert self.shard.answers[token] == CommitResult(0, (0,) * len(topic_partitions))

    def delete(self, group: str = "g") -> int:
        token = self.shard.ask(lambda machine, token, now: machine.delete_groups([group], token, now))
        answer: Any = self.shard.answers[token]
        (error,) = answer.errors
        return int(error)

    def change_topics(self, *names: str) -> None:
        self.shard.do(check_changed_topics(self.shard.machine.registered, names, self.shard.now))

    def resolve(self, *names: str) -> None:
        """Resolve all patterns: these topics match."""
        questions, self.shard.questions = self.shard.questions, []
        assert questions
        for question in questions:
            found = dict.fromkeys(question.patterns, names)
            self.shard.do(self.shard.machine.patterns_resolved(question.group, found, self.shard.now))

    def owned(self, consumer: str) -> set[TopicPartition]:
        return set(self.group.members[consumer].owned)
