"""The cleaner: how fast it compacts, what that costs, and what a client beside it feels.

The topic is filled while it is not compacted, and what that wrote is on the disk before the clock runs: from the change
of `cleanup.policy` until the broker's `cleaner-offset-checkpoint` says that all but the active segment is clean. One
cleaner thread, as is the default.
"""

import os
import time
from pathlib import Path

from kafkalite.records import Builder
from perf.brokers.base import Running
from perf.checks import TIMEOUT_S, Topics
from perf.errors import VerificationError
from perf.loads.base import Figure, Load, Sample, Trial, quantiles_ms
from perf.loads.durable import BOTH, send
from perf.loads.requests import BATCH
from perf.process import cpu_seconds
from perf.wire import Pipe, paced, produce

TOPIC, BESIDE = "compaction", "beside"
BATCH_BYTES = 64 * 1024
SEGMENT_BYTES = 64 << 20
RATE = 3_000.0  # requests per second of the client beside it
CHUNK = 1_500
SECONDS_MAX = 300.0
SETTINGS = {"log.cleaner.backoff.ms": "100", "log.cleaner.threads": "1"}


def keyed_batches(keys: int) -> list[bytes]:
    """Batches with every key once, records of about 100 B."""
    builder, batches, now_ms = Builder(), [], time.time_ns() // 1_000_000
    for key in range(keys):
        builder.append(now_ms, b"key-%08d" % key, b"x" * 80)
        if builder.size >= BATCH_BYTES or key == keys - 1:
            batches.append(builder.build())
            builder.clear()
    return batches


class Compaction(Load):
    name = "compaction"
    title = "compaction of 1 GiB of 100 B records with 1 M keys, one thread, a client with 3,000 requests/s beside it"
    figures = (
        Figure("mb_per_s", "compacted MB/s", "MB", "higher"),
        Figure("cpu_s_per_gb", "CPU s per GB", "s"),
        Figure("p99_before", "p99 of the client before", "ms"),
        Figure("p99", "p99 of the client meanwhile", "ms"),
    )
    starts_broker = True
    brokers = BOTH

    def run(self, trial: Trial) -> Sample:
        directory = trial.directory / f"compaction-{trial.round}"
        broker = trial.kind.start(directory, SETTINGS)
        try:
            return self._measure(trial, broker, directory)
        finally:
            broker.kill()

    def _measure(self, trial: Trial, broker: Running, directory: Path) -> Sample:
        keys, times = trial.scaled(1_000_000, 100_000), 11
        batches = keyed_batches(keys)
        topics = Topics(broker)
        topics.create([TOPIC], 1, {"segment.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.01"})
        topics.create([BESIDE], 10)
        send(broker, TOPIC, [(0, batch) for batch in batches], len(batches) * times, 1)
        topics.expect(TOPIC, 1, keys * times)
        size = sum(map(len, batches)) * times
        os.sync()  # the filling's bytes go to the disk in neither of the two windows
        pipes = [Pipe(broker.host, broker.port, [produce(BESIDE, number, BATCH)]) for number in range(10)]
        before = quantiles_ms(paced(pipes, RATE, 3 * CHUNK))["p99"]
        used, started = cpu_seconds(broker.pid), time.monotonic()
        seconds: list[float] = []
        compact(broker)
        active = active_segment(directory)
        while cleaned_up_to(directory) < active:
            seconds += paced(pipes, RATE, CHUNK)
            if time.monotonic() - started > SECONDS_MAX:
                raise VerificationError(f"{broker.name}: not compacted after {SECONDS_MAX:.0f} s")
        elapsed, used = time.monotonic() - started, cpu_seconds(broker.pid) - used
        for pipe in pipes:
            pipe.socket.close()
        self._check(directory, keys)
        return {
            "mb_per_s": size / elapsed / 1e6, "cpu_s_per_gb": used / size * 1e9, "p99_before": before,
            "p99": quantiles_ms(seconds)["p99"],
        }  # fmt: skip

    def _check(self, directory: Path, keys: int) -> None:
        """What is left below the active segment is about one record per key."""
        left = sum(path.stat().st_size for path in partition(directory).glob("*.log")) - SEGMENT_BYTES
        if left > 2 * keys * 110:
            raise VerificationError(f"{left} bytes are left of {keys} keys")


def compact(broker: Running) -> None:
    """Turn the topic into a compacted one."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    admin = AdminClient({"bootstrap.servers": broker.address, "enable.metrics.push": False, "log_level": 2})
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([change]).values():
        future.result(TIMEOUT_S)


def partition(directory: Path) -> Path:
    return next(directory.rglob(f"{TOPIC}-0"))


def active_segment(directory: Path) -> int:
    """Base offset of the last segment."""
    return max(int(path.stem) for path in partition(directory).glob("*.log"))


def cleaned_up_to(directory: Path) -> int:
    """The topic's line in the broker's checkpoint of clean offsets; -1 where there is none."""
    for path in directory.rglob("cleaner-offset-checkpoint"):
        for line in path.read_text().splitlines()[2:]:
            topic, _, offset = line.split(" ")
            if topic == TOPIC:
                return int(offset)
    return -1


LOADS = (Compaction(),)
