"""aiokafka, and programs written for it."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any

from perf.clients.base import PARTITIONS, AsyncClient, Job, Meter, Sample, check_offsets, quantiles_ms


class AioKafka(AsyncClient):
    name = "aiokafka"
    title = "aiokafka"
    module = "aiokafka"
    """With the names of aiokafka."""

    @cached_property
    def library(self) -> ModuleType:
        return import_module(self.module)

    def version(self) -> str:
        version: str = self.library.__version__
        return version

    @asynccontextmanager
    async def _producer(self, job: Job) -> AsyncIterator[Any]:
        codec = None if job.codec == "none" else job.codec
        producer = self.library.AIOKafkaProducer(
            bootstrap_servers=job.address, acks="all", linger_ms=job.linger_ms, compression_type=codec
        )
        async with producer:
            yield producer

    async def produce(self, job: Job) -> Sample:
        async with self._producer(job) as producer:
            await self._send(producer, [job.topic], job.value, job.warm_up)
            with Meter() as meter:
                await self._send(producer, [job.topic], job.value, job.records)
        return meter.per_record(job.records)

    async def _send(self, producer: Any, topics: Sequence[str], value: bytes, burst: int) -> None:
        futures = [await producer.send(topic, value) for topic in topics for _ in range(burst)]
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
            await producer.send_and_wait(job.topic, job.value)
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
        async with self.library.AIOKafkaConsumer(
            bootstrap_servers=job.address, auto_offset_reset="earliest"
        ) as consumer:
            partitions = [self.library.TopicPartition(job.topic, number) for number in range(PARTITIONS)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            yield consumer

    async def poll(self, job: Job) -> Sample:
        """`getmany`."""
        async with self._assigned(job) as consumer:
            records = size = 0
            left = job.records - self._count(await consumer.getmany(timeout_ms=10_000))
            with Meter() as meter:
                while records < left:
                    for fetched in (await consumer.getmany(timeout_ms=10_000)).values():
                        records += len(fetched)
                        for record in fetched:
                            size += len(record.value)
        self._check(job, left, size)
        return meter.per_record(left)

    @staticmethod
    def _count(fetched: dict[Any, list[Any]]) -> int:
        return sum(map(len, fetched.values()))

    async def iterate(self, job: Job) -> Sample:
        """`async for`."""
        async with self._assigned(job) as consumer:
            records = size = 0
            await consumer.getone()
            left = job.records - 1
            meter = Meter()
            meter.start()
            async for record in consumer:
                size += len(record.value)
                records += 1
                if records == left:
                    break
            meter.stop()
        self._check(job, left, size)
        return meter.per_record(left)

    @staticmethod
    def _check(job: Job, records: int, size: int) -> None:
        if size != records * job.value_bytes:
            raise RuntimeError(f"{size} bytes, expected {records} records of {job.value_bytes}")

    async def group_start(self, job: Job) -> Sample:
        seconds = [await self._start(job) for _ in range(job.warm_up + job.records)][job.warm_up :]
        return {"start_ms": sorted(seconds)[len(seconds) // 2] * 1000}

    def _member(self, job: Job) -> Any:
        group = f"g-{uuid.uuid4()}"
        return self.library.AIOKafkaConsumer(
            job.topic, bootstrap_servers=job.address, group_id=group, auto_offset_reset="earliest"
        )

    async def _start(self, job: Job) -> float:
        started = time.perf_counter()
        async with self._member(job) as consumer:
            await consumer.getone()
            return time.perf_counter() - started

    async def idle(self, job: Job) -> Sample:
        async with self._producer(job) as producer, self._member(job) as consumer:
            await producer.send_and_wait(job.topic, job.value)
            await consumer.getone()
            with Meter() as meter:
                end = time.monotonic() + job.seconds
                while (left := end - time.monotonic()) > 0:
                    await consumer.getmany(timeout_ms=int(min(left, 1.0) * 1000))
        return {"core_percent": meter.cpu_s / meter.wall_s * 100}


CLIENT = AioKafka()
