"""kill -9 while members of groups commit, rebalance and are rewound: no acknowledged request is lost, members continue.

Simulated groups of raw members (tests/kit/simulated_group.py) know for each request which records may be in the log and
which response each member must receive. Beside them librdkafka's consumers of each kind read and commit: those that are
neither rewound nor joined by another one keep their member ids, and no partition is assigned to another member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from kafkalite.errors import KafkaConnectionError
from kafkalite.net.client import ClientConnection
from tests.kit.brokers import Kafkalite
from tests.kit.classic_group import SimulatedClassicGroup
from tests.kit.clients.groups import EACH, partitions_of, write
from tests.kit.clients.members import Crowd, TopicPartition
from tests.kit.consumer_group import SimulatedConsumerGroup
from tests.kit.group_readers import KINDS, Readers
from tests.kit.members import rewind
from tests.kit.registered_group import SimulatedRegisteredGroup
from tests.kit.rig import assert_files_are_good, create_topic, ended
from tests.kit.simulated_group import DEPTH, Loners, SimulatedGroup

pytestmark = [
    pytest.mark.torture,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
MOMENTS = ("commit", "rewind", "rebalance")
PHASES = ("joining", "syncing", "assigning", "assigned")
OFFSETS_TOPIC, SHARDS = "__consumer_offsets", 4
SETTINGS = {
    "offsets.topic.num.partitions": str(SHARDS),
    "group.consumer.session.timeout.ms": "60000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
}
RAW, READ, PARTITIONS = "raw", "read", 4
ACKS_MIN = 300
PROGRESS_S = 120.0
T = TypeVar("T")
Streams = dict[SimulatedGroup, asyncio.Task[None]]


class KillSeries:
    """A broker, its groups, and what they know. `progress`: something was answered."""

    def __init__(self, random: Random, crowd: Crowd, broker: Kafkalite) -> None:
        self.random = random
        self.broker = broker
        self.crowd = crowd
        self.progress = asyncio.Event()
        self.simulated_groups: list[SimulatedGroup] = [
            kind(f"{kind.__name__} {number}", RAW, PARTITIONS, Random(random.random()))
            for kind in (Loners, SimulatedClassicGroup, SimulatedConsumerGroup, SimulatedRegisteredGroup)
            for number in range(2)
        ]
        for simulated_group in self.simulated_groups:
            simulated_group.answered = self.progress
        self.readers: list[Readers] = []
        self.written = 0
        self.rewinds_kept = 0
        self.undisturbed = 0
        self.open: list[asyncio.Task[None]] = []
        self.rewound: Readers | None = None

    # The life.

    async def begin(self) -> None:
        address = self.broker.address
        await asyncio.to_thread(self.broker.start)
        await create_topic(address, RAW, PARTITIONS)
        await create_topic(address, READ, PARTITIONS)
        # A rewind stays within the log: there is a record for each.
        await asyncio.to_thread(write, address, RAW, 0, PARTITIONS)
        self.readers = [Readers(self.crowd, kind, partitions_of(READ, PARTITIONS)) for kind in KINDS]
        for simulated_group in self.simulated_groups:
            await simulated_group.connect(address)
            await simulated_group.form()
        await self.write()
        await self.every(lambda each: each.resolve(self.ends()))

    async def write(self) -> None:
        """More for the readers."""
        await asyncio.to_thread(write, self.broker.address, READ, self.written, PARTITIONS)
        self.written += EACH

    def ends(self) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions_of(READ, PARTITIONS), self.written)

    @property
    def acks(self) -> int:
        return sum(simulated_group.ledger.acks for simulated_group in self.simulated_groups)

    async def every(self, work: Callable[[Readers], T]) -> list[T]:
        """The same of all readers, in threads; one after the other, as most of it is waiting."""
        return [await asyncio.to_thread(work, each) for each in self.readers]

    async def step(self, moment: str) -> None:
        """All commit, the broker is killed at this moment, and starts again; members get the expected responses."""
        before = self.acks
        await self.write()
        await self.every(Readers.note)
        streams = {
            simulated_group: asyncio.create_task(simulated_group.stream()) for simulated_group in self.simulated_groups
        }
        try:
            await self.until(before + ACKS_MIN + self.random.randint(0, ACKS_MIN))
            await getattr(self, f"during_{moment}")(streams)
            await asyncio.to_thread(self.broker.kill)
        finally:
            for simulated_group in self.simulated_groups:
                simulated_group.stop()
            await asyncio.gather(*streams.values())
        assert self.acks - before >= ACKS_MIN
        await self.every(Readers.note_promises)
        await asyncio.to_thread(self.broker.start)
        for simulated_group in self.simulated_groups:
            self.rewinds_kept += await simulated_group.resume(self.broker.address)
        await self.finish_rewind()
        await self.every(Readers.judge)
        await self.write()
        self.undisturbed += sum(await self.every(lambda each: each.end_step(self.ends())))

    async def until(self, acks: int) -> None:
        """Until so many commits and rewinds are acknowledged in all."""
        while self.acks < acks:
            self.progress.clear()
            async with asyncio.timeout(PROGRESS_S):
                await self.progress.wait()

    # The moments.

    async def during_commit(self, _streams: Streams) -> None:
        """Commits are under way all the time."""
        await self.until(self.acks + self.random.randint(0, 10 * DEPTH))

    async def during_rewind(self, _streams: Streams) -> None:
        """Every party is rewound between its commits, and some readers; any of it may be answered, or none."""
        self.rewound = self.random.choice(self.readers)
        self.rewound.expect_rewind()
        work: list[Coroutine[Any, Any, None]] = [self.rewind_readers()]
        for simulated_group in self.simulated_groups:
            count = self.random.randint(min(1, len(simulated_group.members)), len(simulated_group.members))
            work.append(simulated_group.rewind(self.random.sample(simulated_group.members, count)))
        self.open = [asyncio.create_task(each) for each in work]
        await self.until(self.acks + self.random.randint(1, 4 * DEPTH))

    async def rewind_readers(self) -> None:
        assert self.rewound is not None
        host, port = self.broker.address.rsplit(":", 1)
        async with ClientConnection(host, int(port)) as peer:
            answer = await peer.call(rewind(self.rewound.group, READ, dict.fromkeys(range(PARTITIONS), 0)))
        assert [each.error_code for each in answer.topics[0].partitions] == [0] * PARTITIONS

    async def finish_rewind(self) -> None:
        """What was rewound without an answer is rewound again."""
        found = await asyncio.gather(*self.open, return_exceptions=True)
        wrong = [each for each in found if each is not None and not isinstance(each, KafkaConnectionError)]
        assert wrong == []
        if found and found[0] is not None:
            await self.rewind_readers()
        self.open, self.rewound = [], None

    async def during_rebalance(self, streams: Streams) -> None:
        """A member joins every group that has members; no rebalance is complete."""
        self.random.choice(self.readers).expect_guest()
        for simulated_group in self.simulated_groups:
            if simulated_group.members:
                simulated_group.stop()
                await streams[simulated_group]
                await simulated_group.begin_rebalance(self.random.choice(PHASES))

    # The end.

    async def end(self) -> None:
        """Stopped cleanly; the files are good."""
        for simulated_group in self.simulated_groups:
            await simulated_group.close()
            assert simulated_group.ledger.acks > 0
        for member in self.crowd.members:
            await asyncio.to_thread(member.leave)
        assert await asyncio.to_thread(self.broker.stop) == self.broker.clean_exit
        data = self.broker.data
        shards = [
            topic_partition
            for topic_partition in partitions_of(OFFSETS_TOPIC, SHARDS)
            if (data / f"{OFFSETS_TOPIC}-{topic_partition[1]}").exists()
        ]
        assert len(shards) > 1
        await asyncio.to_thread(assert_files_are_good, data, shards, compacted=True)

    async def over(self) -> None:
        """Whatever happened: no connection stays."""
        for simulated_group in self.simulated_groups:
            await simulated_group.close()


async def test_groups_continue_after_sigkill(
    group_series: int, random: Random, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    broker = Kafkalite(tmp_path / "broker", SETTINGS)
    with ended(broker), Crowd(broker.address) as crowd:
        this = KillSeries(random, crowd, broker)
        try:
            await this.begin()
            for number, moment in enumerate(random.sample(MOMENTS, len(MOMENTS))):
                print(f"round {number}: {moment}")
                await this.step(moment)
            await this.end()
        finally:
            await this.over()
    resumed = sum(simulated_group.resumed for simulated_group in this.simulated_groups)
    assert resumed > 0 and this.undisturbed > 0
    record_property(
        "summary",
        f"groups' life {group_series}: {len(MOMENTS)} kills, {this.acks} commits and rewinds acknowledged, {resumed} "
        f"members and {this.undisturbed} consumers went on, {this.rewinds_kept} groups found themselves rewound",
    )
