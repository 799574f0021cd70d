"""A late commit must not undo a rewind, even if the partition has no owner until members rejoin.

The commit arrives after later requests of its sender, over another connection: the sender has revoked the partition,
and it has no new owner. One story for each type of member, with and without a broker restart between rewind and commit.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from kafkalite.coordinators.group.consumer_protocol_serde import ConsumerProtocolSerde
from kafkalite.coordinators.group.settings import held_of, partitions_of, topics_of
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    write,
)
from kafkalite.state.effects import Token
from kafkalite.state.groups.classic.requests import Heartbeat, Join, Sync
from kafkalite.state.groups.classic.settings import ClassicSettings
from kafkalite.state.groups.consumer.groups import ConsumerGroups
from kafkalite.state.groups.consumer.requests import ConsumerGroupHeartbeat, ConsumerGroupSettings, MigrationPolicy
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import Commit, CommitResult, OffsetSettings, PartitionCommit
from kafkalite.state.groups.registered.requests import HeartbeatPlus, RegisterConsumer
from tests.kit.consumer_groups import FakeTopics
from tests.story.groups.simulated_shard import Shard

REWOUND_TO = 3
LATE = 90
Owned = Mapping[str, tuple[int, ...]]
restarts = pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])


class Story:
    """One group `g` that reads `orders` and `clicks`."""

    def __init__(self, interval_ms: int = 0) -> None:
        self.topics = FakeTopics(orders=2, clicks=1)
        self._interval_ms = interval_ms
        self.made = 0
        self.shard = Shard(self._make)

    def _make(self) -> GroupMachine:
        classic = ClassicSettings(initial_delay_ms=0, topics_of=topics_of, partitions_of=partitions_of, held_of=held_of)
        settings = ConsumerGroupSettings(
            assignment_interval_ms=self._interval_ms, migration=MigrationPolicy.BIDIRECTIONAL
        )
        return GroupMachine(
            classic, OffsetSettings(), ConsumerGroups(self.topics, lambda _: settings, ConsumerProtocolSerde())
        )

    def ask(self, part: str, command: str, request: Any) -> Token:
        def run(machine: GroupMachine, token: Token, now: Any) -> Any:
            return getattr(getattr(machine, part), command)(request, token, now)

        return self.shard.ask(run)

    def answer(self, part: str, command: str, request: Any) -> Any:
        return self.shard.answers[self.ask(part, command, request)]

    def commit(
        self, member: str, generation: int, *topic_partitions: tuple[str, int], offset: int = LATE
    ) -> tuple[int, ...]:
        parts = [
            PartitionCommit(name, at, offset, topic_id=self.topics.topics[name].topic_id)
            for name, at in topic_partitions
        ]
        done = self.answer("offsets", "commit", Commit("g", parts, member, generation))
        assert isinstance(done, CommitResult)
        return (done.error,) * len(topic_partitions) if done.error else done.errors

    def rewind(self, topic: str, partition: int) -> None:
        part = PartitionCommit(topic, partition, REWOUND_TO, topic_id=self.topics.topics[topic].topic_id)
        token = self.shard.ask(lambda machine, token, now: machine.rewind("g", [part], token, now))
        assert self.shard.answers[token] == CommitResult(0, (0,))

    def committed(self, topic: str, partition: int) -> int:
        return self.shard.machine.committed_offset("g", topic, partition)

    # classic members

    def join(self, member: str, owned: Owned, *, protocol: str = "cooperative-sticky") -> Token:
        named = [ConsumerProtocolSubscription.TopicPartition(topic=t, partitions=list(p)) for t, p in owned.items()]
        says = write(ConsumerProtocolSubscription(topics=["orders"], owned_partitions=named))
        self.made += 1
        request = Join(
            "g", member, f"{self.made}", "consumer", ((protocol, says),), 30_000, 30_000, "c", "h",
            member_id_required=False,
        )  # fmt: skip
        token = self.ask("registry", "join", request)
        self.shard.advance(0)  # there is no initial delay
        return token

    def joined(self, token: Token) -> tuple[str, int]:
        received: Any = self.shard.answers[token]
        assert not received.error, received
        return received.member_id, received.generation

    def sync(self, member: str, generation: int, parts: Mapping[str, Owned] = {}) -> Token:
        given = {name: _assignment(owned) for name, owned in parts.items()}
        return self.ask("registry", "sync", Sync("g", member, generation, given))


def _assignment(owned: Owned) -> bytes:
    named = [ConsumerProtocolAssignment.TopicPartition(topic=t, partitions=list(p)) for t, p in owned.items()]
    return write(ConsumerProtocolAssignment(assigned_partitions=named))


def hands_over(story: Story, protocol: str) -> tuple[str, str, int]:
    """Alice owns both partitions of `orders`; when Bob joins, she revokes one and rejoins."""
    eager = protocol == "range"
    alice, generation = story.joined(story.join("", {}, protocol=protocol))
    story.sync(alice, generation, {alice: {"orders": (0, 1)}})
    comes = story.join("", {}, protocol=protocol)
    again = story.join(alice, {} if eager else {"orders": (0, 1)}, protocol=protocol)
    (bob, generation), _ = story.joined(comes), story.joined(again)
    parts: dict[str, Owned] = {alice: {"orders": (0,)}, bob: {"orders": (1,)} if eager else {}}
    for member in (bob, alice):
        story.sync(member, generation, parts if member == alice else {})
    if eager:
        story.join("", {}, protocol=protocol)  # a third one: Bob gives all up
        story.join(bob, {}, protocol=protocol)
        return bob, alice, generation
    story.join(alice, {"orders": (0,)})
    return alice, bob, generation


@restarts
@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_late_commit_of_rejoining_classic_member(protocol: str, *, restarted: bool) -> None:
    story = Story()
    gone, stays, generation = hands_over(story, protocol)
    story.rewind("orders", 1)
    if restarted:
        story.shard.restart()
    refused = {Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION}
    assert set(story.commit(gone, generation, ("orders", 1))) <= refused
    assert set(story.commit(stays, generation, ("orders", 1))) <= refused
    assert story.committed("orders", 1) == REWOUND_TO


def test_other_partitions_are_committed_after_rewind_during_rebalance() -> None:
    story = Story()
    alice, _, generation = hands_over(story, "cooperative-sticky")
    story.rewind("orders", 1)
    assert story.commit(alice, generation, ("orders", 0), ("orders", 1)) == (0, Error.ILLEGAL_GENERATION)


def test_rewound_partition_is_committed_in_next_classic_generation() -> None:
    story = Story()
    alice, bob, _ = hands_over(story, "cooperative-sticky")
    story.rewind("orders", 1)
    _, generation = story.joined(story.join(bob, {}))
    story.sync(bob, generation)
    story.sync(alice, generation, {alice: {"orders": (0,)}, bob: {"orders": (1,)}})
    assert story.commit(bob, generation, ("orders", 1), offset=REWOUND_TO + 1) == (0,)


def test_rewind_of_unread_partition_fences_no_classic_member() -> None:
    story = Story()
    alice, generation = story.joined(story.join("", {}))
    story.sync(alice, generation, {alice: {"orders": (0, 1)}})
    story.rewind("clicks", 0)
    story.shard.restart()
    assert story.answer("registry", "heartbeat", Heartbeat("g", alice, generation)).error == 0
    assert story.commit(alice, generation, ("orders", 0), ("clicks", 0)) == (0, 0)


@restarts
def test_late_commit_of_upgraded_classic_member(*, restarted: bool) -> None:
    story = Story(interval_ms=15_000)
    alice, bob, generation = hands_over(story, "cooperative-sticky")
    story.rewind("orders", 1)
    carol = _beat("carol", 0, ["orders"])
    assert story.answer("registry", "consumer_heartbeat", carol).error == 0
    if restarted:
        story.shard.restart()
    for member in (alice, bob):
        assert story.commit(member, generation, ("orders", 1))[0] in (Error.ILLEGAL_GENERATION, Error.UNKNOWN_MEMBER_ID)
    assert story.committed("orders", 1) == REWOUND_TO


def _beat(member: str, epoch: int, names: list[str] | None = None, owned: Any = None) -> ConsumerGroupHeartbeat:
    if epoch == 0:
        owned = {}
    timeout_ms = 30_000 if epoch == 0 else -1
    return ConsumerGroupHeartbeat(
        "g", member, epoch, owned=owned, rebalance_timeout_ms=timeout_ms, subscribed_topic_names=names
    )


def unsubscribes(story: Story) -> int:
    """Alice of a consumer group unsubscribes from `clicks` before there is a new assignment: her epoch is unchanged."""
    alice = story.answer("registry", "consumer_heartbeat", _beat("alice", 0, ["clicks", "orders"]))
    orders = story.topics.topics["orders"].topic_id
    owned = {orders: frozenset({0, 1})}
    after = story.answer("registry", "consumer_heartbeat", _beat("alice", alice.member_epoch, ["orders"], owned))
    assert (after.error, after.member_epoch, after.assignment) == (0, alice.member_epoch, owned)
    return int(after.member_epoch)


@restarts
def test_late_commit_after_unsubscribe(*, restarted: bool) -> None:
    story = Story(interval_ms=15_000)
    epoch = unsubscribes(story)
    story.rewind("clicks", 0)
    if restarted:
        story.shard.restart()
    assert story.commit("alice", epoch, ("clicks", 0), ("orders", 0)) == (Error.STALE_MEMBER_EPOCH, 0)
    assert story.committed("clicks", 0) == REWOUND_TO


@restarts
def test_late_commit_after_unsubscribe_when_next_owner_is_fenced(*, restarted: bool) -> None:
    story = Story(interval_ms=15_000)
    epoch = unsubscribes(story)
    story.shard.advance(20_000)
    bob = story.answer("registry", "consumer_heartbeat", _beat("bob", 0, ["clicks"]))
    assert bob.assignment == {story.topics.topics["clicks"].topic_id: frozenset({0})}
    story.rewind("clicks", 0)
    if restarted:
        story.shard.restart()
    assert story.commit("alice", epoch, ("clicks", 0)) == (Error.STALE_MEMBER_EPOCH,)
    assert story.commit("bob", bob.member_epoch, ("clicks", 0)) == (Error.STALE_MEMBER_EPOCH,)
    assert story.committed("clicks", 0) == REWOUND_TO
    bob = story.answer("registry", "consumer_heartbeat", _beat("bob", 0, ["clicks"]))
    assert story.commit("bob", bob.member_epoch, ("clicks", 0), offset=REWOUND_TO + 1) == (0,)


def test_member_at_target_epoch_commits_unowned_partition() -> None:
    """As in Kafka; the same holds after a rewind of an unread partition, from the next heartbeat on."""
    story = Story()
    alice = story.answer("registry", "consumer_heartbeat", _beat("alice", 0, ["orders"]))
    assert story.commit("alice", alice.member_epoch, ("clicks", 0)) == (0,)
    story.rewind("clicks", 0)
    alice = story.answer("registry", "consumer_heartbeat", _beat("alice", alice.member_epoch))
    assert (alice.error, alice.assignment) == (0, None)
    assert story.commit("alice", alice.member_epoch, ("clicks", 0), ("orders", 1)) == (0, 0)


@restarts
def test_late_commit_of_registered_consumer(*, restarted: bool) -> None:
    """While the others wait for Bob, he owns his partitions; after the rewind his earlier commits are rejected."""
    story = Story()
    story.ask("registry", "register", _registration("alice"))
    comes = story.ask("registry", "register", _registration("bob"))
    alice = story.answer("registered", "heartbeat", HeartbeatPlus("g", "alice", 1))
    assert alice.error == Error.REBALANCE_IN_PROGRESS
    story.rewind("orders", 1)
    if restarted:
        story.shard.restart()
    assert story.commit("alice", 1, ("orders", 1), ("orders", 0)) == (Error.ILLEGAL_GENERATION, 0)
    if restarted:
        comes = story.ask("registry", "register", _registration("bob"))
    again = story.ask("registry", "register", _registration("alice"))
    received: Any = story.shard.answers
    owners = {"alice": received[again], "bob": received[comes]}
    for name, registered in owners.items():
        refused = story.commit(name, 1, ("orders", 1))
        assert refused[0] in (Error.ILLEGAL_GENERATION, Error.UNKNOWN_MEMBER_ID)
        reads = 1 in registered.partitions.get("orders", {})
        assert story.commit(name, registered.generation, ("orders", 1), offset=4)[0] == (
            0 if reads else Error.ILLEGAL_GENERATION
        )


def _registration(name: str) -> RegisterConsumer:
    return RegisterConsumer("g", name, ("orders",), frozenset(), 30_000, 30_000)
