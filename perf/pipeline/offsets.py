"""ListOffsets requests of one partition, as the connector sends two of after each poll of its consumers."""

import importlib
import struct

from perf.brokers.base import Running
from perf.loads.base import CpuMeter
from perf.pipeline.job import PARTITIONS, Sample
from perf.wire import frame

LATEST = -1
CONNECTIONS, DEPTH = 4, 20


def list_offsets(topic: str, partition: int) -> bytes:
    """ListOffsets v5 of the end of a partition."""
    name = topic.encode()
    body = struct.pack(">ibi", -1, 0, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iiiq", 1, partition, -1, LATEST)
    return frame(2, 5, 0, body, flexible=False)


def error_at(topic: str) -> int:
    """Where the error code is in a response without its size: correlation id(4), throttle time(4), topics(4), name,
    partitions(4), index(4)."""
    return 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4


def measure(broker: Running, topic: str, count: int) -> Sample:
    """Send so many requests. Raises RuntimeError: a response has an error."""
    loadgen = importlib.import_module("perf.loadgen")
    requests = [list_offsets(topic, each)[4:] for each in range(PARTITIONS)]
    with CpuMeter(broker) as cpu:
        result = loadgen.run(
            broker.host, broker.port, requests, CONNECTIONS, DEPTH, count=count, error_at=error_at(topic)
        )
    return {"requests_per_s": count / result["seconds"], "requests_per_cpu_s": count / cpu.seconds}
