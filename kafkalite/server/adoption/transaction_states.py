"""Reads the records of an adopted `__transaction_state`: the largest producer id, and the transactions that are open.

A transactional id has its producer id before its first batch, and the next one may be in its record alone. Neither is
in the producer states of logs. A record that cannot be decoded is left out here: it stops the loading of its partition.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk
from kafkalite.coordinators.runtime.loader import RecordError
from kafkalite.coordinators.transaction.serde import TransactionRecordSerde
from kafkalite.errors import DecodeError
from kafkalite.records import Batch, BatchError
from kafkalite.state.transactions.metadata import NONE, TransactionDeleted, TransactionMetadata
from kafkalite.state.transactions.states import OPEN
from kafkalite.storage import names

SERDE = TransactionRecordSerde()


class AdoptedStates(NamedTuple):
    """The content of a partition of `__transaction_state`.

    Attributes:
        largest_producer_id: -1 = there is none.
        open: the transactions that are ongoing or prepared.
    """

    largest_producer_id: int
    open: list[TransactionMetadata]


def read_states(disk: Disk, directory: str) -> AdoptedStates:
    """Read a partition of `__transaction_state`; of each transactional id the last record counts. Raises OSError.

    Arguments:
        disk: has the files.
        directory: of the partition.
    """
    largest, last = NONE, dict[str, TransactionMetadata]()
    found = (names.parse_file_name(name) for name in disk.list(directory))
    bases = sorted(each[0] for each in found if each is not None and each[1] == names.LOG)
    for base in bases:
        for record in _records(disk, os.path.join(directory, names.file_name(base, names.LOG))):
            if isinstance(record, TransactionDeleted):
                last.pop(record.transactional_id, None)
            elif isinstance(record, TransactionMetadata):
                last[record.transactional_id] = record
                largest = max(largest, record.producer_id, record.previous_producer_id, record.next_producer_id)
    return AdoptedStates(largest, [each for each in last.values() if each.state in OPEN])


def _records(disk: Disk, path: str) -> Iterator[object]:
    """Yield the records of a segment that can be decoded."""
    file = disk.open(path, read_only=True)
    try:
        data, position = file.pread(file.size(), 0), 0
    finally:
        file.close()
    while position < len(data):
        try:
            batch = Batch(data, position)
            records = batch.records()
        except BatchError:
            break  # the recovery truncates it
        position += batch.size
        for each in records:
            try:
                yield SERDE.decode(each.key or b"", each.value)
            except (DecodeError, RecordError):
                continue
