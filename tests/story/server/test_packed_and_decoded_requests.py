"""Tests that the fast paths of commits and heartbeats change nothing that clients can observe.

Two equal brokers: the same random numbers, the same time, the same frames. One of them has no fast paths: each request
is decoded, dispatched and handled like any other. Whatever is requested, in all versions, by members of all types and
by unknown ones, on a loaded shard and on a loading one: both send the same bytes and write the same log. KAFKALITE_SEED
repeats a run.
"""

import asyncio
import errno
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from kafkalite._speedups.codec import decode, encode_request, read_response_header
from kafkalite._speedups.net.heartbeats import Heartbeats
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.net.memory_transport import Client as Connection
from kafkalite.protocol.messages.heartbeat import HeartbeatRequest
from kafkalite.protocol.messages.join_group import JoinGroupRequest
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkalite.protocol.messages.sync_group import SyncGroupRequest
from kafkalite.protocol.schema import Request, response_class
from kafkalite.rate_limited_log import RateLimitedLog
from kafkalite.server.broker import Broker
from kafkalite.server.handlers import offset_commit
from kafkalite.server.process.ports import Ports
from kafkalite.server.requests.api import ROWS
from kafkalite.server.requests.dispatch import Dispatcher
from kafkalite.server.running.running_broker import RunningBroker
from kafkalite.testing.faulty_disk import FaultyDisk
from kafkalite.testing.virtual_clock import SeededRandom, VirtualClock
from tests.kit.members import (
    assignment,
    beat_join,
    beat_plus,
    commit,
    fast_heartbeat,
    fetch_of,
    heartbeat,
    join,
    leave,
    register,
    rewind,
    sync,
)
from tests.kit.server import ANSWER_S, Hub, connected, stopped_time
from tests.unit.protocol.values import seed

STEPS = 2_000
CONNECTIONS = 6
PARTITIONS = 3
CLASSIC, MODERN, OURS, SIMPLE = GROUPS = ("classic", "modern", "ours", "simple")
NOWHERE = bytes(15) + b"\x09"
SETTINGS = {
    "group.min.session.timeout.ms": "1",
    "group.consumer.min.session.timeout.ms": "1",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "1",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "0",
    "offset.metadata.max.bytes": "8",
}

Topic = OffsetCommitRequest.OffsetCommitRequestTopic
Partition = Topic.OffsetCommitRequestPartition


class Twin:
    """One of the two brokers, with its clock and the connections to it."""

    def __init__(self, broker: RunningBroker, clock: VirtualClock, data: Path) -> None:
        self.broker = broker
        self.clock = clock
        self.disk = broker.disk
        self.log = data / "__consumer_offsets-0"
        self.dispatched = 0
        self._request = broker.dispatcher.request
        broker.dispatcher.request = self.count  # type: ignore[method-assign]
        self.hub = Hub(broker)
        self.connections = [self.hub.connect(peer=("1.2.3.4", 5)) for _ in range(CONNECTIONS)]

    def count(self, *asked: Any) -> None:
        self.dispatched += 1
        self._request(*asked)

    @property
    def loaded(self) -> bool:
        return self.broker.groups._runtime.machine(0) is not None

    def written(self) -> bytes:
        """All batches of the topic of groups."""
        return b"".join(path.read_bytes() for path in sorted(self.log.glob("*.log")))


@asynccontextmanager
async def twin(data: Path, chance: int, *, short: bool) -> AsyncIterator[Twin]:
    ports = Ports(random=SeededRandom(chance), disk=FaultyDisk())
    async with Broker(str(data), SETTINGS, ports=ports) as embedded:
        broker = embedded.running
        async with connected(broker) as client:
            await client.create("orders", "other", partitions=PARTITIONS)
        clock = stopped_time(broker)
        there = asyncio.Event()
        broker.groups.ensure_topic(lambda _: there.set())
        await there.wait()
        if not short:
            broker.heartbeats = Heartbeats()  # without callbacks
            rows = tuple(copy(row.load()) for row in ROWS)
            for row in rows:
                row.decode = decode
            broker.dispatcher = Dispatcher(broker, rows, RateLimitedLog(logging.getLogger(), clock))
        yield Twin(broker, clock, data)


class Both:
    """Drives both brokers and compares their responses."""

    def __init__(self, twins: tuple[Twin, Twin]) -> None:
        self.twins = twins
        self.open: list[tuple[Request, int] | None] = [None] * CONNECTIONS
        self.correlation_id = 0
        self.seen: Counter[str] = Counter()

    def send(self, *asked: tuple[int, Request, int, str | None]) -> None:
        """One pass, in which each of these comes by a connection of its own."""
        frames = []
        for at, request, version, client_id in asked:
            self.correlation_id += 1
            frame = encode_request(request, version, self.correlation_id, client_id)
            frames.append((at, len(frame).to_bytes(4, "big") + frame))
            self.open[at] = request, version
        for each in self.twins:
            each.hub.begin()
            for at, frame in frames:
                connection: Any = each.connections[at].connection
                connection.inbox += frame
                connection.touch()
                connection.update_interest()
            each.hub.end()
            each.hub.pump()

    def sessions_moved(self) -> list[tuple[Request, Any]]:
        """Every request that was answered since, with its answer."""
        found = []
        for at, asked in enumerate(self.open):
            got = [self.taken(each.connections[at]) for each in self.twins]
            assert got[0] == got[1], (asked, got)
            if got[0]:
                assert asked is not None and int.from_bytes(got[0][:4], "big") == len(got[0]) - 4, asked
                self.open[at] = None
                answer = response_class(type(asked[0]))
                _, body = read_response_header(answer, asked[1], got[0][4:])
                found.append((asked[0], decode(answer, asked[1], body)))
        return found

    @staticmethod
    def taken(connection: Connection) -> bytes:
        assert not connection.connection.closed
        return connection.take_received()

    def advance(self, ms: int) -> None:
        for each in self.twins:
            each.clock.advance(ms)
            each.hub.pump()

    def fail_write(self) -> None:
        for each in self.twins:
            assert isinstance(each.disk, FaultyDisk)
            each.disk.fail("write", errno.ENOSPC, path="__consumer_offsets")

    async def begin(self) -> None:
        """The first commit: the files are made for it, by jobs."""
        self.send((0, commit(SIMPLE, "orders", {0: 1}), 9, "c"))
        async with asyncio.timeout(ANSWER_S):
            while not all(each.written() and each.connections[0].connection.sent for each in self.twins):
                await asyncio.sleep(0)
        assert len(self.sessions_moved()) == 1

    async def load(self) -> None:
        """Let both read their shard again."""
        for each in self.twins:
            assert isinstance(each.disk, FaultyDisk)
            each.disk.heal()
        self.advance(2_000)  # a life in which nothing was committed is followed a second later
        async with asyncio.timeout(ANSWER_S):
            while not all(each.loaded for each in self.twins):
                await asyncio.sleep(0)
                self.advance(0)  # a replay goes on by timers; no time passes meanwhile


class RandomMember:
    """Draws requests of current, former and unknown members. Mostly it does the next step of a member, so that groups
    become stable.
    """

    def __init__(self, dice: random.Random, topic_ids: list[bytes]) -> None:
        self.dice = dice
        self.topic_ids = topic_ids
        self.known: dict[str, dict[str, tuple[int, str | None]]] = {group: {} for group in GROUPS}
        self.due: list[Request] = []

    def sessions_moved(self, request: Any, answer: Any) -> None:
        """Remember who is a member, and in which generation or epoch: the last three of each group."""
        group = getattr(request, "group_id", None)
        member = getattr(answer, "member_id", "") or getattr(request, "consumer_id", "")
        number = next((found for name in NUMBERS if (found := getattr(answer, name, 0)) > 0), 0)
        if group and member and (number or getattr(answer, "error_code", 0) == Error.MEMBER_ID_REQUIRED):
            known = self.known[group]
            known.pop(member, None)
            known[member] = number, getattr(request, "group_instance_id", None) or getattr(request, "instance_id", None)
            for oldest in list(known)[:-3]:
                del known[oldest]

        if self.dice.random() < 0.9:
            self.due += next_of(request, answer)

    def whom(self, usual: str | None = None) -> tuple[str, str, int, str | None]:
        """A group and a possible member of it; sometimes a member of another group or generation."""
        dice = self.dice
        group = usual if usual is not None and dice.random() < 0.9 else dice.choice(GROUPS)
        known = self.known[group if dice.random() < 0.95 else dice.choice(GROUPS)]
        member = dice.choice(list(known)) if known and dice.random() < 0.95 else "m"
        number, instance = known.get(member, (1, None))
        if dice.random() < 0.1:
            number = dice.randrange(-1, 4)
        if dice.random() < 0.05:
            instance = dice.choice(("i", None))
        return group, member, number, instance

    def asked(self, at: int) -> tuple[int, Request, int, str | None]:
        """What comes by the connection `at`: a request, its version, and the client's name."""
        dice = self.dice
        if self.due and dice.random() < 0.5:
            request = self.due.pop(0)
        else:
            request = getattr(self, dice.choices(list(KINDS), list(KINDS.values()))[0])()
        client_id = "c" if dice.random() < 0.95 else dice.choice((None, "Zürich"))
        return at, request, fitting(dice, request), client_id

    def commit(self) -> Request:
        group, member, number, instance = self.whom()
        if self.dice.random() < 0.3:
            member, number, instance = "", -1, None
        return OffsetCommitRequest(
            group_id=group,
            member_id=member,
            generation_id_or_member_epoch=number,
            group_instance_id=instance,
            retention_time_ms=self.dice.choice((-1, -1, -1, 3_000)),
            topics=[self.topic() for _ in range(self.dice.choice((0, 1, 1, 1, 2, 3)))],
        )

    def topic(self) -> Topic:
        dice = self.dice
        good = dice.random() < 0.8
        parts = [
            Partition(
                partition_index=dice.randrange(PARTITIONS) if good else dice.choice((-1, 0, PARTITIONS, 2**31 - 1)),
                committed_offset=dice.choice((0, dice.randrange(2**40), -1, 2**63 - 1)),
                committed_leader_epoch=dice.choice((-1, 0, 7)),
                committed_metadata=dice.choice(
                    (None, "", "note", "x" * 8, "x" * (9 if dice.random() < 0.2 else 3), "é")
                ),
            )
            for _ in range(dice.choice((0, 1, 2, 4)))
        ]
        name = dice.choice(("orders", "other")) if good else dice.choice(("nowhere", "", "orders"))
        topic_id = dice.choice(self.topic_ids if good else [NOWHERE, *self.topic_ids])
        return Topic(name=name, topic_id=topic_id, partitions=parts)

    def beat_classic(self) -> Request:
        group, member, number, instance = self.whom(CLASSIC)
        return heartbeat(group, member, number, instance if self.dice.random() < 0.5 else None)

    def beat_modern(self) -> Request:
        group, member, number, instance = self.whom(MODERN)
        news: dict[str, Any] = self.dice.choice(
            ({"rack_id": "r"}, {"rebalance_timeout_ms": 900}, {"subscribed_topic_names": ["other"]}, *[{}] * 20)
        )
        return fast_heartbeat(group, member, number, **({"instance_id": instance} if instance else {}), **news)

    def join_classic(self) -> Request:
        group, member, _, instance = self.whom(CLASSIC)
        new = self.dice.random() < 0.4
        instance = instance or ("i" if self.dice.random() < 0.2 else None)
        return join(group, "" if new else member, group_instance_id=instance, **TIMES)

    def join_modern(self) -> Request:
        instance = "i" if self.dice.random() < 0.2 else None
        return beat_join(
            MODERN if self.dice.random() < 0.9 else self.dice.choice(GROUPS),
            self.dice.choice("ab"),
            "orders",
            instance_id=instance,
        )

    def sync_classic(self) -> Request:
        group, member, number, instance = self.whom(CLASSIC)
        return sync(group, member, number, {member: assignment("orders", 0, 1)}, group_instance_id=instance)

    def leave_group(self) -> Request:
        group, member, _, instance = self.whom()
        return leave(group, (member, instance)) if instance else leave(group, member)

    def register_ours(self) -> Request:
        names = ("orders",) if self.dice.random() < 0.9 else ("orders", "other")
        times = {"session_timeout_ms": 2_000, "rebalance_timeout_ms": 500}
        return register(OURS if self.dice.random() < 0.9 else CLASSIC, self.dice.choice("xy"), *names, **times)

    def beat_ours(self) -> Request:
        group, member, number, _ = self.whom(OURS)
        return beat_plus(group, member, number)

    def rewind_any(self) -> Request:
        return rewind(self.dice.choice(GROUPS), "orders", {self.dice.randrange(PARTITIONS): self.dice.randrange(9)})

    def fetch_all(self) -> Request:
        return OffsetFetchRequest(groups=[fetch_of(group) for group in GROUPS])


def next_of(request: Any, answer: Any) -> list[Request]:
    """What a member of a classic group does after this."""
    again = getattr(answer, "error_code", 0) in (Error.MEMBER_ID_REQUIRED, Error.REBALANCE_IN_PROGRESS)
    if isinstance(request, (JoinGroupRequest, HeartbeatRequest, SyncGroupRequest)) and again:
        member = getattr(answer, "member_id", "") or request.member_id
        return [join(request.group_id, member, group_instance_id=request.group_instance_id, **TIMES)]
    if isinstance(request, JoinGroupRequest) and not answer.error_code:
        given = {each.member_id: assignment("orders", 0) for each in answer.members}
        member, instance = answer.member_id, request.group_instance_id
        return [sync(request.group_id, member, answer.generation_id, given, group_instance_id=instance)]
    return []


TIMES = {"session_timeout_ms": 6_000, "rebalance_timeout_ms": 300}
NUMBERS = ("generation_id", "member_epoch", "generation")
KINDS = {
    "commit": 40,
    "beat_classic": 25,
    "beat_modern": 25,
    "join_classic": 2,
    "sync_classic": 3,
    "join_modern": 1,
    "leave_group": 1,
    "register_ours": 3,
    "beat_ours": 3,
    "rewind_any": 1,
    "fetch_all": 2,
}


def fitting(dice: random.Random, request: Any) -> int:
    """Draw a version, and drop the fields that this version does not have."""
    version = dice.randint(*type(request).versions)
    leave_out(request, version)
    if isinstance(request, OffsetCommitRequest):
        for topic in request.topics:
            for each in (topic, *topic.partitions):
                leave_out(each, version)
    return version


def leave_out(message: Any, version: int) -> None:
    for field in type(message).__fields__:
        if not field.since <= version <= field.until:
            setattr(message, field.name, copy(field.default))


def short_ways(monkeypatch: pytest.MonkeyPatch, seen: Counter[str]) -> None:
    """Count the commits that stay packed."""
    locate = offset_commit.locate_partitions

    def counted(*asked: Any) -> bool:
        found = locate(*asked)
        seen["in one piece" if found else "taken apart"] += 1
        return found

    monkeypatch.setattr(offset_commit, "locate_partitions", counted)


async def live(both: Both, dice: random.Random, random_member: RandomMember) -> None:
    """Run one incarnation; sometimes a write fails, and the shard is loaded again while requests continue."""
    reading_until = None
    for step in range(STEPS):
        free = [at for at in range(CONNECTIONS) if both.open[at] is None]
        if free and dice.random() < 0.9:
            both.send(*(random_member.asked(at) for at in dice.sample(free, min(len(free), dice.choice((1, 1, 2, 3))))))
        else:
            both.advance(dice.choice((1, 50, 300, 7_000 if dice.random() < 0.1 else 100)))
        for request, answer in both.sessions_moved():
            random_member.sessions_moved(request, answer)
        free = [at for at in range(CONNECTIONS) if both.open[at] is None]
        if reading_until is None and len(free) > 2 and dice.random() < 0.01:
            both.fail_write()
            beats = [(free[1], random_member.beat_classic()), (free[2], random_member.beat_modern())]
            both.send(
                (free[0], commit(SIMPLE, "orders", {0: step}), 9, "c"),
                *((at, fast_heartbeat, fitting(dice, fast_heartbeat), "c") for at, fast_heartbeat in beats),
            )
            reading_until = step + 10
        elif step == reading_until:
            await both.load()
            reading_until = None


async def test_packed_and_decoded_requests_have_equal_responses_and_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = seed()
    dice = random.Random(chance)
    async with (
        twin(tmp_path / "short", chance, short=True) as short,
        twin(tmp_path / "long", chance, short=False) as long,
    ):
        both = Both((short, long))
        short_ways(monkeypatch, both.seen)
        random_member = RandomMember(dice, [short.broker.image.topics[name].topic_id for name in ("orders", "other")])
        await both.load()
        await both.begin()
        await live(both, dice, random_member)
        both.advance(60_000)
        both.sessions_moved()
        assert not any(both.open)
        assert short.written() == long.written() != b""
        both.seen["before the dispatch"] = long.dispatched - short.dispatched
    assert all(both.seen[way] > 5 for way in ("in one piece", "taken apart", "before the dispatch")), both.seen
