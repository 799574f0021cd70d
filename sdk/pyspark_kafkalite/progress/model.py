"""The figures of a micro-batch that has ended, and the interface of what shows it. Pure, without PySpark."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from kafkalite.model import TopicPartition
from pyspark_kafkalite.progress.facts import Facts
from pyspark_kafkalite.stream_offsets import BYTES, TOPIC_IDS, Offsets, StreamOffset

PHASES = {
    "plan": ("latestOffset", "getBatch", "queryPlanning"),
    "run": ("addBatch",),
    "checkpoint": ("walCommit", "commitOffsets", "commitBatch"),
}
"""Durations of Spark (`durationMs`) by phase."""


class PartitionProgress(NamedTuple):
    """One partition.

    Attributes:
        start, end: offsets that the micro-batch has read; `end` does not belong to them.
        latest: the log end when the micro-batch was planned; None = unknown.
    """

    start: int
    end: int
    latest: int | None

    @property
    def lag(self) -> int | None:
        """Offsets behind the micro-batch; None = unknown."""
        return None if self.latest is None else max(self.latest - self.end, 0)


class BatchProgress(NamedTuple):
    """A micro-batch that has ended.

    Attributes:
        query_id, run_id: of the query; the run id is another one after each start.
        name: of the query, else its id.
        batch_id: of the micro-batch.
        time: when it began, ISO 8601 in UTC.
        duration_ms: of the trigger.
        rows: records.
        bytes: written by ingest, else read from the log (estimated by the planner); None = unknown.
        files: written by ingest; None = it is no ingest.
        bad_rows: that could not be decoded.
        phases_ms: durations: plan, run, checkpoint; those of ingest are fetch and encode, summed over its tasks, and
            commit.
        partitions: of all sources `kafkalite`.
        lag_seconds: age of the oldest record that was not read; None = unknown.
    """

    query_id: str
    run_id: str
    name: str
    batch_id: int
    time: str
    duration_ms: int
    rows: int
    bytes: int | None
    files: int | None
    bad_rows: int
    phases_ms: Mapping[str, float]
    partitions: Mapping[TopicPartition, PartitionProgress]
    lag_seconds: float | None = None

    @property
    def lag(self) -> int | None:
        """Offsets behind the micro-batch, of all partitions; None = unknown."""
        known = [each.lag for each in self.partitions.values() if each.lag is not None]
        return sum(known) if known else None

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The next offset of each partition."""
        return {name: each.end for name, each in self.partitions.items()}


class Output(Protocol):
    """Shows progress. Errors are logged; they do not end a query."""

    def batch(self, progress: BatchProgress) -> None:
        """A micro-batch has ended."""
        ...

    def ended(self, query: str, error: str | None) -> None:
        """A query has ended.

        Arguments:
            query: its name, else its id.
            error: None = without one.
        """
        ...

    def close(self) -> None:
        """Release files and ports."""
        ...


def batch_progress(spark: Mapping[str, Any], facts: Facts | None) -> BatchProgress:
    """Return the progress of a micro-batch.

    Arguments:
        spark: the progress of Spark, as its JSON.
        facts: of ingest; None = it is no ingest.
    """
    partitions: dict[TopicPartition, PartitionProgress] = {}
    sizes = []
    for each in spark["sources"]:
        partitions |= _partitions(each)
        if (size := _offset(each["latestOffset"]).get(BYTES)) is not None:
            sizes.append(size)
    durations = spark["durationMs"]
    phases: dict[str, float] = {phase: sum(durations.get(name, 0) for name in names) for phase, names in PHASES.items()}
    return BatchProgress(
        query_id=str(spark["id"]),
        run_id=str(spark["runId"]),
        name=spark["name"] or str(spark["id"]),
        batch_id=spark["batchId"],
        time=spark["timestamp"],
        duration_ms=durations.get("triggerExecution", 0),
        rows=(spark["numInputRows"] or 0) if facts is None else facts.rows,
        bytes=facts.bytes if facts is not None else sum(sizes) if sizes else None,
        files=None if facts is None else facts.files,
        bad_rows=0 if facts is None else facts.bad_rows,
        phases_ms=phases if facts is None else {**phases, **facts.phases_ms},
        partitions=partitions,
    )


def _partitions(source: Mapping[str, Any]) -> dict[TopicPartition, PartitionProgress]:
    end = _offset(source["endOffset"])
    if TOPIC_IDS not in end:
        return {}  # another source
    until = StreamOffset.from_json(end)
    start: Offsets = until.start or StreamOffset.from_json(_offset(source["startOffset"])).offsets
    latest = StreamOffset.from_json(_offset(source["latestOffset"])).offsets
    return {
        name: PartitionProgress(start.get(name, 0), offset, latest.get(name)) for name, offset in until.offsets.items()
    }


def _offset(text: Any) -> dict[str, Any]:
    """The offset of a source; Spark passes its JSON as text, or `None` and `null` where there is none."""
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {}  # of another source
    return found if isinstance(found, dict) else {}
