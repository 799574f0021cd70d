"""kafkalite's own SDK."""

import asyncio
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import kafkalite_sdk

from kafkalite._version import VERSION
from perf.clients.base import PARTITIONS, AsyncClient, Job, Meter, Sample, check_offsets, quantiles_ms
from perf.process import memory

BUFFER_BYTES = 256 << 20
TABLE_ROWS = 10_000
PRODUCING = ("produce", "waves", "open_sends", "latency", "tasks", "send_columns")


def _security(job: Job) -> dict[str, Any]:
    return {"security_protocol": "SSL", "ssl_cafile": job.cafile} if job.tls else {}


class Sdk(AsyncClient):
    name = "kafkalite"
    title = "kafkalite SDK"

    def missing(self) -> str | None:
        return None if hasattr(kafkalite_sdk, "Producer") else "kafkalite_sdk has no Producer"

    def can(self, work: str) -> bool:
        return super().can(work) and (work in PRODUCING or hasattr(kafkalite_sdk, "Consumer"))

    def version(self) -> str:
        return VERSION

    def _producer(self, job: Job, **settings: Any) -> Any:
        codec = {} if job.codec == "none" else {"compression_type": job.codec}
        settings |= codec | _security(job)
        return kafkalite_sdk.Producer(job.address, acks="all", linger_ms=job.linger_ms, **settings)

    async def produce(self, job: Job) -> Sample:
        async with self._producer(job) as producer:
            await self._send(producer, [job.topic], job.value, job.warm_up)
            with Meter() as meter:
                await self._send(producer, [job.topic], job.value, job.records)
        return meter.per_record(job.records)

    @staticmethod
    async def _send(producer: Any, topics: Sequence[str], value: bytes, burst: int) -> None:
        futures = []
        send, drain, keep = producer.send, producer.drain, futures.append
        for topic in topics:
            for _ in range(burst):
                keep(send(topic, value))
                await drain()
        await producer.flush()
        check_offsets([future.result().offset for future in futures], len(topics) * burst)

    async def waves(self, job: Job) -> Sample:
        async with self._producer(job) as producer:
            for topics in job.waves(job.warm_up):
                await self._send(producer, topics, job.value, job.burst)
            with Meter() as meter:
                for topics in job.waves(job.records):
                    await self._send(producer, topics, job.value, job.burst)
        return meter.per_record(job.records)

    async def open_sends(self, job: Job) -> Sample:
        async with self._producer(job, buffer_memory=BUFFER_BYTES) as producer:
            await self._send(producer, [job.topic], job.value, job.warm_up)
            value, futures = job.value, [None] * job.records
            os.kill(job.broker_pid, signal.SIGSTOP)
            try:
                before = memory(os.getpid()).resident
                for number in range(job.records):
                    futures[number] = producer.send(job.topic, value)
                    await producer.drain()
                grown = memory(os.getpid()).resident - before
            finally:
                os.kill(job.broker_pid, signal.SIGCONT)
            await producer.flush()
        return {"bytes_per_send": grown / job.records - job.value_bytes}

    async def latency(self, job: Job) -> Sample:
        async with self._producer(job) as producer:
            await self._one_after_another(producer, job, job.warm_up)
            with Meter() as meter:
                seconds = await self._one_after_another(producer, job, job.records)
        return {**quantiles_ms(seconds), **meter.per_record(job.records)}

    @staticmethod
    async def _one_after_another(producer: Any, job: Job, records: int) -> list[float]:
        seconds = []
        for _ in range(records):
            started = time.perf_counter()
            await producer.send(job.topic, job.value)
            seconds.append(time.perf_counter() - started)
        return seconds

    async def tasks(self, job: Job) -> Sample:
        async with self._producer(job) as producer:
            await self._in_tasks(producer, job, job.warm_up)
            with Meter() as meter:
                await self._in_tasks(producer, job, job.records)
        return meter.per_record(job.records)

    async def _in_tasks(self, producer: Any, job: Job, records: int) -> None:
        each = records // job.tasks
        await asyncio.gather(*(self._one_after_another(producer, job, each) for _ in range(job.tasks)))

    @asynccontextmanager
    async def _assigned(self, job: Job) -> AsyncIterator[Any]:
        settings = {"auto_offset_reset": "earliest", **_security(job)}
        async with kafkalite_sdk.Consumer(job.address, **settings) as consumer:
            consumer.assign([kafkalite_sdk.TopicPartition(job.topic, number) for number in range(PARTITIONS)])
            yield consumer

    async def poll(self, job: Job) -> Sample:
        async with self._assigned(job) as consumer:
            left, records, size = job.records - len(await consumer.poll(10.0)), 0, 0
            with Meter() as meter:
                while records < left:
                    fetched = await consumer.poll(10.0)
                    records += len(fetched)
                    for record in fetched:
                        size += len(record.value)
        self._check(job, left, size)
        return meter.per_record(left)

    async def columns(self, job: Job) -> Sample:
        """`poll_columns`, each value read."""
        import pyarrow.compute

        wanted = ["key", "value", "partition", "offset", "timestamp"]
        async with self._assigned(job) as consumer:
            left, records, size = job.records - len(await consumer.poll_columns(10.0)), 0, 0
            with Meter() as meter:
                while records < left:
                    found = pyarrow.record_batch(await consumer.poll_columns(10.0, columns=wanted))
                    records += found.num_rows
                    size += pyarrow.compute.sum(pyarrow.compute.binary_length(found["value"])).as_py() or 0
        self._check(job, left, size)
        return meter.per_record(left)

    async def send_columns(self, job: Job) -> Sample:
        """`send_columns` of tables with 10,000 rows."""
        import pyarrow

        table = pyarrow.table({"value": pyarrow.array([job.value] * TABLE_ROWS, pyarrow.binary())})
        async with self._producer(job) as producer:
            await self._send_tables(producer, job.topic, table, job.warm_up)
            with Meter() as meter:
                await self._send_tables(producer, job.topic, table, job.records)
        return meter.per_record(job.records)

    @staticmethod
    async def _send_tables(producer: Any, topic: str, table: Any, records: int) -> None:
        sent = []
        for begin in range(0, records, TABLE_ROWS):
            sent.append(producer.send_columns(topic, table.slice(0, min(TABLE_ROWS, records - begin))))
            await producer.drain()
        await producer.flush()
        ranges = [each for delivery in sent for each in delivery.result()]
        if sum(count for *_, count in ranges) != records or min(offset for _, _, offset, _ in ranges) < 0:
            raise RuntimeError(f"{records} records were sent, the result is {ranges}")

    async def iterate(self, job: Job) -> Sample:
        """`async for`."""
        meter, records, size = Meter(), 0, 0
        async with self._assigned(job) as consumer:
            async for record in consumer:
                if not records:
                    meter.start()
                size += len(record.value)
                records += 1
                if records == job.records:
                    break
            meter.stop()
        self._check(job, records, size)
        return meter.per_record(records)

    @staticmethod
    def _check(job: Job, records: int, size: int) -> None:
        if size != records * job.value_bytes:
            raise RuntimeError(f"{size} bytes, expected {records} records of {job.value_bytes}")

    async def group_start(self, job: Job) -> Sample:
        seconds = [await self._start(job) for _ in range(job.warm_up + job.records)][job.warm_up :]
        return {"start_ms": sorted(seconds)[len(seconds) // 2] * 1000}

    @asynccontextmanager
    async def _member(self, job: Job) -> AsyncIterator[Any]:
        settings = {"group": f"g-{uuid.uuid4()}", "group_protocol": job.group_protocol, "auto_offset_reset": "earliest"}
        async with kafkalite_sdk.Consumer(job.address, **settings) as consumer:
            consumer.subscribe(job.topic)
            yield consumer

    async def _start(self, job: Job) -> float:
        started = time.perf_counter()
        async with self._member(job) as consumer:
            while not await consumer.poll(10.0):
                pass
            return time.perf_counter() - started

    async def idle(self, job: Job) -> Sample:
        async with self._producer(job) as producer, self._member(job) as consumer:
            await producer.send(job.topic, job.value)
            while not await consumer.poll(10.0):
                pass
            with Meter() as meter:
                end = time.monotonic() + job.seconds
                while (left := end - time.monotonic()) > 0:
                    await consumer.poll(min(left, 1.0))
        return {"core_percent": meter.cpu_s / meter.wall_s * 100}


CLIENT = Sdk()
