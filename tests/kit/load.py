"""Load whose every send and answer is in a `History`: our own pipelined producer, and librdkafka's idempotent one.

Invariant: `Sender` sends each batch once, whatever becomes of it; librdkafka sends again until it is answered.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from kafkalite.errors import KafkaConnectionError, KafkaErrorCode
from kafkalite.net.client import ClientConnection
from kafkalite.records import Builder, batches
from tests.kit.checker import DAMAGED, History, Partition
from tests.kit.clients.confluent import Delivery, Outgoing, RecordProducer
from tests.kit.isolated import ANSWER_S, CLOSE_S, Isolated
from tests.kit.server import ALL, NOW_MS, fetch_request, fetched, outcomes, produce_request

DEPTH = 16  # open requests of a stream
BATCH_RECORDS_MAX = 8
IDEMPOTENT_AT_ONCE = 10
IDEMPOTENT_OPEN_MAX = 500
VALUE_BYTES_MAX = 400
BY_NAME = 12  # the last version of Produce that names topics
FILLER = bytes(32 + number % 95 for number in range(2 * VALUE_BYTES_MAX))


def value_of(number: int) -> bytes:
    """The value that a number is sent as: the number, and as much filler as it asks for."""
    at = number * 31 % VALUE_BYTES_MAX
    return b"%d:" % number + FILLER[at : at + number * 7 % VALUE_BYTES_MAX]


def number_of(value: bytes | None) -> int:
    """The number of a value, DAMAGED unless it is exactly what was sent for it."""
    digits = (value or b"").partition(b":")[0]
    if not digits.isdigit() or len(digits) > 18 or value_of(int(digits)) != value:
        return DAMAGED
    return int(digits)


class Sender:
    """A producer with one connection at a time: batches to its partitions in turn, `depth` of them open.

    Arguments:
        name: of the producer in the history.
        history: where sends and answers go.
        numbers: gives each value its number; shared by all senders of a history.
        random: sizes of the batches.
        partitions: where to.
        keys: how many keys there are; 0 = records without key.
        depth: open requests.
        certain: a refusal means that the batch is not in the log; else it may be.
        silent: the share of batches that go with acks=0, never to be answered.
    """

    def __init__(
        self,
        name: str,
        history: History,
        numbers: Iterator[int],
        random: Random,
        partitions: Sequence[Partition],
        keys: int = 0,
        depth: int = DEPTH,
        certain: bool = True,
        silent: float = 0.0,
    ) -> None:
        self.name = name
        self.acks = 0  # answered requests
        self.refusals: dict[int, int] = {}  # Kafka error code -> requests
        self._history = history
        self._numbers = numbers
        self._random = random
        self._partitions = itertools.cycle(partitions)
        self._keys = keys
        self._depth = depth
        self._certain = certain
        self._silent = silent
        self._stop = asyncio.Event()
        self._progress = asyncio.Event()

    async def run(self, address: str, *, requests: int | None = None) -> None:
        """Send until the connection is lost, `stop` is called, or `requests` were sent; then note the open requests."""
        host, port = address.rsplit(":", 1)
        self._stop.clear()
        slots = asyncio.Semaphore(self._depth)
        open_calls: set[asyncio.Task[None]] = set()
        async with ClientConnection(host, int(port), timeout_s=60.0) as peer:
            for _ in itertools.count() if requests is None else range(requests):
                await slots.acquire()
                if self._stop.is_set():
                    break
                call = asyncio.create_task(self._send(peer, slots))
                open_calls.add(call)
                call.add_done_callback(open_calls.discard)
            await asyncio.gather(*open_calls)

    def stop(self) -> None:
        """Send no more; what is open is still answered."""
        self._stop.set()

    async def until(self, acks: int) -> None:
        """Wait until so many requests have been answered in all. TimeoutError when nothing moves for a minute."""
        while self.acks < acks:
            await self.all_answered()

    async def all_answered(self) -> None:
        """Wait until one more request has been answered, well or not. TimeoutError when nothing moves for a minute."""
        self._progress.clear()
        async with asyncio.timeout(60):
            await self._progress.wait()

    async def _send(self, peer: ClientConnection, slots: asyncio.Semaphore) -> None:
        partition = next(self._partitions)
        numbers = list(itertools.islice(self._numbers, self._random.randint(1, BATCH_RECORDS_MAX)))
        keys = [number % self._keys for number in numbers] if self._keys else []
        self._history.sent(self.name, partition, numbers, keys)
        acks = 0 if self._random.random() < self._silent else ALL
        request = produce_request(partition[0], (partition[1], self._batch(numbers, keys)), acks=acks)
        try:
            if acks == 0:
                peer.send(request, lambda: None, lambda error: self._stop.set(), version_max=BY_NAME)
                return
            answer = await peer.call(request, version_max=BY_NAME)
        except KafkaConnectionError:
            self._stop.set()  # it may be in the log or not
            return
        finally:
            slots.release()
        self._note(numbers, outcomes(answer)[0])

    def _batch(self, numbers: Sequence[int], keys: Sequence[int]) -> bytes:
        builder = Builder(1 << 20)
        for position, number in enumerate(numbers):
            key = b"k%d" % keys[position] if keys else None
            assert builder.append(NOW_MS + number, key, value_of(number)) >= 0
        return bytes(builder.build(0))

    def _note(self, numbers: Sequence[int], outcome: Any) -> None:
        if outcome.error_code:
            if self._certain:
                self._history.refused(numbers)
            self.refusals[outcome.error_code] = self.refusals.get(outcome.error_code, 0) + 1
        else:
            self._history.acknowledged(numbers, outcome.base_offset)
            self.acks += 1
        self._progress.set()

    @property
    def refused_by_storage(self) -> int:
        """How many requests ended with KAFKA_STORAGE_ERROR."""
        return self.refusals.get(KafkaErrorCode.KAFKA_STORAGE_ERROR, 0)


class Tail:
    """A consumer that follows some partitions of one topic while they are written."""

    def __init__(self, name: str, history: History, partitions: Sequence[Partition]) -> None:
        self.name = name
        self.records = 0
        self._history = history
        self._topic = partitions[0][0]
        self._offsets = {index: history.highest_acknowledged((self._topic, index)) + 1 for _, index in partitions}

    async def run(self, address: str) -> None:
        """Read until the connection is lost, or a partition ends with an error."""
        host, port = address.rsplit(":", 1)
        async with ClientConnection(host, int(port), timeout_s=60.0) as peer:
            while True:
                asked = fetch_request(self._topic, *self._offsets.items(), max_wait_ms=50, max_bytes=1 << 18)
                try:
                    answer = fetched(await peer.call(asked, version_max=BY_NAME))
                except KafkaConnectionError:
                    return
                if any(part.error_code for part in answer.values()):
                    return
                for (_, index), part in answer.items():
                    self._take(index, part.records)

    def _take(self, index: int, records: Any) -> None:
        for found in batches(records):
            for record in found:
                if record.offset >= self._offsets[index]:
                    position = (self._topic, index)
                    self._history.read(self.name, position, record.offset, number_of(record.value))
                    self._offsets[index] = record.offset + 1
                    self.records += 1


class IdempotentSender(threading.Thread):
    """librdkafka with idempotence, in a process that can be killed: some records at a time, until `finish`.

    Arguments:
        address, topic, partitions: where to.
        history: where sends and responses are noted; no other thread may write to it meanwhile. None = one of its own.
        first: number of the first record.
        pause_s: time between two sends, for less load than the fastest.
    """

    def __init__(
        self,
        address: str,
        topic: str,
        partitions: int,
        history: History | None = None,
        first: int = 0,
        pause_s: float = 0.0,
    ) -> None:
        super().__init__(name="idempotent")
        self.history = history or History()
        self._numbers = itertools.count(first)
        self.sent = 0
        self.acks = 0
        self.errors: list[str] = []
        self.failure: BaseException | None = None
        self._topic = topic
        self._partitions = partitions
        self._pause_s = pause_s
        self._ending = threading.Event()
        self._giving_up = threading.Event()
        self._settings = {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 1,
            "batch.num.messages": 5,
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 5,
            "retry.backoff.max.ms": 50,
        }

    def run(self) -> None:
        try:
            with Isolated(RecordProducer, self._settings) as producer:
                while not self._ending.is_set() and not self.errors:
                    self._note(producer.send(self._topic, self._next(), 0.001))
                    self._ending.wait(self._pause_s)
                    while self.sent - self.acks > IDEMPOTENT_OPEN_MAX and not self.errors and not self._ending.is_set():
                        self._note(producer.poll(0.05))
                if self._giving_up.is_set():
                    producer.purge()
                left, delivered = producer.flush(60.0)
                self._note(delivered)
                if left:
                    self.errors.append("not answered at the end")
        except BaseException as failure:
            self.failure = failure
            raise

    def _next(self) -> list[Outgoing]:
        found = []
        for number in itertools.islice(self._numbers, IDEMPOTENT_AT_ONCE):
            index = number % self._partitions
            self.history.sent("idempotent", (self._topic, index), [number])
            found.append(Outgoing(number, value_of(number), partition=index))
        self.sent += len(found)
        return found

    def _note(self, delivered: Sequence[Delivery]) -> None:
        for each in delivered:
            if each.error:
                self.errors.append(f"{each.number}: {each.error}")
            else:
                self.acks += 1
                self.history.acknowledged([each.number], each.offset)

    def give_up(self) -> None:
        """End without an answer to everything."""
        self._giving_up.set()
        self._ending.set()
        self._leave()

    def finish(self) -> None:
        """Wait until every record is answered. Raises what went wrong."""
        self._ending.set()
        self._leave()
        assert self.failure is None, self.failure
        assert self.errors == []

    def _leave(self) -> None:
        self.join(ANSWER_S + 2 * CLOSE_S)  # a process that hangs is killed before that
        assert not self.is_alive()
