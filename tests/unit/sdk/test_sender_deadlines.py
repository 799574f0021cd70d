"""The records of a producer fail at their delivery timeout, with a cause; the sequences stay right."""

import math

import pytest
from kafkalite_sdk.producer.partition_sender import ProducerId

from kafkalite.errors import KafkaConnectionError, KafkaTimeoutError
from tests.unit.sdk.senders import Code, Producer, sequences


async def test_records_fail_when_the_delivery_timeout_has_passed():
    producer = Producer(delivery_timeout_s=5.0)
    producer.leaders.clear()
    (early,) = producer.send()
    producer.now = 3.0
    (late,) = producer.send()
    assert producer.requests() == []
    assert producer.sender.wake_at(producer.now) == 5.0
    producer.now = 5.0
    producer.sender.expire(producer.now)
    assert type(early.exception()) is KafkaTimeoutError and not late.done()
    assert str(early.exception()) == "t-0: not acknowledged in 5 s: the partition has no leader"


def lose(producer):
    producer.sender.retries.lost(producer.requests()[0], KafkaConnectionError("cannot connect to b:1: refused"), 0.0)


def reject(producer):
    producer.answer(producer.requests()[0], Code.NOT_ENOUGH_REPLICAS)


CAUSES = {
    "no-answer": (lambda producer: producer.requests(), "broker 1 has not answered"),
    "lost": (lose, "cannot connect to b:1: refused"),
    "rejected": (reject, "NOT_ENOUGH_REPLICAS (19): t-0: "),
    "no-leader": (lambda producer: producer.leaders.clear(), "the partition has no leader"),
    "no-id": (
        lambda producer: setattr(producer.sender, "needs_producer_id", True),
        "no broker has assigned a producer id: all gone",
    ),
}


@pytest.mark.parametrize("name", CAUSES)
async def test_the_error_of_a_late_record_names_the_cause(name):
    producer = Producer(delivery_timeout_s=5.0)
    producer.sender._unreachable = lambda: KafkaConnectionError("all gone")
    happen, text = CAUSES[name]
    if name == "no-id":
        producer.sender.producer_id = ProducerId(-1, -1)
    (future,) = producer.send()
    happen(producer)
    producer.requests()
    producer.now = 5.0
    producer.sender.expire(producer.now)
    assert str(future.exception()).startswith(f"t-0: not acknowledged in 5 s: {text}")


async def test_an_expired_batch_in_doubt_leads_to_a_new_epoch_after_the_others_in_doubt():
    producer = Producer(delivery_timeout_s=5.0)
    producer.send()
    producer.answer(producer.requests()[0])
    (early,) = producer.send()
    producer.now = 3.0
    (late,) = producer.send()
    for call in producer.requests():
        producer.sender.retries.lost(call, KafkaConnectionError("gone"), producer.now)
    producer.now = 5.0
    producer.sender.expire(producer.now)
    assert early.done() and not late.done()
    (call,) = producer.requests()  # it is sent again as it was: the broker may have it
    assert sequences([call]) == [2]
    producer.answer(call, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    producer.now = 6.0
    assert producer.requests() == [] and producer.sender.needs_producer_id
    producer.sender.set_producer_id(ProducerId(7, 1))
    (call,) = producer.requests()
    assert sequences([call]) == [0]


async def test_a_batch_fails_at_its_deadline_while_its_request_is_open():
    producer = Producer(delivery_timeout_s=5.0)
    (open_one,) = producer.send()
    (call,) = producer.requests()
    producer.now = 1.0
    (behind,) = producer.send()
    assert producer.requests() == []
    assert producer.sender.wake_at(producer.now) == 5.0
    producer.now = 5.0
    producer.sender.expire(producer.now)
    assert type(open_one.exception()) is KafkaTimeoutError and not behind.done()
    assert producer.sender.wake_at(producer.now) == 6.0
    assert producer.requests() == [] and not producer.sender.idle
    producer.answer(call)  # the broker has appended it: the sequences have no gap
    (call,) = producer.requests()
    producer.answer(call, base=1)
    assert sequences([call]) == [1] and behind.result().offset == 1
    assert not producer.sender.needs_producer_id
    assert (producer.sender.acknowledged, len(producer.failed), producer.buffer.buffered) == (1, 1, 0)


@pytest.mark.parametrize("end", ["lost", Code.NOT_LEADER_OR_FOLLOWER, Code.OUT_OF_ORDER_SEQUENCE_NUMBER])
async def test_a_batch_that_has_expired_while_it_was_open_is_not_sent_again(end):
    producer = Producer(delivery_timeout_s=5.0)
    producer.send()
    producer.answer(producer.requests()[0])
    (early,) = producer.send()
    producer.now = 3.0
    (late,) = producer.send()
    calls = producer.requests()
    producer.now = 5.0
    producer.sender.expire(producer.now)
    assert early.done() and not late.done()
    for call in calls:
        if end == "lost":
            producer.sender.retries.lost(call, KafkaConnectionError("gone"), producer.now)
        else:
            producer.answer(call, end if call is calls[0] else Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    producer.now = 6.0
    if end == "lost":  # the broker may have both
        (call,) = producer.requests()
        assert sequences([call]) == [2]
        producer.answer(call, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
        producer.now = 7.0
    assert producer.requests() == [] and producer.sender.needs_producer_id
    producer.sender.set_producer_id(ProducerId(7, 1))
    (call,) = producer.requests()
    assert sequences([call]) == [0]
    producer.answer(call, base=1)
    assert late.result().offset == 1 and len(producer.failed) == 1


async def test_an_expired_batch_that_is_too_large_is_not_split():
    producer = Producer(delivery_timeout_s=5.0)
    futures = [producer.buffer.send("t", b"%d" % number) for number in range(3)]
    producer.buffer.close_batches(math.inf)
    (call,) = producer.requests()
    producer.now = 5.0
    producer.sender.expire(producer.now)
    producer.answer(call, Code.MESSAGE_TOO_LARGE)
    assert all(type(future.exception()) is KafkaTimeoutError for future in futures)
    assert producer.requests() == [] and producer.sender.idle


async def test_batches_that_wait_behind_an_open_one_fail_at_their_deadlines():
    producer = Producer(delivery_timeout_s=5.0)
    producer.send()
    producer.answer(producer.requests()[0])
    futures = producer.send(6)
    calls = producer.requests()
    producer.sender.retries.lost(calls[0], KafkaConnectionError("gone"), producer.now)  # it waits for the others
    producer.now = 5.0
    producer.sender.expire(producer.now)
    assert all(type(future.exception()) is KafkaTimeoutError for future in futures)
    for call in calls[1:]:
        producer.sender.retries.lost(call, KafkaConnectionError("gone"), producer.now)
    assert producer.requests() == []
    assert producer.sender.idle and producer.sender.wake_at(producer.now) == math.inf
    (future,) = producer.send()
    assert producer.requests() == [] and producer.sender.needs_producer_id
    producer.sender.set_producer_id(ProducerId(7, 1))
    producer.now = 10.0
    (call,) = producer.requests()
    producer.answer(call, base=9)
    assert sequences([call]) == [0] and future.result().offset == 9


async def test_a_batch_behind_an_expired_one_waits_for_the_back_off_and_no_longer():
    producer = Producer(delivery_timeout_s=5.0, retry_backoff_s=10.0, retry_backoff_max_s=10.0)
    producer.send()
    (call,) = producer.requests()
    producer.sender.retries.lost(call, KafkaConnectionError("gone"), producer.now)
    retry_at = 10.0 * 0.8
    producer.now = 5.0
    producer.sender.expire(producer.now)
    assert producer.sender.wake_at(producer.now) == math.inf
    producer.send()
    assert producer.requests() == []
    assert retry_at <= producer.sender.wake_at(producer.now) < 10.0
