"""A simulated classic group over the wire: two members own the partitions, a third one joins and leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from kafkalite.errors import KafkaConnectionError, KafkaErrorCode
from kafkalite.protocol.messages.sync_group import SyncGroupResponse
from tests.kit.members import assignment, heartbeat, join, leave, sync
from tests.kit.simulated_group import ILLEGAL, NONE, REBALANCE, UNKNOWN, Member, SimulatedGroup

SESSION_MS = 60_000  # longer than any broker needs to come back


class SimulatedClassicGroup(SimulatedGroup):
    """Members that join, sync and send heartbeats; the first one is the leader."""

    fenced_codes = (UNKNOWN,)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.members = [Member(), Member()]
        self._newcomer = Member()
        self._leader = ""
        self._phase = ""
        self._before = -1  # the generation that was assigned last
        self._delayed_requests: list[asyncio.Task[Any]] = []

    async def form(self) -> None:
        """Members without an id receive one; then all join, and the leader assigns."""
        if not any(member.id for member in self.members):
            await self._introduce(self.members[0])
            await self._rebalance(self.members[:1])
        for member in self.members:
            if not member.id:
                await self._introduce(member)
        await self._rebalance(self.members)

    async def _introduce(self, member: Member) -> None:
        answer = await self.ask(self._join(member))
        assert answer.error_code == KafkaErrorCode.MEMBER_ID_REQUIRED
        member.id = answer.member_id

    def _join(self, member: Member) -> Any:
        times = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": SESSION_MS}
        return join(self.group, member.id, topics=(self.topic,), **times)

    def _order(self, members: Collection[Member]) -> list[Member]:
        """Members whose join starts a rebalance are first: new ones, then the leader."""
        return sorted(members, key=lambda member: (member.generation >= 0, member.id != self._leader))

    async def _rebalance(self, members: Collection[Member]) -> None:
        ordered = self._order(members)
        self._joined(ordered, await asyncio.gather(*[self.ask(self._join(member)) for member in ordered]))
        parts = self._parts(ordered)
        answers = await asyncio.gather(*[self.ask(self._sync(member, parts)) for member in ordered])
        assert [(each.error_code, each.assignment) for each in answers] == [
            (NONE, assignment(self.topic, *parts[member.id])) for member in ordered
        ]
        for member in ordered:
            member.partitions = parts[member.id]

    def _joined(self, ordered: list[Member], answers: list[Any]) -> None:
        """All members have received the same generation, and it has no other member."""
        received = {(each.error_code, each.generation_id, each.leader) for each in answers}
        assert len(received) == 1, f"one rebalance, several generations: {received}"
        ((error, generation, self._leader),) = received
        assert error == NONE and generation > max(member.generation for member in ordered)
        (members,) = [each.members for each in answers if each.member_id == self._leader]
        assert {each.member_id for each in members} == {member.id for member in ordered}
        for member in ordered:
            member.generation = generation

    def _parts(self, members: list[Member]) -> dict[str, list[int]]:
        """Partitions in turn."""
        return {member.id: list(range(at, self.partitions, len(members))) for at, member in enumerate(members)}

    def _sync(self, member: Member, parts: dict[str, list[int]]) -> Any:
        given = {name: assignment(self.topic, *topic_partitions) for name, topic_partitions in parts.items()}
        return sync(self.group, member.id, member.generation, given if member.id == self._leader else None)

    # A rebalance that the broker's end interrupts; only requested commits are sent meanwhile.

    async def begin_rebalance(self, phase: str) -> None:
        """Bring the rebalance of a third member so far: "joining"; "syncing", its leader has yet to assign;
        "assigning", whether it arrived is unknown; "assigned", a member received its assignment."""
        self._phase, self._before, self._newcomer = phase, self.members[0].generation, Member()
        await self._introduce(self._newcomer)
        all_members = self._order([*self.members, self._newcomer])
        if phase == "joining":
            self._send([self._join(member) for member in all_members[: self.random.choice([1, 2])]])
            await self._receive_rebalance(all_members[-1])
            await self.commit()
            return
        self._joined(all_members, await asyncio.gather(*[self.ask(self._join(member)) for member in all_members]))
        parts = self._parts(all_members)
        for member in all_members:
            member.partitions = parts[member.id]
        syncs = {member.id: self._sync(member, parts) for member in all_members}
        leader = syncs.pop(self._leader)
        self._send(list(syncs.values())[: self.random.randint(0, len(syncs))])
        if phase != "syncing":
            self._send([leader])
        if phase == "assigned":
            assert (await self._delayed_requests[0]).error_code == NONE

    def _send(self, requests: list[Any]) -> None:
        """Their responses may never arrive."""
        self._delayed_requests += [asyncio.create_task(self.ask(request)) for request in requests]

    async def _receive_rebalance(self, member: Member) -> None:
        """Its heartbeats show when the broker has received the join of the new member over another connection."""
        while (code := await self._alive(member)) != REBALANCE:
            assert code == NONE

    async def _alive(self, member: Member) -> int:
        code: int = (await self.ask_aside(heartbeat(self.group, member.id, member.generation))).error_code
        return code

    async def go_on(self, fenced: Collection[str]) -> None:
        phase, self._phase = self._phase, ""
        if phase:
            await self._go_on_from_rebalance(phase)
            return
        for member in self.members:
            expected = UNKNOWN if member.id in fenced else ILLEGAL if fenced else NONE
            assert await self._alive(member) == expected
            if expected == UNKNOWN:
                member.id, member.generation = "", -1
            self.resumed += expected == NONE
        if fenced:
            await self.form()

    async def _go_on_from_rebalance(self, phase: str) -> None:
        """The generation without an assignment and its new member are lost; the old members are not."""
        newcomer = self._newcomer
        notified = await self._was_notified()
        codes = [await self._alive(member) for member in self.members]
        unknown = await self._alive(newcomer)
        kept = codes == [NONE] * len(codes) and unknown == NONE
        assert kept or not notified, f"assigned in a generation that is gone: {codes}, {unknown}"
        if not kept:
            assert phase != "assigned" and unknown == UNKNOWN
            assert codes == [NONE if phase == "joining" else ILLEGAL] * len(codes)
            newcomer.id, newcomer.generation = "", -1
            for member in self.members:
                member.generation = self._before
        self.resumed += codes.count(NONE)
        self.members.append(newcomer)
        if not kept:
            await self.form()
        self.members.remove(newcomer)
        assert (await self.ask(leave(self.group, newcomer.id))).error_code == NONE
        await self.form()

    async def _was_notified(self) -> bool:
        """Whether any member that waited when the broker ended had received its assignment."""
        answers = await asyncio.gather(*self._delayed_requests, return_exceptions=True)
        self._delayed_requests.clear()
        received = [each for each in answers if not isinstance(each, KafkaConnectionError)]
        assert all(isinstance(each, SyncGroupResponse) and each.error_code == NONE for each in received), received
        return bool(received)
