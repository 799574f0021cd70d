"""A coordinator, a leader or a client ends, or is suspended, in each state of a transaction.

A transaction writes to two partitions and commits offsets. In the chosen state the victim is killed or suspended. The
last stable offset must then reach the log end within the transaction timeout and 10 s, and the next transaction works.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import product
from typing import NamedTuple, Protocol

from kafkalite.errors import KafkaTimeoutError
from kafkalite.model import TopicPartition
from tests.kit.checker import ViolationError
from tests.kit.transactions.checker import check
from tests.kit.transactions.history import History, Partition
from tests.kit.transactions.markers import check_markers
from tests.kit.transactions.producer import AbortableError, RawProducer, Settings
from tests.kit.transactions.readers import CommittedReader, committed_offsets, read_entries, wait_stable
from tests.kit.transactions.wire import TRANSACTION, Address, Retries, Wire, pause

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
VICTIMS = ("coordinator", "leader", "client")
ENDS = ("kill", "suspend")
INPUT = TopicPartition("input", 0)
TIMEOUT_MS = 3_000
STABLE_S = 10.0  # beyond the transaction timeout
BACKOFF_S = 0.1
HEAL_S = 60.0
FULL = "the last reading"


class Case(NamedTuple):
    """What happens to which process in which state."""

    state: str
    victim: str
    end: str


CASES: Sequence[Case] = tuple(
    case
    for case in map(Case._make, product(STATES, VICTIMS, ENDS))
    if case.victim != "client" or not case.state.startswith("Complete") or case.end == "kill"
)


class Rig(Protocol):
    """The brokers of a test.

    Attributes:
        bootstrap: their addresses.
        late_error: raised when a transaction takes too long. In real time the machine may be slow: no `ViolationError`.
    """

    bootstrap: str
    late_error: type[AssertionError]

    def connect(self) -> Wire:
        """The connections of a client."""

    def now(self) -> float:
        """The time in seconds."""

    def wall_ms(self) -> int:
        """The wall time in ms."""

    async def kill(self, address: Address) -> Callable[[], Awaitable[None]]:
        """SIGKILL of a broker; the result starts it again."""

    async def suspend(self, address: Address) -> Callable[[], Awaitable[None]]:
        """SIGSTOP of a broker; the result continues it."""


class Processes:
    """Runs cases one after the other, each with a transactional id of its own.

    Arguments:
        rig: the brokers.
        partitions: two partitions with different leaders.
        group: has the offsets.
    """

    def __init__(self, rig: Rig, partitions: tuple[Partition, Partition], group: str = "group") -> None:
        self._rig = rig
        self._partitions = partitions
        self._group = group
        self._number = 0
        self.history = History(rig.now)
        self.seconds: list[float] = []  # of each case, from its fault until the partitions were stable
        self.started: dict[str, int] = {}

    async def run(self, case: Case, down_s: float) -> None:
        """One case; the victim is down for this time. Raises `late_error` of the rig."""
        wire = self._rig.connect()
        producer = await self._producer(wire)
        undo = await self._until(case, producer)
        undo += await self._hit(case, producer)
        since = self._rig.now()
        try:
            await pause(down_s)
        finally:
            for each in reversed(undo):
                await each()
        await self._stable(case, since)
        wire.abort()
        await self._next(producer.transactional_id)

    async def check(self) -> None:
        """Raises ViolationError unless all transactions are atomic, in values, markers and offsets."""
        wire = self._rig.connect()
        retries = Retries(self._rig.now, HEAL_S, BACKOFF_S)
        await CommittedReader(wire, self.history, FULL, self._partitions).read_to_end(retries)
        anomalies = check(self.history, FULL)
        anomalies += check_markers(self.history, await read_entries(wire, self._partitions), markers_of_tv2=True)
        await wire.close()
        if anomalies:
            raise ViolationError("\n".join(map(str, anomalies[:20])))

    async def _producer(self, wire: Wire) -> RawProducer:
        """A producer whose coordinator does not lead the second partition."""
        settings = self._settings()
        retries = Retries(self._rig.now, HEAL_S, BACKOFF_S)
        while True:  # the preferred replicas lead again after a while
            self._number += 1
            transactional_id = f"case-{self._number}"
            producer = RawProducer(wire, transactional_id, 2, self.history, self._rig.now, settings)
            await producer.initialize()
            coordinator = await wire.coordinator(TRANSACTION, transactional_id)
            wire.forget_leaders(self._partitions)
            if await wire.leader(self._partitions[1]) != coordinator:
                return producer
            await retries.wait(f"no other coordinator than the leader of {self._partitions[1]}")

    def _settings(self) -> Settings:
        return Settings(TIMEOUT_MS, delivery_s=HEAL_S, backoff_s=BACKOFF_S, wall_ms=self._rig.wall_ms)

    async def _until(self, case: Case, producer: RawProducer) -> list[Callable[[], Awaitable[None]]]:
        """Bring the transaction into the state; returns what ends the suspension that keeps it there."""
        if case.state == "Empty":
            return []
        producer.begin()
        for partition in self._partitions:
            await producer.send(partition)
        await producer.send_offsets(self._group, {INPUT: self._number})
        if case.state == "Ongoing":
            return []
        undo = []
        if case.state.startswith("Prepare"):  # a marker cannot be written to a suspended leader
            undo.append(await self._rig.suspend(await producer.wire.leader(self._partitions[1])))
        await (producer.commit() if case.state.endswith("Commit") else producer.abort())
        if case.state.startswith("Complete"):
            for partition in self._partitions:
                await wait_stable(producer.wire, partition, Retries(self._rig.now, HEAL_S, BACKOFF_S))
        return undo

    async def _hit(self, case: Case, producer: RawProducer) -> list[Callable[[], Awaitable[None]]]:
        """Kill or suspend the victim; returns what ends that."""
        self.started[case.state] = self.started.get(case.state, 0) + 1
        if case.victim == "client":
            if case.end == "kill":
                producer.wire.abort()
            return []
        wire = producer.wire
        if case.victim == "coordinator":
            address = await wire.coordinator(TRANSACTION, producer.transactional_id)
        else:
            address = await wire.leader(self._partitions[0])
        if case.state.startswith("Prepare") and address == await wire.leader(self._partitions[1]):
            return []  # it is suspended already
        return [await (self._rig.kill(address) if case.end == "kill" else self._rig.suspend(address))]

    async def _stable(self, case: Case, since: float) -> None:
        wire = self._rig.connect()
        until = since + TIMEOUT_MS / 1000 + STABLE_S
        for partition in self._partitions:
            try:
                await wait_stable(wire, partition, Retries(self._rig.now, until - self._rig.now(), BACKOFF_S))
            except KafkaTimeoutError as error:
                raise self._rig.late_error(f"{case}: {error}") from error
        retries = Retries(self._rig.now, until - self._rig.now(), BACKOFF_S)
        try:
            await committed_offsets(wire, self._group, [INPUT], retries)
        except KafkaTimeoutError as error:
            raise self._rig.late_error(f"{case}: an offset stays pending: {error}") from error
        self.seconds.append(self._rig.now() - since)
        await wire.close()

    async def _next(self, transactional_id: str) -> None:
        """A new process commits with the same transactional id.

        As every client, it begins again after an abortable error: a broker that continues after a suspension and does
        not know its successor yet rejects the epoch that the next coordinator has assigned. So does Kafka's.
        """
        wire = self._rig.connect()
        settings = self._settings()
        producer = RawProducer(wire, transactional_id, 2, self.history, self._rig.now, settings)
        await producer.initialize()
        retries = Retries(self._rig.now, HEAL_S, BACKOFF_S)
        while not await self._commits(producer, retries):
            await producer.recover(by_request=False)
        await wire.close()

    async def _commits(self, producer: RawProducer, retries: Retries) -> bool:
        """Commit records of both partitions; False = after a pause the producer must begin again."""
        producer.begin()
        try:
            for partition in self._partitions:
                await producer.send(partition)
            await producer.commit()
        except AbortableError as error:
            await retries.wait(error)
            return False
        return True
