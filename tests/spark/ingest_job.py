"""An ingest of one topic to a table of Parquet, for tests."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.dataset
from pyspark.sql import SparkSession
from pyspark_kafkalite.ingest import ingest
from pyspark_kafkalite.ingest.worker import SCHEMA
from pyspark_kafkalite.tables.reading import read

PARTITIONS = 3


class IngestJob:
    """One topic, one table and one checkpoint.

    Arguments:
        spark: the session.
        directory: of table and checkpoint.
        address: of the broker.
        topic: to copy.
        producer: for the topic.
    """

    def __init__(self, spark: SparkSession, directory: Path, address: str, topic: str, producer: Any) -> None:
        self.spark, self.topic, self._producer = spark, topic, producer
        self.root, self.checkpoint = directory / "table", directory / "checkpoint"
        self.options = {"kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest"}
        self.options |= {"minPartitions": "2"}
        self.sent = 0

    def send(self, count: int) -> None:
        """Append records with their numbers as values."""
        values = [b"%d" % number for number in range(self.sent, self.sent + count)]
        self.send_table(pyarrow.table({"value": values}))
        self.sent += count

    def send_table(self, table: pyarrow.Table) -> None:
        """Append rows; without keys a table is spread over all partitions."""
        partitions = pyarrow.array([row % PARTITIONS for row in range(len(table))], pyarrow.int32())
        self._producer.send_columns(self.topic, table.append_column("partition", partitions)).result()

    def run(self, **arguments: Any) -> None:
        """Copy what is in the log."""
        arguments = {"checkpoint": str(self.checkpoint), **arguments}
        table = arguments.pop("table", self.root)
        started = ingest(self.spark, table, {**self.options, **arguments.pop("options", {})}, **arguments)
        try:
            started.awaitTermination()
        finally:
            started.stop()

    def verify(self) -> None:
        """Each record is in the table once, for three readers."""
        expected = Counter(b"%d" % number for number in range(self.sent))
        plain = pyarrow.dataset.dataset(self.root, format="parquet", schema=SCHEMA)
        assert Counter(plain.to_table(columns=["value"])["value"].to_pylist()) == expected
        assert Counter(read(self.root).to_table(columns=["value"])["value"].to_pylist()) == expected
        rows = self.spark.read.parquet(str(self.root)).select("value").collect()
        assert Counter(bytes(row[0]) for row in rows) == expected
