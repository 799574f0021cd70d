"""A sender of a producer and a simulated cluster, for tests."""

import asyncio
import math
import random

from kafkalite_sdk._speedups.accumulator import RecordAccumulator
from kafkalite_sdk.client.cluster_view import NO_LEADER
from kafkalite_sdk.producer.partition_sender import ProducerId
from kafkalite_sdk.producer.sender import Sender
from kafkalite_sdk.producer.settings import ProducerSettings

import kafkalite.records  # noqa: F401 - registers the codecs
from kafkalite._speedups.records.batches import Batch
from kafkalite.errors import KafkaErrorCode
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
