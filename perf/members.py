"""Members of groups as state machines over `group_wire`, and the loop that drives them, one request under way each.

Members ask back to back: the next request leaves when the answer to the one before is there.
"""

import selectors
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from perf import group_wire as wire
from perf.brokers.base import Running
from perf.errors import VerificationError
from perf.wire import call, connect

SECONDS_MAX = 60.0
NOT_YET = {14, 15, 16}  # the coordinator is being loaded, or made
MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION = 79, 27, 22


class Member(ABC):
    """One member with a connection of its own.

    Attributes:
        generation: the generation or epoch that it is in, -1 while it is on its way into one.
        owned: the partitions that it has.
    """

    def __init__(self, group: str, topic: str, connection: socket.socket) -> None:
        self.group, self.topic, self.connection = group, topic, connection
        self.generation = -1
        self.owned: list[int] = []
        self.leaving = False
        self._tail = b""

    @abstractmethod
    def request(self) -> bytes:
        """What it asks next."""

    @abstractmethod
    def answered(self, answer: bytes) -> None:
        """Take the answer, without its size. Raises VerificationError for one that must not be."""

    @abstractmethod
    def heartbeat(self) -> bytes:
        """A heartbeat of a member with a complete assignment."""

    def send(self) -> None:
        self.connection.sendall(self.request())

    def receive(self) -> bool:
        """Take what has come; whether that was an answer."""
        data = self._tail + self.connection.recv(1 << 16)
        if len(data) == len(self._tail):
            raise VerificationError("the broker closed the connection of a member")
        whole = len(data) >= 4 and len(data) - 4 >= struct.unpack_from(">i", data)[0]
        self._tail = b"" if whole else data
        if whole:
            self.answered(data[4:])
        return whole


class ClassicMember(Member):
    """JoinGroup, SyncGroup, then heartbeats; the leader deals the partitions out in turn."""

    def __init__(self, group: str, topic: str, partitions: int, connection: socket.socket) -> None:
        super().__init__(group, topic, connection)
        self._partitions = partitions
        self._begin()

    def _begin(self) -> None:
        self.generation, self.owned, self._member, self.leaving = -1, [], "", False
        self._step, self._joined = "join", wire.Joined(0, -1, "", [])

    def request(self) -> bytes:
        if self.leaving:
            self._step = "leave"
            return wire.leave(self.group, self._member)
        if self._step == "join":
            self.generation = -1
            return wire.join(self.group, self._member, self.topic)
        if self._step == "sync":
            members = self._joined.members
            dealt = {member: range(at, self._partitions, len(members)) for at, member in enumerate(members)}
            return wire.sync(self.group, self._joined.generation, self._member, self.topic, dealt)
        return self.heartbeat()

    def heartbeat(self) -> bytes:
        return wire.heartbeat(self.group, self.generation, self._member)

    def answered(self, answer: bytes) -> None:
        if self._step == "leave":
            self._begin()
        elif self._step == "join":
            self._join_answered(wire.joined(answer))
        elif error := wire.error_of(answer):
            if error not in (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION):
                raise VerificationError(f"{self._step} of a member was answered with error {error}")
            self._step = "join"
        elif self._step == "sync":
            self.owned, self.generation, self._step = wire.synced(answer), self._joined.generation, "heartbeat"

    def _join_answered(self, joined: wire.Joined) -> None:
        if joined.error not in (0, MEMBER_ID_REQUIRED, *NOT_YET):
            raise VerificationError(f"a member may not join: error {joined.error}")
        self._member, self._joined = joined.member or self._member, joined
        if not joined.error:
            self._step = "sync"


class ConsumerMember(Member):
    """Heartbeats of KIP-848; what is assigned is owned, and what is revoked let go, with the next one."""

    def __init__(self, group: str, topic: str, number: int, connection: socket.socket) -> None:
        super().__init__(group, topic, connection)
        self._number, self._incarnation = number, 0
        self._begin()

    def _begin(self) -> None:
        self._incarnation += 1
        self._member = f"member-{self._number:05}-{self._incarnation:05}"  # the names of all have one length
        self.generation, self.owned, self.leaving = -1, [], False
        self._epoch, self._assigned, self._news = 0, dict[bytes, list[int]](), True

    def request(self) -> bytes:
        if self.leaving:
            return wire.consumer_heartbeat(self.group, self._member, -1)
        if self._epoch == 0:
            return wire.consumer_heartbeat(self.group, self._member, 0, topic=self.topic, owned={})
        owned = self._assigned if self._news else None
        self._news = False
        return wire.consumer_heartbeat(self.group, self._member, self._epoch, owned=owned)

    def heartbeat(self) -> bytes:
        return wire.consumer_heartbeat(self.group, self._member, self._epoch)

    def answered(self, answer: bytes) -> None:
        if self.leaving:
            self._begin()
            return
        beaten = wire.beaten(answer)
        if beaten.error in NOT_YET:
            return
        if beaten.error:
            raise VerificationError(f"the heartbeat of a member was answered with error {beaten.error}")
        if beaten.assigned is not None:
            self._assigned, self._news = beaten.assigned, True
        self._epoch, self.owned = beaten.epoch, [part for parts in self._assigned.values() for part in parts]
        self.generation = -1 if self._news else self._epoch


class Crowd:
    """The members of one group on one topic.

    Arguments:
        members: none of them has asked anything yet.
        partitions: how many the topic has.
    """

    def __init__(self, members: Sequence[Member], partitions: int) -> None:
        self.members, self._partitions = members, partitions
        self._selector = selectors.DefaultSelector()
        for member in members:
            self._selector.register(member.connection, selectors.EVENT_READ, member)
        self._owners = dict[Member, int]()  # members with a complete assignment, by generation

    def wait_until_stable(self) -> None:
        """Ask back to back until all are in one generation and own every partition once. Nothing is under way then."""
        self._owners.clear()
        deadline = time.monotonic() + SECONDS_MAX
        idle = list(self.members)
        while not self._is_stable() or len(idle) < len(self.members):
            if not self._is_stable():
                self._send(idle)
                idle = []
            ready = [key.data for key, _ in self._selector.select(1.0)]
            done = [member for member in ready if member.receive()]
            self._owners.update((member, member.generation) for member in done)
            idle += done
            if time.monotonic() > deadline:
                raise VerificationError(f"{self.members[0].group} is not settled after {SECONDS_MAX:.0f} s")

    def _send(self, members: Iterable[Member]) -> None:
        for member in members:
            member.send()

    def _is_stable(self) -> bool:
        generations = set(self._owners.values())
        if len(self._owners) < len(self.members) or len(generations) > 1 or -1 in generations:
            return False
        owned = [part for member in self.members for part in member.owned]
        return len(owned) == len(set(owned)) == self._partitions

    def change(self, number: int) -> float:
        """A member leaves and comes back as a new one; seconds until all have a complete assignment."""
        started = time.perf_counter()
        self.members[number % len(self.members)].leaving = True
        self.wait_until_stable()
        return time.perf_counter() - started

    def leave(self) -> None:
        """Everybody leaves: sessions that run out later would be billed to whatever is measured then."""
        for member in self.members:
            member.leaving = True
        self._send(self.members)
        while any(member.leaving for member in self.members):
            ready = [key.data for key, _ in self._selector.select(SECONDS_MAX)]
            if not ready:
                raise VerificationError(f"{self.members[0].group}: a member may not leave for {SECONDS_MAX:.0f} s")
            for member in ready:
                member.receive()

    def close(self) -> None:
        self._selector.close()
        for member in self.members:
            member.connection.close()


def crowd(kind: str, broker: Running, group: str, topic: str, members: int, partitions: int) -> Crowd:
    """Members of a `classic` or a `consumer` group, each with a connection, that have not joined yet."""
    connections = [connect(broker.host, broker.port) for _ in range(members)]
    find(connections[0], group)
    if kind == "classic":
        made: list[Member] = [ClassicMember(group, topic, partitions, each) for each in connections]
    else:
        made = [ConsumerMember(group, topic, number, each) for number, each in enumerate(connections)]
    return Crowd(made, partitions)


def find(connection: socket.socket, group: str) -> None:
    """Wait until the broker coordinates the group: its topic may have to be made. Raises VerificationError."""
    deadline = time.monotonic() + SECONDS_MAX
    while error := wire.error_of(call(connection, wire.find_coordinator(group))):
        if error not in NOT_YET or time.monotonic() > deadline:
            raise VerificationError(f"no coordinator for {group}: error {error}")
        time.sleep(0.05)  # no event announces the coordinator


def commit_all(connection: socket.socket, topic: str, commits: Mapping[str, Mapping[int, int]]) -> None:
    """Commit by group, one after the other, again while the group is being loaded. Raises VerificationError."""
    for group, offsets in commits.items():
        deadline = time.monotonic() + SECONDS_MAX
        while error := wire.error_of(
            call(connection, wire.offset_commit(group, topic, offsets)), wire.commit_error_at(topic)
        ):
            if error not in NOT_YET or time.monotonic() > deadline:
                raise VerificationError(f"a commit of {group} was answered with error {error}")
            time.sleep(0.01)  # as in `find`
