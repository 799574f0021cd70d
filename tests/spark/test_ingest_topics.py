"""Topics that grow, are created again, are compacted or empty, and records from 1970 to 2100, copied to a table."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from kafkalite_sdk.blocking import Admin, Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from pyspark_kafkalite.errors import DataLossError
from pyspark_kafkalite.ingest import query
from pyspark_kafkalite.jobs import audit
from pyspark_kafkalite.options import source_options
from pyspark_kafkalite.source import BatchReader
from pyspark_kafkalite.tables import ManifestTable
from pyspark_kafkalite.tables.reading import read

from kafkalite.model import TopicPartition
from tests.kit.brokers import wait_until
from tests.spark.ingest_job import PARTITIONS, IngestJob

KEYS, ROUNDS = 10, 30
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.01"}
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
DAYS = {"1970-01-01": 0, "1999-12-31": 946_684_799_999, "2000-01-01": 946_684_800_000, "2099-12-31": 4_102_444_799_999}


def admin(job: IngestJob) -> Admin:
    return Admin(job.options["kafka.bootstrap.servers"])


def test_new_partitions_are_copied_from_their_first_record(job: IngestJob) -> None:
    job.run()
    with admin(job) as client:
        client.topics.create_partitions({job.topic: PARTITIONS + 2}).check()
    with Producer(job.options["kafka.bootstrap.servers"]) as later:  # the other one does not know the partition yet
        later.send(job.topic, b"%d" % job.sent, partition=PARTITIONS + 1).result()
    job.sent += 1
    job.run()
    job.verify()
    assert ManifestTable(job.root).end_offsets()[TopicPartition(job.topic, PARTITIONS + 1)] == 1


def test_topic_that_was_created_again_between_two_batches_is_an_error_or_recorded(
    job: IngestJob, tmp_path: Path, kafkalite_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offsets fit, so that only the id of the topic shows it: with the checkpoint, without it, and in the table."""
    commit = query.Committer.commit

    def create_again(self: query.Committer, *arguments: Any) -> None:
        commit(self, *arguments)
        monkeypatch.undo()
        with admin(job) as client:
            client.topics.delete(job.topic).check()
        kafkalite_broker.create_topic(job.topic, PARTITIONS)
        job.sent = 0
        job.send(150)

    monkeypatch.setattr(query.Committer, "commit", create_again)
    with pytest.raises(StreamingQueryException, match=r"was deleted and created again; .* start an ingest with a new"):
        job.run(options={"maxOffsetsPerTrigger": "60"})
    former = ManifestTable(job.root).state()
    copied = read(job.root).to_table(columns=["value"])["value"].to_pylist()
    assert 0 < len(copied) <= 60
    resumed: dict[str, Any] = {"checkpoint": str(tmp_path / "resumed"), "resume_from_table": True}
    with pytest.raises(StreamingQueryException, match=r"was deleted and created again; .* allow_gaps=True"):
        job.run(**resumed)
    with pytest.raises(DataLossError, match="has records of the former one, which are not read"):
        BatchReader(
            source_options({**job.options, "history": str(job.root)}, streaming=False),
            StructType().add("value", "binary"),
        ).partitions()
    assert read(job.root).count_rows() == len(copied)
    job.run(**resumed, allow_gaps=True)
    state = ManifestTable(job.root).state()
    (recreated,) = [each for commit in ManifestTable(job.root).commits() for each in commit.recreated]
    assert (recreated.former_id, recreated.topic_id) == (former.topic_ids[job.topic], state.topic_ids[job.topic])
    values = Counter(read(job.root).to_table(columns=["value"])["value"].to_pylist())
    assert values == Counter(copied) + Counter(b"%d" % number for number in range(job.sent))
    assert audit._rows(job.spark, ManifestTable(job.root)).count() == job.sent


def test_retention_that_overtakes_an_ingest_ends_it_with_what_to_do(job: IngestJob) -> None:
    job.run()
    (name, end), *_ = ManifestTable(job.root).end_offsets().items()
    job.send(200)
    with admin(job) as client:
        client.partitions.delete_records({name: end + 7}).check()
    expected = rf"{name}: offsets {end} to {end + 6} were deleted by retention .* allow_gaps=True"
    with pytest.raises(StreamingQueryException, match=expected):
        job.run()
    assert ManifestTable(job.root).end_offsets()[name] == end


def test_empty_topic_has_an_empty_table_until_records_arrive(
    spark: SparkSession, tmp_path: Path, kafkalite_broker: Any, kafkalite_topic: str, kafkalite_producer: Any
) -> None:
    empty = IngestJob(spark, tmp_path, kafkalite_broker.address, kafkalite_topic, kafkalite_producer)
    empty.run()
    assert read(empty.root).count_rows() == 0 and ManifestTable(empty.root).commits() == []
    kafkalite_producer.send(kafkalite_topic, b"0").result()
    empty.sent = 1
    empty.run()
    empty.verify()


def test_offsets_that_compaction_has_removed_are_no_loss(
    spark: SparkSession, tmp_path: Path, kafkalite_broker_factory: Callable[..., Any]
) -> None:
    """Through the source and through ingest: the newest record of each key is there, and the gaps are not reported."""
    broker = kafkalite_broker_factory({"log.cleaner.backoff.ms": 20})
    broker.create_topic("compacted", configs=COMPACTED)
    with Producer(broker.address) as producer:
        for number in range(KEYS * ROUNDS):
            producer.send("compacted", b"%d" % number, b"%d" % (number % KEYS)).result()
        job = IngestJob(spark, tmp_path, broker.address, "compacted", producer)
    reader = spark.read.format("kafkalite").options(**job.options)
    wait_until(lambda: reader.load().count() < KEYS * ROUNDS / 2, "half of the records are removed", every=0.2)
    newest = {KEYS * (ROUNDS - 1) + key for key in range(KEYS)}
    found = [row.offset for row in reader.load().select("offset").collect()]
    assert newest <= set(found) and len(set(found)) == len(found)
    job.run()
    table = read(job.root).to_table(columns=["_offset", "key", "value"]).to_pylist()
    assert newest <= {row["_offset"] for row in table} <= set(found)
    assert len({row["_offset"] for row in table}) == len(table)
    assert all(
        row["value"] == b"%d" % row["_offset"] and row["key"] == b"%d" % (row["_offset"] % KEYS) for row in table
    )
    (commit,) = ManifestTable(job.root).commits()
    assert commit.gaps == () and commit.ends == {TopicPartition("compacted", 0): KEYS * ROUNDS}


def test_times_of_records_from_1970_to_2100_are_kept(
    spark: SparkSession,
    tmp_path: Path,
    kafkalite_broker: Any,
    kafkalite_topic_factory: Callable[..., str],
    kafkalite_producer: Any,
) -> None:
    topic = kafkalite_topic_factory(configs=ANY_TIME)
    job = IngestJob(spark, tmp_path, kafkalite_broker.address, topic, kafkalite_producer)
    for number, time_ms in enumerate(DAYS.values()):
        kafkalite_producer.send(topic, b"%d" % number, timestamp_ms=time_ms).result()
    job.run(partition="date")
    written = pyarrow.dataset.dataset(job.root, format="parquet", partitioning="hive").to_table()
    milliseconds = [time.value // 1_000 for time in written["_timestamp"]]
    assert dict(sorted(zip(map(str, written["date"].to_pylist()), milliseconds, strict=True))) == DAYS
    rows = spark.read.format("kafkalite").options(**job.options).load().selectExpr("unix_millis(timestamp)").collect()
    assert sorted(row[0] for row in rows) == sorted(DAYS.values())
    days = spark.read.parquet(str(job.root)).selectExpr("string(date)", "unix_millis(_timestamp)").collect()
    assert {row[0]: row[1] for row in days} == DAYS
