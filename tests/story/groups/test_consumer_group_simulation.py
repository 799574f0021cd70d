"""Simulation of a consumer group in virtual time: members join, expire, lose responses, are replaced and rewound;
topics are created, grow and are deleted; the broker restarts. The invariants are checked after every step; at the end
all members own their targets.

KAFKALITE_SEED replays one simulation; `--simulations` and `--minutes` say how many there are and how long.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects
from kafkalite.state.groups.consumer import reconciliation
from kafkalite.state.groups.consumer.group import ConsumerGroupState
from kafkalite.state.groups.consumer.group_steps import GroupSteps
from kafkalite.state.groups.consumer.groups import SESSION, ConsumerGroups
from kafkalite.state.groups.consumer.heartbeat_interval import SHORT_MS, WaitingMembers
from kafkalite.state.groups.consumer.reconciliation import TRANSITIONS, MemberState
from kafkalite.state.groups.consumer.requests import ConsumerGroupSettings, HeartbeatResult
from kafkalite.state.groups.consumer.target_assignment import deferred_ms
from kafkalite.state.groups.group import TopicIdPartition
from tests.kit.consumer_groups import Client, FakeTopics, Shard, durable
from tests.kit.weighted_choice import Operations
from tests.story.groups.simulations import Taken, assert_finds, at_once, run_operations, simulate_all

MINUTES = 3  # of virtual time in a simulation with a seeded bug
NAMES = ["aa", "ab", "ba", "bb"]
FINAL = {
    KafkaErrorCode.FENCED_INSTANCE_ID,
    KafkaErrorCode.UNRELEASED_INSTANCE_ID,
    KafkaErrorCode.GROUP_MAX_SIZE_REACHED,
}


class Simulation:
    """One group under random operations."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.topics = FakeTopics(aa=5, ba=3)
        interval_ms = self.random.choice([0, 1_000, 15_000])
        settings = ConsumerGroupSettings(assignment_interval_ms=interval_ms, max_size=6)
        self.shard = Shard(self.topics, settings, at_once(seed))
        self.clients: list[Client] = []
        self.made = 0
        self.epoch = 0

    def client(self) -> Client | None:
        return self.random.choice(self.clients) if self.clients else None

    def run(self, minutes: int) -> None:
        operations: Operations[object] = {
            self.fast_heartbeat: 60, self.heartbeat_without_revocation: 6, self.lose_answer: 6, self.join: 8,
            self.leave: 3, self.step_aside: 3, self.crash: 3, self.subscribe: 4, self.change_topics: 4,
            self.advance: 12, self.restart: 2, self.rewind: 3, self.resolve: 6, self.fail_to_resolve: 1,
            self.store_the_future: 3, self.delete_group: 1,
        }  # fmt: skip
        run_operations(self.random, minutes, lambda: self.shard.ms, operations, self.check, self.check_replay)
        self.run_until_stable()

    def fast_heartbeat(self) -> None:
        if client := self.client():
            result = client.fast_heartbeat()
            self.check_interval(client, result)
            if result.error == KafkaErrorCode.FENCED_INSTANCE_ID:
                self.clients.remove(client)

    def heartbeat_without_revocation(self) -> None:
        if client := self.client():
            client.fast_heartbeat(revokes=False)

    def lose_answer(self) -> None:
        if client := self.client():
            client.lose_answer()

    def subscription(self) -> tuple[tuple[str, ...], dict[str, Any]]:
        pattern = self.random.choice(["", "", "a.*", "b.*"])
        names = self.random.sample(NAMES, self.random.randint(0 if pattern else 1, 3))
        return tuple(names), {"subscribed_topic_regex": pattern}

    def join(self) -> None:
        names, more = self.subscription()
        self.made += 1
        if self.random.random() < 0.4:
            more["instance_id"] = f"host-{self.random.randint(1, 3)}"
        if self.random.random() < 0.3:
            more["server_assignor"] = self.random.choice(["range", "uniform"])
        client = Client(self.shard, f"member-{self.made}", *names, rebalance_timeout_ms=30_000, **more)
        result = client.fast_heartbeat()
        self.check_interval(client, result, joins=True)
        if result.error == KafkaErrorCode.NONE:
            self.clients.append(client)

    def leave(self) -> None:
        if client := self.client():
            self.clients.remove(client)
            client.leave()

    def step_aside(self) -> None:
        client = self.client()
        if client and "instance_id" in client.more:
            self.clients.remove(client)
            client.step_aside()

    def crash(self) -> None:
        """A process stops; another may start with the same member id, and perhaps other topics."""
        if client := self.client():
            if self.random.random() < 0.3:
                self.clients.remove(client)
                return
            client.start_anew()
            if self.random.random() < 0.7:
                names, more = self.subscription()
                client.more |= more
                client.subscribe(*names)

    def subscribe(self) -> None:
        if client := self.client():
            names, more = self.subscription()
            client.more |= more
            client.subscribe(*names)

    def change_topics(self) -> None:
        name = self.random.choice(NAMES)
        known = self.topics.topics.get(name)
        if known is None:
            self.topics.make(name, self.random.randint(1, 6))
        elif self.random.random() < 0.3:
            del self.topics.topics[name]
        else:
            self.topics.grow(name, known.partitions + self.random.randint(1, 3))
        self.shard.machine.topics_changed([name])

    def advance(self) -> None:
        self.shard.advance(self.random.choice([10, 1_000, 5_000, 12_000, 40_000]))

    def restart(self) -> None:
        self.shard.restart()

    def rewind(self) -> None:
        group = self.shard.machine.groups.get("g")
        if group and group.owners:
            topic_id, partition = self.random.choice(sorted(group.owners))
            fenced = group.fence_owners([TopicIdPartition(topic_id, "", partition)], self.shard.now)
            self.shard.append(fenced.records)

    def resolve(self) -> None:
        self.shard.answer_questions()

    def fail_to_resolve(self) -> None:
        self.shard.questions.clear()
        self.shard.machine.patterns_failed("g")

    def store_the_future(self) -> None:
        group = self.shard.machine.groups.get("g")
        if group and group.currents:
            member_id = self.random.choice(sorted(group.currents))
            self.shard.append([group.currents[member_id]._replace(state=42)])

    def delete_group(self) -> None:
        group = self.shard.machine.groups.get("g")
        if group and group.state is ConsumerGroupState.EMPTY:
            self.shard.append(group.delete(self.shard.now).records)
            self.epoch = 0

    def check(self) -> None:
        group = self.shard.machine.groups.get("g")
        if group is None:
            return
        assert group.epoch >= self.epoch, "the group epoch went back"
        assert group.assignment_epoch <= group.epoch
        self.epoch = group.epoch
        owned = Counter(
            (topic, partition)
            for current in group.currents.values()
            for epochs_by_topic in (current.assigned, current.pending_revocation)
            for topic, epochs in epochs_by_topic.items()
            for partition in epochs
        )
        assert not [topic_partition for topic_partition, owners in owned.items() if owners > 1], (
            "a partition was given to two members"
        )
        assert owned.keys() == group.owners.keys()
        believed = Counter(
            topic_partition
            for client in self.clients
            for topic_partition in client.topic_partitions
            # by epochs alone: the rejection of late commits must not hide a missing revocation
            if group.validate_offset_commit(client.member_id, None, client.epoch)
            ._replace(owners={}, behind=False)
            .of_partition(*topic_partition)
            == KafkaErrorCode.NONE
        )
        assert not [topic_partition for topic_partition, owners in believed.items() if owners > 1], (
            "two members may commit one partition"
        )
        timers = {name[3] for name in self.shard.timers if name[1] == SESSION}
        assert group.members.keys() <= timers, "a member has no session timer"

    def check_interval(self, client: Client, result: HeartbeatResult, *, joins: bool = False) -> None:
        """A member that lacks nothing has the configured interval, one that joins and waits has a short one."""
        if result.error:
            return
        group, settings = self.shard.group(), self.shard.settings
        pattern = group.members[client.member_id].subscribed_topic_regex
        is_complete = group.is_reconciled(client.member_id) and group.epoch == group.assignment_epoch
        is_revoking = group.current(client.member_id).state == MemberState.UNREVOKED_PARTITIONS
        if is_revoking or (is_complete and (not pattern or pattern in group.patterns)):
            assert result.heartbeat_interval_ms == settings.heartbeat_interval_ms
        elif joins:
            longest_ms = max(SHORT_MS, deferred_ms(group, settings, self.shard.now) or 0)
            assert result.heartbeat_interval_ms <= longest_ms, "a member waits a heartbeat interval for its partitions"

    def check_replay(self) -> None:
        assert durable(self.shard.replayed()) == durable(self.shard.machine)

    def run_until_stable(self) -> None:
        """Only heartbeats are sent: afterwards all members own their targets."""
        for _ in range(30):
            for client in list(self.clients):
                result = client.fast_heartbeat()
                if result.error in FINAL:
                    self.clients.remove(client)
                self.check()
            self.shard.answer_questions()
            self.shard.advance(4_000)
        self.check_replay()
        group = self.shard.machine.groups.get("g")
        if group is None or not self.clients:
            return
        assert group.state is ConsumerGroupState.STABLE
        assert {client.member_id for client in self.clients} == set(group.members)
        for client in self.clients:
            assert client.owned == dict(group.targets[client.member_id])
        found = filter(None, map(self.topics.by_name, group.subscribed_topics()))
        assert group.owners.keys() == {(t.topic_id, p) for t in found for p in range(t.partitions)}


def simulate(seed: int, minutes: int) -> None:
    Simulation(seed).run(minutes)


@pytest.mark.torture
def test_random_operations_keep_invariants_and_take_every_transition(
    simulations: int, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = Taken(TRANSITIONS)
    monkeypatch.setattr(reconciliation, "TRANSITIONS", taken)
    simulate_all(simulate, simulations, minutes)
    taken.assert_all()


def skip_revocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition is assigned before the previous owner has revoked it."""
    monkeypatch.setattr(reconciliation, "_holds", lambda owned, partitions: False)


def ignore_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """The current owners of partitions are ignored."""
    towards_target = reconciliation._towards_target

    def blind(current: Any, now: Any) -> Any:
        return towards_target(current, now._replace(owners={}))

    monkeypatch.setattr(reconciliation, "_towards_target", blind)


def lose_timers_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart no session timer is set."""
    monkeypatch.setattr(ConsumerGroups, "start_timers", lambda machine, now: iter(()))


def lose_scheduled_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer that makes a target assignment does nothing."""
    monkeypatch.setattr(GroupSteps, "make_scheduled_target", lambda *_: Effects())


def return_the_configured_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that wait for partitions have the interval of the others."""

    def configured(*given: Any, **more: Any) -> int:
        settings: ConsumerGroupSettings = given[3]
        return settings.heartbeat_interval_ms

    monkeypatch.setattr(WaitingMembers, "interval_ms", configured)


BUGS = [
    *(skip_revocation, ignore_owners, lose_timers_at_load, lose_scheduled_targets),
    return_the_configured_interval,
]


@pytest.mark.parametrize("bug", BUGS)
def test_seeded_bugs_are_detected(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    assert_finds(bug, simulate, MINUTES)
