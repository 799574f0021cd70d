"""Produce and consume through librdkafka: the C program rdkafka_load.c, built on first use into the cache."""

import functools
import json
import shutil
import subprocess
from pathlib import Path

from perf.brokers.base import Running, cache_directory
from perf.checks import Topics
from perf.errors import VerificationError
from perf.loads.base import CpuMeter, Figure, FreshTopic, Load, Sample, Trial

SOURCE = Path(__file__).parent.parent / "rdkafka_load.c"
PARTITIONS = 4
LINGER_MS = 5
SECURED = frozenset({"kafkalite-tls", "kafka-tls"})  # brokers with a TLS listener
FIGURES = (
    Figure("records_per_s", "records/s", "", "higher"),
    Figure("mb_per_s", "MB/s", "", "higher"),
    Figure("cpu_s_per_m", "CPU s per M records", "s"),
    Figure("cpu_s_per_gb", "CPU s per GB", "s"),
)


@functools.cache
def program() -> Path:
    """The compiled load. Raises VerificationError with the compiler's words if it does not build."""
    binary = cache_directory() / "rdkafka_load"
    if not binary.exists() or binary.stat().st_mtime < SOURCE.stat().st_mtime:
        binary.parent.mkdir(parents=True, exist_ok=True)
        command = ["gcc", "-O2", "-std=gnu11", "-Wall", "-o", str(binary), str(SOURCE), "-lrdkafka"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise VerificationError(f"rdkafka_load.c does not build (package librdkafka-dev):\n{done.stderr}")
    return binary


def drive(
    broker: Running, mode: str, topic: str, records: int, *more: object, partitions: int = PARTITIONS, tls: bool = False
) -> dict[str, float]:
    """Run the program once, over TLS or not; its JSON. Raises VerificationError on any error or missing record."""
    address = f"{broker.cafile}@{broker.tls_address}" if tls else broker.address
    command = [program(), mode, address, topic, partitions, records, *more]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise VerificationError(f"{broker.name}: {mode} {topic}: {done.stderr.strip()[-2000:]}")
    result: dict[str, float] = json.loads(done.stdout)
    if result["records"] != records or result["errors"]:
        raise VerificationError(f"{broker.name}: {mode} {topic}: {records} wanted, got {result}")
    return result


def figures(result: dict[str, float], cpu: float) -> Sample:
    records, size, seconds = result["records"], result["bytes"], result["seconds"]
    return {
        "records_per_s": records / seconds,
        "mb_per_s": size / seconds / 1e6,
        "cpu_s_per_m": cpu / records * 1e6,
        "cpu_s_per_gb": cpu / size * 1e9,
    }


def build_missing() -> str | None:
    if shutil.which("gcc") is None:
        return "not installed: gcc"
    return None if Path("/usr/include/librdkafka/rdkafka.h").exists() else "not installed: librdkafka-dev"


def read_back(trial: Trial, topic: FreshTopic, records: int) -> None:
    """Raises VerificationError unless the topic has so many records by its offsets, and all can be read."""
    topic.expect(records)
    drive(trial.broker, "consume", topic.name, records, partitions=topic.partitions)


class RdkafkaProduce(Load):
    figures = FIGURES

    def __init__(self, size: int, codec: str, records: int, quick: int, *, tls: bool = False) -> None:
        self.name = f"{'tls-' if tls else ''}produce-{size}" + (f"-{codec}" if codec != "none" else "")
        with_codec = (f", {codec}" if codec != "none" else "") + (", TLS 1.3" if tls else "")
        self._tls, self.brokers, self.group = tls, SECURED if tls else frozenset(), "security" if tls else ""
        self.title = f"librdkafka produce {size} B{with_codec}, 4 partitions, acks=all, linger {LINGER_MS}"
        self._size, self._codec, self._records, self._quick = size, codec, records, quick
        self.fills_bytes = size * records * 5 // 4

    def missing(self) -> str | None:
        return build_missing()

    def run(self, trial: Trial) -> Sample:
        records = trial.scaled(self._records, self._quick)
        with FreshTopic(trial, self.name, PARTITIONS) as topic:
            with CpuMeter(trial.broker) as cpu:
                more = (self._size, self._codec, "all", LINGER_MS)
                result = drive(trial.broker, "produce", topic.name, records, *more, tls=self._tls)
            read_back(trial, topic, records)
        return figures(result, cpu.seconds)


class RdkafkaConsume(Load):
    figures = FIGURES

    def __init__(self, size: int, records: int, quick: int, *, tls: bool = False) -> None:
        self.name = f"{'tls-' if tls else ''}consume-{size}"
        self._tls, self.brokers, self.group = tls, SECURED if tls else frozenset(), "security" if tls else ""
        self.title = f"librdkafka consume {size} B{', TLS 1.3' if tls else ''}, 4 partitions, from the beginning"
        self._size, self._records, self._quick = size, records, quick

    def missing(self) -> str | None:
        return build_missing()

    def prepare(self, trial: Trial) -> None:
        records = trial.scaled(self._records, self._quick)
        topics = Topics(trial.broker)
        topics.create([self.name], PARTITIONS)
        drive(trial.broker, "produce", self.name, records, self._size, "none", "all", LINGER_MS)
        topics.expect(self.name, PARTITIONS, records)

    def run(self, trial: Trial) -> Sample:
        records = trial.scaled(self._records, self._quick)
        with CpuMeter(trial.broker) as cpu:
            result = drive(trial.broker, "consume", self.name, records, tls=self._tls)
        return figures(result, cpu.seconds)


LOADS = (
    RdkafkaProduce(100, "none", 5_000_000, 500_000),
    RdkafkaProduce(100, "lz4", 5_000_000, 500_000),
    RdkafkaProduce(1000, "none", 1_500_000, 150_000),
    RdkafkaProduce(1000, "lz4", 1_500_000, 150_000),
    RdkafkaConsume(100, 5_000_000, 500_000),
    RdkafkaConsume(1000, 1_500_000, 150_000),
    RdkafkaProduce(1024, "none", 1_000_000, 150_000, tls=True),
    RdkafkaConsume(1024, 1_000_000, 150_000, tls=True),
)
