"""The memory of a task is bounded by its fetches and two Arrow batches, however large its range is.

Memory that is freed is returned to the operating system here (mallopt(3), M_MMAP_THRESHOLD): by default the allocator
keeps up to twice as much, which differs from run to run.
"""

import os
import subprocess
import sys
from typing import Any

import pyarrow
from kafkalite_sdk.blocking import Producer
from kafkalite_sdk.columns.reader import FETCH_BYTES
from pyspark_kafkalite.clients import FETCHES
from pyspark_kafkalite.task import BATCH_BYTES

from tests.spark.task_memory import FIRST

ROWS, VALUE_BYTES = 200_000, 1_024
FIRST_PART = 1  # more fetch: `range_plan.RangePlan`
RETURN_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(64 << 10)}


def test_a_task_holds_its_fetches_and_two_batches(
    kafkalite_broker: Any, kafkalite_topic: str, kafkalite_producer: "Producer[Any, Any]"
) -> None:
    value = bytes(range(256)) * (VALUE_BYTES // 256)
    table = pyarrow.table({"value": [value] * 10_000})
    for _ in range(ROWS // 10_000):
        kafkalite_producer.send_columns(kafkalite_topic, table).result()
    command = [sys.executable, "-m", "tests.spark.task_memory", kafkalite_broker.address, kafkalite_topic, str(ROWS)]
    variables = {**os.environ, **RETURN_MEMORY}
    printed = subprocess.run(command, env=variables, check=True, stdout=subprocess.PIPE, text=True).stdout
    rows, grown = map(int, printed.split())
    print(f"{rows} rows of {VALUE_BYTES} B: {grown / 2**20:.1f} MiB")
    assert rows == ROWS - FIRST
    assert grown < (FETCHES + FIRST_PART) * FETCH_BYTES + 2 * BATCH_BYTES
