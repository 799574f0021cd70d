"""The records of `__transaction_state`: one type, the state of a transactional id.

Source: TransactionLogKey.json, TransactionLogValue.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Struct, field, int8, int16, int32, int64, string
from kafkalite.protocol.stored.record_types import RecordTypes, StoredKey, StoredValue

STATUSES = range(6)  # that are stored: 6 (dead) and 7 (prepare epoch fence) are states in memory


class TransactionLogValue(StoredValue, versions=(0, 1), flexible=1, written=1):
    """Version 0 is written while the feature `transaction.version` is 0. Times in ms.

    Status: 0 empty, 1 ongoing, 2 prepare commit, 3 prepare abort, 4 complete commit, 5 complete abort, 6 dead,
    7 prepare epoch fence.
    """

    class PartitionsSchema(Struct):
        topic: string
        partition_ids: list[int32]

    producer_id: int64
    previous_producer_id: int64 = field(since=1, tag=0, default=-1)
    next_producer_id: int64 = field(since=1, tag=1, default=-1)
    producer_epoch: int16
    next_producer_epoch: int16 = field(since=1, tag=3, default=-1)
    transaction_timeout_ms: int32
    transaction_status: int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: int64
    transaction_start_timestamp_ms: int64
    client_transaction_version: int16 = field(since=1, tag=2, default=0)


class TransactionLogKey(StoredKey, type_id=0, value=TransactionLogValue):
    """The transactional id."""

    transactional_id: string


RECORDS = RecordTypes(TransactionLogKey)
read_key = RECORDS.read_key
read_value = RECORDS.read_value
