"""confluent-kafka: the synchronous clients, with one delivery callback per record."""

import os
import signal
import time
import uuid
from collections.abc import Sequence
from typing import Any

import confluent_kafka as ck

from perf.clients.base import PARTITIONS, SECONDS_MAX, Client, Job, Meter, Sample, check_offsets, quantiles_ms
from perf.process import memory

QUIET = {"enable.metrics.push": False, "log_level": 2}
# With the default queue (100,000 messages) a consumer that is slower than the broker waits a second when it is full.
READING = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 10, "enable.auto.commit": False}
CONSUME_MAX = 500
POLL_EVERY = 1_000


def security(job: Job) -> dict[str, Any]:
    """The settings for TLS, if the job uses it."""
    return {"security.protocol": "SSL", "ssl.ca.location": job.cafile} if job.tls else {}


class Sends:
    """A producer and the offsets that its callbacks have received."""

    def __init__(self, job: Job, **settings: object) -> None:
        self.offsets: list[int] = []
        common = {"bootstrap.servers": job.address, "acks": "all", "linger.ms": job.linger_ms, **QUIET, **security(job)}
        self.producer = ck.Producer({**common, "compression.type": job.codec, **settings})

    def delivered(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            raise ck.KafkaException(error)
        self.offsets.append(message.offset())

    def send(self, topic: str, value: bytes, records: int) -> None:
        produce, delivered = self.producer.produce, self.delivered
        for number in range(records):
            while True:
                try:
                    produce(topic, value, on_delivery=delivered)
                except BufferError:
                    self.producer.poll(0.1)
                else:
                    break
            if number % POLL_EVERY == 0:
                self.producer.poll(0)

    def finish(self, records: int) -> None:
        if self.producer.flush(SECONDS_MAX):
            raise RuntimeError("records without a delivery report")
        check_offsets(self.offsets, records)
        self.offsets.clear()

    def send_and_wait(self, topic: str, value: bytes) -> float:
        started = time.perf_counter()
        self.producer.produce(topic, value, on_delivery=self.delivered)
        while not self.offsets:
            self.producer.poll(1.0)
        self.offsets.clear()
        return time.perf_counter() - started


class Confluent(Client):
    name = "confluent"
    title = "confluent-kafka"

    def version(self) -> str:
        return ck.__version__

    def produce(self, job: Job) -> Sample:
        sends = Sends(job)
        sends.send(job.topic, job.value, job.warm_up)
        sends.finish(job.warm_up)
        with Meter() as meter:
            sends.send(job.topic, job.value, job.records)
            sends.finish(job.records)
        return meter.per_record(job.records)

    def latency(self, job: Job) -> Sample:
        sends = Sends(job)
        for _ in range(job.warm_up):
            sends.send_and_wait(job.topic, job.value)
        with Meter() as meter:
            seconds = [sends.send_and_wait(job.topic, job.value) for _ in range(job.records)]
        return {**quantiles_ms(seconds), **meter.per_record(job.records)}

    def waves(self, job: Job) -> Sample:
        sends = Sends(job)
        self._waves(job, sends, job.warm_up)
        with Meter() as meter:
            self._waves(job, sends, job.records)
        return meter.per_record(job.records)

    def _waves(self, job: Job, sends: Sends, records: int) -> None:
        for topics in job.waves(records):
            for topic in topics:
                sends.send(topic, job.value, job.burst)
            sends.finish(len(topics) * job.burst)

    def open_sends(self, job: Job) -> Sample:
        limits = {"queue.buffering.max.messages": 2 * job.records, "queue.buffering.max.kbytes": 1 << 20}
        sends = Sends(job, **limits)
        sends.send(job.topic, job.value, job.warm_up)
        sends.finish(job.warm_up)
        os.kill(job.broker_pid, signal.SIGSTOP)
        try:
            before = memory(os.getpid()).resident
            sends.send(job.topic, job.value, job.records)
            grown = memory(os.getpid()).resident - before
        finally:
            os.kill(job.broker_pid, signal.SIGCONT)
        sends.finish(job.records)
        return {"bytes_per_send": grown / job.records - job.value_bytes}

    def poll(self, job: Job) -> Sample:
        """`consume(n)`, the API for many records."""
        return self._read(job, CONSUME_MAX)

    def iterate(self, job: Job) -> Sample:
        """`poll`, the API for one record."""
        return self._read(job, 1)

    def _read(self, job: Job, at_most: int) -> Sample:
        consumer = ck.Consumer({**self._settings(job), **READING})
        consumer.assign([ck.TopicPartition(job.topic, number, 0) for number in range(PARTITIONS)])
        meter, measured, size = Meter(), 0, 0
        left = job.records - len(self._first(consumer, at_most))
        meter.start()
        while measured < left:
            if at_most == 1:
                message = consumer.poll(10.0)
                messages: Sequence[Any] = () if message is None else (message,)
            else:
                messages = consumer.consume(at_most, 10.0)
            measured += len(messages)
            for each in messages:
                size += len(each.value())
        meter.stop()
        consumer.close()
        if size != left * job.value_bytes:
            raise RuntimeError(f"{measured} records with {size} bytes, expected {left} of {job.value_bytes}")
        return meter.per_record(measured)

    @staticmethod
    def _first(consumer: ck.Consumer, at_most: int) -> Sequence[ck.Message]:
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            if messages := consumer.consume(at_most, 1.0):
                return messages
        raise TimeoutError("no first record")

    @staticmethod
    def _settings(job: Job) -> dict[str, Any]:
        return {"bootstrap.servers": job.address, "group.id": f"g-{uuid.uuid4()}", "auto.offset.reset": "earliest",
                **security(job), **QUIET}  # fmt: skip

    def group_start(self, job: Job) -> Sample:
        seconds = [self._start(job) for _ in range(job.warm_up + job.records)][job.warm_up :]
        return {"start_ms": sorted(seconds)[len(seconds) // 2] * 1000}

    def _start(self, job: Job) -> float:
        started = time.perf_counter()
        consumer = ck.Consumer({**self._settings(job), "group.protocol": job.group_protocol})
        consumer.subscribe([job.topic])
        while (message := consumer.poll(10.0)) is None or message.error():
            pass
        seconds = time.perf_counter() - started
        consumer.close()
        return seconds

    def idle(self, job: Job) -> Sample:
        sends = Sends(job)
        sends.send(job.topic, job.value, 1)
        sends.finish(1)
        consumer = ck.Consumer({**self._settings(job), "group.protocol": job.group_protocol})
        consumer.subscribe([job.topic])
        while (message := consumer.poll(10.0)) is None or message.error():
            pass
        with Meter() as meter:
            end = time.monotonic() + job.seconds
            while (left := end - time.monotonic()) > 0:
                consumer.poll(min(left, 1.0))
        consumer.close()
        return {"core_percent": meter.cpu_s / meter.wall_s * 100}


CLIENT = Confluent()
