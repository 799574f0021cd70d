"""What keeping costs: acknowledgements that wait for a sync, starts after a kill and after a clean end.

The same data is started again and again: a start leaves it as it found it, as each ends by SIGKILL or cleanly.
kfake neither syncs per message nor recovers, and is not asked to.
"""

import importlib
import time
from collections.abc import Sequence

from kafkalite.records import Builder
from perf.brokers.base import Running
from perf.checks import Topics
from perf.errors import VerificationError
from perf.loads.base import CpuMeter, Figure, FreshTopic, Load, Sample, Trial
from perf.loads.rdkafka import build_missing, read_back
from perf.loads.requests import BATCH
from perf.process import cpu_seconds
from perf.wire import produce, produce_error_at

BOTH = frozenset({"kafkalite", "kafka"})


def send(broker: Running, topic: str, batches: Sequence[tuple[int, bytes]], count: int, connections: int) -> float:
    """Send `count` requests, of (partition, batch) in turn, one under way per connection; seconds.

    Raises VerificationError.
    """
    loadgen = importlib.import_module("perf.loadgen")
    requests = [produce(topic, partition, batch)[4:] for partition, batch in batches]
    error_at = produce_error_at(topic)
    try:
        result = loadgen.run(broker.host, broker.port, requests, connections, 1, count=count, error_at=error_at)
    except (RuntimeError, OSError) as error:
        raise VerificationError(f"{broker.name}: {topic}: {error}") from error
    return float(result["seconds"])


class Synced(Load):
    """One record per request, the next after the answer, over 10 partitions at most."""

    figures = (Figure("acks_per_s", "acks/s", "", "higher"), Figure("cpu_us", "CPU per ack", "us"))
    brokers = BOTH

    def __init__(self, connections: int, count: int) -> None:
        self.name = f"synced-c{connections}"
        self.title = f"flush.messages=1: every acknowledgement after a sync, {connections} connection(s), one under way"
        self._connections, self._count = connections, count

    def missing(self) -> str | None:
        return build_missing()

    def run(self, trial: Trial) -> Sample:
        count, partitions = trial.scaled(self._count, self._count // 10), min(self._connections, 10)
        with FreshTopic(trial, self.name, partitions, {"flush.messages": "1"}) as topic:
            batches = [(partition, BATCH) for partition in range(partitions)]
            with CpuMeter(trial.broker) as cpu:
                seconds = send(trial.broker, topic.name, batches, count, self._connections)
            read_back(trial, topic, count)
        return {"acks_per_s": count / seconds, "cpu_us": cpu.seconds / count * 1e6}


def batch_of(size: int, *, value: int = 100) -> bytes:
    """An uncompressed batch of about `size` bytes in records of `value` bytes."""
    builder, now_ms = Builder(), time.time_ns() // 1_000_000
    while builder.size + value < size:
        builder.append(now_ms, None, b"x" * value)
    return builder.build()


class Restart(Load):
    """Starts on data that is there; `kill`: each start is ended by SIGKILL, so the next has to recover."""

    starts_broker = True
    brokers = BOTH
    topic = "restart"

    def __init__(self, name: str, title: str, partitions: int, batch: int, size: int, *, kill: bool) -> None:
        self.name, self.title = name, title
        self.figures = (Figure("start_ms", "start", "ms"), Figure("cpu_ms", "CPU", "ms"))
        self._partitions, self._batch, self._size, self._kill = partitions, batch_of(batch), size, kill

    def _end(self, broker: Running) -> None:
        (broker.kill if self._kill else broker.stop)()

    def _partitions_of(self, trial: Trial) -> int:
        return trial.scaled(self._partitions, max(self._partitions // 10, 4))

    def _batches(self, trial: Trial) -> int:
        return max(trial.scaled(self._size, self._size // 10) // len(self._batch), self._partitions_of(trial))

    def prepare(self, trial: Trial) -> None:
        broker, partitions = trial.kind.start(trial.directory), self._partitions_of(trial)
        Topics(broker).create([self.topic], partitions)
        batches = [(partition, self._batch) for partition in range(partitions)]
        send(broker, self.topic, batches, self._batches(trial), 16)
        self._end(broker)

    def run(self, trial: Trial) -> Sample:
        broker = trial.kind.start(trial.directory)
        sample = {"start_ms": broker.start_seconds * 1000, "cpu_ms": cpu_seconds(broker.pid) * 1000}
        records = int.from_bytes(self._batch[57:61], "big") * self._batches(trial)
        topics, partitions = Topics(broker), self._partitions_of(trial)
        try:
            topics.led(self.topic, partitions)  # Apache Kafka answers ApiVersions before it leads
            topics.expect(self.topic, partitions, records)
        except BaseException:
            broker.kill()
            raise
        self._end(broker)
        return sample


LOADS = (
    Synced(1, 2_000),
    Synced(10, 10_000),
    Synced(100, 50_000),
    Restart(
        "unclean-start", "start after SIGKILL, 2 GiB in 64 partitions, 16 KiB batches", 64, 16_384, 2 << 30, kill=True
    ),
    Restart("clean-start", "start after a clean end, 2,000 partitions", 2_000, 200, 0, kill=False),
)
