"""Records may have times beyond the year 9999: a producer that sends nanoseconds as milliseconds makes them."""

import time
from pathlib import Path

import pyarrow
import pytest
from kafkalite_sdk import TopicPartition
from kafkalite_sdk.admin import NewTopic
from kafkalite_sdk.blocking import Admin, Consumer, Producer
from pyspark_kafkalite import clients
from pyspark_kafkalite.decoding.errors import DecodingError
from pyspark_kafkalite.ingest.dead_letters import send_dead_letters
from pyspark_kafkalite.ingest.worker import SOURCE_COLUMNS, SOURCE_SCHEMA
from pyspark_kafkalite.options import source_options
from pyspark_kafkalite.planner import OffsetRange
from pyspark_kafkalite.tables.columns import DEAD_LETTER_SCHEMA
from pyspark_kafkalite.tables.model import Batch
from pyspark_kafkalite.tables.parquet_writer import ParquetOptions, write_attempt
from pyspark_kafkalite.task import Task, batches
from pyspark_kafkalite.times import time_text

from kafkalite.errors import CorruptRecordError
from kafkalite.testing.thread import BrokerThread
from tests.unit.spark.decoded import decoder, records

YEAR_36812_MS = 1_099_511_627_776_000


def _letter(time_ms: int, detail: str) -> pyarrow.RecordBatch:
    columns = [
        ["orders"], [3], [7], pyarrow.array([time_ms * 1000], pyarrow.int64()), [b"k"], [b"v"], [[]], ["value"],
        ["json"], [detail],
    ]  # fmt: skip
    arrays = [
        column.cast(each.type) if isinstance(column, pyarrow.Array) else pyarrow.array(column, each.type)
        for column, each in zip(columns, DEAD_LETTER_SCHEMA, strict=True)
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=DEAD_LETTER_SCHEMA)


def test_dead_letter_keeps_its_time_unless_it_is_in_the_future(tmp_path: Path) -> None:
    times = (1_600_000_000_123, YEAR_36812_MS)
    rows = [_letter(each, f"letter {number}") for number, each in enumerate(times)]
    file = write_attempt(str(tmp_path), "part-0.parquet", DEAD_LETTER_SCHEMA, rows, ParquetOptions())
    assert file is not None
    started_ms = time.time_ns() // 1_000_000
    with BrokerThread() as broker:
        batch = Batch("q", 0, (), (), dead_letters=(file,), dead_rows=2)
        sent = send_dead_letters(batch, str(tmp_path), "bad", {"bootstrap_servers": broker.address})
        assert sent.dead_letters == ()
        with Consumer(broker.address, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("bad", 0)])
            read = [*consumer.poll(timeout=10), *consumer.poll(timeout=0)]
    texts = [dict(each.headers)["__kafkalite.dead_letter.timestamp"] for each in read]
    assert texts == [b"2020-09-13T12:26:40.123Z", b"1099511627776000 ms"]
    assert read[0].timestamp_ms == times[0]
    assert started_ms <= read[1].timestamp_ms <= time.time_ns() // 1_000_000


def test_first_bad_value_is_named_whatever_its_time() -> None:
    bad = records([b"{"]).set_column(3, "_timestamp", pyarrow.array([YEAR_36812_MS * 1000]).cast(_TIMESTAMP))
    with pytest.raises(DecodingError, match="orders-3 offset 0: value: json"):
        decoder(value="json", schema="a int", dead_letters="fail").decode(bad)


_TIMESTAMP = pyarrow.timestamp("us", "UTC")


def test_record_whose_time_spark_cannot_represent_is_named_by_the_source_and_ingest() -> None:
    configs = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
    last_ms = 9_223_372_036_854_775
    with BrokerThread() as broker, Admin(broker.address) as admin, Producer(broker.address) as producer:
        admin.topics.create(NewTopic("distant", partitions=1, configs=configs)).check()
        for time_ms in (0, last_ms, 1_755_933_141_855_875_123, 1):
            producer.send("distant", b"v", timestamp_ms=time_ms).result()
        client = source_options(
            {"kafka.bootstrap.servers": broker.address, "subscribe": "distant"}, streaming=False
        ).client
        task = Task(
            (OffsetRange("distant", 0, 0, 4),), {}, client, "read_committed", fail_on_data_loss=True, timeout_s=10.0
        )
        found = batches(task, SOURCE_COLUMNS, SOURCE_SCHEMA)
        try:
            assert next(found).column("timestamp").cast(pyarrow.int64()).to_pylist() == [0, last_ms * 1000]
            with pytest.raises(CorruptRecordError, match=r"distant-0 at offset 2: its time is 1755933141855875123 ms"):
                next(found)
        finally:
            clients.close_clients()


def test_times_of_messages() -> None:
    assert time_text(0) == "1970-01-01T00:00:00Z"
    assert time_text(-1) == "1969-12-31T23:59:59.999Z"
    assert time_text(YEAR_36812_MS) == "1099511627776000 ms"
