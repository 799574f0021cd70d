"""A shard of consumer groups for tests: a runtime in memory on virtual time, topics, and members of KIP-848.

The runtime keeps every record it was given, so that a test can compare the living state with a replay at any moment.
"""

from collections.abc import Mapping
from typing import Any

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, ResolvePatterns, SetTimer
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.group_steps import TOPICS_AT_ONCE
from kafkalite.state.groups.consumer.groups import ConsumerGroups
from kafkalite.state.groups.consumer.requests import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupSettings,
    HeartbeatResult,
    Topic,
)

WALL_MS = 1_700_000_000_000


class FakeTopics:
    """Topics by name, which a test makes, grows and deletes."""

    def __init__(self, **sizes: int) -> None:
        self._made = 0
        self.topics: dict[str, Topic] = {}
        for name, partitions in sizes.items():
            self.make(name, partitions)

    def make(self, name: str, partitions: int) -> None:
        self._made += 1
        self.topics[name] = Topic(self._made.to_bytes(16, "big"), name, partitions)

    def grow(self, name: str, partitions: int) -> None:
        self.topics[name] = self.topics[name]._replace(partitions=partitions)

    def by_name(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)


def durable(groups: ConsumerGroups) -> dict[str, dict[str, Any]]:
    """All that is durable of a machine, to be compared."""
    return {group_id: {**vars(group), "context": None} for group_id, group in groups.groups.items()}


class Shard:
    """A machine with what a runtime does for it: append, apply, timers, questions."""

    def __init__(
        self, topics: FakeTopics, settings: ConsumerGroupSettings | None = None, topics_at_once: int = TOPICS_AT_ONCE
    ) -> None:
        self.topics = topics
        self.topics_at_once = topics_at_once
        self.settings = settings or ConsumerGroupSettings(assignment_interval_ms=0)
        self.ms = 0
        self.log: list[object] = []
        self.timers: dict[tuple[str, ...], int] = {}
        self.questions: list[ResolvePatterns] = []
        self.machine = self._machine()

    def _machine(self) -> ConsumerGroups:
        return ConsumerGroups(self.topics, lambda group_id: self.settings, topics_at_once=self.topics_at_once)

    @property
    def now(self) -> Now:
        return Now(self.ms, WALL_MS + self.ms)

    def group(self, group_id: str = "g") -> ConsumerGroup:
        return self.machine.groups[group_id]

    def run(self, effects: Effects) -> list[Any]:
        """Do what a command led to; answer the results that were sent."""
        for record in effects.records:
            self.machine.apply(record)
        self.log += effects.records
        for timer in effects.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.name] = timer.at_ms
            else:
                self.timers.pop(timer.name, None)
        self.questions += effects.questions
        return [answer.result for answer in effects.answers]

    def heartbeat(self, request: ConsumerGroupHeartbeat) -> HeartbeatResult:
        (result,) = self.run(self.machine.heartbeats.heartbeat(request, "token", self.now))
        assert isinstance(result, HeartbeatResult)
        return result

    def append(self, records: list[object]) -> None:
        self.run(Effects(records=records))

    def advance(self, ms: int) -> None:
        """Let time pass; what is due fires in order."""
        end_ms = self.ms + ms
        while due := [name for name in self.timers if self.timers[name] <= end_ms]:
            name = min(due, key=lambda name: (self.timers[name], name))
            self.ms = max(self.ms, self.timers.pop(name))
            self.run(self.machine.fire_timer(name, self.now))
        self.ms = end_ms

    def replayed(self) -> ConsumerGroups:
        machine = self._machine()
        for record in self.log:
            machine.apply(record)
        return machine

    def restart(self) -> None:
        """The broker stops and another takes over."""
        self.machine, self.timers, self.questions = self.replayed(), {}, []
        for effects in self.machine.start_timers(self.now):
            self.run(effects)

    def answer_questions(self) -> None:
        """Match as RE2 would for the patterns that tests use: a prefix and `.*`."""
        for question in self.questions:
            found = {
                pattern: [name for name in self.topics.topics if name.startswith(pattern.removesuffix(".*"))]
                for pattern in question.patterns
            }
            self.run(self.machine.patterns_resolved(question.group, found, self.now))
        self.questions = []


Owned = dict[bytes, frozenset[int]]


class Client:
    """A consumer: applies each response, revokes partitions on request, and joins again when it is fenced."""

    def __init__(
        self,
        shard: Shard,
        member_id: str,
        *topics: str,
        group: str = "g",
        rebalance_timeout_ms: int = 60_000,
        **more: Any,
    ) -> None:
        self.shard, self.member_id, self.group = shard, member_id, group
        self.topics, self.more = topics, more
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.start_anew()

    def start_anew(self) -> None:
        self.epoch = 0
        self.owned: Owned = {}
        self.received: Owned = {}
        self.dirty = False  # what it owns has changed since it last said so
        self.full = False  # a response was lost: the next heartbeat is a full one

    @property
    def topic_partitions(self) -> set[tuple[bytes, int]]:
        return {(topic, partition) for topic, partitions in self.owned.items() for partition in partitions}

    def request(self) -> ConsumerGroupHeartbeat:
        everything: Mapping[str, Any] = {}
        if self.epoch == 0 or self.full:
            everything = {
                "rebalance_timeout_ms": self.rebalance_timeout_ms,
                "subscribed_topic_names": self.topics,
                "owned": self.owned,
            } | self.more
        elif self.dirty:
            everything = {"owned": self.owned}
        extra = {"instance_id": self.more["instance_id"]} if "instance_id" in self.more else {}
        return ConsumerGroupHeartbeat(self.group, self.member_id, self.epoch, **{**extra, **everything})

    def fast_heartbeat(self, *, revokes: bool = True) -> HeartbeatResult:
        """One heartbeat; without `revokes` the client keeps what it is to give up."""
        if revokes:
            self.obey()
        result = self.shard.heartbeat(self.request())
        self.take(result)
        if revokes or not any(held - self.received.get(topic, frozenset()) for topic, held in self.owned.items()):
            self.obey()
        return result

    def lose_answer(self) -> None:
        """A heartbeat whose answer never comes."""
        self.shard.heartbeat(self.request())
        self.full = True

    def take(self, result: HeartbeatResult) -> None:
        if result.error != KafkaErrorCode.NONE:
            self.start_anew()
            return
        self.epoch, self.full, self.dirty = result.member_epoch, False, False
        if result.assignment is not None:
            self.received = dict(result.assignment)

    def obey(self) -> None:
        """Own the assigned partitions."""
        if self.owned != self.received:
            self.owned, self.dirty = self.received, True

    def subscribe(self, *topics: str) -> None:
        self.topics, self.full = topics, True

    def leave(self, epoch: int = LEAVE_EPOCH) -> HeartbeatResult:
        request = ConsumerGroupHeartbeat(self.group, self.member_id, epoch, instance_id=self.more.get("instance_id"))
        result = self.shard.heartbeat(request)
        self.start_anew()
        return result

    def step_aside(self) -> HeartbeatResult:
        return self.leave(STATIC_LEAVE_EPOCH)


def stabilize(*clients: Client, repeats: int = 12) -> None:
    """All members send heartbeats, one after the other, until no assignment changes any more."""
    for _ in range(repeats):
        before = [(client.epoch, client.owned, client.dirty) for client in clients]
        for client in clients:
            client.fast_heartbeat()
        if before == [(client.epoch, client.owned, client.dirty) for client in clients]:
            return
    raise AssertionError(f"not settled after {repeats} rounds: {before}")
