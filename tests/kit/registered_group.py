"""A simulated registered group over the wire: two members own the partitions, a third one joins and leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

from kafkalite.errors import KafkaConnectionError
from tests.kit.members import beat_plus, create, leave, register, starts
from tests.kit.simulated_group import ILLEGAL, NONE, REBALANCE, UNKNOWN, Member, SimulatedGroup

SESSION_MS = 60_000  # longer than any broker needs to come back
BY_RESET_POLICY = -1


class SimulatedRegisteredGroup(SimulatedGroup):
    """Consumers that register, and send heartbeats over another connection."""

    fenced_codes = (ILLEGAL,)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.members = [self._member(), self._member()]
        self._newcomer: Member | None = None
        self._phase = ""
        self._waiting: list[tuple[Member, asyncio.Task[Any]]] = []

    def _member(self) -> Member:
        return Member(f"{self.group} {self.random.randbytes(8).hex()}")

    async def form(self) -> None:
        """Members register until all have one generation in which every partition has an owner."""
        if not any(member.generation >= 0 for member in self.members) and self.random.random() < 0.5:
            assert (await self.ask(create(self.group, self.topic))).error_code == NONE
        committed, open_calls = await self.committed(), dict[str, asyncio.Task[Any]]()
        async with asyncio.timeout(SESSION_MS / 1000):
            while True:
                received = [await self._step(member, open_calls, committed) for member in self.members]
                if set(received) == {NONE} and len({member.generation for member in self.members}) == 1:
                    break
                if len(open_calls) == len(self.members):
                    await asyncio.wait(open_calls.values(), return_when=asyncio.FIRST_COMPLETED)
        owned = [topic_partition for member in self.members for topic_partition in member.partitions]
        assert sorted(owned) == list(range(self.partitions))

    async def _step(self, member: Member, open_calls: dict[str, asyncio.Task[Any]], committed: dict[int, int]) -> int:
        """The next step of a member: wait for its registration, or send a heartbeat."""
        waits = open_calls.get(member.id)
        if waits is not None and not waits.done():
            return REBALANCE
        if waits is not None:
            self._take(member, open_calls.pop(member.id).result(), committed)
        code = await self._alive(member)
        if code != NONE:
            open_calls[member.id] = asyncio.create_task(self.ask(self._registration(member)))
        return code

    async def _alive(self, member: Member) -> int:
        """A heartbeat; a member that receives a newer generation continues in it."""
        answer = await self.ask_aside(beat_plus(self.group, member.id, member.generation))
        if answer.error_code == NONE:
            assert answer.generation_id >= member.generation
            member.generation = answer.generation_id
        code: int = answer.error_code
        return code

    def _registration(self, member: Member) -> Any:
        times = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": SESSION_MS}
        return register(self.group, member.id, self.topic, **times)

    def _take(self, member: Member, answer: Any, committed: dict[int, int] | None = None) -> None:
        """The result of a registration; the member starts at the committed offsets."""
        assert answer.error_code == NONE and answer.generation_id > member.generation
        begins = {topic_partition: start for (_, topic_partition), start in starts(answer).items()}
        member.generation, member.partitions = answer.generation_id, sorted(begins)
        if committed is not None:
            assert begins == {
                topic_partition: committed.get(topic_partition, BY_RESET_POLICY) for topic_partition in begins
            }

    # A rebalance that the broker's end interrupts; only requested commits are sent meanwhile.

    async def begin_rebalance(self, phase: str) -> None:
        """Bring the generation of a third consumer so far: "joining"; "syncing", one of the others has registered;
        "assigning", whether the last registration arrived is unknown; "assigned", a member received its assignment."""
        self._phase, self._newcomer = phase, self._member()
        self._send([self._newcomer])
        last = self.members[-1]
        while (code := await self._alive(last)) != REBALANCE:
            assert code == NONE
        await self.commit()
        if phase != "joining":
            self._send(self.members[:1])
        if phase in ("assigning", "assigned"):
            self._send(self.members[1:])
        if phase == "assigned":
            await asyncio.wait([task for _, task in self._waiting], return_when=asyncio.FIRST_COMPLETED)

    def _send(self, members: Iterable[Member]) -> None:
        """Their responses may never arrive."""
        for member in members:
            self._waiting.append((member, asyncio.create_task(self.ask(self._registration(member)))))

    async def go_on(self, fenced: Collection[str]) -> None:
        newcomer, self._newcomer = self._newcomer, None
        if newcomer is not None:
            await self._go_on_from_rebalance(newcomer)
            return
        for member in self.members:
            expected = REBALANCE if member.id in fenced else NONE
            assert await self._alive(member) == expected
            self.resumed += expected == NONE
        if fenced:
            before = {member.id: member.partitions for member in self.members}
            await self.form()
            assert {member.id: member.partitions for member in self.members} == before, "a rewind moves no partition"

    async def _go_on_from_rebalance(self, newcomer: Member) -> None:
        """A generation that was not stored and its new member are lost; the old members are not."""
        notified = await self._notified_members()
        stored = await self._alive(newcomer) != UNKNOWN
        assert stored or not notified, "a member received its assignment in a generation that is gone"
        assert stored or self._phase != "assigned"
        assert not stored or self._phase in ("assigning", "assigned")
        for member in self.members:
            expected = REBALANCE if stored and member.id not in notified else NONE
            assert await self._alive(member) == expected
            self.resumed += expected == NONE
        self.members.append(newcomer)
        await self.form()
        self.members.remove(newcomer)
        assert (await self.ask(leave(self.group, newcomer.id))).error_code == NONE
        await self.form()

    async def _notified_members(self) -> set[str]:
        """The members that waited when the broker ended and had received their assignment."""
        answers = await asyncio.gather(*[task for _, task in self._waiting], return_exceptions=True)
        received = zip([member for member, _ in self._waiting], answers, strict=True)
        notified = {member.id: member for member, answer in received if not isinstance(answer, KafkaConnectionError)}
        for (member, _), answer in zip(self._waiting, answers, strict=True):
            if member.id in notified:
                self._take(member, answer)
        self._waiting.clear()
        return set(notified)
