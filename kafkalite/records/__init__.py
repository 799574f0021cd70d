"""Record batches: built, read, inspected, compressed.

The engine is Cython: `_speedups.records` for what the broker does to whole batches, `_speedups.scan` for many of them
in a row, `_speedups.batches` for building and reading them. `whole` and `batch` are their readable twins, the oracles
of the tests; no other room imports them. This package hands the codecs to the engine, and what it names here is what
other rooms use.
"""

from kafkalite._speedups.records.batch_scan import BatchLocation, Scan, scan_batches
from kafkalite._speedups.records.batches import Batch, Builder, Record, batches
from kafkalite._speedups.records.validator import (
    BatchError,
    Inspection,
    inspect,
    recompress,
    set_base_offset,
    set_leader_epoch,
    set_log_append_time,
    set_max_timestamp,
    use_codecs,
)
from kafkalite.records import compression

use_codecs(compression.compress, compression.decompress)

__all__ = [
    "Batch",
    "BatchError",
    "BatchLocation",
    "Builder",
    "Inspection",
    "Record",
    "Scan",
    "batches",
    "inspect",
    "recompress",
    "scan_batches",
    "set_base_offset",
    "set_leader_epoch",
    "set_log_append_time",
    "set_max_timestamp",
]
