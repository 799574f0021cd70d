"""Each record gets an outcome, wherever its batch is when a deadline passes, a partition is removed, or all ends."""

import math
import random

import pytest
from kafkalite_sdk.client.cluster_view import NO_LEADER

from kafkalite.errors import KafkaConnectionError, KafkaTimeoutError
from tests.unit.sdk.senders import Code, Producer

CODES = (0, 0, 0, Code.NOT_LEADER_OR_FOLLOWER, Code.REQUEST_TIMED_OUT, Code.INVALID_RECORD, Code.MESSAGE_TOO_LARGE)


class World:
    """A producer whose topic shrinks and grows while its requests are answered, lost, or stay open."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.producer = Producer(seed, partitions=3, delivery_timeout_s=30.0, max_in_flight=2)
        self.calls = []
        self.futures = []

    def step(self) -> None:
        self.random.choice((self.send, self.send, self.request, self.request, self.end, self.resize, self.lead))()
        self.producer.now += self.random.random()
        if self.producer.sender.wake_at(self.producer.now) <= self.producer.now:
            self.producer.sender.expire(self.producer.now)

    def send(self) -> None:
        partitions = len(self.producer.buffer.partitions_of("t"))
        for number in range(self.random.randrange(1, 4)):
            partition = self.random.randrange(partitions)
            self.futures.append(self.producer.buffer.send("t", b"%d" % number, partition=partition))

    def request(self) -> None:
        self.producer.buffer.close_batches(self.producer.now - self.random.choice((0.0, 5.0)))
        self.calls += self.producer.requests()

    def end(self) -> None:
        if not self.calls:
            return
        call = self.calls.pop(self.random.randrange(len(self.calls)))
        if self.random.random() < 0.3:
            self.producer.sender.retries.lost(call, KafkaConnectionError("lost"), self.producer.now)
        else:
            self.producer.answer(call, *self.random.choices(CODES, k=len(call.batches)))

    def resize(self) -> None:
        buffer, count = self.producer.buffer, self.random.randrange(1, 5)
        if count < len(buffer.partitions_of("t")):
            self.producer.sender.partitions_removed(buffer.remove_partitions("t", count), ValueError("removed"))
        buffer.set_partitions("t", count)

    def lead(self) -> None:
        leaders = self.producer.leaders
        for number in range(5):
            leaders["t", number] = self.random.choice((NO_LEADER, 1, 1, 2))
        self.producer.sender.leaders_changed()

    def check(self) -> None:
        """Each future is done, and all memory is released."""
        assert all(future.done() for future in self.futures)
        assert self.producer.buffer.buffered == 0
        assert self.producer.buffer.oldest_incomplete() > self.producer.buffer.opened


@pytest.fixture(params=range(30))
async def world(request):
    found = World(request.param)
    for _ in range(150):
        found.step()
    return found


async def test_the_delivery_timeout_ends_every_record(world):
    world.producer.now += 30.0
    world.producer.sender.expire(world.producer.now)
    world.check()
    assert world.producer.sender.wake_at(world.producer.now) == math.inf


async def test_an_abort_ends_every_record(world):
    world.producer.sender.abort(KafkaTimeoutError("aborted"))
    world.check()


async def test_a_close_ends_the_records_that_are_not_in_flight_and_the_others_with_their_requests(world):
    world.producer.sender.close(KafkaTimeoutError("closed"))
    in_flight = {batch for call in world.calls for _, batch in call.batches}
    assert sum(not future.done() for future in world.futures) == sum(
        each.records_count for each in in_flight if not each.done
    )
    assert world.producer.requests() == []
    for call in world.calls:
        world.producer.sender.retries.lost(call, KafkaConnectionError("closed"), world.producer.now)
    world.check()
