"""Record batches: validate, read, build, compress.

The implementation is Cython (`_speedups/records`); `tests/oracles` has its pure Python twins. This package registers
the codecs with it and is the name under which other packages import it.
"""

from kafkalite._speedups.records.batch_builder import Builder
from kafkalite._speedups.records.batch_patches import (
    recompress,
    set_base_offset,
    set_leader_epoch,
    set_log_append_time,
    set_max_timestamp,
)
from kafkalite._speedups.records.batch_scan import BatchLocation, Scan, scan_batches
from kafkalite._speedups.records.batches import Batch, Record, batches
from kafkalite._speedups.records.validator import BatchError, ValidationResult, use_codecs, validate_batch
from kafkalite.records import compression

use_codecs(compression.compress, compression.decompress, compression.decompress_appended)

__all__ = [
    "Batch",
    "BatchError",
    "BatchLocation",
    "Builder",
    "Record",
    "Scan",
    "ValidationResult",
    "batches",
    "recompress",
    "scan_batches",
    "set_base_offset",
    "set_leader_epoch",
    "set_log_append_time",
    "set_max_timestamp",
    "validate_batch",
]
