"""The driver whose classes `cds_archive` archives: `python -m pyspark_kafkalite.startup.training_run`.

It runs a batch, a stream over files, and a stream of a Python source whose rows go through Python workers, as jobs do.
"""

import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

END_TIMEOUT_S = 300


class OneRow(DataSource):
    """A stream that has one row."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kafkalite-one-row"

    def schema(self) -> str:
        """Return the schema."""
        return "value string"

    def streamReader(self, schema: StructType) -> "OneRowReader":
        """Return the reader."""
        return OneRowReader()


class OneRowReader(DataSourceStreamReader):
    """Reads the row between the offsets 0 and 1."""

    def initialOffset(self) -> dict[str, int]:
        """Return the offset before the row."""
        return {"offset": 0}

    def latestOffset(self) -> dict[str, int]:
        """Return the offset after the row."""
        return {"offset": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return one task."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """Yield the row."""
        yield ("row",)


def run(directory: str) -> None:
    """Run the driver, and wait until its JVM has ended.

    Arguments:
        directory: for files.
    """
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.warehouse.dir", directory).getOrCreate()
    copy_files(spark, directory)
    copy_python_source(spark, directory)
    spark.stop()
    gateway: Any = SparkContext._gateway
    gateway.proc.stdin.close()  # the end of its input ends the JVM, which then writes the archive
    gateway.proc.wait(END_TIMEOUT_S)


def copy_files(spark: SparkSession, directory: str) -> None:
    """Write a batch of files, and read them as a stream."""
    rows = spark.range(10).selectExpr("id", "cast(id as string) as value")
    rows.write.parquet(f"{directory}/rows")
    stream = spark.readStream.schema(rows.schema).parquet(f"{directory}/rows").writeStream.format("noop")
    stream = stream.option("checkpointLocation", f"{directory}/files").trigger(availableNow=True)
    stream.start().awaitTermination()


def copy_python_source(spark: SparkSession, directory: str) -> None:
    """Run a stream whose source and whose function are Python."""
    spark.dataSource.register(OneRow)
    stream = spark.readStream.format(OneRow.name()).load().writeStream.foreachBatch(collect)
    stream = stream.option("checkpointLocation", f"{directory}/python").trigger(availableNow=True)
    stream.start().awaitTermination()


def collect(rows: DataFrame, _batch_id: int) -> None:
    """Send the rows of a batch through Python workers."""
    rows.mapInArrow(same, "value string").collect()


def same(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Yield what it receives."""
    yield from batches


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as files:
        run(files)
