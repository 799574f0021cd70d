"""The job `audit`: compares the number of records of a topic and its table, by time.

Counts have the fields of KAFKA-260, one row per topic, tier ("topic" or "lake") and bucket of times. Three proofs:
1. Commits are contiguous: each begins where the former one ends.
2. In the offsets of the table, each bucket has as many rows in the lake as records in the topic.
3. The completeness watermark: all records of the topic with an earlier time are in the table.

The topic is compared as far as retention has left it.
"""

import json
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.model import TopicPartition
from pyspark_kafkalite.clients import close_clients
from pyspark_kafkalite.cluster import Cluster
from pyspark_kafkalite.jobs.errors import JobError
from pyspark_kafkalite.jobs.settings.job_file import JobFile
from pyspark_kafkalite.jobs.settings.job_settings import AuditSettings
from pyspark_kafkalite.jobs.verify import contiguity
from pyspark_kafkalite.losses import find_recreated, recreated_text
from pyspark_kafkalite.stream_offsets import offsets_json
from pyspark_kafkalite.tables.locations import find
from pyspark_kafkalite.tables.manifest import ManifestTable
from pyspark_kafkalite.times import time_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TOPIC, LAKE = "topic", "lake"
POSITIONS = (
    "startingtimestamp",
    "startingoffsetsbytimestamp",
    "startingoffsets",
    "failondataloss",
    "columns",
    "progressgroup",
)
"""Options of the source that the audit sets itself."""


class Bucket(NamedTuple):
    """The records of a topic with a time in [start_ms, end_ms).

    Attributes:
        topic: its name.
        start_ms, end_ms: ms since 1970.
        in_topic: records of the topic.
        in_range: those of them whose offsets are below the end of the table.
        in_lake: rows of the table.
    """

    topic: str
    start_ms: int
    end_ms: int
    in_topic: int
    in_range: int
    in_lake: int


def run(spark: "SparkSession", job: JobFile, report: Callable[[str], Any]) -> int:
    """Count, compare and report.

    Arguments:
        spark: the session.
        job: of type audit.
        report: is called with lines about the result.

    Returns:
        0 = the table is right, 1 = a problem was reported.

    Raises:
        TableError: the table does not exist, or is damaged. KafkaError: the cluster cannot be reached.
    """
    settings = job.audit or AuditSettings()
    table = ManifestTable(job.required_table.path, create=False)
    if not table.commits():
        raise JobError(f"{job.path}: table {table.location} has no commits")
    again = created_again(job, table)
    found = buckets(spark, job, table, settings.bucket, again)
    problems = [*again.values(), *contiguity(table.commits()), *differences(found)]
    for bucket in found:
        times = f"{time_text(bucket.start_ms)} to {time_text(bucket.end_ms)}"
        report(f"{bucket.topic}  {times}  topic {bucket.in_topic}  lake {bucket.in_lake}")
    for topic, mark_ms in watermarks(found).items():
        report(f"{topic}: complete up to {time_text(mark_ms)}")
    for problem in problems:
        report(f"problem: {problem}")
    if job.sink is not None:
        _send(spark, job.sink, counts(found, job.name, int(time.time() * 1000)))
    return int(bool(problems))


def created_again(job: JobFile, table: ManifestTable) -> dict[str, str]:
    """Return a sentence for each topic that was deleted and created again after it was copied.

    Arguments:
        job: names the topics.
        table: of the lake.
    """
    try:
        found = Cluster(job.source_options()).partitions()
    finally:
        close_clients()
    state = table.state()
    return {topic: recreated_text(topic, state.ends) for topic in find_recreated(state.topic_ids, found.topic_ids)}


def buckets(
    spark: "SparkSession", job: JobFile, table: ManifestTable, size: str, again: Collection[str] = ()
) -> list[Bucket]:
    """Return the buckets of all topics, sorted by topic and time.

    Arguments:
        spark: the session.
        job: names the topics.
        table: of the lake.
        size: duration of a bucket as Spark writes it.
        again: topics that are not compared.
    """
    from pyspark.sql import functions

    start, end, ends = _ranges(job, table, again)
    options = {name: value for name, value in job.source.items() if name.lower() not in POSITIONS}
    options |= {"startingOffsets": _json(start), "endingOffsets": _json(end), "failOnDataLoss": "false"}
    records = spark.read.format("kafkalite").options(**options, columns="topic,partition,offset,timestamp").load()
    marked = _with_bound(spark, records, ends, "end")
    covered = functions.count_if(functions.col("offset") < functions.col("end"))
    in_topic = _by_bucket(marked, size, functions.count("*").alias("in_topic"), covered.alias("in_range"))
    compared = {each: at for each, at in start.items() if each.topic not in again}
    kept = _with_bound(spark, _rows(spark, table), compared, "start").where("offset >= start")
    in_lake = _by_bucket(kept, size, functions.count("*").alias("in_lake"))
    joined = in_topic.join(in_lake, ["topic", "start_ms", "end_ms"], "full_outer").na.fill(0)
    return sorted(Bucket(*row) for row in joined.select(*Bucket._fields).collect())


def _rows(spark: "SparkSession", table: ManifestTable) -> "DataFrame":
    """Return the rows of the table without those of former topics: those were created again."""
    from pyspark.sql import functions

    state = table.state()
    if not state.files:  # only dead letters, or nothing at all
        return spark.createDataFrame([], "topic string, partition int, offset bigint, timestamp timestamp")
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in state.files:
        groups.setdefault(state.former.get(name, ()), []).append(str(find(Path(table.location), name)))
    columns = ("_topic AS topic", "_partition AS partition", "_offset AS offset", "_timestamp AS timestamp")
    found = [
        spark.read.parquet(*paths).selectExpr(*columns).where(~functions.col("topic").isin(*former))
        for former, paths in groups.items()
    ]
    return reduce(lambda one, other: one.union(other), found)


def _ranges(job: JobFile, table: ManifestTable, again: Collection[str]) -> tuple[dict[TopicPartition, int], ...]:
    """Return the offsets that are compared, and the ends of the table, for each partition of the topics; none of those
    that were created `again`.
    """
    try:
        cluster = Cluster(job.source_options())
        found = cluster.partitions().partitions
        earliest, latest = cluster.earliest(found), cluster.latest(found)
    finally:
        close_clients()
    state = table.state()
    first, ends = state.starts, state.ends
    earliest |= {each: at for each, at in latest.items() if each.topic in again}
    start = {each: min(max(first.get(each, at), at), latest[each]) for each, at in earliest.items()}
    return start, latest, {each: ends.get(each, start[each]) for each in found}


def _json(offsets: Mapping[TopicPartition, int]) -> str:
    return json.dumps(offsets_json(offsets))


def _with_bound(
    spark: "SparkSession", rows: "DataFrame", bounds: Mapping[TopicPartition, int], name: str
) -> "DataFrame":
    """Add the bound of each row's partition; rows of other partitions are left out."""
    from pyspark.sql import functions

    listed = [(each.topic, each.partition, bound) for each, bound in bounds.items()]
    bound = spark.createDataFrame(listed, f"topic string, partition int, {name} bigint")
    return rows.join(functions.broadcast(bound), ["topic", "partition"])


def _by_bucket(rows: "DataFrame", size: str, *aggregates: "Column") -> "DataFrame":
    from pyspark.sql import functions

    counted = rows.groupBy("topic", functions.window("timestamp", size).alias("window")).agg(*aggregates)
    bounds = ("unix_millis(window.start) AS start_ms", "unix_millis(window.end) AS end_ms")
    return counted.selectExpr("*", *bounds).drop("window")


# results; pure


def differences(found: Iterable[Bucket]) -> Iterable[str]:
    """Yield a sentence for each bucket whose numbers differ in the offsets that the table has."""
    for each in found:
        if each.in_range != each.in_lake:
            yield (
                f"{each.topic}: from {time_text(each.start_ms)} to {time_text(each.end_ms)} the topic has "
                f"{each.in_range} records below the end of the table, the table has {each.in_lake}"
            )


def watermarks(found: Iterable[Bucket]) -> dict[str, int]:
    """Return for each topic the time before which the table is complete, in ms since 1970."""
    marks: dict[str, int] = {}
    incomplete: set[str] = set()
    for each in sorted(found):
        if each.topic in incomplete:
            continue
        if each.in_lake < each.in_topic:
            incomplete.add(each.topic)
            marks[each.topic] = each.start_ms
        else:
            marks[each.topic] = each.end_ms
    return marks


def counts(found: Iterable[Bucket], application: str, time_ms: int) -> list[dict[str, Any]]:
    """Return the counts as messages of an audit topic, with the fields of KAFKA-260.

    Arguments:
        found: the buckets.
        application: name of the job.
        time_ms: of the audit.
    """
    shared = {"time": time_ms, "host": socket.gethostname(), "datacenter": None, "application": application}
    return [
        {
            **shared,
            "topic": each.topic,
            "tier": tier,
            "bucket_start": each.start_ms,
            "bucket_end": each.end_ms,
            "count": count,
        }
        for each in found
        for tier, count in ((TOPIC, each.in_topic), (LAKE, each.in_lake))
    ]


def _send(spark: "SparkSession", sink: Mapping[str, str], messages: list[dict[str, Any]]) -> None:
    rows = spark.createDataFrame([(each["topic"], json.dumps(each)) for each in messages], "key string, value string")
    rows.write.format("kafkalite").options(**sink).mode("append").save()
