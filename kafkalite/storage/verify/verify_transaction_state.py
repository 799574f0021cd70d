"""Checks the records of `__transaction_state`: one that cannot be decoded stops the loading of its partition.

The loading reads what the coordinator has written, so a violation is a record of a later version, of another program,
or a defect. Sources: `coordinators/runtime/loader`, TransactionLog.readTxnRecordValue of Apache Kafka.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.errors import DecodeError
from kafkalite.protocol.stored.transaction_records import (
    STATUSES,
    TransactionLogKey,
    TransactionLogValue,
    read_key,
    read_value,
)
from kafkalite.records import Batch, BatchError, Record
from kafkalite.storage import names
from kafkalite.storage.verify.verify_segments import Batches, Violation

STATES_ARE_READABLE = 18
TRANSACTION_STATE = "__transaction_state"


def check_transaction_states(disk: Disk, directory: str, segments: Sequence[Batches]) -> Iterator[Violation]:
    """Decode every record of a partition of `__transaction_state`; yield nothing for another topic. Raises OSError.

    Arguments:
        disk: has the files.
        directory: of the partition.
        segments: the undamaged batches of each segment.
    """
    partition = names.parse_directory_name(os.path.basename(directory))
    if partition is None or partition[0] != TRANSACTION_STATE:
        return
    for batches in segments:
        file = disk.open(batches.path, read_only=True)
        try:
            yield from _check_segment(file, batches)
        finally:
            file.close()


def _check_segment(file: File, batches: Batches) -> Iterator[Violation]:
    for position, end in pairwise([*batches.positions, batches.size]):
        for offset, text in _unreadable(Batch(file.pread(end - position, position), 0)):
            yield Violation(STATES_ARE_READABLE, batches.path, position, f"offset {offset}: {text}")


def _unreadable(batch: Batch) -> Iterator[tuple[int, str]]:
    """Yield the offset of each record that stops the loading, and the reason."""
    if batch.transactional or batch.control:
        yield batch.base_offset, "a batch of a transaction"
        return
    try:
        records = batch.records()
    except BatchError as error:
        yield batch.base_offset, f"unreadable batch ({error})"
        return
    for record in records:
        text = _defect(record)
        if text:
            yield record.offset, text


def _defect(record: Record) -> str:
    """Describe why a record cannot be loaded, "" = it can."""
    if record.key is None:
        return "record without a key"
    try:
        type_id, key = read_key(record.key)
        if not isinstance(key, TransactionLogKey):
            return f"record of unknown type {type_id}"
        value = None if record.value is None else read_value(type_id, record.value)
    except DecodeError as error:
        return f"unreadable record ({error})"
    if isinstance(value, TransactionLogValue) and value.transaction_status not in STATUSES:
        return f"status {value.transaction_status} of {key.transactional_id!r} is unknown"
    return ""
