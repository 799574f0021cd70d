"""One module per kind of load; `LOADS` names them in the order of the report, `GROUPS` those selected together.

`all` selects the loads of no group: those of the table in README.md.
"""

from perf.loads import (
    clusters,
    compaction,
    durable,
    fairness,
    java,
    latency,
    membership,
    metadata,
    offsets,
    process,
    quotas,
    rdkafka,
    replication,
    requests,
    security,
    transactions,
)
from perf.loads.base import Figure, Load, Sample, Trial

__all__ = ["GROUPS", "LOADS", "Figure", "Load", "Sample", "Trial"]

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
    *fairness.LOADS,
    *clusters.LOADS,
    *replication.LOADS,
    *transactions.LOADS,
    *security.LOADS,
    *quotas.LOADS,
)
LOADS: dict[str, Load] = {load.name: load for load in _ALL}
GROUPS: dict[str, list[str]] = {
    "all": [load.name for load in _ALL if not load.group],
    **{group: [load.name for load in _ALL if load.group == group] for group in {load.group for load in _ALL} - {""}},
}
