"""One module per kind of load; `LOADS` names them in the order of the report."""

from perf.loads import (
    compaction,
    durable,
    java,
    latency,
    membership,
    metadata,
    offsets,
    process,
    rdkafka,
    requests,
)
from perf.loads.base import Figure, Load, Sample, Turn

__all__ = ["LOADS", "Figure", "Load", "Sample", "Turn"]

_ALL = (
    *rdkafka.LOADS,
    *requests.LOADS,
    *latency.LOADS,
    *metadata.LOADS,
    *process.LOADS,
    *durable.LOADS,
    *compaction.LOADS,
    *offsets.LOADS,
    *membership.LOADS,
    *java.LOADS,
)
LOADS: dict[str, Load] = {load.name: load for load in _ALL}
