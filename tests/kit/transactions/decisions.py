"""Compares the markers of logs with the decisions in `__transaction_state`.

A coordinator sends markers once its decision is committed, so each marker has a record of its producer id, epoch and
outcome. One whose record was lost with its coordinator contradicts what the next coordinator decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kafkalite.cluster.topics.internal_topics import TRANSACTION_STATE
from kafkalite.coordinators.transaction.serde import TransactionRecordSerde
from kafkalite.records import batches
from kafkalite.state.transactions.metadata import TransactionMetadata
from kafkalite.state.transactions.states import TransactionState
from tests.kit.checker import Anomaly
from tests.kit.transactions.history import Partition
from tests.kit.transactions.markers import Entry
from tests.kit.transactions.readers import fetch_part
from tests.kit.transactions.wire import Wire

OUTCOMES = {TransactionState.PREPARE_COMMIT: True, TransactionState.PREPARE_ABORT: False}


class Decision(NamedTuple):
    """The outcome of a transaction: what its markers have."""

    producer_id: int
    epoch: int
    committed: bool


async def read_decisions(wire: Wire, partitions: int) -> set[Decision]:
    """The committed decisions of all transactional ids, before the topic is compacted. Raises NO_CONNECTION.

    Arguments:
        wire: connections to the brokers.
        partitions: of `__transaction_state`.
    """
    found: set[Decision] = set()
    for index in range(partitions):
        offset = 0
        while records := (await fetch_part(wire, (TRANSACTION_STATE.name, index), offset, committed=True)).records:
            found.update(decisions_of(records))
            offset = batches(records)[-1].last_offset + 1
    return found


def decisions_of(records: bytes) -> Iterator[Decision]:
    """The decisions in batches of `__transaction_state`."""
    decode = TransactionRecordSerde().decode
    for batch in batches(records):
        for record in batch:
            assert record.key is not None
            metadata = decode(record.key, record.value)
            if isinstance(metadata, TransactionMetadata) and metadata.state in OUTCOMES:
                yield Decision(metadata.producer_id, metadata.producer_epoch, OUTCOMES[metadata.state])


def check_decisions(logs: Mapping[Partition, Sequence[Entry]], decisions: Iterable[Decision]) -> Iterator[Anomaly]:
    """The markers without a decision: `undecided-marker`."""
    known = set(decisions)
    for partition, entries in logs.items():
        for entry in entries:
            if entry.committed is None:
                continue
            decision = Decision(entry.producer_id, entry.epoch, entry.committed)
            if decision not in known:
                yield Anomaly("undecided-marker", partition, f"{decision} at {entry.offset} has no record")
