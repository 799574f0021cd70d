"""Checks of transactions: as calls of the coordinator on this broker, and as requests to other brokers."""

import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.callbacks import Completion
from kafkalite.cluster.broker_peers import CallResult
from kafkalite.cluster.metadata.image import NO_LEADER
from kafkalite.cluster.replicas import Replicas
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from kafkalite.server.hosting.transaction_checks import Check, TransactionChecks
from kafkalite.state.transactions.requests import AddPartitions, VerifyPartitions
from kafkalite.state.transactions.states import TransactionVersion
from kafkalite.testing.virtual_clock import VirtualClock

HERE, OTHER = 1, 2
Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
TopicResult = Result.AddPartitionsToTxnTopicResult
PartitionResult = TopicResult.AddPartitionsToTxnPartitionResult


def partition(index: int = 0) -> TopicPartition:
    return TopicPartition("t", index)


class Service:
    """The coordinator of this broker; a test answers its commands, `answer_now` answers all."""

    def __init__(self) -> None:
        self.commands: list[tuple[AddPartitions | VerifyPartitions, Completion[Any]]] = []
        self.answer_now: int | None = None

    def add_partitions(self, command: AddPartitions, completion: Completion[Any]) -> None:
        self.commands.append((command, completion))
        if self.answer_now is not None:
            completion.answer(self.answer_now)

    def verify_partitions(self, command: VerifyPartitions, completion: Completion[Any]) -> None:
        self.commands.append((command, completion))


class Peers:
    """The other brokers; a test ends the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, AddPartitionsToTxnRequest, Callable[[CallResult], object]]] = []

    def call(self, broker_id: int, request: AddPartitionsToTxnRequest, then: Callable[[CallResult], object]) -> None:
        self.calls.append((broker_id, request, then))


class Writes(Replicas):
    """Counts `write_pending`."""

    def __init__(self) -> None:
        self.reported: list[BaseException] = []
        super().__init__(lambda _callback, error: self.reported.append(error))
        self.writes = 0

    def write_pending(self) -> None:
        self.writes += 1
        super().write_pending()


class Host:
    """A broker whose transactional ids have the coordinator `leader`."""

    def __init__(self) -> None:
        self.broker_id, self.clock, self.replicas = HERE, VirtualClock(), Writes()
        self.transactions, self.peers, self.leader = Service(), Peers(), HERE
        self.config = SimpleNamespace(
            add_partitions_to_txn_retry_backoff_ms=20,
            add_partitions_to_txn_retry_backoff_max_ms=100,
            request_timeout_ms=30_000,
            transaction_partition_verification_enable=True,
        )
        self.results: list[tuple[str, int]] = []
        self.checks = TransactionChecks(self)  # type: ignore[arg-type]

    def transaction_coordinator(self, _transactional_id: str) -> int:
        return self.leader

    def check(self, name: str, index: int = 0, *, key: str = "id", epoch: int = 0, add: bool = True) -> None:
        self.checks.check(
            key, 7, epoch, partition(index), add=add, on_result=lambda error: self.results.append((name, error))
        )

    def taken(self) -> list[tuple[str, int]]:
        results, self.results = self.results, []
        return results


@pytest.fixture
def host() -> Host:
    return Host()


# On the coordinator's broker.


def test_addition_is_a_call_of_the_coordinator(host: Host) -> None:
    host.check("a")
    ((command, completion),) = host.transactions.commands
    assert command == AddPartitions("id", 7, 0, frozenset({partition()}), TransactionVersion.TV2)
    completion.answer(0)
    assert host.taken() == [("a", 0)]


def test_verification_has_an_error_per_partition(host: Host) -> None:
    host.check("a", 0, add=False)
    ((command, completion),) = host.transactions.commands
    assert command == VerifyPartitions("id", 7, 0, frozenset({partition()}))
    completion.answer({partition(): Error.TRANSACTION_ABORTABLE})
    assert host.taken() == [("a", Error.TRANSACTION_ABORTABLE)]
    assert host.checks.failures == 1


def test_partitions_of_a_transaction_are_one_call_after_the_first(host: Host) -> None:
    """A request with 1,000 new partitions appends two records to `__transaction_state`, not 1,000."""
    for index in range(1_000):
        host.check(str(index), index)
    assert len(host.transactions.commands) == 1
    host.transactions.commands[0][1].answer(0)
    assert len(host.transactions.commands) == 2
    assert host.transactions.commands[1][0].partitions == frozenset(map(partition, range(1, 1_000)))
    host.transactions.commands[1][1].answer(0)
    assert host.taken() == [(str(index), 0) for index in range(1_000)]


def test_checks_that_begin_with_a_result_are_one_call(host: Host) -> None:
    """Markers of the previous transaction have removed the verifications: the check of each partition is repeated."""

    def begin_again(index: int) -> None:
        host.checks.check("id", 7, 0, partition(index), add=True, on_result=lambda _: host.check(str(index), index))

    for index in range(100):
        begin_again(index)
    for _ in range(2):
        host.transactions.commands.pop()[1].answer(0)
    assert [len(command.partitions) for command, _ in host.transactions.commands] == [99]
    host.transactions.commands.pop()[1].answer(0)
    assert host.taken() == [(str(index), 0) for index in range(100)]


def test_other_transactions_do_not_wait(host: Host) -> None:
    host.check("a", key="one")
    host.check("b", key="two")
    host.check("c", epoch=1, key="one")
    assert len(host.transactions.commands) == 3


def test_failed_call_is_the_error_of_its_checks(host: Host) -> None:
    host.check("a")
    host.transactions.commands[0][1].fail(Error.COORDINATOR_LOAD_IN_PROGRESS)
    assert host.taken() == [("a", Error.COORDINATOR_LOAD_IN_PROGRESS)]


def test_exception_of_the_coordinator_ends_its_checks(host: Host) -> None:
    def broken(_command: object, _completion: object) -> None:
        raise RuntimeError("a bug")

    host.transactions.add_partitions = broken  # type: ignore[method-assign]
    host.check("a")
    assert host.taken() == [("a", Error.COORDINATOR_NOT_AVAILABLE)]
    assert [str(error) for error in host.replicas.reported] == ["a bug"]
    host.check("b")
    assert host.taken() == [("b", Error.COORDINATOR_NOT_AVAILABLE)]


# The previous transaction is being completed.


def test_concurrent_transactions_are_repeated_with_growing_pauses(host: Host) -> None:
    """Those of another broker, which does not inform this one of the end of the previous transaction."""
    host.leader = OTHER
    host.check("a")
    times = []
    for _ in range(5):
        host.peers.calls[-1][2](response(("id", 0, Error.CONCURRENT_TRANSACTIONS)))
        before = len(host.peers.calls)
        while len(host.peers.calls) == before:
            host.clock.advance(1)
        times.append(round(host.clock.monotonic() * 1000))
    assert times == [1, 3, 7, 15, 31]
    host.peers.calls[-1][2](response(("id", 0, 0)))
    assert host.taken() == [("a", 0)]
    assert host.replicas.writes == 11, "timers and responses are outside of a loop iteration"


def test_end_of_the_previous_transaction_repeats_its_checks_at_once(host: Host) -> None:
    host.transactions.answer_now = Error.CONCURRENT_TRANSACTIONS
    for index in range(2):
        host.check(str(index), index)
    host.check("other", key="other")
    host.transactions.answer_now = 0
    host.checks.transaction_completed("id", 7, 1)
    assert host.taken() == [], "of another epoch"
    host.checks.transaction_completed("id", 7, 0)
    assert host.taken() == [("0", 0), ("1", 0)]
    assert host.replicas.writes == 1
    host.clock.advance(19)
    assert host.taken() == []
    host.clock.advance(1)
    assert host.taken() == [("other", 0)]


def test_check_is_informed_before_each_repetition(host: Host) -> None:
    host.transactions.answer_now = Error.CONCURRENT_TRANSACTIONS
    asked: list[int] = []
    for index in range(2):
        host.checks.check(
            "id",
            7,
            0,
            partition(index),
            add=True,
            on_result=lambda error: host.results.append(("", error)),
            before_repetition=lambda: asked.append(len(host.transactions.commands)),
        )
    host.clock.advance(20)
    assert asked == [1, 1], "before the second question"
    host.transactions.answer_now = 0
    host.clock.advance(20)
    assert asked == [1, 1, 2, 2]
    assert host.taken() == [("", 0)] * 2


def test_close_ends_checks_in_a_pause_once(host: Host) -> None:
    host.transactions.answer_now = Error.CONCURRENT_TRANSACTIONS
    host.check("a")
    host.checks.close()
    host.check("b")
    assert host.taken() == [(name, Error.COORDINATOR_NOT_AVAILABLE) for name in "ab"]
    host.clock.advance(100)
    assert host.taken() == [] and len(host.transactions.commands) == 1


@pytest.mark.parametrize("leader", [HERE, OTHER])
def test_repetition_is_one_question_for_all_checks_of_a_transaction(host: Host, leader: int) -> None:
    host.transactions.answer_now = Error.CONCURRENT_TRANSACTIONS
    for index in range(100):
        host.check(str(index), index)
    host.check("other", key="other")
    assert len(host.transactions.commands) == 2, "checks that begin in the pause are part of the repetition"
    host.transactions.commands.clear()
    host.leader = leader
    host.transactions.answer_now = 0
    host.clock.advance(20)
    if leader == HERE:
        assert [len(command.partitions) for command, _ in host.transactions.commands] == [100, 1]
        assert host.taken() == [*((str(index), 0) for index in range(100)), ("other", 0)]
    else:
        assert [asked(request) for _, request, _ in host.peers.calls] == [[("id", 7, 0, False, list(range(100)))]]


def test_repetitions_end_with_the_maximum(host: Host) -> None:
    host.transactions.answer_now = Error.CONCURRENT_TRANSACTIONS
    host.check("a")
    host.clock.advance(100)
    assert host.taken() == [("a", Error.CONCURRENT_TRANSACTIONS)]
    assert len(host.transactions.commands) == 6, "20 ms after the one before"
    host.clock.advance(10_000)
    assert len(host.transactions.commands) == 6


def test_verification_is_not_repeated(host: Host) -> None:
    host.check("a", add=False)
    host.transactions.commands[0][1].answer({partition(): Error.CONCURRENT_TRANSACTIONS})
    assert host.taken() == [("a", Error.CONCURRENT_TRANSACTIONS)]


def test_repetition_goes_to_the_coordinator_of_that_time(host: Host) -> None:
    host.transactions.answer_now = Error.CONCURRENT_TRANSACTIONS
    host.check("a")
    host.leader = OTHER
    host.clock.advance(20)
    assert [broker for broker, *_ in host.peers.calls] == [OTHER]


# Deadlines, and the end of the broker.


@pytest.mark.parametrize("leader", [HERE, OTHER])
def test_check_without_an_answer_ends_at_its_deadline(host: Host, leader: int) -> None:
    host.leader = leader
    host.check("a")
    host.clock.advance(10_000)
    host.check("b", key="other")
    host.clock.advance(19_900)
    assert host.taken() == []
    host.clock.advance(200)
    assert host.taken() == [("a", Error.NETWORK_EXCEPTION)]
    host.clock.advance(10_000)
    assert host.taken() == [("b", Error.NETWORK_EXCEPTION)]
    assert host.checks.failures == 2


def test_ended_checks_take_no_memory(host: Host) -> None:
    """Also behind one whose coordinator does not answer."""
    host.check("waits", key="other")
    host.transactions.answer_now = 0
    for index in range(10):
        host.check(str(index), index)
    host.transactions.commands = host.transactions.commands[:1]
    gc.collect()
    assert sum(isinstance(each, Check) for each in gc.get_objects()) == 1
    host.clock.advance(30_000)
    assert host.taken()[-1] == ("waits", Error.NETWORK_EXCEPTION)


def test_late_answer_has_no_effect(host: Host) -> None:
    host.check("a")
    host.clock.advance(30_000)
    host.taken()
    host.transactions.commands[0][1].answer(0)
    assert host.taken() == []


def test_close_ends_all_checks(host: Host) -> None:
    host.check("a")
    host.check("b", 1)
    host.leader = OTHER
    host.check("c", key="other")
    host.checks.close()
    assert host.taken() == [(name, Error.COORDINATOR_NOT_AVAILABLE) for name in "abc"]
    host.check("d")
    assert host.taken() == [("d", Error.COORDINATOR_NOT_AVAILABLE)]
    host.transactions.commands[0][1].answer(0)
    assert len(host.transactions.commands) == 1


def test_unknown_coordinator(host: Host) -> None:
    host.leader = NO_LEADER
    host.check("a")
    assert host.taken() == [("a", Error.COORDINATOR_NOT_AVAILABLE)]


# On other brokers.


def response(*errors: tuple[str, int, int]) -> CallResult:
    """A response with (transactional id, partition, error)."""
    names = dict.fromkeys(name for name, *_ in errors)
    return CallResult(
        AddPartitionsToTxnResponse(
            results_by_transaction=[
                Result(
                    transactional_id=name,
                    topic_results=[
                        TopicResult(
                            name="t",
                            results_by_partition=[
                                PartitionResult(partition_index=index, partition_error_code=error)
                                for other, index, error in errors
                                if other == name
                            ],
                        )
                    ],
                )
                for name in names
            ],
            results_by_topic_v3_and_below=[],
        )
    )


def asked(request: AddPartitionsToTxnRequest) -> list[tuple[str, int, int, bool, list[int]]]:
    return [
        (each.transactional_id, each.producer_id, each.producer_epoch, each.verify_only, topic.partitions)
        for each in request.transactions
        for topic in each.topics
    ]


def test_another_broker_has_one_request_in_flight(host: Host) -> None:
    host.leader = OTHER
    host.check("a", 0, key="one", add=False)
    host.check("b", 1, key="one", add=False)
    host.check("c", 2, key="one", add=False)
    host.check("d", 0, key="two")
    assert len(host.peers.calls) == 1
    broker, request, then = host.peers.calls[0]
    assert (broker, asked(request)) == (OTHER, [("one", 7, 0, True, [0])])
    then(response(("one", 0, 0)))
    assert host.taken() == [("a", 0)]
    _, request, then = host.peers.calls[1]
    assert asked(request) == [("one", 7, 0, True, [1, 2]), ("two", 7, 0, False, [0])]
    then(response(("one", 1, 0), ("one", 2, Error.TRANSACTION_ABORTABLE), ("two", 0, 0)))
    assert host.taken() == [("b", 0), ("c", Error.TRANSACTION_ABORTABLE), ("d", 0)]
    assert len(host.peers.calls) == 2


def test_request_has_each_transactional_id_once(host: Host) -> None:
    host.leader = OTHER
    host.check("first", key="other")
    host.check("old", epoch=0)
    host.check("new", epoch=1)
    host.peers.calls[0][2](response(("other", 0, 0)))
    assert asked(host.peers.calls[1][1]) == [("id", 7, 0, False, [0])]
    host.peers.calls[1][2](response(("id", 0, Error.PRODUCER_FENCED)))
    assert asked(host.peers.calls[2][1]) == [("id", 7, 1, False, [0])]
    host.peers.calls[2][2](response(("id", 0, 0)))
    assert host.taken() == [("first", 0), ("old", Error.PRODUCER_FENCED), ("new", 0)]


@pytest.mark.parametrize("error", [Error.REQUEST_TIMED_OUT, Error.COORDINATOR_NOT_AVAILABLE])
def test_failed_request_is_the_error_of_its_checks(host: Host, error: Error) -> None:
    host.leader = OTHER
    host.check("a")
    host.check("b", 1)
    host.peers.calls[0][2](CallResult(None, error))
    assert host.taken() == [("a", error)]
    assert len(host.peers.calls) == 2, "the next request is sent"
    assert host.replicas.writes == 1


def test_error_of_the_whole_response(host: Host) -> None:
    host.leader = OTHER
    host.check("a")
    failed = AddPartitionsToTxnResponse(
        error_code=Error.CLUSTER_AUTHORIZATION_FAILED, results_by_transaction=[], results_by_topic_v3_and_below=[]
    )
    host.peers.calls[0][2](CallResult(failed))
    assert host.taken() == [("a", Error.CLUSTER_AUTHORIZATION_FAILED)]


def test_partition_that_is_missing_in_the_response(host: Host) -> None:
    host.leader = OTHER
    host.check("a")
    host.peers.calls[0][2](response(("id", 5, 0)))
    assert host.taken() == [("a", Error.NETWORK_EXCEPTION)]
