"""A consumer of the SDK without its network: its membership machine, which sends requests over two faulty connections.

The reader does what the consumer's driver does: it sends the calls of the machine when they are due, carries out
changes when the application polls, commits revoked partitions, and reports errors of commits. Faults: a connection is
lost before or after a request is served, responses are late, the application is busy, the coordinator is looked up
late.
"""

import random
from collections import deque
from dataclasses import dataclass
from typing import Any

from kafkalite_sdk.client.cluster_view import ClusterView
from kafkalite_sdk.membership.membership import Membership
from kafkalite_sdk.membership.settings import AssignmentChange, GroupCall, MembershipSettings
from kafkalite_sdk.membership.topics import metadata_of_topics

from kafkalite.errors import KafkaConnectionError, KafkaErrorCode, MaxPollIntervalExceededError, error_class
from kafkalite.protocol.schema import Response
from tests.story.groups.group_server import GroupServer
from tests.story.groups.readers import Position, Reader, World

Code = KafkaErrorCode
ENDS = (
    *(Code.FENCED_INSTANCE_ID, Code.UNRELEASED_INSTANCE_ID, Code.GROUP_MAX_SIZE_REACHED),
    *(Code.INCONSISTENT_GROUP_PROTOCOL, Code.GROUP_ID_NOT_FOUND),
)
ENDS_WITH = tuple(error_class(code) for code in ENDS)
ASSIGNING = ("SyncGroupResponse", "ConsumerGroupHeartbeatResponse", "RegisterConsumerResponse")


METADATA_REFRESH = 0.1


@dataclass
class Exchange:
    """A request that was sent."""

    call: GroupCall
    response: Response | None = None
    order: int = -1  # the number of the response
    lost: bool = False  # the request did not arrive


@dataclass(frozen=True)
class Faults:
    """Probabilities of faults per request or step."""

    lose_request: float = 0.01
    lose_connection: float = 0.01
    delay: float = 0.1
    busy: float = 0.02
    lose_commit: float = 0.05


NO_FAULTS = Faults(0, 0, 0, 0, 0)


class SdkReader(Reader):
    """One client process."""

    def __init__(
        self,
        world: World,
        server: GroupServer,
        name: str,
        settings: MembershipSettings,
        topics: tuple[str, ...] = (),
        pattern: str | None = None,
    ) -> None:
        super().__init__(world, name, settings.instance_id)
        self.server, self.settings = server, settings
        self.dice = random.Random(world.dice.random())
        self.faults = Faults()
        self.view = ClusterView()
        self.membership = Membership(settings, self.dice, self.view)
        self.connections: dict[str, deque[Exchange]] = {"group": deque(), "join": deque(), "any": deque()}
        self.busy_until = 0.0
        self.stepped = True  # since the last call of `requests` something has happened
        self.lookup_at: float | None = None
        self.order = -1  # the response with the last assignment
        self.topics = topics
        self.pattern = pattern
        self.leaving = False
        self.membership.subscribe(topics, pattern=pattern, now=self.now)

    @property
    def now(self) -> float:
        return self.world.shard.ms / 1000

    @property
    def stable(self) -> bool:
        return self.membership.state == "stable" and self.membership.change is None

    # the driver

    def step(self) -> None:
        """Receive, poll unless the application is busy, and send what is due."""
        self.server.deliver()
        self.server.resolve_patterns()
        self._receive()
        if self.now >= self.busy_until:
            self._poll()
            if self.dice.random() < METADATA_REFRESH:
                self.refresh_metadata()
            if self.dice.random() < self.faults.busy:
                self.busy_until = self.now + self.dice.uniform(1, 1.5 * self.settings.max_poll_interval_s)
        self._find_coordinator()
        self._send_due()
        self._note_identity()

    def _poll(self) -> None:
        membership = self.membership
        if isinstance(membership.error, MaxPollIntervalExceededError):
            try:
                membership.raise_error()
            except MaxPollIntervalExceededError:
                self.stepped = True
        elif membership.error is not None:
            assert isinstance(membership.error, ENDS_WITH), repr(membership.error)
            self.alive = False
        if not self.leaving:
            membership.poll(self.now)
        if membership.change is not None:
            self._carry_out(membership.change)
            membership.change_done(self.now)
            self.stepped = True
        assert membership.assignment == self.positions.keys()

    def _carry_out(self, change: AssignmentChange) -> None:
        for each in change.lost:
            del self.positions[each]
        if change.revoked:
            self._note_identity()
            self.commit()
            if self.dice.random() < self.faults.lose_commit:
                self.outbox.clear()
            self.send()
            for each in change.revoked:
                del self.positions[each]
        assert change.assigned.isdisjoint(self.positions)
        starts = change.start_offsets
        for each in sorted(change.assigned):
            receiver = self.order, self
            self.world.receivers[each] = max(
                receiver, self.world.receivers.get(each, receiver), key=lambda received: received[0]
            )
            offset = max(starts[each], 0) if starts else self.world.committed_of(each)
            self.positions[each] = Position(self.world.rewinds[each], offset)

    def _note_identity(self) -> None:
        """The identity of the next commits, for the checks of the simulation."""
        identity = self.membership.identity()
        self.member_id = identity.member_id if identity is not None else "no member"
        self.owns_in = identity.generation if identity is not None else -1
        self.instance = identity.instance_id if identity is not None else None

    def commit(self) -> None:
        if self.membership.identity() is not None:
            super().commit()

    def send(self) -> None:
        """Commits arrive in order, unless their connection is lost; errors are reported to the machine."""
        while self.outbox:
            sent = self.outbox.pop(0)
            identity = self.membership.identity()
            for code in set(self.world.take(self, sent)) - {0}:
                if identity is not None and (identity.member_id, identity.generation) == sent[:2]:
                    self.membership.commit_failed(identity, code, self.now)
                    self.stepped = True

    def leave(self) -> None:
        """Close the consumer."""
        self.leaving = True
        self.membership.leave(self.now)
        self.busy_until = 0.0
        while self.membership.change is not None:
            self._carry_out(self.membership.change)
            self.membership.change_done(self.now)
        if not self.membership.needs_coordinator:
            self.stepped = True
            self._send_due()
            assert self.membership.left or self.connections["group"], "the leave of the group does not end"
        self.alive = False

    def dropped(self, tokens: set[Any]) -> None:
        """The broker stopped: its connections are closed."""
        for channel in self.connections:
            self._lose(channel)

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Read other topics."""
        self.topics, self.pattern = topics, None
        self.membership.subscribe(topics, now=self.now)
        self.stepped = True

    def refresh_metadata(self) -> None:
        """The client refreshes the metadata of the topics that the machine names."""
        wanted = sorted(self.membership.topics)
        if wanted:
            self.view.update(self.server.metadata(metadata_of_topics(wanted)))
            self.membership.metadata_changed(self.now)
            self.stepped = True

    # connections

    def _send_due(self) -> None:
        membership = self.membership
        if not self.stepped and self.now < membership.wake_at(self.now):
            return
        self.stepped = False
        for call in membership.requests(self.now):
            channel = call.channel if call.to_coordinator else "any"
            exchange = Exchange(call)
            self.connections[channel].append(exchange)
            if channel == "group":
                self.send()  # commits use this connection and arrive before
            if self.dice.random() < self.faults.lose_request:
                exchange.lost = True
            else:
                self._serve(exchange)
        assert membership.wake_at(self.now) > self.now, "the machine asks to be called at once, for ever"
        self._receive()

    def _serve(self, exchange: Exchange) -> None:
        def receive(response: Response) -> None:
            exchange.response, exchange.order = response, self.server.order

        self.server.send(exchange.call.request, receive, self.name)

    def _receive(self) -> None:
        """Receive the responses that have arrived, in the order of the requests of each connection."""
        for channel, exchanges in self.connections.items():
            while exchanges:
                first = exchanges[0]
                if first.lost or (first.response is not None and self.dice.random() < self.faults.lose_connection):
                    self._lose(channel)
                    break
                if first.response is None or self.dice.random() < self.faults.delay:
                    break
                exchanges.popleft()
                if type(first.response).__name__ in ASSIGNING and not first.response.error_code:  # type: ignore[attr-defined]
                    self._received_assignment(first)
                self.membership.answered(first.call, first.response, self.now)
                self.stepped = True

    def _received_assignment(self, exchange: Exchange) -> None:
        if getattr(exchange.response, "assignment", b"") is not None:
            self.order = exchange.order

    def _lose(self, channel: str) -> None:
        exchanges, self.connections[channel] = self.connections[channel], deque()
        for exchange in exchanges:
            self.membership.failed(exchange.call, KafkaConnectionError("the connection was lost"), self.now)
            self.stepped = True

    def _find_coordinator(self) -> None:
        if not self.membership.needs_coordinator:
            self.lookup_at = None
        elif self.lookup_at is None:
            self.lookup_at = self.now + (self.dice.random() if self.faults is not NO_FAULTS else 0)
        elif self.now >= self.lookup_at:
            self.lookup_at = None
            self.membership.coordinator_found(self.now)
            self.stepped = True
