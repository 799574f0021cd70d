"""Simulated groups over the wire that continue after the broker stops, and check its state after each start.

A party is one group: some members, which join and rebalance over one connection, and a stream of commits and rewinds
over another.

Invariants:
1. What goes over a connection is taken in its order. So what the broker has after its end is a beginning of what a
   party sent, at least all that was acknowledged; `Ledger.resolve` finds how much.
2. A living member goes on with its member id and its generation: after a restart of the broker it does not join again.
   What Kafka keeps in memory only is not expected back: who was joining, and a generation without an assignment.
"""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kafkalite.errors import KafkaConnectionError, KafkaErrorCode
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.schema import Request
from tests.kit.members import codes, commit, fetch, offsets_of, rewind

DEPTH = 16  # open requests of a stream
BY_NAME = 9  # the last version of OffsetCommit and OffsetFetch that names topics
DEADLINE_S = 120.0
FIRST_COMMIT = 1_000_000  # commits count up from here, rewinds from 0: every offset shows its origin
NONE = KafkaErrorCode.NONE
UNKNOWN, ILLEGAL, REBALANCE = (
    KafkaErrorCode.UNKNOWN_MEMBER_ID,
    KafkaErrorCode.ILLEGAL_GENERATION,
    KafkaErrorCode.REBALANCE_IN_PROGRESS,
)
LOADING = (
    KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaErrorCode.COORDINATOR_NOT_AVAILABLE,
    KafkaErrorCode.NOT_COORDINATOR,
)


@dataclass
class Entry:
    """A commit or a rewind: offsets by partition, and the member that commits or is fenced."""

    number: int
    offsets: dict[int, int]
    who: str = ""
    fences: frozenset[str] = frozenset()
    refused: bool = False


class Ledger:
    """The requests since the last stop of the broker, in order, and the offsets before them."""

    def __init__(self) -> None:
        self.acks = 0
        self._before: dict[int, int] = {}
        self._entries: list[Entry] = []
        self._acknowledged = 0
        self._fenced: set[str] = set()

    def sent(self, offsets: dict[int, int], who: str = "", fences: Collection[str] = ()) -> Entry:
        """Record a request; a commit of a member that a previous rewind has fenced will be rejected."""
        entry = Entry(len(self._entries) + 1, offsets, who, frozenset(fences), refused=who in self._fenced)
        self._entries.append(entry)
        self._fenced |= entry.fences
        return entry

    def acknowledged(self, entry: Entry) -> None:
        """The broker has applied this request and all earlier ones."""
        assert not entry.refused, f"{entry} is taken from a member that was fenced"
        self._acknowledged = max(self._acknowledged, entry.number)
        self.acks += 1

    def resolve(self, found: dict[int, int]) -> frozenset[str]:
        """Continue from the prefix of the requests that explains these offsets; returns the fenced members."""
        state, fenced = dict(self._before), frozenset[str]()
        explained = state == found if self._acknowledged == 0 else False
        for entry in self._entries:
            if explained:
                break
            if not entry.refused:
                state |= entry.offsets
                fenced |= entry.fences
            explained = entry.number >= self._acknowledged and state == found
        assert explained, (
            f"offsets {found} are those after no beginning of {len(self._entries)} requests with the first "
            f"{self._acknowledged}; those were {self.after(self._acknowledged)}, and all would be {self.after()}"
        )
        self._before, self._entries, self._acknowledged, self._fenced = state, [], 0, set()
        return fenced

    def after(self, count: int | None = None) -> dict[int, int]:
        """The offsets after so many requests, or all."""
        state = dict(self._before)
        for entry in self._entries[:count]:
            state |= {} if entry.refused else entry.offsets
        return state


@dataclass
class Member:
    """The view of a member. `generation` is its member epoch in a consumer group."""

    id: str = ""
    generation: int = -1
    partitions: list[int] = field(default_factory=list)


class SimulatedGroup(ABC):
    """One group on partitions 0 to `partitions` - 1 of a topic.

    Attributes:
        resumed: members that went on after an end of the broker as if nothing had been.
        seen: what commits were answered, by error code.
    """

    fenced_codes: tuple[KafkaErrorCode, ...]

    def __init__(self, group: str, topic: str, partitions: int, random: Random) -> None:
        self.group = group
        self.topic = topic
        self.partitions = partitions
        self.random = random
        self.ledger = Ledger()
        self.members: list[Member] = []
        self.resumed = 0
        self.seen: Counter[int] = Counter()
        self.answered = asyncio.Event()
        self._numbers = itertools.count(FIRST_COMMIT)
        self._targets = itertools.count()
        self._stopped = asyncio.Event()
        self._peers: list[ClientConnection] = []

    # Connections.

    async def connect(self, address: str) -> None:
        """One connection for the members, one for commits and rewinds."""
        host, port = address.rsplit(":", 1)
        await self.close()
        self._peers = [ClientConnection(host, int(port), timeout_s=DEADLINE_S) for _ in range(2)]
        for peer in self._peers:
            await peer.connect()

    async def close(self) -> None:
        """End the connections; open calls fail."""
        for peer in self._peers:
            await peer.close()
        self._peers = []

    async def ask(self, request: Request, version_max: int | None = None) -> Any:
        """Send a request over the members' connection."""
        return await self._peers[0].call(request, version_max=version_max)

    async def ask_aside(self, request: Request, version_max: int | None = None) -> Any:
        """Send a request over the commits' connection, where no delayed join blocks responses."""
        return await self._peers[1].call(request, version_max=version_max)

    # Commits and rewinds.

    async def stream(self) -> None:
        """Commit, `DEPTH` at a time, until the connection ends or `stop` is called; then note the open requests."""
        self._stopped.clear()
        slots = asyncio.Semaphore(DEPTH)
        open_calls: set[asyncio.Task[None]] = set()
        while True:
            await slots.acquire()
            if self._stopped.is_set():
                break
            call = asyncio.create_task(self._commit(slots))
            open_calls.add(call)
            call.add_done_callback(open_calls.discard)
        await asyncio.gather(*open_calls)

    def stop(self) -> None:
        """Stop committing; open requests are still answered."""
        self._stopped.set()

    async def commit(self) -> None:
        """Commit some partitions that a member owns, or any without members, and check the response."""
        member = self.random.choice(self.members) if self.members else Member(partitions=[*range(self.partitions)])
        chosen = self.random.sample(member.partitions, self.random.randint(1, len(member.partitions)))
        offsets = {partition: next(self._numbers) for partition in chosen}
        entry = self.ledger.sent(offsets, member.id)
        request = commit(self.group, self.topic, offsets, member.id, member.generation)
        found = set(codes(await self.ask_aside(request, BY_NAME)))
        assert len(found) == 1, f"one commit, several answers: {found}"
        (code,) = found
        assert code in (self.fenced_codes if entry.refused else [NONE]), f"{entry} is answered {code}"
        self.seen[code] += 1
        if code == NONE:
            self.ledger.acknowledged(entry)
        self.answered.set()

    async def _commit(self, slots: asyncio.Semaphore) -> None:
        try:
            await self.commit()
        except KafkaConnectionError:
            self._stopped.set()  # the broker may have it or not
        finally:
            slots.release()

    async def rewind(self, members: Sequence[Member]) -> None:
        """Rewind all partitions of these members in one request, which fences them; without members, all partitions."""
        topic_partitions = sorted(
            topic_partition for member in members for topic_partition in member.partitions
        ) or range(self.partitions)
        target = next(self._targets)
        entry = self.ledger.sent(dict.fromkeys(topic_partitions, target), fences=[member.id for member in members])
        answer = await self.ask_aside(rewind(self.group, self.topic, dict.fromkeys(topic_partitions, target)))
        outcomes = [(each.partition_index, each.offset, each.error_code) for each in answer.topics[0].partitions]
        assert outcomes == [(at, target, NONE) for at in topic_partitions]
        self.ledger.acknowledged(entry)
        self.answered.set()

    # After the broker's end.

    async def resume(self, address: str) -> bool:
        """After a restart: offsets are the acknowledged ones, members continue; returns whether a rewind was kept."""
        await self.connect(address)
        async with asyncio.timeout(DEADLINE_S):
            fenced = self.ledger.resolve(await self.committed())
            await self.go_on(fenced)
        return bool(fenced)

    async def committed(self) -> dict[int, int]:
        """The group's offsets by partition; repeated while the coordinator loads."""
        while True:
            answer = await self.ask(fetch(self.group), BY_NAME)
            if (code := answer.groups[0].error_code) not in LOADING:
                assert code == NONE
                return {partition: offset for (_, partition), offset in offsets_of(answer).items()}

    async def begin_rebalance(self, phase: str) -> None:
        """Bring a rebalance, which a new member starts, into a phase; overridden by groups with members."""
        raise AssertionError(f"{self.group} has no members")

    @abstractmethod
    async def form(self) -> None:
        """Bring all members into one generation that has an assignment."""

    @abstractmethod
    async def go_on(self, fenced: Collection[str]) -> None:
        """Every member sends a request and receives the expected error; then all are in one generation again."""


class Loners(SimulatedGroup):
    """No members: commits without a generation, as of consumers with assigned partitions."""

    async def form(self) -> None:
        """No member joins."""

    async def go_on(self, fenced: Collection[str]) -> None:
        """No member has to."""
        assert not fenced
