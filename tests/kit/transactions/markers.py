"""Checks the batches and markers of logs, as a reader of uncommitted records sees them.

| anomaly | rule |
|---|---|
| hanging-transaction | values without a marker behind them |
| two-outcomes | the markers of a transaction differ between partitions |
| wrong-outcome | a marker contradicts the answer to EndTxn, or commits what no client has asked to commit |
| mixed-transactions | one marker ends values of two transactions |
| marker-epoch | with TV2, the epoch of a marker is not greater than that of the values that it ends |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from kafkalite.records import batches
from kafkalite.records.control import ControlType, read_marker
from tests.kit.checker import Anomaly
from tests.kit.transactions.history import History, Outcome, Partition, Transaction, number_of


class Entry(NamedTuple):
    """A batch of a log: its numbers, or the outcome of a marker (None for batches with values)."""

    offset: int
    last_offset: int
    producer_id: int
    epoch: int
    numbers: tuple[int, ...]
    committed: bool | None = None


def entries_of(records: bytes) -> list[Entry]:
    """The transactional batches and the markers in fetched bytes."""
    found = []
    for batch in batches(records or b""):
        at = batch.base_offset, batch.last_offset, batch.producer_id, batch.producer_epoch
        if batch.control:
            marker = read_marker(next(iter(batch)))
            if marker is not None:
                found.append(Entry(*at, (), marker.type is ControlType.COMMIT))
        elif batch.transactional:
            found.append(Entry(*at, tuple(number_of(record.value) for record in batch)))
    return found


def check_markers(
    history: History, logs: Mapping[Partition, Sequence[Entry]], *, markers_of_tv2: bool = False
) -> list[Anomaly]:
    """All anomalies of the logs.

    Arguments:
        history: the events.
        logs: the entries of each partition in the order of their offsets.
        markers_of_tv2: all transactions are of version 2.
    """
    outcomes: defaultdict[Transaction, dict[Partition, bool]] = defaultdict(dict)
    anomalies: list[Anomaly] = []
    for partition, entries in logs.items():
        anomalies += _of_partition(history, partition, entries, outcomes, markers_of_tv2=markers_of_tv2)
    for transaction, ends in outcomes.items():
        anomalies += _of_transaction(transaction, ends)
    return anomalies


def _of_partition(
    history: History,
    partition: Partition,
    entries: Sequence[Entry],
    outcomes: Mapping[Transaction, dict[Partition, bool]],
    *,
    markers_of_tv2: bool,
) -> Iterator[Anomaly]:
    open_values: defaultdict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.committed is None:
            open_values[entry.producer_id].append(entry)
            continue
        values = open_values.pop(entry.producer_id, [])
        sends = [history.sends[number] for each in values for number in each.numbers if number in history.sends]
        transactions = list(dict.fromkeys(send.transaction for send in sends))
        if len(transactions) > 1:
            names = ", ".join(each.name for each in transactions)
            yield Anomaly("mixed-transactions", partition, f"the marker at {entry.offset} ends values of {names}")
        for transaction in transactions:
            outcomes[transaction][partition] = entry.committed
        epochs = [each.epoch for each in values]
        if markers_of_tv2 and epochs and entry.epoch <= max(epochs):
            text = f"the marker at {entry.offset} has epoch {entry.epoch}, the values {max(epochs)}"
            yield Anomaly("marker-epoch", partition, text)
    for producer_id, values in open_values.items():
        text = f"values of producer {producer_id} from {values[0].offset} on, {values[0].numbers}, have no marker"
        yield Anomaly("hanging-transaction", partition, text)


def _of_transaction(transaction: Transaction, ends: Mapping[Partition, bool]) -> Iterator[Anomaly]:
    partition = next(iter(ends))
    if len(set(ends.values())) > 1:
        yield Anomaly("two-outcomes", partition, f"{transaction.name}: committed {ends}")
    for at, committed in ends.items():
        wrong = {Outcome.COMMITTED: not committed, Outcome.REQUESTED: False}.get(transaction.outcome, committed)
        if wrong:
            text = f"{transaction.name} is {'committed' if committed else 'aborted'}: {transaction.outcome.value}"
            yield Anomaly("wrong-outcome", at, text)
