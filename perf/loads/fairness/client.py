"""The connection of a hostile client: requests one by one, or as many at once as the load wants."""

import struct
import time
from collections.abc import Iterator, Mapping, Sequence

from perf import group_wire
from perf.brokers.base import Running
from perf.errors import VerificationError
from perf.loads.fairness import wire
from perf.members import NOT_YET
from perf.wire import connect, read_exactly

TIMEOUT_S = 300.0
DEPTH = 200  # requests under way while a load is prepared: less than brokers queue


class Member:
    """A member of a KIP-848 group: it owns the partitions of its last assignment.

    Arguments:
        joined: the response to its join.
    """

    def __init__(self, group: str, name: str, joined: group_wire.Beaten) -> None:
        self.group, self.name = group, name
        self.epoch, self.owned = joined.epoch, joined.assigned or {}

    def fast_heartbeat(self, client: "Client") -> None:
        """Send a heartbeat with the owned partitions."""
        request = group_wire.consumer_heartbeat(self.group, self.name, self.epoch, owned=self.owned)
        response = group_wire.beaten(client.call(request))
        client.expect("ConsumerGroupHeartbeat", {response.error})
        self.epoch = response.epoch
        self.owned = self.owned if response.assigned is None else response.assigned


class Client:
    """A blocking connection to the broker. Every error is a VerificationError."""

    def __init__(self, broker: Running) -> None:
        self.broker = broker
        self.connection = connect(broker.host, broker.port)
        self.connection.settimeout(TIMEOUT_S)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def call(self, request: bytes) -> bytes:
        """Send one request and return its response without the size."""
        self.connection.sendall(request)
        return self.response()

    def response(self) -> bytes:
        (size,) = struct.unpack(">i", read_exactly(self.connection, 4))
        return read_exactly(self.connection, size)

    def pipelined(self, requests: Sequence[bytes], depth: int = DEPTH) -> Iterator[bytes]:
        """Send the requests, at most `depth` of them without a response; the responses in order."""
        sent = 0
        for answered in range(len(requests)):
            if sent == answered or sent - answered <= depth // 2:
                self.connection.sendall(b"".join(requests[sent : answered + depth]))
                sent = min(answered + depth, len(requests))
            yield self.response()

    def flood(self, requests: Sequence[bytes]) -> None:
        """Send all requests in one piece and read all responses."""
        self.connection.sendall(b"".join(requests))
        for _ in requests:
            self.response()

    def expect(self, what: str, errors: set[int], allowed: frozenset[int] = frozenset({0})) -> None:
        """Raise VerificationError unless all error codes are allowed."""
        if not errors <= allowed:
            raise VerificationError(f"{self.broker.name}: {what} failed with errors {sorted(errors)}")

    def create(self, topics: Sequence[str], partitions: int, configs: dict[str, str] | None = None) -> None:
        """Create topics in requests of at most 1,000 partitions, which Apache Kafka accepts, and wait for leaders."""
        step = max(1, 1_000 // partitions)
        for at in range(0, len(topics), step):
            part = topics[at : at + step]
            self.expect("CreateTopics", wire.created(self.call(wire.create_topics(part, partitions, configs))))
        self.wait_for_leaders(dict.fromkeys(topics, range(partitions)))

    def delete(self, topics: Sequence[str]) -> None:
        self.expect("DeleteTopics", wire.deleted(self.call(wire.delete_topics(topics))))

    def wait_for_leaders(self, partitions: Mapping[str, Sequence[int]]) -> None:
        """Wait until ListOffsets of all the partitions succeeds; no event announces a leader."""
        deadline = time.monotonic() + TIMEOUT_S
        while errors := wire.listed(self.call(wire.list_offsets(partitions))) - {0}:
            if time.monotonic() > deadline:
                count = sum(map(len, partitions.values()))
                raise VerificationError(f"{self.broker.name}: no leader of {count} partitions: errors {errors}")
            time.sleep(0.05)

    def commit(self, groups: Sequence[str], topic: str) -> None:
        """Commit an offset of partition 0 by each group, as clients without members do."""
        self._coordinated(groups[0])
        requests = [group_wire.offset_commit(group, topic, {0: 1}) for group in groups]
        error_at = group_wire.commit_error_at(topic)
        while requests:  # again while the shard of a group is being loaded
            errors = [group_wire.error_of(response, error_at) for response in self.pipelined(requests)]
            self.expect("OffsetCommit", set(errors), frozenset({0, *NOT_YET}))
            requests = [request for request, error in zip(requests, errors, strict=True) if error]

    def _coordinated(self, group: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while error := group_wire.error_of(self.call(group_wire.find_coordinator(group))):
            if error not in NOT_YET or time.monotonic() > deadline:
                raise VerificationError(f"{self.broker.name}: no coordinator for {group}: error {error}")
            time.sleep(0.05)  # no event announces a coordinator

    def join_consumers(self, joins: Sequence[tuple[str, bytes]]) -> list[group_wire.Beaten]:
        """Members of KIP-848 groups join: (group, request) each, again while the group is being loaded."""
        self._coordinated(joins[0][0])
        requests, joined = [request for _, request in joins], []
        while requests:
            responses = [group_wire.beaten(response) for response in self.pipelined(requests)]
            self.expect("ConsumerGroupHeartbeat", {each.error for each in responses}, frozenset({0, *NOT_YET}))
            joined += [each for each in responses if not each.error]
            requests = [request for request, each in zip(requests, responses, strict=True) if each.error]
        return joined

    def beat_until(self, members: Sequence["Member"], count: int) -> None:
        """Members of a KIP-848 group send heartbeats, and give up what they are asked to, until each owns partitions
        of `count` topics; heartbeats are the only way to learn of an assignment.
        """
        deadline = time.monotonic() + TIMEOUT_S
        while any(len(member.owned) != count for member in members):
            if time.monotonic() > deadline:
                raise VerificationError(f"{self.broker.name}: members do not own {count} topics each")
            for member in members:
                member.fast_heartbeat(self)
            time.sleep(0.05)

    def join_alone(self, groups: Sequence[str], topic: str, session_ms: int) -> None:
        """Each group gets one classic member, which stays until its session expires."""
        self._coordinated(groups[0])
        for at in range(0, len(groups), DEPTH):  # in parts, so that no session expires before its SyncGroup
            self._join_alone(groups[at : at + DEPTH], topic, session_ms)

    def _join_alone(self, groups: Sequence[str], topic: str, session_ms: int) -> None:
        left = list(groups)
        while left:
            found = list(map(wire.joined, self.pipelined([wire.join(group, topic, session_ms) for group in left])))
            self.expect("JoinGroup", {error for error, _, _ in found}, frozenset({0, *NOT_YET}))
            done = [(group, *rest) for group, (error, *rest) in zip(left, found, strict=True) if not error]
            syncs = [wire.sync_alone(group, generation, member) for group, generation, member in done]
            self.expect("SyncGroup", {group_wire.error_of(response) for response in self.pipelined(syncs)} or {0})
            left = [group for group, (error, *_) in zip(left, found, strict=True) if error]
