"""Prints the memory that a task needs beyond its process: `python -m tests.spark.task_memory ADDRESS TOPIC END`.

A first range of offsets loads all modules and connects; the range from there to END is the task.
"""

import os
import sys
from pathlib import Path

from pyspark_kafkalite.ingest.worker import SOURCE_COLUMNS, SOURCE_SCHEMA
from pyspark_kafkalite.planner import OffsetRange
from pyspark_kafkalite.task import Task, batches

from perf.process import memory

FIRST = 1_000
RESET_PEAK = "5"  # proc(5), clear_refs


def read(address: str, topic: str, start: int, end: int) -> int:
    """Read a range as a task does; the number of its rows."""
    client = {"bootstrap_servers": address, "client_id": "task"}
    task = Task(
        (OffsetRange(topic, 0, start, end),), {}, client, "read_uncommitted", fail_on_data_loss=True, timeout_s=30.0
    )
    return sum(batch.num_rows for batch in batches(task, SOURCE_COLUMNS, SOURCE_SCHEMA))


def main(address: str, topic: str, end: int) -> None:
    read(address, topic, 0, FIRST)
    before = memory(os.getpid()).resident
    Path("/proc/self/clear_refs").write_text(RESET_PEAK)
    rows = read(address, topic, FIRST, end)
    print(rows, memory(os.getpid()).peak - before)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
