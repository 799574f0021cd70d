"""Simulation of one group whose members are the SDK's membership machine, with the broker's group machines, in virtual
time: members join, leave, stop, restart, change their topics, and are too busy to poll; connections are lost, the
coordinator moves and restarts, an administrator rewinds, topics grow.

After each step: of all members that hold a partition one may commit it, and accepted commits never decrease an offset.
In the end every partition has one owner, and every member is stable. There is one mix for each protocol, for both of
Kafka's protocols in one group, and for members of the SDK together with other clients. KAFKALITE_SEED replays one
simulation; `--simulations` and `--minutes` say how many there are and how long.
"""

from collections.abc import Callable
from math import ceil
from typing import Any

import pytest
from kafkalite_sdk.membership import classic_leader
from kafkalite_sdk.membership.assignors import assignors_named
from kafkalite_sdk.membership.classic import ClassicMember
from kafkalite_sdk.membership.consumer import ConsumerMember
from kafkalite_sdk.membership.core import MemberCore
from kafkalite_sdk.membership.registered import RegisteredMember
from kafkalite_sdk.membership.settings import AUTO, CLASSIC, CONSUMER, REGISTERED, MembershipSettings

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.groups.consumer.requests import MigrationPolicy
from tests.kit.weighted_choice import Operations
from tests.story.groups.group_server import GroupServer
from tests.story.groups.readers import Reader
from tests.story.groups.sdk_reader import NO_FAULTS, SdkReader
from tests.story.groups.simulated_shard import check_changed_topics
from tests.story.groups.simulation import INSTANCES, REST_MS, SUBSCRIPTIONS, Simulation
from tests.story.groups.simulations import assert_finds, run_operations, simulate_all

MINUTES = 10
BARRIER_MAX_MS = 60_000

EAGER = (("range",), ("roundrobin", "range"), ("sticky", "range"), ("range", "cooperative-sticky"))
MIXES: dict[str, tuple[str, ...]] = {
    "eager": (CLASSIC,),
    "cooperative": (CLASSIC,),
    "consumer": (CONSUMER,),
    "registered": (REGISTERED,),
    "both": (CLASSIC, CONSUMER),
    "auto": (AUTO,),
    "foreign": (CLASSIC, CONSUMER),
}
UNAVAILABLE = (Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_LOAD_IN_PROGRESS)


class SdkSimulation(Simulation):
    """One group under random operations."""

    def __init__(self, seed: int, mix: str) -> None:
        super().__init__(seed, "mixed")
        self.protocols = MIXES[mix]
        self.foreign = mix == "foreign"
        self.cooperative = mix == "cooperative" or (mix in ("both", "foreign") and self.dice.random() < 0.5)
        self.eager = not self.cooperative
        if len(self.protocols) > 1:
            self.policy = MigrationPolicy.BIDIRECTIONAL
        self.server = GroupServer(self.shard, self.topics, self.dice)
        self.available_at_ms = 0

    def run(self, minutes: int) -> None:
        operations: Operations[object] = {
            self.consume: 80, self.start: 8, self.leave: 2, self.vanish: 2, self.send_late_commits: 3,
            self.restart_static: 2, self.silence: 1, self.restart_broker: 2, self.move_coordinator: 2,
            self.rewind: 2, self.grow: 1, self.subscribe: 2,
        }  # fmt: skip
        run_operations(self.dice, minutes, lambda: self.shard.ms, operations, self.check, self.check_replay)
        self.run_until_stable()

    def start(self) -> None:
        if len(self.readers) < 4:
            taken = {reader.settings.instance_id for reader in self.readers if isinstance(reader, SdkReader)}
            free = [None, *(name for name in INSTANCES if name not in taken)]
            self.add(self.dice.choice([True, False]), self.dice.choice(free))

    def add(self, classic: bool, instance: str | None) -> None:
        if self.foreign and instance is None and self.dice.random() < 0.5:
            super().add(classic, None)
            return
        self.made += 1
        names = ("cooperative-sticky",) if self.cooperative else self.dice.choice(EAGER)
        if self.foreign:
            names = ("cooperative-sticky",) if self.cooperative else ("range",)
        settings = MembershipSettings(
            "g",
            protocol=self.dice.choice(self.protocols),
            instance_id=instance,
            session_timeout_s=self.dice.uniform(6, 15),
            heartbeat_interval_s=self.dice.uniform(0.5, 2),
            max_poll_interval_s=self.dice.uniform(5, 15),
            request_timeout_s=5,
            metadata_max_age_s=5,
            assignors=assignors_named(names),
        )
        topics = self.dice.choice(SUBSCRIPTIONS) if instance is None else self.subscribed[instance]
        pattern = self.dice.choice(["orders|clicks", "(click|order)s"]) if self.dice.random() < 0.2 else None
        if pattern is not None and instance is None:
            self.readers.append(SdkReader(self.world, self.server, f"m{self.made}", settings, pattern=pattern))
        else:
            self.readers.append(SdkReader(self.world, self.server, f"m{self.made}", settings, topics))

    def restart_static(self) -> None:
        static = [each for each in self.readers if isinstance(each, SdkReader) and each.settings.instance_id]
        if static:
            old = self.dice.choice(static)
            assert isinstance(old, SdkReader)
            if self.dice.random() < 0.5:
                old.leave()
            old.alive = False
            self._remove_stopped()
            self.add(True, old.settings.instance_id)

    def restart_broker(self) -> None:
        self.shard.compact()
        dropped = set(self.shard.waiting)
        self.server.restart()
        for reader in self.readers:
            reader.dropped(dropped)
        self.generation = 0

    def move_coordinator(self) -> None:
        """For some seconds requests of the group are rejected."""
        self.server.unavailable = self.dice.choice(UNAVAILABLE)
        for _ in range(self.dice.randrange(5)):
            self.consume()
        self.server.unavailable = 0

    def subscribe(self) -> None:
        own = [each for each in self.readers if isinstance(each, SdkReader) and each.settings.instance_id is None]
        if own:
            self.dice.choice(own).subscribe(self.dice.choice(SUBSCRIPTIONS))

    def grow(self) -> None:
        super().grow()
        names = list(self.topics.topics)
        self.shard.do(check_changed_topics(self.shard.machine.registered, names, self.shard.now))

    def check(self) -> None:
        for since_ms in self.shard.waiting.values():
            assert self.shard.ms - since_ms <= BARRIER_MAX_MS, "a request is never answered"
        self.check_step()

    def check_step(self) -> None:
        self.check_owners()

    def check_replay(self) -> None:
        """The simulations of the broker's machines check replays."""

    def run_until_stable(self) -> None:
        """No more faults: all members are assigned their partitions in time."""
        self.world.faults = False
        for reader in self.readers:
            if isinstance(reader, SdkReader):
                reader.faults, reader.busy_until = NO_FAULTS, 0.0
        end_ms = self.shard.ms + REST_MS
        while self.shard.ms < end_ms:
            self.step_all()
            self.shard.advance(500, self.check)
        self.check_end()

    def step_all(self) -> None:
        for reader in self.readers:
            reader.step()
            reader.read()
            self.check_step()
        self._remove_stopped()

    def check_end(self) -> None:
        states = [reader.membership.state for reader in self.readers if isinstance(reader, SdkReader)]
        owned = [topic_partition for reader in self.readers for topic_partition in reader.positions]
        assert len(owned) == len(set(owned)), "a partition has two owners"
        assert all(reader.stable for reader in self.readers), f"a member is not stable: {states}"
        wanted = {
            (name, partition)
            for reader in self.readers
            for name in self.topics_read(reader)
            for partition in range(self.topics.topics[name].partitions)
        }
        assert set(owned) == wanted, "a partition has no owner"

    def topics_read(self, reader: Reader) -> list[str]:
        if isinstance(reader, SdkReader) and reader.pattern is not None:
            return list(self.topics.topics)
        return list(reader.topics)  # type: ignore[attr-defined]


def simulate(seed: int, minutes: int, mix: str) -> None:
    SdkSimulation(seed, mix).run(minutes)


@pytest.mark.torture
@pytest.mark.parametrize("mix", MIXES)
def test_members_of_the_sdk_keep_invariants(mix: str, simulations: int, minutes: int) -> None:
    simulate_all(lambda seed, minutes: simulate(seed, minutes, mix), ceil(simulations / len(MIXES)), minutes)


def keep_partitions_of_eager_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of eager assignors keep their partitions during a rebalance."""
    initialize = ClassicMember.__init__

    def cooperative(member: ClassicMember, *of: Any) -> None:
        initialize(member, *of)
        member.cooperative = True

    monkeypatch.setattr(ClassicMember, "__init__", cooperative)


def transfer_partitions_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cooperative leader assigns partitions that other members still own."""
    monkeypatch.setattr(classic_leader, "without_transfers", lambda members, assigned: assigned)


def continue_before_change_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine joins, and reports partitions as released, before the consumer has released them."""
    begin_change = MemberCore.begin_change

    def hasty(core: MemberCore, change: Any, then: Any, now: float) -> None:
        begin_change(core, change, lambda now: None, now)
        then(now)

    monkeypatch.setattr(MemberCore, "begin_change", hasty)


def keep_lost_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that was removed keeps its partitions when it joins again."""
    monkeypatch.setattr(MemberCore, "lose_all", lambda core, now, then: then(now))


def ignore_missed_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A static member commits positions from before a generation that it missed."""
    set_identity = ClassicMember._set_identity

    def forgetful(member: ClassicMember) -> None:
        member._missed_generation = False
        set_identity(member)

    monkeypatch.setattr(ClassicMember, "_set_identity", forgetful)


def send_no_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine does not ask to be called for its next heartbeat."""
    for protocol in (ClassicMember, ConsumerMember, RegisteredMember):
        monkeypatch.setattr(protocol, "wake_at", lambda member: float("inf"))


def ignore_topics_as_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader does not notice new partitions."""
    monkeypatch.setattr(classic_leader.GroupLeader, "is_outdated", lambda leader, topics: False)


FOUND_BY = {("eager", ignore_topics_as_leader): 39}
"""The seed that finds a bug which the first ones do not find."""


@pytest.mark.parametrize(
    ("mix", "bug"),
    [
        ("eager", keep_partitions_of_eager_members),
        ("eager", ignore_topics_as_leader),
        ("eager", continue_before_change_is_done),
        ("cooperative", transfer_partitions_at_once),
        ("cooperative", keep_lost_partitions),
        ("cooperative", ignore_missed_generations),
        ("consumer", continue_before_change_is_done),
        ("consumer", keep_lost_partitions),
        ("consumer", send_no_heartbeats),
        ("registered", keep_lost_partitions),
    ],
)
def test_seeded_bugs_are_detected(
    mix: str, bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    recorded = FOUND_BY.get((mix, bug), 1)
    assert_finds(bug, lambda seed, minutes: simulate(seed, minutes, mix), MINUTES, recorded)
