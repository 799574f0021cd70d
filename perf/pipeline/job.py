"""A job of a driver, and its measurement."""

import json
import time
from dataclasses import asdict, dataclass, field

from perf.process import tree_cpu_seconds

Sample = dict[str, float]
PARTITIONS = 4
TASKS = 2  # of a batch that writes to a topic


@dataclass(frozen=True)
class Job:
    """One run in a driver.

    Arguments:
        work: a function of works.py.
        source: format of the reader or the writer, `kafka` or `kafkalite`.
        value_bytes: size of the values.
        records: number of records.
        batches: micro-batches that are measured.
        compression: of Parquet files.
        options: more options of the reader or the writer.
        address: of the broker.
        topic: that is read or written.
        directory: of this run; it is empty and is removed afterwards.
        on_disk: the directory is one of the disk, where a flush has its price.
    """

    work: str
    source: str = ""
    value_bytes: int = 0
    records: int = 0
    batches: int = 0
    compression: str = ""
    options: dict[str, str] = field(default_factory=dict)
    address: str = ""
    topic: str = ""
    directory: str = ""
    on_disk: bool = False

    @property
    def markers(self) -> int:
        """Control records that a sink leaves: each task of a micro-batch commits a transaction in all partitions."""
        return max(1, self.batches) * TASKS * PARTITIONS if self.options.get("exactlyOnce") == "true" else 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Meter:
    """Wall time, and CPU time of this process and its descendants, in a `with` block. `cpu_s` includes the JVM."""

    def __enter__(self) -> "Meter":
        self.cpu_s = -tree_cpu_seconds()
        self.wall_s = -time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s += time.perf_counter()
        self.cpu_s += tree_cpu_seconds()

    def sample(self, records: int) -> Sample:
        """The figures of a run."""
        return {"records_per_s": records / self.wall_s, "cpu_us": self.cpu_s / records * 1e6}
