"""One group with random consumers of Kafka's protocols, in virtual time: they join, leave, stop, change their topics,
commit late and restart with the other protocol, while an administrator rewinds and deletes, and the broker restarts.

A mix says which protocols the consumers speak: all classic, all the consumer protocol, or both in one group. The
invariants are checked after every step; at the end every partition has one owner.
"""

import random
from typing import Any

from kafkalite.coordinators.group.consumer_protocol_serde import ConsumerProtocolSerde
from kafkalite.coordinators.group.settings import held_of, partitions_of, topics_of
from kafkalite.state.groups.classic.requests import Joined
from kafkalite.state.groups.classic.settings import ClassicSettings
from kafkalite.state.groups.classic.states import ClassicState
from kafkalite.state.groups.consumer.commit_validation import ConsumerCommitValidation
from kafkalite.state.groups.consumer.groups import SESSION, ConsumerGroups
from kafkalite.state.groups.consumer.requests import ConsumerGroupSettings, MigrationPolicy
from kafkalite.state.groups.machine import GroupMachine, GroupsDeleted
from kafkalite.state.groups.member_memory import MEMBER_BYTES
from kafkalite.state.groups.offsets.manager import OffsetSettings
from kafkalite.state.groups.records import CLASSIC, CONSUMER
from tests.kit.consumer_groups import FakeTopics, durable
from tests.kit.weighted_choice import Operations
from tests.story.groups.classic_reader import REBALANCE_MAX_MS, SESSION_MAX_MS, ClassicReader
from tests.story.groups.consumer_reader import ConsumerReader
from tests.story.groups.readers import Reader, World
from tests.story.groups.simulated_shard import Shard
from tests.story.groups.simulations import at_once, run_operations

SPOKEN = {"classic": (True,), "consumer": (False,), "mixed": (True, False)}
"""For each mix, whether consumers use the classic protocol."""

DELAY_MS = 3_000
SESSION_MS = 12_000
DELAY_MAX_MS = REBALANCE_MAX_MS + DELAY_MS
REST_MS = 2 * (SESSION_MAX_MS + REBALANCE_MAX_MS) + 60_000
INSTANCES = ("i", "j")
SUBSCRIPTIONS = [("orders",), ("clicks", "orders"), ("clicks", "orders")]


class Simulation:
    """One group under random operations."""

    def __init__(self, seed: int, mix: str) -> None:
        self.dice = random.Random(seed)
        self.spoken = SPOKEN[mix]
        self.topics = FakeTopics(orders=4, clicks=2)
        self.policy = self.dice.choice([MigrationPolicy.BIDIRECTIONAL] * 5 + list(MigrationPolicy))
        self.interval_ms = self.dice.choice([0, 1_000, 15_000])
        self.topics_at_once = at_once(seed)
        self.members_max = 5
        self.shard = Shard(self._make)
        self.world = World(self.shard, self.topics, self.dice)
        self.readers: list[Reader] = []
        self.zombies: list[Reader] = []
        self.eager = self.dice.random() < 0.5
        self.subscribed = {instance: self.dice.choice(SUBSCRIPTIONS) for instance in INSTANCES}
        self.made = 0
        self.generation = 0

    def _make(self) -> GroupMachine:
        classic = ClassicSettings(
            initial_delay_ms=DELAY_MS,
            members_max=self.members_max,
            new_member_join_ms=30_000,
            topics_of=topics_of,
            partitions_of=partitions_of,
            held_of=held_of,
        )
        settings = ConsumerGroupSettings(
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=3_000,
            assignment_interval_ms=self.interval_ms,
            max_size=6,
            migration=self.policy,
        )
        consumers = ConsumerGroups(self.topics, lambda _: settings, ConsumerProtocolSerde(), self.topics_at_once)
        return GroupMachine(classic, OffsetSettings(), consumers)

    def run(self, minutes: int) -> None:
        operations: Operations[object] = {
            self.consume: 70, self.start: 8, self.restart_with_other_protocol: 5, self.leave: 2,
            self.vanish: 2, self.send_late_commits: 4,
            self.restart_static: 2, self.silence: 2, self.restart_broker: 2, self.rewind: 3, self.grow: 1,
            self.subscribe: 4, self.delete: 2, self.leave_before_joining: 1,
        }  # fmt: skip
        run_operations(self.dice, minutes, lambda: self.shard.ms, operations, self.check, self.check_replay)
        self.run_until_stable()
        self.check_replay()

    # operations

    def consume(self) -> None:
        """Time passes; most consumers send their next request."""
        for reader in self.dice.sample(self.readers, len(self.readers)):
            if self.dice.random() < 0.9:
                reader.step()
                reader.read()
                self.check_step()
        self._remove_stopped()
        self.shard.advance(self.dice.choice([200, 1_000, 2_000]), self.check)

    def start(self) -> None:
        if len(self.readers) < 5:
            taken = {reader.instance for reader in self.readers}
            free = [None, *(name for name in INSTANCES if name not in taken)]
            self.add(self.dice.choice(self.spoken), self.dice.choice(free))

    def add(self, classic: bool, instance: str | None) -> None:
        self.made += 1
        topics = self.dice.choice(SUBSCRIPTIONS) if instance is None else self.subscribed[instance]
        name = f"m{self.made}"
        if classic:
            self.readers.append(ClassicReader(self.world, name, instance, topics, self.eager))
        else:
            self.readers.append(ConsumerReader(self.world, name, instance, topics))

    def restart_with_other_protocol(self) -> None:
        """Restart a consumer, with the other protocol if both are in use."""
        if self.readers:
            reader = self.dice.choice(self.readers)
            if reader.instance is None or self.dice.random() < 0.5:
                reader.leave()
            self._stop(reader)
            was_classic = isinstance(reader, ClassicReader)
            self.add(was_classic if len(self.spoken) == 1 else not was_classic, reader.instance)

    def leave(self) -> None:
        if self.readers:
            self.dice.choice(self.readers).leave()
            self._remove_stopped()

    def vanish(self) -> None:
        """A consumer hangs: its earlier requests may still arrive."""
        if self.readers:
            self._stop(self.dice.choice(self.readers))

    def send_late_commits(self) -> None:
        """A stopped consumer commits its last positions."""
        for zombie in self.zombies[-3:]:
            zombie.commit()
            zombie.send()

    def restart_static(self) -> None:
        static = [reader for reader in self.readers if reader.instance is not None]
        if static:
            old = self.dice.choice(static)
            self._stop(old)
            self.add(isinstance(old, ClassicReader), old.instance)

    def silence(self) -> None:
        """Time passes until some sessions expire and rebalances time out."""
        self.shard.advance(self.dice.randrange(5_000, 30_000), self.check)

    def restart_broker(self) -> None:
        """Restart the broker, in classic groups perhaps with another limit of members."""
        if self.spoken == (True,):
            self.members_max = self.dice.choice([2, 5, 5, 5])
        self.shard.compact()
        dropped = set(self.shard.restart())
        for reader in self.readers:
            reader.dropped(dropped)
        if self._classic() is not None:
            self.generation = 0  # a generation that was not stored may be used again
            self.world.restarts += 1

    def rewind(self) -> None:
        name = self.dice.choice(sorted(self.topics.topics))
        topic_partition = name, self.dice.randrange(self.topics.topics[name].partitions)
        self.world.rewind(topic_partition, self.dice.randrange(5))

    def grow(self) -> None:
        name = self.dice.choice(sorted(self.topics.topics))
        if self.topics.topics[name].partitions < 6:
            self.topics.grow(name, self.topics.topics[name].partitions + 1)
            self.shard.machine.consumers.topics_changed([name])

    def subscribe(self) -> None:
        """A consumer of the consumer protocol changes its topics; it reports each change before the next."""
        modern = [each for each in self.readers if isinstance(each, ConsumerReader) and not each.resubscribes]
        modern = [each for each in modern if each.generation > 0]
        if modern:
            self.dice.choice(modern).subscribe(self.dice.choice(SUBSCRIPTIONS))

    def delete(self) -> None:
        """Delete the group, with its offsets, if it has no members."""
        token = self.shard.ask(lambda machine, token, now: machine.delete_groups(["g"], token, now))
        if self.shard.answers[token] == GroupsDeleted((0,)):
            self.world.committed.clear()
            self.generation = 0
            self.world.restarts += 1

    def leave_before_joining(self) -> None:
        """A client receives its member id; it leaves, or the id expires."""
        if True in self.spoken:
            client = ClassicReader(self.world, "shy", None, SUBSCRIPTIONS[0], self.eager)
            client.modern = True
            client.step()
            answer = self.shard.answers.get(client.pending)
            if isinstance(answer, Joined) and answer.member_id and self.dice.random() < 0.5:
                client.member_id = answer.member_id
                client.leave()

    def _stop(self, reader: Reader) -> None:
        reader.alive = False
        self._remove_stopped()

    def _remove_stopped(self) -> None:
        self.zombies += [reader for reader in self.readers if not reader.alive]
        self.readers = [reader for reader in self.readers if reader.alive]

    def _classic(self) -> Any:
        return self.shard.machine.classic.groups.get("g")

    # invariants

    def check(self) -> None:
        for since_ms in self.shard.waiting.values():
            assert self.shard.ms - since_ms <= DELAY_MAX_MS, "a request is never answered"
        group, classic = self.shard.machine.consumers.groups.get("g"), self._classic()
        if group is not None:
            self._check_consumers(group)
        elif classic is not None:
            self._check_classic(classic)
        self.check_step()

    def _check_classic(self, group: Any) -> None:
        members = group.members
        ids = sum(MEMBER_BYTES + len(member_id) for member_id in members.reserved_ids)
        assert members.charged == ids + sum(member.memory() for member in members.all.values())
        if group.state in (ClassicState.STABLE, ClassicState.EMPTY):
            assert group.stored == group.metadata_record(), "the stored group differs"
        if group.state is ClassicState.PREPARING:
            assert (CLASSIC, "g", "join") in self.shard.timers
        delayed = [name for name, member in members.all.items() if member.delayed_join is not None]
        assert members.delayed_joins == len(delayed)
        assert (members.leader in members.all) == bool(members)
        waiting = {name for name, member in members.all.items() if not member.has_delayed_request}
        for name in waiting | members.reserved_ids.keys():
            assert (CLASSIC, "g", "session", name) in self.shard.timers, f"{name} has no session timer"

    def check_step(self) -> None:
        """Checked after every request."""
        group, classic = self.shard.machine.consumers.groups.get("g"), self._classic()
        assert group is None or classic is None, "a group has two types"
        generation = classic.generation if classic is not None else group.epoch if group is not None else 0
        assert generation >= self.generation, "a generation decreased"
        self.generation = generation
        self.check_owners()

    def _check_consumers(self, group: Any) -> None:
        owners = [
            topic_partition
            for current in group.currents.values()
            for epochs_by_topic in (current.assigned, current.pending_revocation)
            for topic_id, epochs in epochs_by_topic.items()
            for topic_partition in ((topic_id, partition) for partition in epochs)
        ]
        assert len(owners) == len(set(owners)), "a partition was given to two members"
        for name in group.members:
            assert (CONSUMER, SESSION, "g", name) in self.shard.timers, f"{name} has no session timer"

    def check_owners(self) -> None:
        """Of all consumers that read a partition one may commit."""
        owned: set[tuple[str, int]] = set()
        for reader in self.readers + self.zombies[-5:]:
            if not reader.positions or reader.owns_in < 0:
                continue
            group = self.shard.machine.registry.get("g")
            if group is None:
                continue
            validated = group.validate_offset_commit(reader.member_id, reader.instance, reader.owns_in)
            if isinstance(validated, ConsumerCommitValidation):
                # the rejection of late commits must not hide a second owner
                validated = validated._replace(owners={}, behind=False)
            for topic, partition in reader.positions if not validated.code else ():
                if not validated.of_partition(self.topics.topics[topic].topic_id, partition):
                    assert (topic, partition) not in owned, f"two consumers may commit {topic}-{partition}"
                    owned.add((topic, partition))

    def check_replay(self) -> None:
        alive, replayed = self.shard.machine, self.shard.replayed()
        assert durable(replayed.consumers) == durable(alive.consumers)
        stored = {group.name: group.stored for group in alive.classic.groups.values()}
        assert {group.name: group.metadata_record() for group in replayed.classic.groups.values()} == stored
        fetched = alive.offsets.fetch("g", None, require_stable=True)
        assert replayed.offsets.fetch("g", None, require_stable=True) == fetched

    def run_until_stable(self) -> None:
        """Only the consumers act: all are assigned their partitions in time."""
        self.world.faults = False
        end_ms = self.shard.ms + REST_MS
        while self.shard.ms < end_ms:
            for reader in self.readers:
                reader.step()
                reader.read()
                self.check_step()
            self._remove_stopped()
            self.shard.advance(1_000, self.check)
        owned = [topic_partition for reader in self.readers for topic_partition in reader.positions]
        assert len(owned) == len(set(owned)), "a partition has two owners"
        assert all(reader.stable for reader in self.readers), "a consumer was assigned nothing in time"
        wanted = {
            (name, partition)
            for reader in self.readers
            for name in reader.topics  # type: ignore[attr-defined]
            for partition in range(self.topics.topics[name].partitions)
        }
        assert set(owned) == wanted, "a partition has no owner"
