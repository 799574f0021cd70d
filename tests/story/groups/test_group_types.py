"""Random valid and invalid requests of clients of all protocols to a few groups of a shard: a
name belongs to one kind at a time, errors are those that are promised, and a restart finds what was there.

KAFKALITE_SEED replays one history; there is one for each fourth life of the simulations (`--simulations`).
"""

import pytest

from kafkalite.coordinators.group.serde import GroupRecordSerde
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.groups.classic.requests import ErrorOnly, Join, Joined, Leave, LeaveOf, Left
from kafkalite.state.groups.classic.settings import ClassicSettings
from kafkalite.state.groups.consumer.groups import ConsumerGroups
from kafkalite.state.groups.consumer.requests import ConsumerGroupHeartbeat, ConsumerGroupSettings, HeartbeatResult
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import Commit, CommitResult, OffsetSettings, PartitionCommit
from kafkalite.state.groups.records import CLASSIC, CONSUMER, REGISTERED
from kafkalite.state.groups.registered.requests import (
    ConsumerRegistered,
    CreateGroup,
    HeartbeatAnswered,
    HeartbeatPlus,
    RegisterConsumer,
)
from tests.kit.consumer_groups import FakeTopics
from tests.kit.weighted_choice import Operations
from tests.story.groups.faults import Chaos
from tests.story.groups.heartbeats import consumer_heartbeat
from tests.story.groups.simulated_shard import check_changed_topics, committing
from tests.story.groups.simulations import ONE, simulate_all
from tests.story.groups.test_registered_simulation import durable

SHARE = 4  # of --simulations
REQUESTS = 500
REBALANCE_MAX_MS = 20_000
CODEC = GroupRecordSerde()
INVALID_GROUP_ID, INCONSISTENT = Error.INVALID_GROUP_ID, Error.INCONSISTENT_GROUP_PROTOCOL
UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION = Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION
INVALID_SESSION_TIMEOUT, INVALID_REQUEST = Error.INVALID_SESSION_TIMEOUT, Error.INVALID_REQUEST
ALLOWED: dict[type, set[Error]] = {
    ConsumerRegistered: {
        Error.NONE, INVALID_GROUP_ID, INVALID_REQUEST, INVALID_SESSION_TIMEOUT, Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNRELEASED_INSTANCE_ID, Error.GROUP_MAX_SIZE_REACHED, INCONSISTENT, Error.REBALANCE_IN_PROGRESS,
        UNKNOWN_MEMBER_ID,
    },
    HeartbeatAnswered: {
        Error.NONE, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, INVALID_SESSION_TIMEOUT, ILLEGAL_GENERATION,
        Error.REBALANCE_IN_PROGRESS,
    },
    ErrorOnly: {
        Error.NONE, INVALID_GROUP_ID, INVALID_REQUEST, INVALID_SESSION_TIMEOUT, Error.UNSUPPORTED_ASSIGNOR,
        INCONSISTENT, Error.NON_EMPTY_GROUP,
    },
    Left: {Error.NONE, INVALID_GROUP_ID},
    Joined: {
        Error.NONE, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, INCONSISTENT, Error.GROUP_MAX_SIZE_REACHED,
        Error.REBALANCE_IN_PROGRESS,
    },
    HeartbeatResult: {
        Error.NONE, INVALID_REQUEST, Error.GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, Error.FENCED_MEMBER_EPOCH,
    },
    CommitResult: {
        Error.NONE, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, Error.GROUP_ID_NOT_FOUND,
        Error.STALE_MEMBER_EPOCH, Error.REBALANCE_IN_PROGRESS,
    },
}  # fmt: skip


class Crowd(Chaos):
    """Clients of all protocols that use the same group names."""

    allowed = ALLOWED
    requests = REQUESTS

    def __init__(self, seed: int) -> None:
        self.topics = FakeTopics(a=3, b=1)
        super().__init__(seed)
        self.registry: set[str] = set()
        self.read = 0

    def _make(self) -> GroupMachine:
        consumers = ConsumerGroups(self.topics, lambda _: ConsumerGroupSettings())
        return GroupMachine(ClassicSettings(members_max=3), OffsetSettings(), consumers)

    def operations(self) -> Operations[object]:
        return {
            self.register: 30, self.fast_heartbeat: 20, self.create: 4, self.leave: 8, self.join: 8, self.consume: 12,
            self.commit: 15, self.rewind: 3, self.delete: 3, self.change_topics: 2, self.resolve: 4, self.wait: 12,
            self.restart: 1,
        }  # fmt: skip

    def register(self) -> None:
        claims = frozenset(
            (self.pick(("a", "b", "c")), self.dice.randrange(-1, 4)) for _ in range(self.mostly(0, 1, 2))
        )
        request = RegisterConsumer(
            self.group(),
            self.member(),
            self.pick((("a",), ("a", "b", "a"), (), ("nowhere",))),
            claims,
            self.mostly(10_000, 0, -1, 2**31 - 1),
            self.mostly(REBALANCE_MAX_MS, 0, -5),
        )
        self.shard.ask(lambda machine, token, now: machine.registry.register(request, token, now))

    def fast_heartbeat(self) -> None:
        request = HeartbeatPlus(self.group(), self.member(), self.generation(), self.mostly(0, 6_000, -1))
        self.shard.ask(lambda machine, token, now: machine.registered.heartbeat(request, token, now))

    def create(self) -> None:
        topics, pattern = self.pick(((("a",), None), ((), "a.*"), ((), None), (("a",), "b")))
        request = CreateGroup(
            self.group(), self.mostly(10_000, 0), topics, pattern, self.mostly("range", "chance"),
            ephemeral=self.dice.random() < 0.3,
        )  # fmt: skip
        self.shard.ask(lambda machine, token, now: machine.registry.create(request, token, now))

    def leave(self) -> None:
        request = Leave(self.group(), tuple(LeaveOf(self.member(), self.mostly(None, "i")) for _ in range(2)))
        self.shard.ask(lambda machine, token, now: machine.registry.leave(request, token, now))

    def join(self) -> None:
        request = Join(
            self.group(), "", f"{self.dice.getrandbits(64):x}", "consumer", (("range", b""),), 10_000, 5_000, "c", "h",
            member_id_required=False,
        )  # fmt: skip
        self.shard.ask(lambda machine, token, now: machine.registry.join(request, token, now))

    def consume(self) -> None:
        epoch = self.pick((0, 0, 0, -1, self.generation()))
        fast_heartbeat = ConsumerGroupHeartbeat(self.group(), self.member(), epoch)
        if epoch == 0:
            fast_heartbeat = fast_heartbeat._replace(
                rebalance_timeout_ms=5_000, subscribed_topic_names=("a",), owned={}
            )
        self.shard.ask(lambda machine, token, now: consumer_heartbeat(machine, fast_heartbeat, token, now))

    def commit(self) -> None:
        parts = [PartitionCommit(self.pick(("a", "b")), self.dice.randrange(3), self.dice.randrange(9))]
        request = Commit(self.group(), parts, self.member(), self.generation())
        self.shard.ask(committing(request))

    def rewind(self) -> None:
        name, parts = self.group(), [PartitionCommit("a", self.dice.randrange(3), 1, topic_id=self.topic_id("a"))]
        self.shard.ask(lambda machine, token, now: machine.rewind(name, parts, token, now))

    def delete(self) -> None:
        names = [self.group(), self.group()]
        self.shard.ask(lambda machine, token, now: machine.delete_groups(names, token, now))

    def change_topics(self) -> None:
        known = self.topics.topics["a"]
        self.topics.topics["a"] = known._replace(partitions=self.dice.randrange(1, 5))
        self.shard.machine.consumers.topics_changed(["a"])
        self.shard.do(check_changed_topics(self.shard.machine.registered, ["a"], self.shard.now))

    def resolve(self) -> None:
        questions, self.shard.questions = self.shard.questions, []
        for question in questions:
            found = dict.fromkeys(question.patterns, ("a",))
            self.shard.do(self.shard.machine.patterns_resolved(question.group, found, self.shard.now))

    def wait(self) -> None:
        self.shard.advance(self.pick((1, 1_000, 5_000, 15_000)), self.check)

    def restart(self) -> None:
        self.shard.restart()

    # invariants

    def check(self) -> None:
        machine = self.shard.machine
        names = machine.registry.names()
        assert len(names) == len(set(names)), f"a name of two kinds: {names}"
        self.registry |= {listed.group_type for listed in machine.list_groups() if listed.protocol_type}
        for group in machine.registered.groups.values():
            assert group.stored is None or group.generation_record() == group.stored
        for since in self.shard.waiting.values():
            assert self.shard.ms - since <= 300_000, "a request is never answered"
        for record in self.shard.log[self.read :]:
            assert CODEC.decode(*CODEC.encode(record)) == record
        self.read = len(self.shard.log)
        self.receive()
        if self.dice.random() < 0.03:
            replayed = self.shard.replayed()
            assert durable(replayed.registered) == durable(machine.registered)
            assert sorted(replayed.names()) == sorted(machine.names())

    def group(self) -> str:
        return self.mostly(self.pick(("g", "h")), "")

    def member(self) -> str:
        return self.mostly(self.pick(("x", "y", "z")), "", "nobody")

    def generation(self) -> int:
        known = [group.generation for group in self.shard.machine.registered.groups.values()] or [1]
        return self.mostly(self.pick(known), -1, 0, 1, 2**31 - 1)

    def topic_id(self, name: str) -> bytes:
        return self.topics.topics[name].topic_id


@pytest.mark.torture
def test_random_joins_of_all_protocols_keep_one_group_type(simulations: int) -> None:
    registry: set[str] = set()

    def simulate(seed: int, _minutes: int) -> None:
        crowd = Crowd(seed)
        crowd.run()
        registry.update(crowd.registry)

    simulate_all(simulate, -(-simulations // SHARE), 0)
    assert ONE or registry == {CLASSIC, CONSUMER, REGISTERED}
