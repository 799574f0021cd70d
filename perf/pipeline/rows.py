"""The rows of the report: what each side does, and the limits for ours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perf.limits import OURS, Limit
from perf.loads.base import Figure
from perf.pipeline.job import Job

ROWS_PER_S = Figure("records_per_s", "rows/s", "", "higher")
CPU_US = Figure("cpu_us", "CPU per row, JVM and Python", "us")
THROUGHPUT = (ROWS_PER_S, CPU_US)
BATCHES = (Figure("p50", "p50", "ms"), Figure("p90", "p90", "ms"), Figure("cpu_ms", "CPU per micro-batch", "ms"))
COMMITS = (Figure("p50", "p50", "ms"), Figure("p99", "p99", "ms"))

THEIRS, AT_LEAST_ONCE = "kafka", "at-least-once"
TUNED = {
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": "8388608",
    "kafka.receive.buffer.bytes": "-1",
}
BATCHED = {"kafka.linger.ms": "20", "kafka.batch.size": "262144"}
GB = 1_000_000_000


@dataclass(frozen=True)
class Row:
    """One row.

    Arguments:
        name, title: in options, in the report.
        jobs: side -> its job, without address, topic and directory.
        figures: of the sample.
        limits: of our side; `client` is the name of the other one.
        checks: side -> a job before the measurement.
        repetitions: instead of those of the plan.
    """

    name: str
    title: str
    jobs: Mapping[str, Job]
    figures: Sequence[Figure]
    limits: Sequence[Limit]
    checks: Mapping[str, Job] | None = None
    repetitions: int = 0

    def sized(self, percent: int) -> Mapping[str, Job]:
        """The jobs with so many percent of the records."""
        return {side: scaled(job, percent) for side, job in self.jobs.items()}


def scaled(job: Job, percent: int) -> Job:
    """A job with so many percent of the records."""
    return replace(job, records=job.records * percent // 100, batches=job.batches * percent // 100)


def _reading(size: int, gigabytes: float, must: float, aim: float, cpu: Sequence[Limit] = ()) -> Row:
    job = Job("read", value_bytes=size, records=int(gigabytes * GB / size))
    theirs, ours = replace(job, source=THEIRS, options=TUNED), replace(job, source=OURS)
    return Row(
        f"read-{size}",
        f"a topic with values of {size:,} B to the sink noop; the connector is tuned",
        {THEIRS: theirs, OURS: ours},
        THROUGHPUT,
        (Limit("records_per_s", THEIRS, must, aim), *cpu),
        {THEIRS: replace(theirs, work="count"), OURS: replace(ours, work="count")},
    )


def _parquet(name: str, theirs: str, ours: str, must: float, aim: float) -> Row:
    job = Job("", value_bytes=1024, records=2 * GB // 1024)
    return Row(
        f"parquet-{name}",
        f"a topic with values of 1,024 B to Parquet, {name}: the tuned connector, batch and stream, and ingest",
        {
            THEIRS: replace(job, work="batch_to_parquet", source=THEIRS, options=TUNED, compression=theirs),
            "kafka-stream": replace(job, work="stream_to_parquet", source=THEIRS, options=TUNED, compression=theirs),
            OURS: replace(job, work="ingest_to_parquet", compression=ours),
        },
        THROUGHPUT,
        (Limit("records_per_s", THEIRS, must, aim),),
    )


def _json(size: int, gigabytes: float) -> Row:
    job = Job("", value_bytes=size, records=int(gigabytes * GB / size), compression="snappy")
    return Row(
        f"json-{size}",
        f"a topic with JSON objects of {size:,} B to Parquet, snappy, by a declared schema: the tuned connector with "
        "from_json, and ingest",
        {
            THEIRS: replace(job, work="from_json_to_parquet", source=THEIRS, options=TUNED),
            OURS: replace(job, work="ingest_json_to_parquet"),
        },
        THROUGHPUT,
        (Limit("records_per_s", THEIRS, 1.2, 2),),
    )


def _sink() -> Row:
    job = Job("sink", value_bytes=1024, records=2 * GB // 1024)
    return Row(
        "sink",
        "rows with keys and values of 1,024 B to a topic: the connector's defaults, the connector with our linger and "
        "batch size, and ours",
        {
            THEIRS: replace(job, source=THEIRS),
            "kafka-batched": replace(job, source=THEIRS, options=BATCHED),
            OURS: replace(job, source=OURS),
        },
        THROUGHPUT,
        (
            Limit("records_per_s", THEIRS, 2, 3),
            Limit("records_per_s", "kafka-batched", 1.3, 1.8),
            Limit("cpu_us", "kafka-batched", 0.7, 0.5),
        ),
    )


def _exactly_once() -> Row:
    job = Job("stream_sink", value_bytes=1024, records=2 * GB // 1024, batches=8)
    return Row(
        "exactly-once",
        "eight micro-batches with keys and values of 1,024 B to a topic: the connector's defaults, our sink, and it "
        "with exactlyOnce",
        {
            THEIRS: replace(job, source=THEIRS),
            AT_LEAST_ONCE: replace(job, source=OURS),
            OURS: replace(job, source=OURS, options={"exactlyOnce": "true"}),
        },
        THROUGHPUT,
        (Limit("records_per_s", AT_LEAST_ONCE, 0.9, 0.95), Limit("records_per_s", THEIRS, 1.3, 1.5)),
    )


def _micro_batches() -> Row:
    job = Job("micro_batches", value_bytes=100, records=1_000)
    return Row(
        "micro-batch",
        "micro-batches of 10 rows to the sink noop: duration of a trigger; the connector is tuned",
        {THEIRS: replace(job, source=THEIRS, options=TUNED), OURS: replace(job, source=OURS)},
        BATCHES,
        (Limit("p50", THEIRS, 1.6, 1.3), Limit("p50", "", 250)),
    )


def _commits(name: str, title: str) -> Row:
    job = Job(f"{name}_commits", batches=200, on_disk=True)
    return Row(
        f"commit-{name}",
        f"one commit of four files on a disk, {title}",
        {OURS: job},
        COMMITS,
        (Limit("p50", "", 50, 15),),
    )


RESTART = Row(
    "restart",
    "an ingest is killed and started again: from the start of the process to its first commit",
    {OURS: Job("restart", value_bytes=100, records=200_000)},
    (Figure("restart_s", "first commit", "s"), Figure("archive_s", "with a CDS archive", "s")),
    (Limit("restart_s", "", 15, 10), Limit("archive_s", "", 15, 10)),
    repetitions=3,
)
LIST_OFFSETS = Row(
    "list-offsets",
    "ListOffsets of one partition: the broker",
    {OURS: Job("list_offsets", value_bytes=100, records=200_000, batches=400_000)},
    (
        Figure("requests_per_cpu_s", "requests per CPU second", "", "higher"),
        Figure("requests_per_s", "requests/s", "", "higher"),
    ),
    (Limit("requests_per_cpu_s", "", 50_000, 80_000),),
)

ROWS = {
    row.name: row
    for row in (
        _reading(1024, 2, 1.0, 1.15, (Limit("cpu_us", THEIRS, 1.0, 0.9),)),
        _reading(100, 0.5, 1.2, 2.0),
        _parquet("none", "none", "none", 4, 5),
        _parquet("snappy", "snappy", "snappy", 2.4, 3),
        _parquet("zstd-3", "zstd", "zstd:3", 1.6, 2),
        _json(1024, 1),
        _json(256, 0.5),
        _sink(),
        _exactly_once(),
        _micro_batches(),
        RESTART,
        _commits("parquet", "plain Parquet"),
        _commits("delta", "Delta"),
        LIST_OFFSETS,
    )
}
