"""The sender of a producer with random failures: what is acknowledged is in the log, once and in order."""

import math
import random

import pytest
from kafkalite_sdk.client.cluster_view import NO_LEADER
from kafkalite_sdk.producer.partition_sender import ProducerId

from kafkalite.errors import KafkaConnectionError
from kafkalite.protocol.messages.produce import ProduceResponse
from tests.unit.sdk.senders import Cluster, Code, Producer, TopicResponse


class Run:
    """A producer with random failures before and after the append, moved leaders, and too large batches."""

    def __init__(self, seed, delivery_timeout_s):
        self.rng = random.Random(seed)
        self.cluster = Cluster(self.rng.choice((2, 5, math.inf)))
        self.producer = Producer(
            seed, partitions=3, batch_size=self.rng.choice((80, 300)), delivery_timeout_s=delivery_timeout_s
        )
        self.epoch = 0
        self.open_calls = {1: [], 2: []}
        self.sent = []  # partition, value, future and time

    def step(self, *, sends, faults, pause_s=0.1):
        rng, producer, sender = self.rng, self.producer, self.producer.sender
        producer.now += rng.random() * pause_s
        if sender.wake_at(producer.now) <= producer.now:
            sender.expire(producer.now)
        if sends and rng.random() < 0.7:
            partition, value = rng.randrange(3), b"%d" % len(self.sent)
            future = producer.buffer.send("t", value, partition=partition)
            self.sent.append((partition, value, future, producer.now))
        if rng.random() < 0.3:
            producer.buffer.close_batches(math.inf)
        if sender.needs_producer_id and rng.random() < 0.5:
            self.epoch += 1
            sender.set_producer_id(ProducerId(7, self.epoch))
        if rng.random() < 0.03:
            producer.leaders["t", rng.randrange(3)] = rng.choice((1, 2, NO_LEADER))
            sender.leaders_changed()
        for call in sender.requests(producer.now):
            self.open_calls[call.node].append(call)
        node = rng.choice((1, 2))
        if self.open_calls[node] and rng.random() < 0.8:
            respond(rng, self.cluster, producer, self.open_calls, node, faults=faults)
        if not faults:
            producer.leaders.update({("t", number): 1 for number in range(3)})
            sender.leaders_changed()

    def end(self):
        producer, sender = self.producer, self.producer.sender
        while not sender.idle:
            producer.now += 1.0
            if sender.needs_producer_id:
                self.epoch += 1
                sender.set_producer_id(ProducerId(7, self.epoch))
            producer.buffer.close_batches(math.inf)
            for call in sender.requests(producer.now):
                self.open_calls[call.node].append(call)
            for node in (1, 2):
                while self.open_calls[node]:
                    respond(self.rng, self.cluster, producer, self.open_calls, node, faults=False)


@pytest.mark.parametrize("seed", range(60))
async def test_no_record_is_lost_duplicated_or_reordered(seed):
    run = Run(seed, delivery_timeout_s=1e9)
    for step in range(600):
        run.step(sends=step < 300, faults=step < 450, pause_s=0.1 if step < 450 else 2.0)
    run.end()
    logs = {number: run.cluster.logs.get(("t", number), []) for number in range(3)}
    assert logs == {number: [value for partition, value, *_ in run.sent if partition == number] for number in logs}
    for partition, value, future, _ in run.sent:
        assert logs[partition][future.result().offset] == value
    assert run.producer.buffer.buffered == 0 and not run.producer.failed


@pytest.mark.parametrize("seed", range(60))
async def test_records_end_at_their_deadlines_and_acknowledged_ones_are_in_the_log_once_and_in_order(seed):
    run, failed = Run(seed, delivery_timeout_s=1.0), 0
    for step in range(600):
        run.producer.buffer.close_batches(run.producer.now - 0.2)
        run.step(sends=step < 450, faults=step < 500)
        run.producer.sender.expire(run.producer.now)
        overdue = [each for each in run.sent if each[3] + 1.0 <= run.producer.now and not each[2].done()]
        assert not overdue, f"step {step}: {overdue}"
    run.end()
    for number in range(3):
        log = run.cluster.logs.get(("t", number), [])
        assert len(log) == len(set(log)), "a record is in the log twice"
        assert log == sorted(log, key=int), "records are not in the order of their sends"
    for partition, value, future, _ in run.sent:
        if future.exception() is None:
            assert run.cluster.logs["t", partition][future.result().offset] == value
        else:
            failed += 1
    assert run.producer.buffer.buffered == 0 and bool(failed) is bool(run.producer.failed)


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
            producer.sender.retries.lost(call, KafkaConnectionError("gone"), producer.now)
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
