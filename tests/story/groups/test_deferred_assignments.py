"""Members of consumer groups whose partitions are not there yet, in virtual time: they send heartbeats at the intervals
of the responses, as Java, librdkafka and franz-go do, and at once when they have revoked or received partitions.
"""

import pytest

from kafkalite.state.groups.consumer.group import ConsumerGroupState
from kafkalite.state.groups.consumer.heartbeat_interval import SHORT_MS
from kafkalite.state.groups.consumer.reconciliation import MemberState
from kafkalite.state.groups.consumer.requests import ConsumerGroupSettings
from tests.kit.consumer_groups import Client, FakeTopics, Shard

INTERVAL_MS = 5_000
ASSIGNMENT_INTERVAL_MS = 1_000
SETTINGS = ConsumerGroupSettings(
    heartbeat_interval_ms=INTERVAL_MS, assignment_interval_ms=ASSIGNMENT_INTERVAL_MS, session_timeout_ms=45_000
)
MANY = [f"t{number:04}" for number in range(2_000)]


class Members:
    """Clients of one group that send heartbeats when they are due.

    Attributes:
        sent: times and intervals of the heartbeats of each member.
        busy: members that do not revoke partitions.
    """

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.sent: dict[str, list[tuple[int, int]]] = {}
        self.busy: set[str] = set()
        self._clients: dict[str, Client] = {}
        self._due_ms: dict[str, int] = {}

    def start(self, name: str, *topics: str, pattern: str = "", rebalance_timeout_ms: int = 60_000) -> Client:
        client = Client(
            self.shard, name, *topics, rebalance_timeout_ms=rebalance_timeout_ms, subscribed_topic_regex=pattern
        )
        self._clients[name], self._due_ms[name], self.sent[name] = client, self.shard.ms, []
        self._send(name)
        return client

    def stop(self, name: str) -> None:
        self._clients.pop(name).leave()
        del self._due_ms[name]

    def resubscribe(self, name: str, *topics: str) -> None:
        self._clients[name].subscribe(*topics)
        self.sent[name].clear()
        self._due_ms[name] = self.shard.ms
        self._send(name)

    def run(self, ms: int) -> None:
        """Let time pass; heartbeats are sent when they are due, patterns are resolved between them."""
        end_ms = self.shard.ms + ms
        while due := [(at_ms, name) for name, at_ms in self._due_ms.items() if at_ms <= end_ms]:
            at_ms, name = min(due)
            self.shard.advance(at_ms - self.shard.ms)
            self.shard.answer_questions()
            self._send(name)
        self.shard.advance(end_ms - self.shard.ms)

    def _send(self, name: str) -> None:
        client = self._clients[name]
        result = client.fast_heartbeat(revokes=name not in self.busy)
        assert result.error == 0
        self.sent[name].append((self.shard.ms, result.heartbeat_interval_ms))
        self._due_ms[name] = self.shard.ms + (0 if client.dirty else result.heartbeat_interval_ms)


@pytest.fixture
def members() -> Members:
    return Members(Shard(FakeTopics(flights=4, weather=2), SETTINGS))


def test_member_of_many_topics_receives_its_assignment_with_its_second_heartbeat() -> None:
    members = Members(Shard(FakeTopics(**dict.fromkeys(MANY, 1)), SETTINGS))
    alice = members.start("alice", *MANY)
    assert not alice.owned
    members.run(SHORT_MS)
    assert len(alice.owned) == len(MANY)
    assert members.sent["alice"][:2] == [(0, SHORT_MS), (SHORT_MS, INTERVAL_MS)]


def test_member_that_joins_after_the_former_has_left_waits_for_the_assignment_interval(members: Members) -> None:
    members.start("alice", "flights")
    members.stop("alice")
    members.run(400)
    bob = members.start("bob", "flights")
    members.run(ASSIGNMENT_INTERVAL_MS - 400)
    assert len(bob.topic_partitions) == 4
    assert members.sent["bob"][:2] == [(400, 600), (1_000, INTERVAL_MS)]


def test_changed_subscription_waits_for_the_assignment_interval(members: Members) -> None:
    alice = members.start("alice", "flights")
    members.resubscribe("alice", "flights", "weather")
    members.run(ASSIGNMENT_INTERVAL_MS)
    assert len(alice.topic_partitions) == 6
    assert members.sent["alice"][:2] == [(0, ASSIGNMENT_INTERVAL_MS), (ASSIGNMENT_INTERVAL_MS, INTERVAL_MS)]


def test_member_that_waits_for_nothing_keeps_its_interval(members: Members) -> None:
    members.start("alice", "flights")
    members.start("bob", "flights")
    members.run(60_000)
    assert {interval_ms for _, interval_ms in members.sent["alice"]} == {INTERVAL_MS}
    assert members.shard.group().state is ConsumerGroupState.STABLE


def test_pattern_is_assigned_with_the_next_heartbeat(members: Members) -> None:
    alice = members.start("alice", pattern="fl.*")
    members.run(SHORT_MS)
    assert len(alice.topic_partitions) == 4
    assert members.sent["alice"][:2] == [(0, SHORT_MS), (SHORT_MS, INTERVAL_MS)]


def test_target_without_topics_defers_no_other(members: Members) -> None:
    alice = members.start("alice", "unknown")
    members.resubscribe("alice", "flights")
    assert len(alice.topic_partitions) == 4
    bob = members.start("bob", "flights")
    assert not bob.topic_partitions, "a target with topics defers the next one"


def test_second_pattern_of_a_group_is_resolved_at_once(members: Members) -> None:
    members.start("alice", pattern="fl.*")
    members.run(2_000)
    bob = members.start("bob", pattern="w.*")
    members.run(SHORT_MS)
    assert len(bob.topic_partitions) == 2
    assert members.sent["bob"][:2] == [(2_000, SHORT_MS), (2_000 + SHORT_MS, INTERVAL_MS)]


def test_pattern_whose_resolution_fails_is_resolved_again_soon(members: Members) -> None:
    alice = members.start("alice", pattern="fl.*")
    members.shard.questions.clear()
    members.shard.machine.patterns_failed("g")
    members.run(2 * SHORT_MS)
    assert len(alice.topic_partitions) == 4


def test_released_partitions_arrive_within_a_quarter_of_the_wait(members: Members) -> None:
    alice = members.start("alice", "flights")
    members.run(INTERVAL_MS - 100)
    joined_ms = members.shard.ms
    bob = members.start("bob", "flights")
    members.busy.add("alice")
    members.run(3_000)
    members.busy.clear()
    members.run(INTERVAL_MS)
    assert len(alice.topic_partitions) == len(bob.topic_partitions) == 2
    released_ms = next(at_ms for at_ms, _ in members.sent["alice"] if at_ms > joined_ms + 3_000)
    received_ms = next(at_ms for at_ms, interval_ms in members.sent["bob"] if interval_ms == INTERVAL_MS)
    assert 0 <= received_ms - released_ms <= (released_ms - joined_ms) / 4 + SHORT_MS


def test_member_whose_partitions_another_one_keeps_slows_down(members: Members) -> None:
    minutes = 10
    members.start("alice", "flights", rebalance_timeout_ms=(minutes + 1) * 60_000)
    members.run(ASSIGNMENT_INTERVAL_MS)
    members.busy.add("alice")
    members.start("bob", "flights")
    members.run(minutes * 60_000)
    assert members.shard.group().current("bob").state == MemberState.UNRELEASED_PARTITIONS
    assert members.shard.group().current("alice").state == MemberState.UNREVOKED_PARTITIONS
    intervals = [interval_ms for _, interval_ms in members.sent["bob"]]
    assert intervals == sorted(intervals) and (intervals[0], intervals[-1]) == (SHORT_MS, INTERVAL_MS)
    assert len(intervals) <= minutes * 60_000 // INTERVAL_MS + 20
    assert {interval_ms for _, interval_ms in members.sent["alice"]} == {INTERVAL_MS}


def test_interval_shorter_than_the_shortest_deferral_is_kept() -> None:
    shard = Shard(FakeTopics(flights=4), SETTINGS._replace(heartbeat_interval_ms=SHORT_MS // 2))
    members = Members(shard)
    members.start("alice", pattern="fl.*")
    assert members.sent["alice"] == [(0, SHORT_MS // 2)]


def test_members_that_start_together_share_the_partitions(members: Members) -> None:
    clients = [members.start(name, "flights") for name in ("alice", "bob", "carol", "dave")]
    members.run(2 * INTERVAL_MS)
    assert [len(client.topic_partitions) for client in clients] == [1, 1, 1, 1]


def test_waiting_members_are_forgotten_when_they_leave(members: Members) -> None:
    members.start("alice", "flights")
    members.start("bob", "flights")
    assert members.shard.machine.steps.waiting.count == 1
    members.stop("bob")
    assert members.shard.machine.steps.waiting.count == 0
