"""Apache Kafka: one KRaft node with 1 GB of heap, and its own defaults otherwise."""

from collections.abc import Mapping
from pathlib import Path

from perf.brokers.base import Broker, BrokerError, Running
from tests.kit import jvm


class Kafka(Broker):
    name = "kafka"
    title = f"Apache Kafka {jvm.CURRENT}"

    def missing(self) -> str | None:
        return jvm.java_missing()

    def version(self) -> str:
        return jvm.CURRENT

    def start(self, directory: Path, settings: Mapping[str, str] | None = None) -> Running:
        try:
            kafka = jvm.start_kafka(jvm.CURRENT, directory, heap="1g", overrides=settings, quick_start=False)
        except jvm.JvmError as error:
            raise BrokerError(str(error)) from error
        return Running(self.name, kafka.process, kafka.port, directory, kafka.start_seconds)
