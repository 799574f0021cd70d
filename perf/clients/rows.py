"""The rows of the report: a load, the clients that run it, and the limits for our client."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from perf.brokers.base import Running
from perf.checks import Topics
from perf.clients.base import Job, Sample
from perf.limits import OURS, Limit
from perf.loads.base import Figure
from perf.loads.rdkafka import drive

RECORDS_PER_S = Figure("records_per_s", "records/s", "", "higher")
CPU_US = Figure("cpu_us", "CPU per record", "us")
THROUGHPUT = (RECORDS_PER_S, CPU_US)
AT_ONCE_MS = 0
PROGRAMS = "kafkalite-aiokafka"
ALL = (OURS, PROGRAMS, "confluent", "confluent-aio", "aiokafka", "kafka-python")
FAST = ("kafkalite", "confluent", "aiokafka")
WITH_COLUMNS = ("kafkalite", "kafkalite-records", "kafkarrow")
SLOWNESS = {"kafka-python": 10, "confluent-aio": 4, "aiokafka": 4, "kafkarrow": 20}
"""These send, or read as columns, so much less, to take a similar time."""


@dataclass(frozen=True)
class Row:
    """One row.

    Arguments:
        name, title: in options, in the report.
        jobs: label -> the run without address and topic; a label precedes the keys of its figures.
        quick: the same for a quick run.
        clients: names of those that run it.
        figures: of the sample.
        limits: of our client.
        fill: records that are in the topic before.
        creates: the topics are created for each run and have all records afterwards; else they are kept.
        combine: figures from those of the jobs.
    """

    name: str
    title: str
    jobs: Mapping[str, Job]
    quick: Mapping[str, Job]
    clients: Sequence[str]
    figures: Sequence[Figure]
    limits: Sequence[Limit]
    fill: int = 0
    creates: bool = True
    combine: Callable[[Sample], Sample] = dict

    def sized(self, quick: bool) -> Mapping[str, Job]:
        return self.quick if quick else self.jobs

    def prepare(self, broker: Running, quick: bool) -> None:
        """Create topics that all runs share, with the records that they read."""
        if self.creates:
            return
        topics = Topics(broker)
        for label, job in self.sized(quick).items():
            named = replace(job, topic=self.topic(label))
            topics.create_all(named.topic_names, job.partitions)
            if self.fill:
                records = job.records if self.fill < 0 else self.fill
                drive(broker, "produce", named.topic, records, job.value_bytes, "none", "all", 5)
                topics.expect(named.topic, job.partitions, records)

    def topic(self, label: str) -> str:
        return f"{self.name}{label and '-'}{label}"


def _program(must: float, aim: float) -> Limit:
    """The limit of a program that is written for aiokafka, on the SDK."""
    return Limit("records_per_s", "aiokafka", must, aim, ours=PROGRAMS)


def _producing(name: str, title: str, limits: Sequence[Limit], records: int, **settings: object) -> Row:
    full = Job("produce", records=records, warm_up=records // 10, **settings)  # type: ignore[arg-type]
    quick = replace(full, records=20_000, warm_up=2_000)
    return Row(f"produce-{name}", title, {"": full}, {"": quick}, ALL, THROUGHPUT, limits)


def _reading(work: str, title: str, clients: Sequence[str], limits: Sequence[Limit]) -> Row:
    full = Job(work, records=2_000_000)
    quick = replace(full, records=50_000)
    name = "consume-" + work
    return Row(name, title, {"": full}, {"": quick}, clients, THROUGHPUT, limits, fill=-1, creates=False)


def _columns(size: str, records: int, value_bytes: int) -> Row:
    full = Job("columns", records=records, value_bytes=value_bytes)
    limits = [Limit("records_per_s", "kafkalite-records", 2.0, 3.0), Limit("records_per_s", "kafkarrow", 1.0, 1.5)]
    title = f"consume {size} as columns: poll_columns, kafkarrow, and poll of records, each value read"
    quick = {"": replace(full, records=50_000)}
    name = f"consume-columns-{value_bytes}"
    return Row(name, title, {"": full}, quick, WITH_COLUMNS, THROUGHPUT, limits, fill=-1, creates=False)


def _sending_columns() -> Row:
    full = Job("send_columns", records=1_000_000, warm_up=100_000)
    limits = [Limit("records_per_s", "kafkalite-records", 2.0, 4.0)]
    title = "produce 100 B: send_columns of 10,000 rows, and send of records, acks=all, linger 5 ms"
    quick = replace(full, records=20_000, warm_up=2_000)
    return Row("produce-columns", title, {"": full}, {"": quick}, WITH_COLUMNS, THROUGHPUT, limits)


def _over_tls() -> Sequence[Row]:
    """1 KiB over TLS 1.3; on brokers that have a TLS listener."""
    clients, limits = ("kafkalite", "confluent"), [Limit("records_per_s", "confluent", 0.8, 1.1)]
    produce = Job("produce", records=300_000, warm_up=30_000, value_bytes=1024, tls=True)
    poll = Job("poll", records=500_000, value_bytes=1024, tls=True)
    small = {"records": 20_000, "warm_up": 2_000}
    title = "produce 1 KiB over TLS 1.3, each awaitable kept and its offset read, acks=all, linger 5 ms, uvloop"
    producing = Row("tls-produce", title, {"": produce}, {"": replace(produce, **small)}, clients, THROUGHPUT, limits)
    title = "consume 1 KiB over TLS 1.3 by assignment: poll (confluent: consume(500))"
    jobs = {"": poll}, {"": replace(poll, records=50_000)}
    reading = Row("tls-consume", title, *jobs, clients, THROUGHPUT, limits, fill=-1, creates=False)
    return producing, reading


def _group_start(protocol: str, clients: Sequence[str]) -> Row:
    full = Job("group_start", records=15, warm_up=3, group_protocol=protocol)
    limits = [Limit("start_ms", "confluent", 1.0, 0.7)]
    title = f"first consumer of a group ({protocol} protocol), from its creation to the first record"
    quick = {"": replace(full, records=3, warm_up=1)}
    figures = [Figure("start_ms", "start", "ms")]
    name = f"group-start-{protocol}"
    return Row(name, title, {"": full}, quick, clients, figures, limits, fill=1_000, creates=False)


def _growth(sample: Sample) -> Sample:
    return {**sample, "growth": sample["many_cpu_us"] / sample["few_cpu_us"]}


def _many_topics() -> Row:
    few = Job("waves", topics=10, partitions=1, records=100_000, warm_up=10_000, topics_at_once=10, burst=20)
    # Each topic is used once before the measurement, and gets its part of the measured batches.
    many = replace(few, topics=5_000, warm_up=100_000)
    quick = {
        "few": replace(few, records=2_000, warm_up=200),
        "many": replace(many, topics=50, records=2_000, warm_up=1_000),
    }
    figures = [
        Figure("growth", "CPU per record, 5,000 topics / 10 topics", ""),
        Figure("few_cpu_us", "CPU per record, 10 topics", "us"),
        Figure("many_cpu_us", "CPU per record, 5,000 topics", "us"),
    ]
    title = "batches of 20 records to 10 topics at a time, of 10 and of 5,000 topics"
    jobs = {"few": few, "many": many}
    limits = [Limit("growth", "", 1.2, 1.0)]
    return Row(
        "topics", title, jobs, quick, ("kafkalite", "confluent"), figures, limits, creates=False, combine=_growth
    )


def _single_records() -> Row:
    job = Job("waves", topics=5_000, partitions=1, records=20_000, warm_up=5_000, topics_at_once=5_000)
    quick = replace(job, topics=50, topics_at_once=50, records=1_000, warm_up=100)
    limits = [Limit("cpu_us", "aiokafka", 0.5), Limit("cpu_us", "confluent", 1.0)]
    title = "5,000 topics, one record per batch"
    return Row("topics-single", title, {"": job}, {"": quick}, FAST, THROUGHPUT, limits, creates=False)


def _latency() -> Row:
    job = Job("latency", records=5_000, warm_up=500, partitions=1, linger_ms=AT_ONCE_MS)
    figures = [Figure("p50", "p50", "ms"), Figure("p99", "p99", "ms"), CPU_US]
    limits = [Limit("p50", "confluent", 1.0, 0.8), Limit("p99", "confluent", 1.0, 0.8)]
    title = "one awaited send after another, 100 B, acks=all, linger 0"
    return Row("latency", title, {"": job}, {"": replace(job, records=500)}, FAST, figures, limits)


def _tasks() -> Row:
    job = Job("tasks", records=100_000, warm_up=10_000, tasks=200, linger_ms=AT_ONCE_MS)
    limits = [Limit("records_per_s", "aiokafka", 2.0, 4.0), Limit("records_per_s", "confluent-aio", 2.0, 4.0)]
    clients = ("kafkalite", "aiokafka", "confluent-aio")
    title = "200 tasks, each awaits one send after another, linger 0"
    quick = replace(job, records=4_000, warm_up=400)
    return Row("tasks", title, {"": job}, {"": quick}, clients, THROUGHPUT, limits)


def _idle() -> Row:
    job = Job("idle", seconds=20.0, partitions=1)
    figures = [Figure("core_percent", "of one core", "%")]
    title = "a producer, and a consumer in a group, without records"
    quick = {"": replace(job, seconds=2.0)}
    return Row("idle", title, {"": job}, quick, FAST, figures, [Limit("core_percent", "", 0.2)], creates=False)


def _open_sends() -> Row:
    job = Job("open_sends", records=200_000, warm_up=1_000)
    figures = [Figure("bytes_per_send", "memory per open send beyond the payload", "B")]
    title = "100 B records sent while the broker is suspended"
    clients = ("kafkalite", "confluent")
    limits = [Limit("bytes_per_send", "", 110.0, 80.0)]
    return Row("open-sends", title, {"": job}, {"": replace(job, records=50_000)}, clients, figures, limits)


_ROWS = (
    _producing(
        "100",
        "produce 100 B, each awaitable kept and its offset read, acks=all, linger 5 ms, uvloop",
        [Limit("records_per_s", "confluent", 1.3, 1.8), Limit("records_per_s", "aiokafka", 8.0), _program(4.0, 6.0)],
        1_000_000,
    ),
    _producing("100-lz4", "the same with lz4", [Limit("records_per_s", "confluent", 1.0, 1.3)], 1_000_000, codec="lz4"),
    _producing(
        "1024", "the same with 1 KiB", [Limit("records_per_s", "confluent", 1.2, 1.5)], 300_000, value_bytes=1024
    ),
    _latency(),
    _tasks(),
    _reading(
        "poll",
        "consume 100 B by assignment: poll (aiokafka: getmany, confluent: consume(500)), each value read",
        ALL,
        [Limit("records_per_s", "aiokafka", 2.5, 4.0), Limit("records_per_s", "confluent", 1.2), _program(2.0, 2.5)],
    ),
    _reading(
        "iterate",
        "consume 100 B record by record: async for (confluent: poll), each value read",
        (*FAST, PROGRAMS),
        [Limit("records_per_s", "aiokafka", 4.0, 8.0), _program(3.0, 5.0)],
    ),
    _columns("100 B", 10_000_000, 100),
    _columns("1 KiB", 2_000_000, 1024),
    _sending_columns(),
    *_over_tls(),
    _group_start("classic", FAST),
    _group_start("consumer", ("kafkalite", "confluent")),
    _idle(),
    _many_topics(),
    _single_records(),
    _open_sends(),
)
ROWS: dict[str, Row] = {row.name: row for row in _ROWS}
