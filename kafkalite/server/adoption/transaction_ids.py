"""Finds the largest producer id in the records of `__transaction_state`.

A transactional id has its producer id before its first batch, and the next one may be in its record alone. Neither is
in the producer states of logs. A record that cannot be decoded is left out here: it stops the loading of its partition.
"""

import os

from kafkalite._speedups.storage.file import Disk
from kafkalite.coordinators.runtime.loader import RecordError
from kafkalite.coordinators.transaction.serde import TransactionRecordSerde
from kafkalite.errors import DecodeError
from kafkalite.records import Batch, BatchError
from kafkalite.state.transactions.metadata import NONE, TransactionMetadata
from kafkalite.storage import names

SERDE = TransactionRecordSerde()


def largest_in_state(disk: Disk, directory: str) -> int:
    """The largest producer id in the directory of a partition of `__transaction_state`, -1 for none. Raises OSError."""
    found = (names.parse_file_name(name) for name in disk.list(directory))
    files = [names.file_name(each[0], names.LOG) for each in found if each is not None and each[1] == names.LOG]
    return max((_largest_in_segment(disk, os.path.join(directory, each)) for each in files), default=NONE)


def _largest_in_segment(disk: Disk, path: str) -> int:
    file = disk.open(path, read_only=True)
    try:
        data, largest, position = file.pread(file.size(), 0), NONE, 0
    finally:
        file.close()
    while position < len(data):
        try:
            batch = Batch(data, position)
            largest = max(largest, _largest_in_batch(batch))
        except BatchError:
            break  # the recovery truncates it
        position += batch.size
    return largest


def _largest_in_batch(batch: Batch) -> int:
    largest = NONE
    for record in batch.records():
        try:
            metadata = SERDE.decode(record.key or b"", record.value)
        except (DecodeError, RecordError):
            continue
        if isinstance(metadata, TransactionMetadata):
            largest = max(largest, metadata.producer_id, metadata.previous_producer_id, metadata.next_producer_id)
    return largest
