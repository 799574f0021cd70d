"""State of `transformWithState` over the source survives a restart of its query."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StructField, StructType

from tests.spark.rig import DEADLINE_S, Rig

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Counter(StatefulProcessor):
    """Counts the rows of each key, since the first run."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", StructType([StructField("count", LongType())]))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timer_values: Any) -> Iterator[Row]:
        found = self._count.get()
        count = (found[0] if found is not None else 0) + sum(1 for _ in rows)
        self._count.update((count,))
        yield Row(key=key[0], count=count)

    def close(self) -> None:
        pass


@pytest.fixture
def rocks_db(spark: SparkSession) -> Iterator[None]:
    """The state store that `transformWithState` needs."""
    spark.conf.set(PROVIDER, ROCKS_DB)
    yield
    spark.conf.unset(PROVIDER)


def run(rig: Rig, directory: Path) -> dict[str, int]:
    """Count what is new in the topic; return the counts that were updated."""
    found: dict[str, int] = {}

    def collect(frame: DataFrame, _: int) -> None:
        found.update({row.key: row["count"] for row in frame.collect()})

    keyed = rig.stream(startingOffsets="earliest").selectExpr("cast(key as string) as key", "offset").groupBy("key")
    counted = keyed.transformWithState(Counter(), "key string, count long", "Update", "None")
    writer = counted.writeStream.outputMode("update").foreachBatch(collect)
    query = writer.option("checkpointLocation", str(directory)).trigger(availableNow=True).start()
    query.awaitTermination(DEADLINE_S)
    assert not query.isActive
    return found


def test_state_over_the_source_survives_a_restart(rig: Rig, rocks_db: None, tmp_path: Path) -> None:
    rig.send(range(3), key=b"a")
    rig.send(range(2), key=b"b")
    assert run(rig, tmp_path) == {"a": 3, "b": 2}
    rig.send(range(4), key=b"a")
    assert run(rig, tmp_path) == {"a": 7}
