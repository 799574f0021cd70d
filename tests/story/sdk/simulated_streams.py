"""Applications that consume by streams in a simulation: workers handle for a while, are killed and start again."""

import asyncio
from collections.abc import Collection
from typing import Any

from kafkalite_sdk.consumer.consumer import Consumer
from kafkalite_sdk.consumer.streams.streams import Stream

from kafkalite.errors import ClientUseError, KafkaError
from kafkalite.model import TopicPartition
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.simulated_consumer import ConsumerApplication, Owned

RELEASE_S = 30.0


class OwnedByStreams(Owned):
    """Checks that a rebalance waits for the handlers of revoked partitions.

    Arguments:
        world: the surroundings.
        release_s: longest time that a rebalance waits.

    Attributes:
        begun: the ownership that the running handler belongs to, and when it began, by partition. A handler of a lost
            partition may still run when the partition is assigned again and another handler begins.
        closing: the consumer is being closed; the timeout of `close` limits the wait, too.
    """

    def __init__(self, world: Any, release_s: float) -> None:
        super().__init__(world)
        self.begun: dict[TopicPartition, tuple[int, float]] = {}
        self.closing = False
        self._release_s = release_s

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        if not self.closing:
            now = self._world.loop.time()
            for each in self.begun.keys() & partitions:
                ownership, began = self.begun[each]
                if ownership != self.ownerships[each]:
                    continue
                seconds = now - began
                assert seconds >= self._release_s, f"{each} is revoked {seconds:.3f} s after its handler began"
        await super().on_partitions_revoked(partitions)


class StreamsApplication(ConsumerApplication):
    """One application whose consumers have several streams; see `ConsumerApplication`.

    A record counts as handled when its worker has ended its handler, so the ledger finds commits of incomplete ones.
    """

    def _listener(self) -> OwnedByStreams:
        self.listener = OwnedByStreams(self.world, min(RELEASE_S, self.settings["max_poll_interval_ms"] / 2000))
        return self.listener

    async def _consume(self, consumer: Consumer[Any, Any], listener: Owned, until: float) -> bool:
        self.workers: dict[Stream[Any, Any], asyncio.Task[None]] = {}
        for stream in consumer.streams(self.random.choice((1, 2, 4))):
            self._start(stream, listener, until)
        while not self.stopped:
            await pass_time(0.2)
            wild = self.world.loop.time() < until
            if wild and self.random.random() < 0.01:
                return self.random.random() < 0.5
            for stream, task in list(self.workers.items()):
                if wild and not task.done() and self.random.random() < 0.02:
                    self.world.count("worker is killed")
                    task.cancel()
                    await asyncio.wait([task])
                if task.done():
                    self._check(task)
                    self._start(stream, listener, until)
            if not self.settings["enable_auto_commit"] and (not wild or self.random.random() < 0.3):
                await self._commit(consumer)
        return True

    async def _close(self, consumer: Consumer[Any, Any], timeout_s: float, *, commit: bool) -> None:
        """Close; while a listener runs in a worker `close` is refused, and the workers are cancelled first."""
        self.listener.closing = True
        try:
            await super()._close(consumer, timeout_s, commit=commit)
        except ClientUseError:
            for task in self.workers.values():
                task.cancel()
            await asyncio.wait(self.workers.values())
            await super()._close(consumer, timeout_s, commit=commit)

    async def _closed(self) -> None:
        """Every worker ends after the close."""
        workers, self.workers = self.workers, {}
        if workers:
            _, pending = await asyncio.wait(workers.values(), timeout=10.0)
            assert not pending, "a stream does not end after the close of its consumer"
        for task in workers.values():
            self._check(task)

    def _start(self, stream: Stream[Any, Any], listener: Owned, until: float) -> None:
        self.workers[stream] = asyncio.ensure_future(self._work(stream, listener, until))

    def _check(self, task: asyncio.Task[None]) -> None:
        """Raise what a worker raised, but not errors of the broker."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, KafkaError):
            self.world.count("stream raises")
        elif error is not None:
            raise error

    async def _work(self, stream: Stream[Any, Any], listener: Owned, until: float) -> None:
        async for record in stream:
            partition = TopicPartition(record.topic, record.partition)
            self._check_order(listener, record)
            ownership = listener.ownerships[partition]
            wild = self.world.loop.time() < until
            handler = self.listener.begun[partition] = ownership, self.world.loop.time()
            try:
                await pass_time(2.0 if wild and self.random.random() < 0.01 else self.random.choice((0.0, 0.001, 0.01)))
            finally:
                if self.listener.begun.get(partition) is handler:
                    del self.listener.begun[partition]
            self.ledger.handle(record.topic, record.partition, record.offset)
            self.world.count("handled by streams")
            if listener.ownerships.get(partition) == ownership and partition in listener.owned:
                listener.next[partition] = record.offset + 1
