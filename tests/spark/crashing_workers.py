"""Workers of an ingest that end their process in one phase, once."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow
from pyspark_kafkalite.ingest import worker
from pyspark_kafkalite.ingest.worker import Job
from pyspark_kafkalite.tables.disk import Disk

PHASES = ("before the file", "before the flush of the file", "before the flush of the directory", "after the file")


def crash(marker: Path, phase: str) -> None:
    """End this process, unless another one has done so. The marker proves the phase."""
    try:
        with open(marker, "x") as file:
            file.write(phase)
    except FileExistsError:
        return
    os._exit(1)


def write_splits(
    marker: Path, phase: str, job: Job, plans: Iterator[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    """As `worker.write_splits`, with a crash."""
    if phase == PHASES[0]:
        crash(marker, phase)
    for name, at in (("flush_file", PHASES[1]), ("flush_directory", PHASES[2])):
        if phase == at and not marker.exists():
            setattr(Disk, name, lambda *_: crash(marker, phase))  # the process ends there, and its patch with it
    for written in worker.write_splits(job, plans):
        if phase == PHASES[3]:
            crash(marker, phase)
        yield written


def crashing(marker: Path, phase: str) -> partial[Iterator[pyarrow.RecordBatch]]:
    """Return the function for `mapInArrow`."""
    return partial(write_splits, marker, phase)
