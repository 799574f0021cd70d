"""Load through the SDK whose every send, outcome, read and commit is in a history.

Invariant: an awaitable has exactly one outcome, and the history counts it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from functools import partial
from random import Random
from typing import Any

from kafkalite_sdk import Consumer, Producer, RebalanceListener, TopicPartition

from kafkalite.errors import KafkaError
from tests.kit.checker import History, Partition
from tests.kit.group_checker import GroupHistory
from tests.kit.load import number_of, value_of

POLL_S = 0.2
COMMIT_SHARE = 0.3


class AwaitedSender:
    """A pipelined producer: each send returns at once, its outcome is noted when it comes.

    Arguments:
        name: of the producer in the history.
        producer: started.
        history: where sends and outcomes go.
        topic, partitions: where to, in rotation.
    """

    def __init__(self, name: str, producer: Producer, history: History, topic: str, partitions: int) -> None:
        self.name = name
        self.open = 0
        self.acks = 0
        self.errors: list[BaseException] = []
        self._producer = producer
        self._history = history
        self._numbers = itertools.count()
        self._topic = topic
        self._partitions = partitions
        self._answered = asyncio.Event()
        history.awaited.add(name)

    def burst(self, count: int) -> None:
        """Send so many records without waiting."""
        for number in itertools.islice(self._numbers, count):
            partition = number % self._partitions
            self._history.sent(self.name, (self._topic, partition), [number])
            future = self._producer.send(self._topic, value_of(number), partition=partition)
            self.open += 1
            future.add_done_callback(partial(self._done, number))

    def _done(self, number: int, future: Any) -> None:
        self.open -= 1
        self._history.resolved(number)
        self._answered.set()
        if (error := future.exception()) is not None:
            self.errors.append(error)
            return
        self.acks += 1
        self._history.acknowledged([number], future.result().offset)

    async def fill(self, open_min: int, burst: int) -> None:
        """Send until so many sends are open while the responses of earlier ones arrive."""
        while self.open < open_min:
            await self._producer.drain()
            self.burst(burst)
            await asyncio.sleep(0)  # requests leave, responses are received

    async def more_acks(self, count: int) -> None:
        """Keep sending until so many more are acknowledged."""
        goal = self.acks + count
        while self.acks < goal and not self.errors:
            await self._producer.drain()
            if self.open < count:
                self.burst(count)
            self._answered.clear()
            await self._answered.wait()


class Reader(RebalanceListener):
    """A member of a group that notes what it owns, reads and commits.

    Arguments:
        name: of the member.
        consumer: started, not subscribed.
        group: its history.
        random: when it commits.
    """

    def __init__(self, name: str, consumer: Consumer, group: GroupHistory, random: Random) -> None:
        self.name = name
        self.consumer = consumer
        self.records = 0
        self.refused_commits = 0
        self._group = group
        self._random = random
        self._positions: dict[Partition, int] = {}
        self._progress = asyncio.Event()

    def subscribe(self, topic: str) -> None:
        self.consumer.subscribe(topic, listener=self)

    def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        self._group.assigned(self.name, map(pair, partitions))

    def on_partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        self._drop(partitions)

    def on_partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
        self._drop(partitions)

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        dropped = [pair(each) for each in partitions]
        self._group.revoked(self.name, dropped)
        for each in dropped:
            self._positions.pop(each, None)

    async def run(self, ending: asyncio.Event) -> None:
        """Poll until the event is set."""
        while not ending.is_set():
            await self.step()

    async def step(self) -> None:
        for record in await self.consumer.poll(POLL_S):
            partition = (record.topic, record.partition)
            self._group.read(self.name, partition, record.offset, number_of(record.value))
            self._positions[partition] = record.offset + 1
            self.records += 1
        self._progress.set()
        if self._positions and self._random.random() < COMMIT_SHARE:
            await self._commit()

    async def _commit(self) -> None:
        offsets = dict(self._positions)
        self._group.committing(offsets)
        try:
            await self.consumer.commit({TopicPartition(*partition): offset for partition, offset in offsets.items()})
        except KafkaError:
            self.refused_commits += 1  # a rebalance, or the broker is gone for longer than the deadline
        else:
            self._group.committed(offsets)

    async def progress(self) -> None:
        """Wait for the end of the next poll."""
        self._progress.clear()
        await self._progress.wait()


def pair(topic_partition: TopicPartition) -> Partition:
    return topic_partition.topic, topic_partition.partition


async def all_read(readers: Iterable[Reader], group: GroupHistory) -> None:
    """Wait until the members have read every acknowledged value."""
    while any(True for _ in group.unread()):
        for reader in readers:
            await reader.progress()


async def elapse(seconds: float) -> None:
    """Return when so many seconds have passed: for tests of timeouts."""
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, passed.set)
    await passed.wait()
