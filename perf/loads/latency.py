"""One record at a time through confluent-kafka: produce, wait for the acknowledgement, next."""

import time
from typing import TYPE_CHECKING

from perf.checks import Topics
from perf.errors import VerificationError
from perf.loads.base import LATENCY_FIGURES, FreshTopic, Load, Sample, Trial, quantiles_ms
from perf.loads.rdkafka import build_missing, read_back

if TYPE_CHECKING:  # `--help` works where confluent_kafka is not installed
    from confluent_kafka import KafkaError, Message, Producer

VALUE = b"x" * 100


class AckLatency(Load):
    figures = LATENCY_FIGURES

    def __init__(self, idle: int = 0) -> None:
        """A load beside a topic with so many partitions that have no clients."""
        self.name = f"latency-{idle}" if idle else "latency"
        self.title = "confluent-kafka, one record at a time, 100 B, acks=all: acknowledgement"
        if idle:
            self.title, self.group = f"{self.title} beside {idle} idle partitions", "replication"
        self._idle = idle

    def missing(self) -> str | None:
        return build_missing()

    def prepare(self, trial: Trial) -> None:
        if self._idle:
            Topics(trial.broker).create(["idle"], self._idle)

    def run(self, trial: Trial) -> Sample:
        from confluent_kafka import Producer

        count = trial.scaled(5_000, 1_000)
        settings = {"bootstrap.servers": trial.broker.address, "linger.ms": 0, "acks": "all"}
        with FreshTopic(trial, self.name, 1) as topic:
            producer = Producer({**settings, "enable.metrics.push": False})
            send(producer, topic.name)  # the first waits for connections and metadata and is not counted
            seconds = [send(producer, topic.name) for _ in range(count)]
            read_back(trial, topic, count + 1)
        return quantiles_ms(seconds)


def send(producer: "Producer", topic: str) -> float:
    """Seconds until the acknowledgement. Raises VerificationError if the record is refused."""
    answers: list[KafkaError | None] = []

    def reported(error: "KafkaError | None", _: "Message") -> None:
        answers.append(error)

    started = time.perf_counter()
    producer.produce(topic, VALUE, partition=0, on_delivery=reported)
    while not answers:
        producer.poll(1.0)
    elapsed = time.perf_counter() - started
    if answers[0] is not None:
        raise VerificationError(f"produce to {topic}: {answers[0]}")
    return elapsed


LOADS = (AckLatency(), AckLatency(2_000))
