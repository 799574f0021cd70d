"""kafkarrow, which returns records as Arrow batches."""

import uuid
from typing import Any

import kafkarrow
import pyarrow.compute

from perf.clients.base import Client, Job, Meter, Sample

BATCH_RECORDS = 65_536
POLL_MS = 1_000


class Kafkarrow(Client):
    name = "kafkarrow"
    title = "kafkarrow"

    def version(self) -> str:
        version: str = kafkarrow.__version__
        return version

    def columns(self, job: Job) -> Sample:
        """`poll`, each value read."""
        config = {"bootstrap.servers": job.address, "group.id": f"g-{uuid.uuid4()}"}
        topics = [kafkarrow.SourceTopic.from_earliest(job.topic)]
        manager: Any = kafkarrow.ConsumerManager(config, topics, batch_size=BATCH_RECORDS)
        while not (found := manager.poll(timeout_ms=POLL_MS)).num_rows:
            pass
        left, records, size = job.records - found.num_rows, 0, 0
        with Meter() as meter:
            while records < left:
                found = manager.poll(timeout_ms=POLL_MS)
                records += found.num_rows
                size += pyarrow.compute.sum(pyarrow.compute.binary_length(found["value"])).as_py() or 0
        if size != records * job.value_bytes:
            raise RuntimeError(f"{size} bytes, expected {records} records of {job.value_bytes}")
        return meter.per_record(records)


CLIENT = Kafkarrow()
