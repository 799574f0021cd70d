"""confluent-kafka's AIOProducer and AIOConsumer, which run the synchronous clients in a thread pool."""

import asyncio
from collections.abc import Sequence
from typing import Any

import confluent_kafka as ck
from confluent_kafka.aio import AIOConsumer, AIOProducer

from perf.clients.base import PARTITIONS, AsyncClient, Job, Meter, Sample, check_offsets
from perf.clients.confluent import CONSUME_MAX, QUIET, READING

# With its defaults, 1,000 records or 1 s, 200 tasks wait two seconds for each record: delivery reports are received
# only with the next batch. These values are the fastest ones for 200 tasks (100 records/s with the defaults).
TASKS_BATCH = 1
TASKS_TIMEOUT_S = 0.005


class ConfluentAio(AsyncClient):
    name = "confluent-aio"
    title = "confluent-kafka AIOProducer, AIOConsumer"

    def version(self) -> str:
        return ck.__version__

    @staticmethod
    def _settings(job: Job) -> dict[str, Any]:
        common = {"bootstrap.servers": job.address, "acks": "all", "linger.ms": job.linger_ms}
        return {**common, "compression.type": job.codec, **QUIET}

    async def produce(self, job: Job) -> Sample:
        async with AIOProducer(self._settings(job)) as producer:
            await self._send(producer, job, job.warm_up)
            with Meter() as meter:
                await self._send(producer, job, job.records)
        return meter.per_record(job.records)

    @staticmethod
    async def _send(producer: AIOProducer, job: Job, records: int) -> None:
        value = job.value
        futures = [await producer.produce(job.topic, value) for _ in range(records)]
        await producer.flush()
        check_offsets([(await future).offset() for future in futures], records)

    async def tasks(self, job: Job) -> Sample:
        async with AIOProducer(self._settings(job), batch_size=TASKS_BATCH, buffer_timeout=TASKS_TIMEOUT_S) as producer:
            await self._in_tasks(producer, job, job.warm_up)
            with Meter() as meter:
                await self._in_tasks(producer, job, job.records)
        return meter.per_record(job.records)

    @staticmethod
    async def _in_tasks(producer: AIOProducer, job: Job, records: int) -> None:
        async def one_after_another() -> None:
            for _ in range(records // job.tasks):
                message = await (await producer.produce(job.topic, job.value))
                check_offsets([message.offset()], 1)

        await asyncio.gather(*(one_after_another() for _ in range(job.tasks)))

    async def poll(self, job: Job) -> Sample:
        """`consume(n)`."""
        consumer = AIOConsumer({"bootstrap.servers": job.address, "group.id": "aio", **QUIET, **READING})
        await consumer.assign([ck.TopicPartition(job.topic, number, 0) for number in range(PARTITIONS)])
        first: Sequence[Any] = ()
        while not first:
            first = await consumer.consume(CONSUME_MAX, 1.0)
        left, records, size = job.records - len(first), 0, 0
        with Meter() as meter:
            while records < left:
                messages = await consumer.consume(CONSUME_MAX, 10.0)
                records += len(messages)
                for each in messages:
                    size += len(each.value())
        await consumer.close()
        if size != left * job.value_bytes:
            raise RuntimeError(f"{size} bytes, expected {left} records of {job.value_bytes}")
        return meter.per_record(left)


CLIENT = ConfluentAio()
