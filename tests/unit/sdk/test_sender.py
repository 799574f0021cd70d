"""The sender of a producer against a simulated cluster: order, duplicates, retries, epochs."""

import math

import pytest
from kafkalite_sdk.client.cluster_view import NO_LEADER
from kafkalite_sdk.producer.partition_sender import ProducerId

from kafkalite._speedups.records.batches import Batch
from kafkalite.errors import KafkaConnectionError, KafkaTimeoutError, error_class
from kafkalite.protocol.messages.produce import ProduceResponse
from tests.unit.sdk.senders import Code, Producer, sequences


async def test_one_request_until_the_first_batch_is_accepted_then_up_to_five():
    producer = Producer()
    futures = producer.send(8)
    (first,) = producer.requests()
    assert producer.requests() == []
    producer.answer(first)
    calls = producer.requests()
    assert sequences(calls) == [1, 2, 3, 4, 5]
    assert producer.requests() == []
    producer.answer(calls[0], base=1)
    assert sequences(producer.requests()) == [6]
    assert [future.done() for future in futures] == [True, True, *[False] * 6]
    assert futures[1].result().offset == 1


async def test_a_request_has_one_batch_of_each_partition():
    producer = Producer(partitions=3)
    for partition in range(3):
        producer.send(2, partition)
    (call,) = producer.requests()
    assert [(partition.queue.partition, batch.base_sequence) for partition, batch in call.batches] == [
        (0, 0),
        (1, 0),
        (2, 0),
    ]
    assert [each.index for each in call.topics["t"]] == [0, 1, 2]


async def test_a_request_is_not_larger_than_allowed():
    producer = Producer(partitions=3, max_request_bytes=150)
    for partition in range(3):
        producer.send(1, partition)
    assert [len(call.batches) for call in producer.requests()] == [2, 1]


async def test_a_partition_without_a_leader_delays_no_other():
    producer = Producer(partitions=2)
    producer.leaders["t", 0] = NO_LEADER
    producer.send(1, 0)
    producer.send(1, 1)
    (call,) = producer.requests()
    assert [partition.queue.partition for partition, _ in call.batches] == [1]
    assert producer.sender.needs_metadata
    producer.leaders["t", 0] = 2
    producer.sender.leaders_changed()
    (call,) = producer.requests()
    assert call.node == 2 and not producer.sender.needs_metadata


async def test_a_moved_partition_waits_for_its_new_leader_only():
    producer = Producer()
    producer.send(8)
    producer.answer(producer.requests()[0])
    calls = producer.requests()
    producer.send()
    producer.leaders["t", 0] = 2
    for call in calls:
        producer.answer(call, Code.NOT_LEADER_OR_FOLLOWER)
    producer.now = 10.0
    assert [call.node for call in producer.requests()] == [2]
    assert sum(partition in waiting for waiting in producer.sender.waiting.values() for partition in waiting) <= 1


async def test_nothing_leaves_before_the_producer_has_an_identity():
    producer = Producer(idempotent=True)
    producer.sender.producer_id = ProducerId(-1, -1)
    producer.send()
    assert producer.requests() == []
    producer.sender.set_producer_id(ProducerId(9, 3))
    (call,) = producer.requests()
    header = Batch(call.topics["t"][0].records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 0)


async def test_without_idempotence_one_batch_of_a_partition_is_open():
    producer = Producer(idempotent=False)
    producer.send(3)
    (call,) = producer.requests()
    assert Batch(call.topics["t"][0].records).producer_id == -1
    producer.answer(call)
    assert len(producer.requests()) == 1


async def test_a_retry_waits_for_all_open_batches_and_keeps_order_and_sequences():
    producer = Producer()
    producer.send(6)
    producer.answer(producer.requests()[0])
    calls = producer.requests()
    producer.answer(calls[0], Code.NOT_LEADER_OR_FOLLOWER)
    assert producer.sender.needs_metadata
    producer.now = 10.0
    producer.sender.leaders_changed()
    assert producer.requests() == []
    for call in calls[1:]:
        producer.answer(call, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    producer.now = 20.0
    (again,) = producer.requests()
    producer.answer(again)
    assert sequences([again]) == [1]
    assert sequences(producer.requests()) == [2, 3, 4, 5]
    assert not producer.sender.needs_producer_id


async def test_a_retry_waits_for_its_back_off():
    producer = Producer(retry_backoff_s=1.0, retry_backoff_max_s=3.0)
    producer.send()
    for pause in (1.0, 2.0, 3.0, 3.0):
        (call,) = producer.requests()
        producer.answer(call, Code.COORDINATOR_LOAD_IN_PROGRESS)
        at = producer.sender.wake_at(producer.now)
        assert producer.now + 0.8 * pause <= at <= producer.now + 1.2 * pause
        assert producer.requests() == []
        producer.now = at


async def test_a_lost_connection_returns_its_batches_in_doubt_with_the_same_sequences():
    producer = Producer()
    producer.send(4)
    producer.answer(producer.requests()[0])
    calls = producer.requests()
    for call in calls:
        producer.sender.retries.lost(call, KafkaConnectionError("gone"), producer.now)
    producer.sender.set_producer_id(ProducerId(7, 1))  # another partition has needed a new epoch
    producer.now = 10.0
    (again,) = producer.requests()
    header = Batch(again.topics["t"][0].records)
    assert (header.producer_epoch, header.base_sequence) == (0, 1)
    producer.answer(again, Code.DUPLICATE_SEQUENCE_NUMBER)
    assert sequences(producer.requests()) == [2, 3]


@pytest.mark.parametrize(
    "code",
    [
        Code.REQUEST_TIMED_OUT,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Code.KAFKA_STORAGE_ERROR,
        Code.NETWORK_EXCEPTION,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
async def test_a_batch_that_may_be_in_the_log_keeps_its_sequence_across_a_gap(code):
    producer = Producer(partitions=1)
    producer.send(3)
    producer.answer(producer.requests()[0])
    for call in producer.requests():
        producer.answer(call, code)
    producer.sender.topic_recreated("t")  # a new epoch is due
    producer.sender.set_producer_id(ProducerId(7, 1))
    producer.now = 10.0
    (call,) = producer.requests()
    header = Batch(call.topics["t"][0].records)
    assert (header.producer_epoch, header.base_sequence) == (0, 1)


@pytest.mark.parametrize("code", [Code.NOT_ENOUGH_REPLICAS, Code.CORRUPT_MESSAGE])
async def test_a_batch_that_is_not_in_the_log_takes_a_new_epoch_after_a_gap(code):
    producer = Producer(partitions=1)
    producer.send(2)
    producer.answer(producer.requests()[0])
    (call,) = producer.requests()
    producer.answer(call, code)
    producer.sender.topic_recreated("t")
    producer.sender.set_producer_id(ProducerId(7, 1))
    producer.now = 10.0
    (call,) = producer.requests()
    header = Batch(call.topics["t"][0].records)
    assert (header.producer_epoch, header.base_sequence) == (1, 0)


async def test_a_rejected_batch_fails_and_later_ones_begin_an_epoch():
    producer = Producer()
    futures = producer.send(4)
    producer.answer(producer.requests()[0])
    calls = producer.requests()
    producer.answer(calls[0], Code.INVALID_RECORD, message="no key")
    with pytest.raises(error_class(Code.INVALID_RECORD), match="no key"):
        futures[1].result()
    producer.answer(calls[1], Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    producer.answer(calls[2], Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    producer.now = 10.0
    assert producer.requests() == [] and producer.sender.needs_producer_id
    producer.sender.set_producer_id(ProducerId(7, 1))
    (call,) = producer.requests()
    header = Batch(call.topics["t"][0].records)
    assert (header.producer_epoch, header.base_sequence) == (1, 0)
    assert len(producer.failed) == 1


async def test_a_batch_that_is_too_large_is_split_and_keeps_its_sequences():
    producer = Producer()
    futures = [producer.buffer.send("t", b"%d" % number) for number in range(3)]
    producer.buffer.close_batches(math.inf)
    (call,) = producer.requests()
    producer.answer(call, Code.MESSAGE_TOO_LARGE)
    (first,) = producer.requests()
    assert [(batch.base_sequence, batch.records_count) for _, batch in first.batches] == [(0, 1)]
    producer.answer(first, base=5)
    (second,) = producer.requests()
    assert [(batch.base_sequence, batch.records_count) for _, batch in second.batches] == [(1, 2)]
    producer.answer(second, base=6)
    assert [future.result().offset for future in futures] == [5, 6, 7]


async def test_one_record_that_is_too_large_fails():
    producer = Producer()
    (future,) = producer.send()
    producer.answer(producer.requests()[0], Code.MESSAGE_TOO_LARGE)
    assert future.exception().code == Code.MESSAGE_TOO_LARGE


async def test_acks_0_is_acknowledged_when_it_is_written():
    producer = Producer(idempotent=False, acks=0)
    (future,) = producer.send()
    (call,) = producer.requests()
    producer.sender.sent(call)
    assert future.result().offset == -1 and producer.sender.idle


async def test_a_response_without_a_partition_is_no_acknowledgement():
    producer = Producer()
    (future,) = producer.send()
    producer.sender.answered(producer.requests()[0], ProduceResponse(responses=[]), 0.0)
    assert not future.done()
    producer.now = 10.0
    assert sequences(producer.requests()) == [0]


async def test_close_fails_unsent_batches():
    producer = Producer()
    futures = producer.send(3)
    (call,) = producer.requests()
    producer.sender.close(KafkaTimeoutError("closed"))
    assert [future.done() for future in futures] == [False, True, True]
    producer.answer(call)
    assert futures[0].result().offset == 0 and producer.sender.idle


async def test_the_unsent_batches_of_a_topic_fail_together():
    producer = Producer(partitions=2)
    futures = [producer.send(2, partition) for partition in (0, 1)]
    (call,) = producer.requests()
    producer.answer(call, Code.NOT_LEADER_OR_FOLLOWER, 0)
    producer.sender.partitions_removed(producer.buffer.remove_partitions("t", 1), ValueError("gone"))
    assert [future.done() for future in futures[0]] == [False, False]
    producer.sender.fail_topic("t", ValueError("no access"))
    assert [str(future.exception()) for future in futures[0]] == ["no access"] * 2
    assert futures[1][0].result().offset == 0 and isinstance(futures[1][1].exception(), ValueError)


async def test_a_batch_is_sent_when_a_thread_has_compressed_it():
    producer = Producer(codec=3)
    (future,) = producer.send()
    (queue,) = producer.buffer.partitions_of("t")
    (batch,) = queue.full
    batch.compressing = True
    assert producer.requests() == []
    batch.builder.compress(3)
    producer.sender.compressed(batch)
    (call,) = producer.requests()
    assert Batch(call.topics["t"][0].records).codec == 3
    producer.answer(call)
    assert future.result().offset == 0
