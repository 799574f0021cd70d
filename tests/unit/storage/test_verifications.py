"""Verifications: which transactional batches and markers a log accepts (KIP-890, KIP-1228)."""

import errno
from pathlib import Path

import pytest

from kafkalite._speedups.storage.log_core import UNVERIFIED_BATCH
from kafkalite._speedups.storage.producer_state import Verification
from kafkalite.errors import KafkaErrorCode
from kafkalite.records.control import ControlType, Marker, build_marker
from kafkalite.storage.log.log import Log
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.unit.storage.damage import batch
from tests.unit.storage.transactional import new_log

INVALID_TXN_STATE = -KafkaErrorCode.INVALID_TXN_STATE
OUT_OF_ORDER = -KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
FENCED = -KafkaErrorCode.INVALID_PRODUCER_EPOCH
OLD_COORDINATOR = -KafkaErrorCode.TRANSACTION_COORDINATOR_FENCED
TV1, TV2 = 1, 2


class Validated:
    """The validation of a client's batch, as far as a log reads it."""

    error = 0


class Producer:
    """A transactional producer and its coordinator at one log; every batch has two records."""

    def __init__(self, log: Log, producer_id: int = 7, *, adds: bool = True) -> None:
        self.log, self.producer_id, self.adds = log, producer_id, adds

    def verify(self, sequence: int, epoch: int = 0) -> Verification:
        return self.log.begin_verification(self.producer_id, epoch, sequence, self.adds)

    def send(
        self, sequence: int, verification: Verification | None = None, *, epoch: int = 0, transactional: bool = True
    ) -> int:
        fields = {"producer_id": self.producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        return self.log.append(batch(2, transactional=transactional, **fields), Validated(), 0, verification)

    def begin(self, sequence: int, epoch: int = 0) -> int:
        return self.send(sequence, self.verify(sequence, epoch), epoch=epoch)

    def end(self, epoch: int = 0, *, version: int = TV1, coordinator: int = 0, commit: bool = True) -> int:
        marker = Marker(ControlType.COMMIT if commit else ControlType.ABORT, coordinator)
        return self.log.append(
            bytearray(build_marker(marker, self.producer_id, epoch, 5)), None, 0, marker_version=version
        )


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return new_log(tmp_path / "t-0")


@pytest.fixture(params=[False, True], ids=["TV1", "TV2"])
def producer(log: Log, request: pytest.FixtureRequest) -> Producer:
    return Producer(log, adds=request.param)


def test_first_batch_of_a_transaction_needs_a_verification(producer: Producer) -> None:
    assert producer.send(0) == UNVERIFIED_BATCH
    assert producer.send(0, producer.verify(0)) == 0
    assert not producer.log.transaction_error(7, 0)
    assert producer.send(2) == 2, "later batches need none"
    producer.end(1)
    assert producer.log.transaction_error(7, 0)
    assert producer.send(0, epoch=1) == UNVERIFIED_BATCH


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_marker_ends_the_attempts_before_it(producer: Producer, end: str) -> None:
    """The coordinator's answer to an attempt arrives after the marker of its transaction."""
    late = producer.verify(0)
    assert producer.end(commit=end == "commit") == 0
    assert producer.send(0, late) == INVALID_TXN_STATE
    assert producer.log.transaction_error(7, 0)


def test_late_answer_does_not_open_the_next_transaction(producer: Producer) -> None:
    """A verification that began before a marker is not that of the next transaction, although both exist."""
    late = producer.verify(0)
    producer.end()
    following = producer.verify(0)
    assert producer.send(0, late) == INVALID_TXN_STATE
    assert producer.send(0, following) == 1


def test_repeated_question_keeps_its_verification_until_a_marker(producer: Producer) -> None:
    first = producer.verify(0)
    assert producer.log.begin_verification(7, 0, 0, producer.adds, first) is first
    producer.end()
    following = producer.log.begin_verification(7, 0, 0, producer.adds, first)
    assert following is not first
    assert producer.send(0, first) == INVALID_TXN_STATE
    assert producer.send(0, following) == 1


def test_first_append_ends_the_attempts_of_its_transaction(producer: Producer) -> None:
    first, other = producer.verify(0), producer.verify(0)
    assert producer.send(0, first) == 0
    assert producer.log.producers.verifications == {}
    producer.end()
    assert producer.send(2, other) == INVALID_TXN_STATE


def test_attempts_of_other_producers_stay(log: Log) -> None:
    one, other = Producer(log, 7), Producer(log, 8)
    verification = other.verify(0)
    one.begin(0)
    one.end()
    assert other.send(0, verification) == 3


def test_idempotent_batch_keeps_the_attempts(log: Log) -> None:
    """As in Kafka: no transaction has begun."""
    producer = Producer(log, adds=False)
    verification = producer.verify(2)
    assert producer.send(0, transactional=False) == 0
    assert producer.send(2, verification) == 2


def test_older_epoch_is_fenced_before_it_is_verified(producer: Producer) -> None:
    """KAFKA-19690: INVALID_TXN_STATE would be fatal."""
    producer.end(5)
    assert producer.send(0, epoch=4) == FENCED
    assert producer.send(0, producer.verify(0, 4), epoch=4) == FENCED
    assert producer.send(0, epoch=5) == UNVERIFIED_BATCH


def test_newer_epoch_is_verified_although_a_transaction_is_open(producer: Producer) -> None:
    producer.begin(0)
    assert producer.send(0, epoch=1) == UNVERIFIED_BATCH
    assert producer.begin(0, epoch=1) == 2


def test_repeated_batch_is_answered_without_a_verification(producer: Producer) -> None:
    producer.begin(0)
    producer.end(0)
    assert producer.send(0) == 0
    producer.end(1)
    assert producer.send(0) == FENCED, "the epoch has ended"


def test_later_batch_waits_for_the_lowest_sequence_of_the_attempts(log: Log) -> None:
    """The first batch of a TV1 transaction failed with a retriable error after its check had begun."""
    producer = Producer(log, adds=False)
    producer.verify(3)
    later = producer.verify(5)
    assert producer.send(5, later) == OUT_OF_ORDER
    assert producer.send(3, producer.verify(3)) == 0
    assert producer.send(5) == 2


def test_lower_sequence_is_the_lowest_one_from_then_on(log: Log) -> None:
    producer = Producer(log, adds=False)
    producer.verify(5)
    assert producer.send(3, producer.verify(3)) == 0


def test_newer_epoch_resets_the_lowest_sequence(log: Log) -> None:
    producer = Producer(log, adds=False)
    producer.verify(3)
    assert producer.send(9, producer.verify(9, 1), epoch=1) == 0, "an unknown TV1 producer begins at any sequence"


def test_unknown_producer_begins_at_zero_with_tv2(log: Log) -> None:
    producer = Producer(log)
    assert producer.send(4, producer.verify(4)) == OUT_OF_ORDER
    assert producer.begin(0) == 0


def test_unknown_tv1_producer_begins_at_any_sequence(log: Log) -> None:
    assert Producer(log, adds=False).begin(4) == 0


def test_epoch_of_a_tv2_marker_begins_at_zero(log: Log) -> None:
    producer = Producer(log)
    producer.begin(0)
    assert producer.end(1, version=TV2) == 2
    assert producer.send(2, producer.verify(2, 1), epoch=1) == OUT_OF_ORDER
    assert producer.begin(0, epoch=1) == 3


def test_tv1_marker_has_an_equal_or_greater_epoch(log: Log) -> None:
    producer = Producer(log, adds=False)
    producer.begin(0, epoch=3)
    assert producer.end(2) == FENCED
    assert producer.end(3) == 2
    assert producer.end(3) == 3
    assert producer.end(4) == 4


def test_tv2_marker_has_a_greater_epoch(log: Log) -> None:
    producer = Producer(log)
    producer.begin(0, epoch=3)
    assert producer.end(3, version=TV2) == FENCED, "a late marker of the transaction before"
    assert not producer.log.transaction_error(7, 3)
    assert producer.end(4, version=TV2) == 2


def test_tv2_marker_repeats_the_last_one_while_no_transaction_is_open(log: Log) -> None:
    """KAFKA-19999: the coordinator has not received the answer to its marker, or is another one."""
    producer = Producer(log)
    producer.begin(0)
    assert producer.end(1, version=TV2) == 2
    assert producer.end(1, version=TV2) == 3
    assert producer.end(0, version=TV2) == FENCED
    producer.begin(0, epoch=1)
    assert producer.end(1, version=TV2) == FENCED, "it would end the next transaction"


def test_repeated_marker_of_an_older_coordinator_is_rejected(log: Log) -> None:
    producer = Producer(log)
    assert producer.end(1, version=TV2, coordinator=5) == 0
    assert producer.end(1, version=TV2, coordinator=4) == OLD_COORDINATOR
    assert producer.end(2, version=TV2, coordinator=4) == OLD_COORDINATOR


def test_marker_of_an_unknown_producer_is_accepted(log: Log) -> None:
    assert Producer(log).end(0, version=TV2) == 0


def test_rejected_marker_keeps_the_attempts(log: Log) -> None:
    producer = Producer(log)
    producer.end(3)
    verification = producer.verify(0, 3)
    assert producer.end(2) == FENCED
    assert producer.send(0, verification, epoch=3) == 1


def test_batch_of_the_broker_is_compared_only_with_a_verification(log: Log) -> None:
    """The records of TxnOffsetCommit: without a sequence, in the partition of the group."""
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": -1}
    verification = log.begin_verification(7, 0, -1, True)
    Producer(log).end()
    assert log.append(batch(1, transactional=True, **fields), None, 0, verification) == INVALID_TXN_STATE
    assert log.append(batch(1, transactional=True, **fields), None, 0, log.begin_verification(7, 0, -1, True)) == 1
    assert log.append(batch(1, transactional=True, **fields), None, 0, verification) == 2, "the transaction is open"


def test_verification_without_an_append_expires(log: Log) -> None:
    verification = Producer(log).verify(0)
    log.producers.expire(0, 1_000)
    log.producers.expire(999, 1_000)
    assert list(log.producers.verifications.values()) == [verification]
    log.producers.expire(1_000, 1_000)
    assert log.producers.verifications == {}


def test_failed_write_of_the_first_batch_needs_another_verification(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = new_log(tmp_path / "t-0", disk)
    producer = Producer(log)
    verification = producer.verify(0)
    assert producer.send(0, verification) == 0
    disk.fail("write", errno.ENOSPC)
    assert log.write() == KafkaErrorCode.KAFKA_STORAGE_ERROR
    disk.heal()
    assert log.transaction_error(7, 0)
    assert producer.send(0) == UNVERIFIED_BATCH
    assert producer.send(0, verification) == INVALID_TXN_STATE
    assert producer.begin(0) == 0


def test_verification_is_removed_with_its_last_attempt(log: Log) -> None:
    """The coordinator does not know the producer: it takes no memory."""
    verification = log.begin_verification(7, 0, 0, True)
    assert log.begin_verification(7, 0, 1, True) is verification
    log.end_verification(7, verification)
    assert log.producers.verifications == {7: verification}, "another attempt waits"
    log.end_verification(7, verification)
    assert log.producers.verifications == {}


def test_end_of_an_old_attempt_keeps_a_later_one(log: Log) -> None:
    producer = Producer(log)
    old = producer.verify(0)
    producer.end()
    new = producer.verify(0)
    log.end_verification(7, old)
    assert producer.send(0, new) == 1


@pytest.mark.parametrize(("epoch", "error"), [(0, INVALID_TXN_STATE), (3, 0)])
def test_transaction_error_is_that_of_the_append(log: Log, epoch: int, error: int) -> None:
    producer = Producer(log)
    producer.end(epoch)
    assert log.transaction_error(7, epoch) == -INVALID_TXN_STATE
    assert log.transaction_error(7, epoch - 1) == -FENCED
    verification = producer.verify(0, epoch)
    assert log.transaction_error(7, epoch, verification) == 0
    if error:
        producer.end(epoch)
        assert log.transaction_error(7, epoch, verification) == -error
    else:
        producer.send(0, verification, epoch=epoch)
        assert log.transaction_error(7, epoch) == 0


def test_marker_error_is_that_of_the_append(log: Log) -> None:
    producer = Producer(log)
    assert log.marker_error(7, 0, 0, TV2) == 0
    producer.begin(0, epoch=2)
    assert log.marker_error(7, 2, 0, TV2) == log.marker_error(7, 1, 0, TV1) == -FENCED
    assert log.marker_error(7, 2, 0, TV1) == log.marker_error(7, 3, 0, TV2) == 0
    producer.end(3, version=TV2, coordinator=4)
    assert log.marker_error(7, 3, 4, TV2) == 0, "repeated"
    assert log.marker_error(7, 3, 3, TV2) == -OLD_COORDINATOR
