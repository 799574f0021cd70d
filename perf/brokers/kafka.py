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
        return self.start_on(directory, 0, settings or {})

    def start_on(self, directory: Path, port: int, settings: Mapping[str, str]) -> Running:
        """As `start`, at a port for plaintext; 0 = a free one."""
        try:
            kafka = jvm.start_kafka(jvm.CURRENT, directory, heap="1g", port=port, overrides=settings, quick_start=False)
        except jvm.JvmError as error:
            raise BrokerError(str(error)) from error
        return Running(self.name, kafka.process, kafka.port, directory, kafka.start_seconds)
