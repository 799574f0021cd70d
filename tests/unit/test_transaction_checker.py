"""The checker of transactions finds each anomaly in a history made for it, and nothing in good histories."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkalite.coordinators.transaction.serde import TransactionRecordSerde
from kafkalite.protocol.stored.transaction_records import STATUSES
from kafkalite.records import Builder
from kafkalite.state.transactions.metadata import TransactionDeleted, TransactionMetadata
from kafkalite.state.transactions.states import TransactionState
from tests.kit.transactions.checker import check, check_inputs
from tests.kit.transactions.decisions import Decision, check_decisions, decisions_of
from tests.kit.transactions.history import DAMAGED, History, Outcome, Partition, Source, Transaction, number_of
from tests.kit.transactions.markers import Entry, check_markers

IN, P, Q = ("in", 0), ("out", 0), ("out", 1)
FULL = "full"


class Written:
    """Three transactions: one committed in P and Q, one aborted, one whose commit has no answer.

    Attributes:
        first, second: the numbers of the committed one, in P and Q.
        aborted, unknown: those of the others, in P.
    """

    def __init__(self) -> None:
        self.time = 0.0
        self.history = History(lambda: self.time)
        self.committed = self.history.begin("a")
        self.first = self.history.sent(self.committed, P, Source(IN, 0))
        self.second = self.history.sent(self.committed, Q, Source(IN, 1))
        self.history.acknowledged(self.first, 0)
        self.history.acknowledged(self.second, 0)
        self.history.commit_requested(self.committed)
        self.history.ended(self.committed, committed=True)
        self.failed = self.history.begin("a")
        self.aborted = self.history.sent(self.failed, P, Source(IN, 2))
        self.history.acknowledged(self.aborted, 2)
        self.history.ended(self.failed, committed=False)
        self.open = self.history.begin("b")
        self.unknown = self.history.sent(self.open, P, Source(IN, 2))
        self.history.acknowledged(self.unknown, 4)
        self.history.commit_requested(self.open)

    def read(self, reader: str, partition: Partition, *records: tuple[int, int]) -> None:
        self.history.reading(reader, [partition])
        for offset, number in records:
            self.history.read(reader, partition, offset, number)

    def complete(self) -> None:
        """A full reading of what is committed."""
        self.time = 1.0
        self.read(FULL, P, (0, self.first), (4, self.unknown))
        self.read(FULL, Q, (0, self.second))

    def names(self) -> set[str]:
        return {each.name for each in check(self.history, FULL)}


def lost(written: Written) -> None:
    written.read(FULL, P)
    written.read(FULL, Q)


def torn(written: Written) -> None:
    written.read(FULL, P, (0, written.first))
    written.read(FULL, Q)


def aborted_and_read(written: Written) -> None:
    written.complete()
    written.read("other", P, (2, written.aborted))


def never_requested_and_read(written: Written) -> None:
    transaction = written.history.begin("c")
    number = written.history.sent(transaction, Q)
    written.complete()
    written.read(FULL, Q, (2, number))


def read_before_the_request(written: Written) -> None:
    transaction = written.history.begin("c")
    number = written.history.sent(transaction, Q)
    written.read("other", Q, (2, number))
    written.time = 1.0
    written.history.commit_requested(transaction)
    written.complete()
    written.read(FULL, Q, (2, number))


def own_value_read(written: Written) -> None:
    written.history.read_in(written.committed, written.first)
    written.complete()


def duplicated(written: Written) -> None:
    written.complete()
    written.read(FULL, Q, (2, written.second))


def two_values_at_an_offset(written: Written) -> None:
    written.complete()
    written.read("other", P, (0, written.unknown))


def vanished(written: Written) -> None:
    written.read("other", P, (4, written.unknown))
    written.read(FULL, P, (0, written.first))
    written.read(FULL, Q, (0, written.second))


def damaged(written: Written) -> None:
    written.complete()
    written.read(FULL, Q, (2, DAMAGED))


def out_of_order(written: Written) -> None:
    later = written.history.sent(written.committed, P)
    written.time = 1.0
    written.read(FULL, P, (0, later), (1, written.first), (4, written.unknown))
    written.read(FULL, Q, (0, written.second))


def read_again(written: Written) -> None:
    written.complete()
    written.read("other", P, (0, written.first), (0, written.first))


def passed_over(written: Written) -> None:
    later = written.history.sent(written.committed, P)
    written.complete()
    written.read(FULL, P, (6, later))
    written.read("other", P, (0, written.first), (6, later))


def cycle(written: Written) -> None:
    one, two = written.history.begin("c"), written.history.begin("d")
    numbers = [written.history.sent(each, Q) for each in (one, two)]
    written.history.read_in(one, numbers[1])
    written.history.read_in(two, numbers[0])
    written.history.read_in(two, written.first)
    for each in (one, two):
        written.history.commit_requested(each)
    written.complete()
    written.read(FULL, Q, (2, numbers[0]), (3, numbers[1]))


@pytest.mark.parametrize(
    ("make", "anomalies"),
    [
        (lost, {"lost-write"}),
        (torn, {"torn-transaction"}),
        (aborted_and_read, {"aborted-read", "lost-read"}),
        (never_requested_and_read, {"aborted-read"}),
        (read_before_the_request, {"early-read"}),
        (own_value_read, {"early-read"}),
        (duplicated, {"duplicate"}),
        (two_values_at_an_offset, {"inconsistent-offsets", "duplicate"}),
        (vanished, {"lost-read"}),
        (damaged, {"unsent"}),
        (out_of_order, {"nonmonotonic-send", "inconsistent-offsets", "duplicate"}),
        (read_again, {"nonmonotonic-poll"}),
        (passed_over, {"poll-skip"}),
        (cycle, {"circular-information-flow"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_anomaly_is_found(make: Callable[[Written], None], anomalies: set[str]) -> None:
    written = Written()
    make(written)
    assert written.names() == anomalies


def test_good_history_has_no_anomaly() -> None:
    written = Written()
    written.complete()
    assert check(written.history, FULL) == []
    assert check_inputs(written.history, FULL, "out", {IN: 3}, {IN: [0, 1, 2]}) == []
    assert written.history.outcomes()[Outcome.REQUESTED] == 1


def test_transaction_without_an_answer_may_be_missing_as_a_whole() -> None:
    written = Written()
    written.time = 1.0
    written.read(FULL, P, (0, written.first))
    written.read(FULL, Q, (0, written.second))
    assert check(written.history, FULL) == []


def test_chain_of_reads_is_no_cycle() -> None:
    written = Written()
    transaction = written.history.begin("c")
    for number in (written.first, written.unknown):
        written.history.read_in(transaction, number)
    written.history.read_in(written.open, written.first)
    written.complete()
    assert check(written.history, FULL) == []


@pytest.mark.parametrize(
    ("committed", "inputs", "anomalies"),
    [
        ({IN: 4}, {IN: [0, 1, 2, 3]}, {"input-lost"}),
        ({IN: 2}, {IN: [0, 1, 2]}, {"input-not-committed"}),
        ({}, {IN: [0, 1, 2]}, {"input-not-committed"}),
    ],
)
def test_offsets_must_agree_with_the_outputs(
    committed: dict[Partition, int], inputs: dict[Partition, list[int]], anomalies: set[str]
) -> None:
    written = Written()
    written.complete()
    assert {each.name for each in check_inputs(written.history, FULL, "out", committed, inputs)} == anomalies


def test_input_that_is_processed_twice_is_found() -> None:
    written = Written()
    again = written.history.sent(written.committed, Q, Source(IN, 0))
    written.complete()
    written.read(FULL, Q, (2, again))
    found = check_inputs(written.history, FULL, "out", {IN: 3}, {IN: [0, 1, 2]})
    assert [each.name for each in found] == ["input-twice"]


def data(offset: int, *numbers: int, epoch: int = 0, producer: int = 1) -> Entry:
    return Entry(offset, offset + len(numbers) - 1, producer, epoch, numbers)


def marker(offset: int, *, committed: bool, epoch: int = 1, producer: int = 1) -> Entry:
    return Entry(offset, offset, producer, epoch, (), committed)


def logs_of(written: Written) -> dict[Partition, list[Entry]]:
    """The logs of these transactions."""
    return {
        P: [
            data(0, written.first),
            marker(1, committed=True),
            data(2, written.aborted, epoch=1),
            marker(3, committed=False, epoch=2),
            data(4, written.unknown, producer=2),
            marker(5, committed=True, producer=2),
        ],
        Q: [data(0, written.second), marker(1, committed=True)],
    }


def other_outcome(written: Written, logs: dict[Partition, list[Entry]]) -> Transaction:
    logs[Q][1] = marker(1, committed=False)
    return written.committed


def no_marker(written: Written, logs: dict[Partition, list[Entry]]) -> Transaction:
    logs[Q].pop()
    return written.committed


def aborted_is_committed(written: Written, logs: dict[Partition, list[Entry]]) -> Transaction:
    logs[P][3] = marker(3, committed=True, epoch=2)
    return written.failed


def never_requested_is_committed(written: Written, logs: dict[Partition, list[Entry]]) -> Transaction:
    transaction = written.history.begin("c")
    logs[Q] += [data(2, written.history.sent(transaction, Q), epoch=1), marker(3, committed=True, epoch=2)]
    return transaction


def two_transactions_of_a_marker(written: Written, logs: dict[Partition, list[Entry]]) -> Transaction:
    del logs[P][1]
    logs[P][2] = marker(3, committed=False, epoch=2)
    return written.committed


def marker_with_the_epoch_of_the_values(written: Written, logs: dict[Partition, list[Entry]]) -> Transaction:
    logs[Q][1] = marker(1, committed=True, epoch=0)
    return written.committed


@pytest.mark.parametrize(
    ("change", "anomalies"),
    [
        (other_outcome, {"two-outcomes", "wrong-outcome"}),
        (no_marker, {"hanging-transaction"}),
        (aborted_is_committed, {"wrong-outcome"}),
        (never_requested_is_committed, {"wrong-outcome"}),
        (two_transactions_of_a_marker, {"mixed-transactions", "two-outcomes", "wrong-outcome"}),
        (marker_with_the_epoch_of_the_values, {"marker-epoch"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_anomaly_of_markers_is_found(
    change: Callable[[Written, dict[Partition, list[Entry]]], Transaction], anomalies: set[str]
) -> None:
    written = Written()
    logs = logs_of(written)
    assert check_markers(written.history, logs, markers_of_tv2=True) == []
    change(written, logs)
    assert {each.name for each in check_markers(written.history, logs, markers_of_tv2=True)} == anomalies


def test_a_marker_without_a_decision_is_found() -> None:
    """A decision of another epoch, or with another outcome, is none of this marker."""
    logs = {P: [Entry(0, 0, 7, 0, (1,)), marker(1, committed=True, epoch=1)]}
    assert list(check_decisions(logs, [Decision(logs[P][1].producer_id, 1, committed=True)])) == []
    for other in ((1, False), (2, True)):
        (found,) = check_decisions(logs, [Decision(logs[P][1].producer_id, *other)])
        assert found.name == "undecided-marker"


def test_decisions_are_the_prepared_states_of_a_log() -> None:
    serde, builder = TransactionRecordSerde(), Builder(1 << 20)
    ongoing = TransactionMetadata("a", 7, 0, 60_000, 0)._replace(state=TransactionState.ONGOING, partitions=frozenset())
    for epoch, state in enumerate(TransactionState):
        if state in STATUSES:
            builder.append(0, *serde.encode(ongoing._replace(state=state, producer_epoch=epoch)))
    builder.append(0, *serde.encode(TransactionDeleted("a")))
    found = set(decisions_of(builder.build(0)))
    epochs = {state: epoch for epoch, state in enumerate(TransactionState)}
    commit, abort = epochs[TransactionState.PREPARE_COMMIT], epochs[TransactionState.PREPARE_ABORT]
    assert found == {Decision(7, commit, committed=True), Decision(7, abort, committed=False)}


def test_number_of_a_value() -> None:
    assert number_of(b"12 vvv") == 12
    assert number_of(b"7") == 7
    assert number_of(b"x7") == number_of(None) == DAMAGED
