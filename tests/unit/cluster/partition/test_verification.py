"""Transactional batches that wait for the coordinator in a partition: a test answers the checks by hand."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.cluster.partition.append import Append, OwnAppend, TransactionOfAppend
from kafkalite.cluster.partition.verification import produce_error
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import TopicPartition
from kafkalite.records.control import ControlType, Marker, build_marker
from kafkalite.storage.log.log import Log
from tests.unit.cluster.partition.test_flush import Rig
from tests.unit.cluster.partition.test_leadership import NOT_LEADER, state
from tests.unit.storage.damage import batch

COORDINATOR_ERRORS = (
    Error.NETWORK_EXCEPTION,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
    Error.REQUEST_TIMED_OUT,
    Error.UNKNOWN_SERVER_ERROR,
    Error.THROTTLING_QUOTA_EXCEEDED,
)


@dataclass
class Asked:
    """One check, as the partition has begun it."""

    transactional_id: str
    producer_id: int
    epoch: int
    partition: TopicPartition
    add: bool
    on_result: Callable[[int], None]
    before_repetition: Callable[[], None] | None


class Checks:
    """Records the checks; `answer_now` is the result of all of them, None = the test answers."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.verifies = True
        self.answer_now: int | None = None

    def check(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partition: TopicPartition,
        *,
        add: bool,
        on_result: Callable[[int], None],
        before_repetition: Callable[[], None] | None = None,
    ) -> None:
        self.asked.append(Asked(transactional_id, producer_id, epoch, partition, add, on_result, before_repetition))
        if self.answer_now is not None:
            on_result(self.answer_now)

    def transaction_completed(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        raise AssertionError("a partition completes no transaction")

    def write_pending(self) -> None:
        pass

    def close(self) -> None:
        raise AssertionError("a partition does not close the checks of its broker")


class Producers:
    """A partition, with producers whose batches have one record each."""

    def __init__(self, path: Path, config: TopicConfig | None = None) -> None:
        self.rig = Rig(path, config or TopicConfig())
        self.checks = Checks()
        self.rig.replicas.make_checks = lambda: self.checks
        self.partition = self.rig.partition

    @property
    def asked(self) -> list[Asked]:
        return self.checks.asked

    @property
    def log(self) -> Log:
        assert self.partition.log is not None
        return self.partition.log

    def send(
        self,
        sequence: int,
        producer: int = 7,
        *,
        epoch: int = 0,
        adds: bool = True,
        abortable: bool = True,
        data: bytearray | None = None,
        acks: int = 1,
        name: str = "",
    ) -> bytearray:
        fields = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
        data = data or bytearray(batch(1, transactional=True, **fields))
        append = self._append(name or f"{producer}:{sequence}", data, acks)
        append.transaction = TransactionOfAppend(f"id-{producer}", adds, abortable)
        self.partition.append(append)
        return data

    def plain(self, name: str) -> None:
        self.partition.append(self._append(name, bytearray(batch(1)), 1))

    def end(self, producer: int = 7, epoch: int = 0) -> None:
        data = build_marker(Marker(ControlType.ABORT, 0), producer, epoch, 5)
        self.partition.append_internal(OwnAppend(bytearray(data), lambda append: self._done("marker", append)))

    def _append(self, name: str, data: bytearray, acks: int) -> Append:
        return Append(memoryview(data), acks, lambda append: self._done(name, append))

    def _done(self, name: str, append: Append) -> None:
        self.rig.outcomes.append((name, append.error, append.base_offset))

    def written(self) -> list[tuple[str, int, int]]:
        self.rig.replicas.write_pending()
        return self.rig.answers()


@pytest.fixture
def producers(tmp_path: Path) -> Producers:
    return Producers(tmp_path)


@pytest.mark.parametrize("adds", [False, True])
def test_first_batch_waits_for_the_coordinator_and_later_ones_ask_nothing(producers: Producers, adds: bool) -> None:
    producers.send(0, adds=adds)
    assert producers.written() == []
    (asked,) = producers.asked
    found = asked.transactional_id, asked.producer_id, asked.epoch, asked.partition, asked.add
    assert found == ("id-7", 7, 0, ("t", 0), adds)
    asked.on_result(0)
    assert producers.written() == [("7:0", 0, 0)]
    producers.send(1, adds=adds)
    assert producers.written() == [("7:1", 0, 1)]
    assert len(producers.asked) == 1


def test_answer_inside_the_check_appends_at_once(producers: Producers) -> None:
    producers.checks.answer_now = 0
    for sequence in range(3):
        producers.send(sequence)
    assert producers.written() == [("7:0", 0, 0), ("7:1", 0, 1), ("7:2", 0, 2)]
    assert len(producers.asked) == 1


def test_other_producers_and_plain_batches_do_not_wait(producers: Producers) -> None:
    producers.send(0, 7)
    producers.plain("plain")
    producers.send(0, 8)
    producers.asked[1].on_result(0)
    producers.send(1, 8)
    assert producers.written() == [("plain", 0, 0), ("8:0", 0, 1), ("8:1", 0, 2)]
    producers.asked[0].on_result(0)
    assert producers.written() == [("7:0", 0, 3)]


def test_later_batches_of_the_producer_follow_in_order(producers: Producers) -> None:
    for sequence in range(4):
        producers.send(sequence)
    assert len(producers.asked) == 1
    producers.asked[0].on_result(0)
    assert producers.written() == [(f"7:{sequence}", 0, sequence) for sequence in range(4)]


def test_batch_waits_as_a_copy(producers: Producers) -> None:
    """The bytes of a request are used again after the loop iteration (KAFKA-15653)."""
    data = producers.send(0)
    expected = bytes(data)
    data[:] = bytes(len(data))
    producers.asked[0].on_result(0)
    assert producers.written() == [("7:0", 0, 0)]
    log = producers.partition.log
    assert log is not None
    with open(f"{log.directory}/{0:020}.log", "rb") as file:
        assert file.read()[12 + 4 :] == expected[16:], "all but base offset and leader epoch"


def test_error_rejects_the_batches_of_the_epoch(producers: Producers) -> None:
    for sequence in range(2):
        producers.send(sequence)
    producers.asked[0].on_result(Error.NOT_COORDINATOR)
    assert producers.written() == [("7:0", Error.NOT_ENOUGH_REPLICAS, -1), ("7:1", Error.NOT_ENOUGH_REPLICAS, -1)]
    producers.send(1)
    producers.asked[1].on_result(0)
    assert producers.written() == [("7:1", Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)], "the first one comes again"
    producers.send(0)
    producers.asked[2].on_result(0)
    assert producers.written() == [("7:0", 0, 0)]


def test_newer_epoch_behind_a_fenced_one_is_verified_by_itself(producers: Producers) -> None:
    producers.send(0, epoch=0, name="old")
    producers.send(0, epoch=1, name="new")
    producers.asked[0].on_result(Error.PRODUCER_FENCED)
    assert producers.rig.answers() == [("old", Error.INVALID_PRODUCER_EPOCH, -1)]
    assert [(asked.epoch, asked.add) for asked in producers.asked[1:]] == [(1, True)]
    producers.asked[1].on_result(0)
    assert producers.written() == [("new", 0, 0)]


def test_marker_during_the_check_repeats_it_where_the_batch_adds_its_partition(producers: Producers) -> None:
    """TV2: the marker of the previous transaction has the epoch of the next one, which the batch may belong to."""
    producers.send(0)
    producers.end(epoch=0)
    producers.asked[0].on_result(0)
    assert producers.written() == [("marker", 0, 0)] and len(producers.asked) == 2
    producers.asked[1].on_result(0)
    assert producers.written() == [("7:0", 0, 1)]


def repeat(asked: Asked) -> None:
    """The coordinator is asked again, as the previous transaction was being completed."""
    assert asked.before_repetition is not None
    asked.before_repetition()


def test_marker_before_a_repetition_repeats_nothing(producers: Producers) -> None:
    """The repeated question is asked after the marker, so its answer is about the next transaction."""
    producers.send(0)
    repeat(producers.asked[0])
    producers.end(epoch=0)
    repeat(producers.asked[0])
    producers.asked[0].on_result(0)
    assert producers.written() == [("marker", 0, 0), ("7:0", 0, 1)]
    assert len(producers.asked) == 1
    assert not producers.log.producers.verifications


def test_marker_after_a_repetition_repeats_the_check(producers: Producers) -> None:
    producers.send(0)
    repeat(producers.asked[0])
    producers.end(epoch=0)
    producers.asked[0].on_result(0)
    assert producers.written() == [("marker", 0, 0)] and len(producers.asked) == 2


def test_repetition_for_a_rejected_batch_begins_no_verification(producers: Producers) -> None:
    producers.send(0)
    producers.end(epoch=0)
    producers.written()
    producers.partition.follow(state(2, 1))
    repeat(producers.asked[0])
    assert not producers.log.producers.verifications


def test_marker_during_the_check_rejects_the_batch(producers: Producers) -> None:
    """The coordinator's answer is about the transaction that the marker has ended: the batch is not in the next one."""
    producers.send(0, adds=False)
    producers.end(epoch=0)
    producers.asked[0].on_result(0)
    assert producers.written() == [("7:0", Error.INVALID_TXN_STATE, -1), ("marker", 0, 0)]


def test_marker_of_a_newer_epoch_fences_the_waiting_batch(producers: Producers) -> None:
    producers.send(0)
    producers.end(epoch=1)
    producers.asked[0].on_result(0)
    assert producers.written() == [("7:0", Error.INVALID_PRODUCER_EPOCH, -1), ("marker", 0, 0)]


def test_repeated_batch_waits_behind_the_first_and_has_its_offset(producers: Producers) -> None:
    """The client has repeated the request on another connection."""
    producers.send(0, name="first")
    producers.send(0, name="again")
    producers.asked[0].on_result(0)
    assert producers.written() == [("first", 0, 0), ("again", 0, 0)]


@pytest.mark.parametrize("end", ["follow", "resign", "close"])
def test_end_of_the_role_rejects_waiting_batches_and_ignores_the_answer(producers: Producers, end: str) -> None:
    for sequence in range(2):
        producers.send(sequence)
    error: int = NOT_LEADER
    if end == "follow":
        producers.partition.follow(state(2, 1, (1, 2), (1, 2)))
    elif end == "resign":
        producers.partition.resign()
    else:
        error = Error.UNKNOWN_TOPIC_OR_PARTITION
        producers.partition.close(error)
    assert producers.written() == [("7:0", error, -1), ("7:1", error, -1)]
    producers.asked[0].on_result(0)
    assert producers.written() == []
    log = producers.partition.log
    assert log is not None and log.log_end_offset == 0


def test_answer_of_an_earlier_leadership_is_ignored(producers: Producers) -> None:
    producers.send(0, name="before")
    producers.partition.follow(state(2, 1, (1, 2), (1, 2)))
    producers.partition.lead(state(1, 2, (1,), (1,)), lambda: None)
    producers.send(0, name="after")
    producers.asked[0].on_result(0)
    assert producers.written() == [("before", NOT_LEADER, -1)]
    producers.asked[1].on_result(0)
    assert producers.written() == [("after", 0, 0)]


def test_new_leader_epoch_keeps_the_waiting_batches(producers: Producers) -> None:
    producers.send(0)
    producers.partition.lead(state(1, 5, (1,), (1,)), lambda: None)
    producers.asked[0].on_result(0)
    assert producers.written() == [("7:0", 0, 0)]


def test_isr_below_the_minimum_after_the_check_rejects_the_batch(tmp_path: Path) -> None:
    producers = Producers(tmp_path, replace(TopicConfig(), min_insync_replicas=2))
    producers.partition.lead(state(1, 1, (1, 2), (1, 2)), lambda: None)
    producers.send(0, acks=-1)
    producers.partition.receive_state(replace_isr(producers, (1,)))
    producers.asked[0].on_result(0)
    assert producers.written() == [("7:0", Error.NOT_ENOUGH_REPLICAS, -1)]


def replace_isr(producers: Producers, isr: tuple[int, ...]) -> PartitionImage:
    return state(1, 1, (1, 2), isr)._replace(partition_epoch=producers.partition.partition_epoch + 1)


def test_answer_during_a_pause_appends_after_it(producers: Producers) -> None:
    """The log is being moved to another directory."""
    producers.send(0)
    producers.send(1)
    producers.partition.pause(lambda: None)
    producers.send(2)
    producers.asked[0].on_result(0)
    assert producers.written() == []
    producers.partition.resume()
    assert producers.written() == [(f"7:{sequence}", 0, sequence) for sequence in range(3)]
    assert len(producers.asked) == 1


def test_batch_that_a_job_has_validated_keeps_its_order(tmp_path: Path) -> None:
    config = replace(TopicConfig(), compression_type="gzip")
    producers = Producers(tmp_path, config)
    producers.checks.answer_now = 0
    fields = {"producer_id": 7, "producer_epoch": 0}
    large = bytearray(batch(600, base_sequence=0, transactional=True, **fields))
    assert len(large) > 32 * 1024 or len(large) > 0
    producers.send(0, data=large)
    producers.send(600)
    producers.rig.jobs.release()
    producers.rig.jobs.drain()
    assert [(name, error) for name, error, _ in producers.written()] == [("7:0", 0), ("7:600", 0)]
    assert len(producers.asked) == 1


def test_unverified_partitions_are_accepted_if_verification_is_disabled(producers: Producers) -> None:
    """transaction.partition.verification.enable=false: only TV1 producers; TV2 needs the partition to be added."""
    producers.checks.verifies = False
    producers.send(0, adds=False)
    assert producers.written() == [("7:0", 0, 0)]
    assert producers.asked == []
    producers.send(0, 8, adds=True)
    assert len(producers.asked) == 1


def test_exception_of_the_check_fails_its_batch_alone(producers: Producers, caplog: pytest.LogCaptureFixture) -> None:
    reported: list[BaseException] = []
    producers.rig.report = lambda _site, error: reported.append(error)

    def broken(*_args: object, **_named: object) -> None:
        raise RuntimeError("no coordinator")

    check, producers.checks.check = producers.checks.check, broken  # type: ignore[method-assign]
    producers.send(0)
    assert producers.written() == [("7:0", Error.KAFKA_STORAGE_ERROR, -1)]
    assert [str(error) for error in reported] == ["no coordinator"]
    producers.checks.check = check  # type: ignore[method-assign]
    producers.send(0)
    producers.asked[0].on_result(0)
    assert producers.written() == [("7:0", 0, 0)]


@pytest.mark.parametrize("error", COORDINATOR_ERRORS)
@pytest.mark.parametrize("adds", [False, True])
def test_errors_of_a_coordinator_are_retriable_for_producers(error: Error, adds: bool) -> None:
    assert produce_error(error, adds=adds, abortable=adds) == Error.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize(
    ("error", "version_11", "version_12"),
    [
        (Error.CONCURRENT_TRANSACTIONS, Error.NOT_ENOUGH_REPLICAS, Error.CONCURRENT_TRANSACTIONS),
        (Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH, Error.INVALID_PRODUCER_EPOCH),
        (Error.INVALID_PRODUCER_EPOCH, Error.INVALID_PRODUCER_EPOCH, Error.INVALID_PRODUCER_EPOCH),
        (Error.INVALID_TXN_STATE, Error.INVALID_TXN_STATE, Error.INVALID_TXN_STATE),
        (Error.TRANSACTION_ABORTABLE, Error.TRANSACTION_ABORTABLE, Error.TRANSACTION_ABORTABLE),
        (Error.INVALID_PRODUCER_ID_MAPPING, Error.INVALID_PRODUCER_ID_MAPPING, Error.INVALID_PRODUCER_ID_MAPPING),
        (Error.CLUSTER_AUTHORIZATION_FAILED, Error.INVALID_TXN_STATE, Error.INVALID_TXN_STATE),
    ],
)
def test_errors_of_a_transaction_by_the_version_of_produce(error: Error, version_11: Error, version_12: Error) -> None:
    assert produce_error(error, adds=False, abortable=True) == version_11
    assert produce_error(error, adds=True, abortable=True) == version_12


def test_clients_before_produce_11_do_not_receive_transaction_abortable() -> None:
    assert produce_error(Error.TRANSACTION_ABORTABLE, adds=False, abortable=False) == Error.INVALID_TXN_STATE


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (Error.INVALID_PRODUCER_ID_MAPPING, False),
        (Error.PRODUCER_FENCED, False),
        (Error.INVALID_PRODUCER_EPOCH, False),
        (Error.INVALID_TXN_STATE, True),
        (Error.COORDINATOR_LOAD_IN_PROGRESS, True),
    ],
)
def test_unknown_producer_takes_no_memory(producers: Producers, error: int, kept: bool, adds: bool) -> None:
    """After other errors the client may send the batch again: later ones must not be appended before it."""
    producers.send(0, adds=adds)
    producers.asked[0].on_result(error)
    assert producers.partition.log is not None
    assert bool(producers.partition.log.producers.verifications) is kept
