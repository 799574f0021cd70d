"""kafka-python: pure Python, with a thread."""

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from perf.clients.base import PARTITIONS, Client, Job, Meter, Sample, check_offsets

RESULT_S = 60


class KafkaPython(Client):
    name = "kafka-python"
    title = "kafka-python"

    def version(self) -> str:
        version: str = kafka.__version__
        return version

    def produce(self, job: Job) -> Sample:
        codec = None if job.codec == "none" else job.codec
        producer = KafkaProducer(
            bootstrap_servers=job.address, acks="all", linger_ms=job.linger_ms, compression_type=codec
        )
        self._send(producer, job, job.warm_up)
        with Meter() as meter:
            self._send(producer, job, job.records)
        producer.close()
        return meter.per_record(job.records)

    @staticmethod
    def _send(producer: KafkaProducer, job: Job, records: int) -> None:
        value = job.value
        futures = [producer.send(job.topic, value) for _ in range(records)]
        producer.flush()
        check_offsets([future.get(RESULT_S).offset for future in futures], records)

    def poll(self, job: Job) -> Sample:
        consumer = KafkaConsumer(bootstrap_servers=job.address, auto_offset_reset="earliest")
        partitions = [TopicPartition(job.topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        first = 0
        while not first:
            first = sum(map(len, consumer.poll(timeout_ms=1_000).values()))
        left, records, size = job.records - first, 0, 0
        with Meter() as meter:
            while records < left:
                for fetched in consumer.poll(timeout_ms=10_000).values():
                    records += len(fetched)
                    for record in fetched:
                        size += len(record.value)
        consumer.close()
        if size != left * job.value_bytes:
            raise RuntimeError(f"{size} bytes, expected {left} records of {job.value_bytes}")
        return meter.per_record(left)


CLIENT = KafkaPython()
