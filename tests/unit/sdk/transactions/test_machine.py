"""The machine of a transactional producer against a scripted coordinator, in virtual time."""

import pytest
from kafkalite_sdk.producer.partition_sender import ProducerId
from kafkalite_sdk.producer.transactions.reactions import Reaction, Step, reaction_to
from kafkalite_sdk.producer.transactions.requests import init_producer_id
from kafkalite_sdk.producer.transactions.state import V1, V2, Phase
from kafkalite_sdk.values import DetachedTransaction

from kafkalite.errors import (
    KafkaError,
    KafkaTimeoutError,
    OutcomeUnknownError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionalIdAuthorizationFailedError,
    error_for,
)
from kafkalite.model import TopicPartition
from tests.unit.sdk.transactions.coordinator import BROKER, LOST, PARTITION, UNSENT, Code, World

INIT, ADD, OFFSETS, COMMIT_OFFSETS, END = (
    Step.INIT,
    Step.ADD_PARTITIONS,
    Step.ADD_OFFSETS,
    Step.COMMIT_OFFSETS,
    Step.END,
)

both = pytest.mark.parametrize("version", [V1, V2])


def started(version):
    world = World(version)
    world.start()
    return world


@both
def test_the_requests_of_a_transaction_by_version(version):
    world = started(version)
    world.begin()
    world.produce()
    world.send_offsets()
    world.run()
    assert world.outcomes == [None]
    world.commit()
    assert world.sent == ([ADD, OFFSETS, COMMIT_OFFSETS, END] if version == V1 else [COMMIT_OFFSETS, END])
    assert world.coordinator.ends == [True] and world.coordinator.committed == {PARTITION: 5}
    assert world.machine.identity == ProducerId(7, 0 if version == V1 else 1)


@both
def test_a_transaction_without_records_sends_nothing(version):
    world = started(version)
    for end in (world.commit, world.abort):
        world.begin()
        end()
        assert world.machine.phase is Phase.READY
    assert world.sent == [] and world.machine.ended == 2


@both
def test_a_detached_transaction_is_left_open(version):
    world = started(version)
    world.begin()
    world.produce()
    world.run()
    assert world.machine.detach() == DetachedTransaction("orders-writer", 7, 0, version)
    world.run()
    assert world.machine.phase is Phase.CLOSED and END not in world.sent and world.coordinator.ends == []


@both
def test_nothing_is_detached_without_records(version):
    world = started(version)
    world.begin()
    assert world.machine.detach() is None


@both
def test_partitions_are_added_once_and_together(version):
    world = started(version)
    world.begin()
    partitions = [TopicPartition("orders", number) for number in range(3)]
    world.produce(*partitions)
    world.produce(*partitions)
    world.commit()
    assert world.sent == ([ADD, END] if version == V1 else [END])
    assert world.machine.transaction.partitions == (set(partitions) if version == V1 else set())


@both
def test_a_commit_waits_for_the_records(version):
    world = started(version)
    world.begin()
    world.produce()
    world.records_open = True
    world.commit()
    assert world.machine.phase is Phase.COMMITTING and END not in world.sent
    world.records_open = False
    world.run()
    assert world.coordinator.ends == [True]


@both
def test_an_abort_by_the_application(version):
    world = started(version)
    world.begin()
    world.produce()
    world.send_offsets()
    world.run()
    world.abort()
    assert world.coordinator.ends == [False] and world.coordinator.committed == {}
    assert world.machine.phase is Phase.READY and world.machine.transaction.error is None
    world.begin()
    world.produce()
    world.commit()
    assert world.coordinator.ends == [False, True]


@both
def test_offsets_that_wait_fail_with_the_abort(version):
    world = started(version)
    world.begin()
    world.send_offsets()
    world.abort()
    (error,) = world.outcomes
    assert isinstance(error, TransactionAbortedError)
    assert world.sent == []


@both
def test_a_batch_that_fails_aborts_and_the_next_transaction_works(version):
    world = started(version)
    world.begin()
    world.produce()
    world.machine.batch_failed(KafkaTimeoutError("orders-0: not acknowledged in 120 s"))
    assert world.machine.phase is Phase.FAILED
    world.commit()
    assert world.coordinator.ends == [False]
    assert world.sent[-2:] == ([END, INIT] if version == V1 else [END])  # no late batch in the next transaction
    assert world.machine.identity == ProducerId(7, 1)
    assert "orders-0: not acknowledged" in str(world.machine.abort_error())
    world.begin()
    world.produce()
    world.commit()
    assert world.coordinator.ends == [False, True]


def test_a_batch_that_fails_before_any_request_gets_another_epoch_by_version_2():
    world = started(V2)
    world.begin()
    world.machine.batch_failed(KafkaTimeoutError("no leader"))
    world.abort()
    assert world.sent == [INIT] and world.machine.identity == ProducerId(7, 1)


@both
def test_a_batch_that_fails_during_the_commit_aborts(version):
    world = started(version)
    world.begin()
    world.produce()
    world.records_open = True
    world.machine.commit()
    world.machine.batch_failed(error_for(Code.MESSAGE_TOO_LARGE))
    assert world.machine.phase is Phase.ABORTING
    world.records_open = False
    world.run()
    assert world.coordinator.ends == [False]


@both
def test_an_abort_waits_for_open_produce_requests(version):
    world = started(version)
    world.begin()
    world.produce()
    world.records_open = True
    world.abort()
    assert world.coordinator.ends == []
    world.records_open = False
    world.run()
    assert world.coordinator.ends == [False]


@both
@pytest.mark.parametrize("outcome", [LOST, UNSENT, Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE])
@pytest.mark.parametrize("step", [INIT, ADD, OFFSETS, COMMIT_OFFSETS, END])
def test_a_coordinator_that_moves_or_dies_is_found_again(version, step, outcome):
    world = World(version)
    world.script_next(step, outcome)
    world.start()
    world.begin()
    world.produce()
    world.send_offsets()
    world.run()
    world.commit()
    assert world.coordinator.ends == [True] and world.outcomes == [None]
    if version == V1 or step not in (ADD, OFFSETS):
        group = "billing" if step is COMMIT_OFFSETS else None
        assert world.machine.lost_coordinators == {group}


@both
@pytest.mark.parametrize("code", [Code.COORDINATOR_LOAD_IN_PROGRESS, Code.CONCURRENT_TRANSACTIONS])
@pytest.mark.parametrize("step", [INIT, ADD, OFFSETS, COMMIT_OFFSETS, END])
def test_retriable_errors_are_handled_inside(version, step, code):
    world = World(version)
    world.script_next(step, code, code)
    world.start()
    world.begin()
    world.produce()
    world.send_offsets()
    world.run()
    world.commit()
    assert world.coordinator.ends == [True] and world.outcomes == [None]
    assert world.machine.lost_coordinators == set()
    pauses_s = 0.02 + 0.04 if code == Code.CONCURRENT_TRANSACTIONS else 0.1 + 0.2
    assert world.now == pytest.approx(pauses_s if version == V1 or step not in (ADD, OFFSETS) else 0)


@both
@pytest.mark.parametrize(
    ("step", "code"),
    [
        (ADD, Code.TOPIC_AUTHORIZATION_FAILED),
        (ADD, Code.INVALID_PRODUCER_EPOCH),
        (OFFSETS, Code.GROUP_AUTHORIZATION_FAILED),
        (OFFSETS, Code.TRANSACTION_ABORTABLE),
        (COMMIT_OFFSETS, Code.ILLEGAL_GENERATION),
        (COMMIT_OFFSETS, Code.UNKNOWN_MEMBER_ID),
        (COMMIT_OFFSETS, Code.STALE_MEMBER_EPOCH),
        (COMMIT_OFFSETS, Code.FENCED_INSTANCE_ID),
        (COMMIT_OFFSETS, Code.INVALID_PRODUCER_EPOCH),
        (END, Code.TRANSACTION_ABORTABLE),
        (END, Code.INVALID_TXN_STATE),
        (END, Code.INVALID_PRODUCER_ID_MAPPING),
        (END, Code.UNKNOWN_PRODUCER_ID),
    ],
)
def test_abortable_errors_abort_and_the_next_transaction_works(version, step, code):
    if version == V2 and step in (ADD, OFFSETS):
        step = COMMIT_OFFSETS  # version 2 has no such request
    world = started(version)
    world.script_next(step, code)
    world.begin()
    world.produce()
    if world.machine.phase is Phase.OPEN:
        world.send_offsets()
    world.run()
    world.commit()
    assert world.coordinator.ends in ([False], [])
    error = world.machine.abort_error()
    assert error.__cause__ is not None and error.__cause__.code == code
    for part in ("transactional id orders-writer", BROKER, code.name, "begin another one"):
        assert part in str(error)
    world.begin()
    world.produce()
    world.send_offsets()
    world.run()
    world.commit()
    assert world.coordinator.ends[-1] is True and world.outcomes[-1] is None


@both
@pytest.mark.parametrize("step", [ADD, OFFSETS, COMMIT_OFFSETS, END])
def test_a_fenced_producer_closes(version, step):
    if version == V2 and step in (ADD, OFFSETS):
        step = END
    world = started(version)
    world.script_next(step, Code.PRODUCER_FENCED)
    world.begin()
    world.produce()
    if world.machine.phase is Phase.OPEN:
        world.send_offsets()
    world.run()
    world.commit()
    assert world.machine.phase is Phase.CLOSED
    error = world.machine.error
    assert isinstance(error, ProducerFencedError)
    for part in ("orders-writer", BROKER, step.value, "another producer", "create another one"):
        assert part in str(error)
    assert ("not known" in str(error)) is (step is END)
    assert isinstance(error.__cause__, OutcomeUnknownError) is (step is END)
    world.run()
    assert world.sent[-1] is step


@both
def test_a_producer_that_another_one_has_fenced_closes_at_its_next_request(version):
    world = started(version)
    world.begin()
    world.produce()
    world.coordinator.end_transaction(False)
    world.coordinator.bump()
    world.commit()
    assert world.machine.phase is Phase.CLOSED and isinstance(world.machine.error, ProducerFencedError)


@both
def test_an_invalid_epoch_of_produce_is_decided_by_the_coordinator(version):
    world = started(version)
    world.begin()
    world.produce()
    world.machine.batch_failed(error_for(Code.INVALID_PRODUCER_EPOCH, "orders-0: old epoch"))
    assert world.machine.phase is Phase.FAILED
    world.coordinator.bump()
    world.abort()
    assert isinstance(world.machine.error, ProducerFencedError)


def test_a_transaction_that_has_timed_out_is_aborted_with_version_2():
    world = started(V2)
    world.begin()
    world.produce()
    identity = world.machine.identity
    world.coordinator.end_transaction(False)
    world.coordinator.bump()
    world.coordinator.last_end = (*identity, False)
    world.script_next(END, Code.INVALID_TXN_STATE)  # of the commit (KAFKA-19690)
    world.commit()
    assert world.machine.phase is Phase.READY and world.machine.identity == ProducerId(7, 1)
    assert world.machine.transaction.error is not None


@both
def test_an_unauthorized_transactional_id_closes_the_producer(version):
    world = World(version)
    world.script_next(INIT, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    world.run()
    assert world.machine.phase is Phase.CLOSED
    assert isinstance(world.machine.error, TransactionalIdAuthorizationFailedError)
    assert "orders-writer" in str(world.machine.error) and BROKER in str(world.machine.error)


def test_the_coordinator_owns_the_epoch_also_at_the_overflow():
    world = started(V2)
    world.coordinator.epoch = 32_766
    world.machine.identity = ProducerId(7, 32_766)
    world.begin()
    world.produce()
    world.commit()
    assert world.machine.identity == ProducerId(8, 0)


@both
def test_a_lost_response_to_a_commit_is_a_commit(version):
    world = started(version)
    world.script_next(END, LOST)
    world.begin()
    world.produce()
    world.commit()
    assert world.coordinator.ends == [True] and world.machine.transaction.error is None
    assert world.machine.identity == ProducerId(7, 0 if version == V1 else 1)


@both
def test_once_its_commit_has_left_a_transaction_is_not_aborted(version):
    world = started(version)
    world.begin()
    world.produce()
    world.machine.commit()
    call = world.machine.request(world.now, records_open=False)
    world.machine.abort()
    assert world.machine.phase is Phase.COMMITTING
    world.machine.answered(call, world.coordinator.handle(call), world.now, BROKER)
    assert world.coordinator.ends == [True] and world.machine.phase is Phase.READY


def test_an_abort_after_a_lost_request_that_adds_partitions():
    world = started(V1)
    world.begin()
    world.script_next(ADD, UNSENT)
    world.machine.add([PARTITION])
    world.step()
    world.abort()  # the coordinator knows no transaction: EndTxn is rejected, InitProducerId is not
    assert world.sent == [ADD, END, INIT] and world.machine.phase is Phase.READY


def test_forgotten_sequences_of_version_1_need_another_epoch_before_the_next_transaction():
    world = started(V1)
    world.machine.forget_sequences()
    assert world.machine.phase is Phase.STARTING
    world.run()
    assert world.machine.identity == ProducerId(7, 1) and world.machine.phase is Phase.READY


def test_a_repeated_request_for_another_epoch_gets_the_same_one():
    world = started(V1)
    world.begin()
    world.produce()
    world.machine.batch_failed(KafkaTimeoutError("orders-0: not acknowledged in 120 s"))
    world.script_next(INIT, LOST)
    world.abort()
    assert world.sent == [ADD, END, INIT, INIT]
    assert world.machine.phase is Phase.READY and world.machine.identity == ProducerId(7, 1)


def test_a_request_for_another_epoch_within_a_transaction_fences_its_producer():
    world = started(V1)
    world.begin()
    world.produce()
    request = init_producer_id("orders-writer", 60_000, world.machine.identity)
    codes = [world.coordinator.handle(request).error_code for _ in range(2)]
    assert codes == [Code.CONCURRENT_TRANSACTIONS, Code.PRODUCER_FENCED]


@pytest.mark.parametrize("committed", [True, False])
def test_a_level_that_rises_brings_another_epoch_before_the_next_transaction(committed):
    world = started(V1)
    world.begin()
    world.produce()
    world.version = V2
    if committed:
        world.machine.commit()
    else:
        world.machine.abort()
    world.step()
    assert world.machine.ended == 1 and world.machine.phase is Phase.STARTING  # the outcome does not wait
    world.run()
    assert world.sent == [ADD, END, INIT] and world.machine.identity == ProducerId(7, 1)
    world.begin()
    world.produce()
    world.commit()
    assert world.sent == [ADD, END, INIT, END] and world.coordinator.ends == [committed, True]
    assert world.machine.transaction.version == V2 and world.machine.phase is Phase.READY


def test_a_level_that_rises_during_an_abort_that_brings_another_epoch_needs_no_second_one():
    world = started(V1)
    world.begin()
    world.produce()
    world.machine.batch_failed(KafkaTimeoutError("orders-0: not acknowledged in 120 s"))
    world.version = V2
    world.abort()
    assert world.sent == [ADD, END, INIT] and world.machine.phase is Phase.READY and world.machine.ended == 1


def test_a_level_that_falls_keeps_the_epoch_of_the_last_end():
    world = started(V2)
    world.begin()
    world.produce()
    world.version = V1
    world.commit()
    world.begin()
    world.produce()
    world.commit()
    assert world.sent == [END, ADD, END] and world.machine.identity == ProducerId(7, 1)


def test_a_producer_that_is_fenced_between_transactions_knows_the_outcome_of_the_last_one():
    world = started(V1)
    world.begin()
    world.produce()
    world.version = V2
    world.script_next(INIT, Code.PRODUCER_FENCED)
    world.commit()
    assert world.machine.phase is Phase.CLOSED and isinstance(world.machine.error, ProducerFencedError)
    assert "not known" not in str(world.machine.error)


def test_an_error_of_the_application_is_no_kafka_error():
    world = started(V2)
    world.begin()
    cause = ValueError("an interceptor")
    world.machine.batch_failed(cause)
    error = world.machine.abort_error()
    assert isinstance(error.__cause__, KafkaError) and error.__cause__.__cause__ is cause


def test_of_several_errors_the_most_severe_one_decides():
    assert [each.name for each in Reaction] == ["RETRY", "FIND", "ABORT", "RECOVER", "FENCED", "FATAL"]
    assert reaction_to(Step.ADD_PARTITIONS, Code.OPERATION_NOT_ATTEMPTED) is Reaction.RETRY
    assert reaction_to(Step.PRODUCE, Code.NOT_LEADER_OR_FOLLOWER) is Reaction.ABORT
    assert reaction_to(Step.END, Code.UNKNOWN_SERVER_ERROR) is Reaction.FATAL
