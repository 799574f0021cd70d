"""The sender of a producer against a simulated cluster: order, duplicates, retries, epochs, timeouts."""

import asyncio
import math
import random

import pytest
from kafkalite_sdk._speedups.accumulator import RecordAccumulator
from kafkalite_sdk.client.cluster_view import NO_LEADER
from kafkalite_sdk.producer.partition_sender import ProducerId
from kafkalite_sdk.producer.sender import Sender
from kafkalite_sdk.producer.settings import ProducerSettings

from kafkalite._speedups.records.batches import Batch
from kafkalite.errors import KafkaConnectionError, KafkaErrorCode, KafkaTimeoutError, error_class
from kafkalite.protocol.messages.produce import ProduceResponse

Code = KafkaErrorCode
TopicResponse = ProduceResponse.TopicProduceResponse


class Cluster:
    """Partition logs that check sequences as a broker does: five batches of a producer are remembered."""

    def __init__(self, records_max=math.inf):
        self.records_max = records_max
        self.logs = {}
        self.batches = {}

    def append(self, name, data):
        """Return error code and base offset."""
        (batch,) = (Batch(data),)
        log = self.logs.setdefault(name, [])
        values = [record.value for record in batch]
        if batch.producer_id < 0:
            log += values
            return 0, len(log) - len(values)
        epoch, known = self.batches.get(name, (-1, []))
        if batch.producer_epoch < epoch:
            return Code.INVALID_PRODUCER_EPOCH, -1
        if batch.producer_epoch > epoch:
            epoch, known = batch.producer_epoch, []
        for sequence, count, base in known:
            if (sequence, count) == (batch.base_sequence, batch.records_count):
                return 0, base
        expected = known[-1][0] + known[-1][1] if known else 0
        if batch.base_sequence != expected:
            return Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        base = len(log)
        log += values
        self.batches[name] = epoch, [*known[-4:], (batch.base_sequence, batch.records_count, base)]
        return 0, base


class Producer:
    """A sender with its accumulator, one or more brokers and a clock that the test moves."""

    def __init__(self, seed=1, partitions=1, **settings):
        self.random = random.Random(seed)
        self.now = 0.0
        self.failed = []
        self.leaders = {("t", number): 1 for number in range(partitions)}
        self.buffer = RecordAccumulator(
            asyncio.get_running_loop(),
            batch_size=settings.pop("batch_size", 1000),
            buffer_memory=1 << 20,
            monotonic_s=lambda: self.now,
            choose=self.random.randrange,
            wake=lambda: None,
            refuse=lambda: None,
            wait=lambda: None,
        )
        self.buffer.set_partitions("t", partitions)
        self.settings = ProducerSettings(**settings)
        self.sender = Sender(self.buffer, self.settings, self.leader_of, self.random.random, self.failed.append)
        if self.settings.idempotent:
            self.sender.set_producer_id(ProducerId(7, 0))

    def leader_of(self, topic, partition):
        return self.leaders.get((topic, partition), NO_LEADER)

    def send(self, count=1, partition=0):
        """Send records of a batch each."""
        futures = []
        for number in range(count):
            futures.append(self.buffer.send("t", b"%d" % number, partition=partition))
            self.buffer.close_batches(math.inf)
        return futures

    def requests(self):
        return list(self.sender.requests(self.now))

    def answer(self, call, *codes, base=0, message=None):
        """Respond to a request with one code per batch, 0 by default."""
        responses = [
            TopicResponse(
                name=partition.queue.topic,
                partition_responses=[
                    TopicResponse.PartitionProduceResponse(
                        index=partition.queue.partition,
                        error_code=code,
                        base_offset=base if not code else -1,
                        error_message=message,
                    )
                ],
            )
            for (partition, _), code in zip(call.batches, codes or [0] * len(call.batches), strict=True)
        ]
        self.sender.answered(call, ProduceResponse(responses=responses), self.now)


def sequences(calls):
    return [batch.base_sequence for call in calls for _, batch in call.batches]


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
    assert sum(partition in waiting for waiting in producer.sender._waiting.values() for partition in waiting) <= 1


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
        producer.sender.lost(call, KafkaConnectionError("gone"), producer.now)
    producer.sender.set_producer_id(ProducerId(7, 1))  # another partition has needed a new epoch
    producer.now = 10.0
    (again,) = producer.requests()
    header = Batch(again.topics["t"][0].records)
    assert (header.producer_epoch, header.base_sequence) == (0, 1)
    producer.answer(again, Code.DUPLICATE_SEQUENCE_NUMBER)
    assert sequences(producer.requests()) == [2, 3]


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
    assert "t-0: not acknowledged in 5.0 s" in str(early.exception())


async def test_an_expired_batch_in_doubt_leads_to_a_new_epoch_after_the_others_in_doubt():
    producer = Producer(delivery_timeout_s=5.0)
    producer.send()
    producer.answer(producer.requests()[0])
    (early,) = producer.send()
    producer.now = 3.0
    (late,) = producer.send()
    for call in producer.requests():
        producer.sender.lost(call, KafkaConnectionError("gone"), producer.now)
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


@pytest.mark.parametrize("seed", range(60))
async def test_no_record_is_lost_duplicated_or_reordered(seed):
    """Random failures before and after the append, moved leaders, and too large batches."""
    rng = random.Random(seed)
    cluster = Cluster(rng.choice((2, 5, math.inf)))
    producer = Producer(seed, partitions=3, batch_size=rng.choice((80, 300)), delivery_timeout_s=1e9)
    sender, epoch, open_calls, sent, futures = producer.sender, 0, {1: [], 2: []}, {0: [], 1: [], 2: []}, []
    for step in range(600):
        producer.now += rng.random() * 0.1
        if step < 300 and rng.random() < 0.7:
            partition, value = rng.randrange(3), b"%d" % step
            sent[partition].append(value)
            futures.append((partition, value, producer.buffer.send("t", value, partition=partition)))
        if rng.random() < 0.3:
            producer.buffer.close_batches(math.inf)
        if sender.needs_producer_id and rng.random() < 0.5:
            epoch += 1
            sender.set_producer_id(ProducerId(7, epoch))
        if rng.random() < 0.03:
            producer.leaders["t", rng.randrange(3)] = rng.choice((1, 2, NO_LEADER))
            sender.leaders_changed()
        for call in sender.requests(producer.now):
            open_calls[call.node].append(call)
        node = rng.choice((1, 2))
        if open_calls[node] and rng.random() < 0.8:
            respond(rng, cluster, producer, open_calls, node, faults=step < 450)
        if step >= 450:
            producer.leaders.update({("t", number): 1 for number in range(3)})
            sender.leaders_changed()
            producer.now += 1.0
    while not sender.idle:
        producer.now += 1.0
        if sender.needs_producer_id:
            epoch += 1
            sender.set_producer_id(ProducerId(7, epoch))
        producer.buffer.close_batches(math.inf)
        for call in sender.requests(producer.now):
            open_calls[call.node].append(call)
        for node in (1, 2):
            while open_calls[node]:
                respond(rng, cluster, producer, open_calls, node, faults=False)
    assert {number: cluster.logs.get(("t", number), []) for number in range(3)} == sent
    for partition, value, future in futures:
        offset = future.result().offset
        assert cluster.logs["t", partition][offset] == value
    assert producer.buffer.buffered == 0 and not producer.failed


def respond(rng, cluster, producer, open_calls, node, *, faults):
    """Serve the oldest request of a broker, or lose its connection with all open requests."""
    if faults and rng.random() < 0.1:
        calls, open_calls[node] = open_calls[node], []
        served = rng.randrange(len(calls) + 1)
        for number, call in enumerate(calls):
            if number < served:
                for partition, batch in call.batches:
                    leads = producer.leader_of("t", partition.queue.partition) == node
                    if leads and batch.records_count <= cluster.records_max:
                        append(cluster, call, partition)
            producer.sender.lost(call, KafkaConnectionError("gone"), producer.now)
        return
    call = open_calls[node].pop(0)
    responses = []
    for partition, batch in call.batches:
        index, code, base = partition.queue.partition, 0, -1
        if producer.leader_of("t", index) != node:
            code = Code.NOT_LEADER_OR_FOLLOWER
        elif faults and rng.random() < 0.05:
            code = Code.NOT_ENOUGH_REPLICAS
        elif batch.records_count > cluster.records_max:
            code = Code.MESSAGE_TOO_LARGE
        else:
            code, base = append(cluster, call, partition)
        partition_response = TopicResponse.PartitionProduceResponse(index=index, error_code=code, base_offset=base)
        responses.append(TopicResponse(name="t", partition_responses=[partition_response]))
    producer.sender.answered(call, ProduceResponse(responses=responses), producer.now)


def append(cluster, call, partition):
    index = partition.queue.partition
    (data,) = [each.records for each in call.topics["t"] if each.index == index]
    return cluster.append(("t", index), data)


async def test_a_batch_behind_an_expired_one_waits_for_the_back_off_and_no_longer():
    producer = Producer(delivery_timeout_s=5.0, retry_backoff_s=10.0, retry_backoff_max_s=10.0)
    producer.send()
    (call,) = producer.requests()
    producer.sender.lost(call, KafkaConnectionError("gone"), producer.now)
    retry_at = 10.0 * 0.8
    producer.now = 5.0
    producer.sender.expire(producer.now)
    assert producer.sender.wake_at(producer.now) == math.inf
    producer.send()
    assert producer.requests() == []
    assert retry_at <= producer.sender.wake_at(producer.now) < 10.0


async def test_the_unsent_batches_of_a_topic_fail_together():
    producer = Producer(partitions=2)
    futures = [producer.send(2, partition) for partition in (0, 1)]
    (call,) = producer.requests()
    producer.answer(call, Code.NOT_LEADER_OR_FOLLOWER, 0)
    producer.sender.fail_topic("t", ValueError("gone"), first_partition=1)
    assert [future.done() for future in futures[0]] == [False, False]
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
