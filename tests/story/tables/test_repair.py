"""A table that has lost files is filled again from its topic: each offset is there once, or nothing is changed."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafkalite_sdk.blocking import Admin
from pyspark_kafkalite import clients
from pyspark_kafkalite.cluster import Cluster
from pyspark_kafkalite.errors import DataLossError
from pyspark_kafkalite.ingest.batch_job import BatchJob
from pyspark_kafkalite.ingest.outcome import batch_of, known_schema
from pyspark_kafkalite.ingest.worker import Job, write_split
from pyspark_kafkalite.jobs.errors import JobError
from pyspark_kafkalite.jobs.repair import repair_job
from pyspark_kafkalite.jobs.settings.job_file import JobFile, read_job
from pyspark_kafkalite.jobs.verify import verify_job
from pyspark_kafkalite.planner import OffsetRange
from pyspark_kafkalite.tables import DamagedTableError, ManifestTable, TableError
from pyspark_kafkalite.tables.compaction import compact
from pyspark_kafkalite.tables.model import batch_name
from pyspark_kafkalite.tables.reading import read, read_dead_letters
from pyspark_kafkalite.task import Task

from kafkalite.model import TopicPartition
from kafkalite.testing.thread import BrokerThread

DAY_MS = 86_400_000
BAD = 10
"""Each record with a multiple of it is no JSON."""


class Lake:
    """A topic and the table of a job that copies it, as Spark runs it, without Spark."""

    def __init__(self, broker: BrokerThread, topic: str, producer: Any, directory: Path) -> None:
        self.broker, self.topic, self.producer = broker, topic, producer
        path = directory / "lake.toml"
        source = f'kafka.bootstrap.servers = "{broker.address}"\nsubscribe = "{topic}"\nstartingOffsets = "earliest"'
        decoding = 'value = "json"\nschema = "n bigint"\nbudget = 100'
        path.write_text(f'[job]\ntype = "lake"\n[source]\n{source}\n[table]\npath = "orders"\n[decoding]\n{decoding}\n')
        self.job: JobFile = read_job(str(path))
        self.root, self.batch_id, self.sent = directory / "orders", 0, 0

    @property
    def table(self) -> ManifestTable:
        return ManifestTable(self.root)

    def send(self, count: int) -> None:
        """Append records of two days to partition 0; every tenth one is bad."""
        for number in range(self.sent, self.sent + count):
            value = b"{" if number % BAD == 0 else b'{"n":%d}' % number
            self.producer.send(self.topic, value, partition=0, timestamp_ms=DAY_MS * (number % 2))
        self.producer.flush()
        self.sent += count

    def copy(self) -> None:
        """Commit what is in the log, in two tasks."""
        table, options = self.table, self.job.source_options()
        found = Cluster(options).partitions()
        start, end = table.end_offsets().get(TopicPartition(self.topic, 0), 0), self.sent
        middle = (start + end) // 2
        batch = BatchJob.of(options, table.attempts, batch_name("A", self.batch_id), self.job.required_table.parquet)
        work = Job(batch, self.job.decoding, known_schema(table), self.job.required_table.partition)
        tasks = (
            Task(
                (OffsetRange(self.topic, 0, *each),),
                found.topic_ids,
                options.client,
                options.isolation,
                fail_on_data_loss=True,
                timeout_s=30.0,
            )
            for each in ((start, middle), (middle, end))
        )
        written = [write_split(work, each) for each in tasks]
        table.commit(batch_of("A", self.batch_id, written, self.job.decoding, known_schema(table)))
        self.batch_id += 1
        clients.close_clients()

    def lose(self, pattern: str) -> int:
        """Delete files of the last commit; returns how many."""
        last = self.table.last_commit()
        assert last is not None
        names = [each.name for each in last.attempts if Path(each.name).match(pattern)]
        for each in names:
            (self.root / each).unlink()
        return len(names)

    def verify(self) -> None:
        """Each record is in the table once, and each bad one in the dead letters."""
        assert verify_job(self.job, full=True).problems == ()
        good = [number for number in range(self.sent) if number % BAD]
        assert Counter(read(self.root).to_table(columns=["n"])["n"].to_pylist()) == Counter(good)
        letters = read_dead_letters(self.root).to_table(columns=["_offset"])["_offset"].to_pylist()
        assert Counter(letters) == Counter(range(0, self.sent, BAD))


@pytest.fixture
def lake(
    kafkalite_broker: BrokerThread, kafkalite_topic_factory: Callable[..., str], kafkalite_producer: Any, tmp_path: Path
) -> Lake:
    """Two commits of 40 records, in four files and two files of dead letters each."""
    topic = kafkalite_topic_factory(configs={"message.timestamp.before.max.ms": str(2**63 - 1), "retention.ms": "-1"})
    made = Lake(kafkalite_broker, topic, kafkalite_producer, tmp_path)
    for _ in range(2):
        made.send(40)
        made.copy()
    made.verify()
    return made


@pytest.mark.parametrize(
    ("pattern", "lost"),
    [("*.parquet", 6), ("date=1970-01-01/*", 2), ("_dead_letters/*", 2), ("part-*-0001.parquet", 2)],
)
def test_lost_files_of_the_last_commit_are_read_from_the_topic_again(lake: Lake, pattern: str, lost: int) -> None:
    assert lake.lose(pattern) == lost
    with pytest.raises(DamagedTableError, match=r"is missing, .* kafkalite pipeline repair"):
        lake.table.recover()
    found = repair_job(lake.job)
    assert (len(found.lost), found.spans, found.rows) == (lost, ((lake.topic, 0, 40, 80),), 40)
    lake.verify()
    assert repair_job(lake.job).lost == ()
    lake.table.recover()
    lake.send(7)
    lake.copy()
    lake.verify()


def test_files_of_earlier_commits_and_of_compactions_are_read_again(lake: Lake) -> None:
    compact(lake.table, target_bytes=1 << 20, retention_s=0)
    lake.send(20)
    lake.copy()
    lost = next(lake.root.glob("date=1970-01-02/part-compacted-*"))
    lost.unlink()
    assert repair_job(lake.job).lost == (str(lost.relative_to(lake.root)),)
    lake.verify()


def test_records_that_retention_has_removed_are_named(lake: Lake) -> None:
    lake.lose("part-*")
    with Admin(lake.broker.address) as admin:
        admin.partitions.delete_records({TopicPartition(lake.topic, 0): 43}).check()
    commits = len(lake.table.commits())
    with pytest.raises(DataLossError, match=r"the lost files begin .* at offset 40, but the log begins at 43"):
        repair_job(lake.job)
    assert len(lake.table.commits()) == commits


def test_topic_that_was_created_again_does_not_have_the_records(lake: Lake) -> None:
    lake.lose("part-*")
    with Admin(lake.broker.address) as admin:
        admin.topics.delete(lake.topic).check()
    lake.broker.create_topic(lake.topic)
    for number in range(80):
        lake.producer.send(lake.topic, b'{"n":%d}' % number, partition=0)
    lake.producer.flush()
    with pytest.raises(DataLossError, match="was deleted and created again; the records of the lost files were those"):
        repair_job(lake.job)


def test_dead_letters_without_offsets_in_their_commit_are_read(lake: Lake) -> None:
    """Commits of an earlier version have the offsets of the other files only."""
    lake.lose("part-*")
    forget_offsets(lake, "dead_letters")
    assert repair_job(lake.job).rows == 40
    lake.verify()


def test_dead_letters_without_offsets_that_cannot_be_read_are_named(lake: Lake) -> None:
    lake.lose("part-*")
    forget_offsets(lake, "dead_letters")
    last = lake.table.last_commit()
    assert last is not None
    name = next(each.name for each in last.attempts if each.name.startswith("_dead_letters"))
    (lake.root / name).write_bytes(b"no Parquet")
    with pytest.raises(JobError, match=rf"{name} cannot be read, .* restore the file from a copy"):
        repair_job(lake.job)


@pytest.mark.parametrize("kind", ["files", "dead_letters"])
def test_lost_files_without_offsets_in_their_commit_are_named(lake: Lake, kind: str) -> None:
    lake.lose("_dead_letters/*" if kind == "dead_letters" else "*part-*")
    forget_offsets(lake, kind)
    with pytest.raises(TableError, match=r"file .* is lost, and its commit does not have the offsets of its rows"):
        repair_job(lake.job)


def forget_offsets(lake: Lake, kind: str) -> None:
    """Write the commits as an earlier version has written them."""
    for path in (lake.root / "_commits").glob("*.json"):
        commit = json.loads(path.read_text())
        for each in commit[kind]:
            del each["spans"]
        path.write_text(json.dumps(commit))


def test_other_records_than_the_lost_ones_are_rejected(lake: Lake) -> None:
    """With this decoding, bad records are in a topic and not in the table."""
    lake.lose("part-*")
    path = Path(lake.job.path)
    path.write_text(f'{path.read_text()}dead_letters = "topic:bad"\n')
    with pytest.raises(
        TableError, match=r"the topic has 36 records where the table had 40: .* or \[decoding\] has changed"
    ):
        repair_job(read_job(str(path)))


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ('"lake"', '"latest"', "repair is for lake: the files of a job of type latest .* delete the table"),
        ('"lake"', '"audit"', "a job of type audit writes no table; use the file of the job that does"),
        ('path = "orders"', 'path = "orders"\nformat = "delta"', "repair is for lake of plain Parquet: .* from a copy"),
    ],
)
def test_only_tables_of_records_are_repaired(lake: Lake, before: str, after: str, error: str) -> None:
    path = Path(lake.job.path)
    path.write_text(path.read_text().split("[decoding]")[0].replace(before, after))
    with pytest.raises(JobError, match=error):
        repair_job(read_job(str(path)))


def test_of_two_repairs_one_is_refused(lake: Lake) -> None:
    lake.lose("part-*")
    with lake.table.repairing(), pytest.raises(TableError, match="another process compacts or repairs it"):
        repair_job(lake.job)
