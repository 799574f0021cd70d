"""A random history of a group: members join, leave, are killed, lose their connections and sessions; topics and brokers
come and go; the offset storage fails; others write garbage and delete owners.

After the history all faults end; three backoffs later the group must be complete: every partition is fetched by the
member that the assignment names, and all records are processed.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kafkalite_sdk.zk.membership.assignors import RANGE, ROUND_ROBIN, assign_range, assign_round_robin
from kafkalite_sdk.zk.membership.errors import ConsumerRebalanceFailedError, ReleaseTimeoutError
from kafkalite_sdk.zk.membership.settings import MembershipSettings
from kafkalite_sdk.zk.membership.subscription import filtered_subscription, static_subscription, streams_by_topic

from kafkalite.coordination.tree import Create, Delete
from kafkalite.coordination.znodes import topic_path
from kafkalite.coordination.znodes.consumers import Registration, StreamId, group_path, ids_path, owner_path
from kafkalite.model import TopicPartition
from tests.story.controller.schedule import Schedule
from tests.story.zk.member import Member
from tests.story.zk.service import Service
from tests.story.zk.world import GROUP, TIMEOUT_MS, World

TOPICS = ("a", "b", "c", "__consumer_offsets")
HISTORY_MS = 20_000
STEP_MS = 400
CONSUME_MS = 100
BACKOFF_S = 2.0
QUIET_MS = int(3 * BACKOFF_S * 1000)
MEMBERS_MAX = 6


CreateService = Callable[[random.Random], Any]  # a Service, or a ServedService


def create_tree_service(chance: random.Random) -> Service:
    return Service(Schedule(chance), TIMEOUT_MS)


class Simulation:
    """One history.

    Arguments:
        seed: of everything random.
        create_service: the coordination service; the tree without connections by default.
        slack_ms: how long the group may take in addition, because connections are established.
    """

    def __init__(self, seed: int, create_service: CreateService = create_tree_service, slack_ms: int = 0) -> None:
        self.chance = random.Random(seed)
        self.world = World(self.chance, create_service(self.chance))
        self.slack_ms = slack_ms
        self.strategy = self.chance.choice((RANGE, ROUND_ROBIN))
        self._count = 0
        self._operations = [each for each in OPERATIONS if self.chance.random() < 0.7] or list(OPERATIONS)
        self.world.create_topic("a", self.chance.randint(1, 8))
        self.world.service.change(Create("/brokers/ids/0"))
        self.world.schedule.after(CONSUME_MS, self._consume)

    def run(self) -> None:
        """Run the history and check the end."""
        schedule = self.world.schedule
        for ms in self.history():
            schedule.run_until(schedule.now_ms + ms)

    def history(self) -> Iterator[int]:
        """Run the history and check the end; the milliseconds to let pass."""
        self.join()
        for _ in range(HISTORY_MS // STEP_MS):
            yield from self.chance.choice(self._operations)(self) or ()
            yield self.chance.randrange(2 * STEP_MS)
        self._end_faults()
        yield QUIET_MS + self.slack_ms
        self._check_complete()
        yield 2_000
        self._check_processed()

    def _later(self, most_ms: int, function: Callable[[], object]) -> None:
        """Call a function later, unless the faults have ended by then."""
        self.world.schedule.after(self.chance.randrange(most_ms), lambda: self.world.faulty and function())

    def _consume(self) -> None:
        """Producers append, streams return records."""
        for partition in self.world.ends:
            if self.world.faulty:
                self.world.ends[partition] += self.chance.randrange(2)
        for member in self.world.live:
            member.consume()
        self.world.schedule.after(CONSUME_MS, self._consume)

    # Members.

    def join(self) -> None:
        """A member joins, with a subscription of its own."""
        if len(self.world.live) >= MEMBERS_MAX:
            return
        self._count += 1
        settings = MembershipSettings(
            GROUP,
            f"{GROUP}_host-{self.chance.randrange(1000)}-{self._count}",
            self._subscription(),
            strategy=self.strategy,
            auto_commit_interval_s=self.chance.choice((None, 1.0, 60.0)),
            rebalance_backoff_s=BACKOFF_S,
        )
        self.world.members.append(Member(self.world, settings))

    def _subscription(self) -> Registration:
        streams = self.chance.randint(1, 3)
        kind = self.chance.randrange(4)
        if kind == 0:
            return filtered_subscription(self.chance.choice(("a, b", ".*", "[ac]")), streams, whitelist=True)
        if kind == 1:
            return filtered_subscription(self.chance.choice(("b", "a|c")), streams, whitelist=False)
        names = self.chance.sample(TOPICS[:3], self.chance.randint(1, 3))
        return static_subscription({name: self.chance.randint(1, 3) for name in names})

    def shut_down(self) -> None:
        for member in self.world.live[:1]:
            member.shut_down()

    def kill(self) -> None:
        member = self._member()
        if member is not None:
            member.kill()

    def restart(self) -> None:
        """A process ends and starts again under its consumer id."""
        member = self._member()
        if member is not None:
            member.kill()
            self.world.members.append(Member(self.world, member.settings))

    def commit(self) -> None:
        for member in self.world.live:
            member.commit()

    # Connections.

    def disconnect(self) -> None:
        """A connection breaks, for a short time or for longer than the session timeout."""
        member = self._member()
        if member is not None and member.session is not None:
            session = member.session
            session.disconnect()
            self.world.schedule.after(self.chance.choice((1, 50, 1_000, 5_900, 7_000)), session.reconnect)

    def disconnect_in_rebalance(self) -> Iterator[int]:
        """All connections break shortly after the group has changed: responses are lost."""
        self.join()
        yield self.chance.choice((1, 3, 5, 10, 20, 60))
        for member in self.world.live:
            if member.session is not None and self.chance.random() < 0.7:
                member.session.disconnect()
                self.world.schedule.after(self.chance.choice((1, 50, 1_000)), member.session.reconnect)

    def expire(self) -> None:
        member = self._member()
        if member is not None and member.session is not None:
            member.session.expire()

    # Topics and brokers.

    def create_topic(self) -> None:
        self.world.create_topic(self.chance.choice(TOPICS), self.chance.randint(1, 8))

    def grow_topic(self) -> None:
        topic = self.chance.choice(TOPICS)
        known = sum(partition.topic == topic for partition in self.world.ends)
        self.world.grow_topic(topic, max(known, self.chance.randint(1, 10)))

    def delete_topic(self) -> None:
        self.world.delete_topic(self.chance.choice(TOPICS))

    def stop_brokers(self) -> None:
        """No broker is alive, for some time."""
        if self.world.service.change(Delete("/brokers/ids/0")):
            self._later(5_000, lambda: self.world.service.change(Create("/brokers/ids/0")))

    # Other clients.

    def write_garbage(self) -> None:
        """Another client registers garbage, or damages a topic."""
        path = self.chance.choice((f"{ids_path(GROUP)}/garbage", topic_path("garbage"), topic_path("c")))
        data = self.chance.choice((b"", b"\xff", b"{}", b'{"version":9,"subscription":{"a":1},"pattern":"static"}'))
        if self.world.service.change(Create(path, data)):
            self._later(8_000, lambda: self.world.service.change(Delete(path)))

    def take_owner(self) -> None:
        """An administrator deletes an owner, and another session creates it for a while."""
        owned = [each for member in self.world.live for each in member.positions]
        if not owned:
            return
        path = owner_path(GROUP, *self.chance.choice(sorted(owned)))
        service = self.world.service
        if service.change(Delete(path)) and self.chance.random() < 0.7:
            service.change(Create(path, str(StreamId("g_foreign-1-1", 0)).encode(), ephemeral=True))
            self.world.foreign.add(path)
            self._later(3_000, lambda: self._remove_foreign(path))

    def _remove_foreign(self, path: str) -> None:
        self.world.foreign.discard(path)
        node = self.world.service.tree.find(path)
        if node is not None and node.owner == self.world.service.session:
            self.world.service.change(Delete(path))

    def delete_registration(self) -> None:
        """An administrator deletes the registration of a member."""
        member = self._member()
        if member is not None:
            self.world.service.change(Delete(f"{ids_path(GROUP)}/{member.settings.consumer_id}"))

    # The end.

    def _member(self) -> Member | None:
        return self.chance.choice(self.world.live) if self.world.live else None

    def _end_faults(self) -> None:
        """The last change: all connections work, killed members expire, a broker is alive."""
        world = self.world
        world.faulty = False
        for path in sorted(world.foreign):
            self._remove_foreign(path)
        for member in world.members:
            if member.ended:
                if member.session is not None:
                    world.service.expire(member.session.session_id)
                assert member.error is None or isinstance(member.error, expected_errors(member)), repr(member.error)
            elif member.session is not None:
                member.session.reconnect()
        world.service.change(Create("/brokers/ids/0"))
        invalid = [topic_path(topic) for topic in world.topics() if topic not in world.partitions()]
        for path in (f"{ids_path(GROUP)}/garbage", *invalid):
            world.service.change(Delete(path))
        self.join()
        if not world.live:
            self.join()
        self._touch_group()

    def _touch_group(self) -> None:
        """A change that all members see: those whose owners were deleted read the group again."""
        path = f"{ids_path(GROUP)}/garbage"
        self.world.service.change(Create(path))
        self.world.service.change(Delete(path))

    def _check_complete(self) -> None:
        world = self.world
        for member in world.live:
            assert not member.machine.state.unknown
        expected = self._expected()
        fetched: dict[TopicPartition, StreamId] = {}
        for member in world.live:
            for partition in member.positions:
                assert partition not in fetched, f"{partition} is fetched twice"
                fetched[partition] = StreamId(member.settings.consumer_id, member.streams[partition])
                world.check_owner_text(partition, member)
        assert fetched == expected, f"not complete: {sorted(expected.items() ^ fetched.items())}"
        owners = [path for path in world.paths(f"{group_path(GROUP)}/owners/") if path.count("/") == 5]
        assert len(owners) == len(expected), f"{len(owners)} owners of {len(expected)} partitions"

    def _expected(self) -> dict[TopicPartition, StreamId]:
        """The assignment, computed from the members and the topics."""
        world = self.world
        partitions = world.partitions()
        streams: dict[str, list[StreamId]] = {topic: [] for topic in partitions}
        for member in world.live:
            subscription = member.settings.subscription
            for topic, count in streams_by_topic(subscription, set(partitions), excludes_internal=True).items():
                if topic in streams:
                    streams[topic] += [StreamId(member.settings.consumer_id, number) for number in range(count)]
        if self.strategy == RANGE:
            return assign_range(streams, partitions)
        return assign_round_robin(streams, partitions)

    def _check_processed(self) -> None:
        for partition in self._expected():
            assert self.world.processed.get(partition, 0) == self.world.ends[partition], f"{partition}: not all is read"


def expected_errors(member: Member) -> tuple[type[Exception], ...]:
    """The errors that may end a member: a shutdown that has no connection to ZooKeeper ends in time, too."""
    late = (ReleaseTimeoutError,) if member.is_shut_down else ()
    return (ConsumerRebalanceFailedError, *late)


Action = Callable[[Simulation], Iterable[int] | None]
OPERATIONS: tuple[Action, ...] = (
    Simulation.join,
    Simulation.join,
    Simulation.shut_down,
    Simulation.kill,
    Simulation.restart,
    Simulation.commit,
    Simulation.disconnect,
    Simulation.disconnect_in_rebalance,
    Simulation.disconnect_in_rebalance,
    Simulation.expire,
    Simulation.create_topic,
    Simulation.grow_topic,
    Simulation.delete_topic,
    Simulation.stop_brokers,
    Simulation.write_garbage,
    Simulation.take_owner,
    Simulation.delete_registration,
)
