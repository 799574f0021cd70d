"""Transactional applications: one writes inputs, others copy records from topic to topic, each exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from kafkalite.errors import KafkaTimeoutError
from tests.kit.transactions.history import History, Partition, Source
from tests.kit.transactions.producer import AbortableError, FencedError, RawProducer, Settings
from tests.kit.transactions.readers import committed_offsets, fetch_committed
from tests.kit.transactions.wire import NO_CONNECTION, Retries, Wire, pause

ABORTED_SHARE = 0.2
RECORDS_MAX = 6
OFFSETS_S = 3.0
NO_OUTPUT_PAUSE_S = (0.02, 0.3)
RESTART_S = 0.2


class Surroundings(NamedTuple):
    """What an application uses.

    Arguments:
        connect: makes the connections of a new process.
        history: notes the events.
        random: its choices.
        now: returns the time in seconds.
        version: of transactions, 1 or 2.
        settings: the times of its producer.
    """

    connect: Callable[[], Wire]
    history: History
    random: Random
    now: Callable[[], float]
    version: int
    settings: Settings


class Application:
    """One process: it ends when it is fenced, or when `stopped` is set.

    Arguments:
        around: what it uses.
        transactional_id: of its producer.
        targets: the partitions that it writes to.
    """

    def __init__(self, around: Surroundings, transactional_id: str, targets: Sequence[Partition]) -> None:
        self.stopped = False
        self.fenced = 0
        self.aborted = 0
        self.errors: list[str] = []
        self._around = around
        self._random = around.random
        self._targets = targets
        self._wire = around.connect()
        self._producer = RawProducer(
            self._wire, transactional_id, around.version, around.history, around.now, around.settings
        )

    def kill(self) -> None:
        """End its connections, as the end of a process does; the caller cancels its task."""
        self.stopped = True
        self._wire.abort()

    async def run(self) -> None:
        """Process transactions until it is stopped or fenced."""
        try:
            await self._start()
            while not self.stopped:
                await self._next()
        except FencedError as error:
            self.fenced += 1
            self.errors.append(str(error))
        finally:
            self._wire.abort()

    async def _start(self) -> None:
        while not self.stopped:
            try:
                await self._producer.initialize()
                return
            except (KafkaTimeoutError, *NO_CONNECTION) as error:
                self.errors.append(str(error))
                await pause(RESTART_S)

    async def _next(self) -> None:
        """One transaction. Raises FencedError."""
        try:
            if not await self._transact():
                await pause(self._random.uniform(*NO_OUTPUT_PAUSE_S))
        except AbortableError as error:
            self.aborted += 1
            self.errors.append(str(error))
            await self._recover()
        except NO_CONNECTION as error:
            self.errors.append(str(error))
            await self._recover()

    async def _recover(self) -> None:
        while not self.stopped:
            try:
                await self._producer.recover(by_request=self._random.random() < 0.7)
                return
            except NO_CONNECTION as error:
                self.errors.append(str(error))
                await pause(RESTART_S)

    async def _transact(self) -> bool:
        """One transaction; False = there is nothing to do. Raises AbortableError, FencedError, NO_CONNECTION."""
        raise NotImplementedError

    async def _finish(self) -> None:
        """Commit, or sometimes abort."""
        if self._random.random() < ABORTED_SHARE:
            await self._producer.abort()
        else:
            await self._producer.commit()


class Loader(Application):
    """Writes values to random partitions of the targets."""

    async def _transact(self) -> bool:
        self._producer.begin()
        for _ in range(self._random.randint(1, 3)):
            partition = self._random.choice(self._targets)
            await self._producer.send(partition, [None] * self._random.randint(1, 2))
        await self._finish()
        await pause(self._random.uniform(*NO_OUTPUT_PAUSE_S))
        return True


class Copier(Application):
    """Copies the records of its input partitions to random partitions of the targets, with the offsets of a group.

    Arguments:
        around, transactional_id, targets: as of an `Application`.
        inputs: the partitions that it reads.
        group: that has the offsets.
    """

    def __init__(
        self,
        around: Surroundings,
        transactional_id: str,
        targets: Sequence[Partition],
        inputs: Sequence[Partition],
        group: str,
    ) -> None:
        super().__init__(around, transactional_id, targets)
        self._inputs = inputs
        self._group = group

    async def _transact(self) -> bool:
        records = await self._read()
        if not records:
            return False
        transaction = self._producer.begin()
        for source, number in records:
            self._around.history.read_in(transaction, number)
            await self._producer.send(self._random.choice(self._targets), [source])
        offsets = {source.partition: source.offset + 1 for source, _ in records}
        await self._producer.send_offsets(self._group, offsets)
        await self._finish()
        return True

    async def _read(self) -> list[tuple[Source, int]]:
        """The next records of one input partition behind its committed offset."""
        partition = self._random.choice(self._inputs)
        retries = Retries(self._around.now, OFFSETS_S, self._around.settings.backoff_s)
        position = (await committed_offsets(self._wire, self._group, [partition], retries))[partition]
        found = await fetch_committed(self._wire, partition, position)
        while not found.records and found.next_offset > position:  # a segment with markers and aborted records alone
            position = found.next_offset
            found = await fetch_committed(self._wire, partition, position)
        chosen = found.records[: self._random.randint(1, RECORDS_MAX)]
        return [(Source(partition, offset), number) for offset, number in chosen]
