"""What the tests on Spark share: a topic with records, and readers of it."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kafkalite_sdk.blocking import Admin, Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from kafkalite.testing.thread import BrokerThread

DEADLINE_S = 60


class Rig:
    """A topic of one test.

    Arguments:
        spark: the session.
        broker: of the topic.
        topic: its name.
        producer, admin: clients.
    """

    def __init__(
        self, spark: SparkSession, broker: BrokerThread, topic: str, producer: Producer[Any, Any], admin: Admin
    ) -> None:
        self.spark = spark
        self.broker = broker
        self.topic = topic
        self.producer = producer
        self.admin = admin

    @property
    def options(self) -> dict[str, str]:
        """The required options."""
        return {"kafka.bootstrap.servers": self.broker.address, "subscribe": self.topic}

    def send(self, numbers: Iterable[int], partition: int = 0, **others: Any) -> None:
        """Append a record for each number, and wait until all are acknowledged."""
        for number in numbers:
            self.producer.send(self.topic, b"%d" % number, partition=partition, **others)
        self.producer.flush()

    def read(self, schema: str | None = None, **options: str) -> DataFrame:
        """A batch of the topic."""
        reader = self.spark.read.format("kafkalite").options(**{**self.options, **options})
        return (reader if schema is None else reader.schema(schema)).load()

    def stream(self, **options: str) -> DataFrame:
        """A stream of the topic."""
        return self.spark.readStream.format("kafkalite").options(**{**self.options, **options}).load()


def values(frame: DataFrame) -> list[int]:
    """The numbers that `Rig.send` has sent, sorted."""
    return sorted(int(row.value) for row in frame.select("value").collect())


class Collected:
    """The rows of each micro-batch of a query.

    Arguments:
        checkpoint: directory of the query.
    """

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.batches: list[list[tuple[int, int, int]]] = []
        self.fails: Callable[[int], bool] = lambda _: False

    def start(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        """Start a query that collects partition, offset and number of each row."""
        writer = frame.writeStream.foreachBatch(self._collect).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def run(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        """Run a query until it ends."""
        query = self.start(frame, **trigger)
        query.awaitTermination(DEADLINE_S)
        assert not query.isActive
        return query

    def _collect(self, frame: DataFrame, batch: int) -> None:
        if self.fails(batch):
            raise RuntimeError("the test fails this micro-batch")
        rows = frame.select("partition", "offset", "value").collect()
        self.batches.append(sorted((row.partition, row.offset, int(row.value)) for row in rows))

    @property
    def rows(self) -> list[tuple[int, int, int]]:
        """Of all micro-batches."""
        return sorted(row for batch in self.batches for row in batch)
