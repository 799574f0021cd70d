"""The world of a simulated group: the tree, topics with records, the offset storage, members, and the invariants.

Invariants, checked at each change of an owner, each Fetch and each commit:
1. A partition that is fetched has the owner node of the fetching session. Exceptions: the session has no connection,
   for at most its timeout; its end is not known yet to its client; an administrator has deleted the node.
2. An owner node is deleted by its session only.
3. A Fetch begins at or below the first offset that no stream has returned; committed offsets never pass it.
4. A member commits partitions that it owns, and positions that its streams have returned.
"""

import random
from collections.abc import Mapping
from typing import Any

from kafkalite_sdk.zk.membership.effects import FetchStart, Positions

from kafkalite.coordination.tree import Create, Delete, Operation, Set
from kafkalite.coordination.znodes import TopicNode, ZnodeError, decode_topic, encode_topic, topic_path
from kafkalite.coordination.znodes.consumers import decode_owner, owner_path, owners_path
from kafkalite.model import TopicPartition
from tests.story.zk.member import Member

GROUP = "g"
TIMEOUT_MS = 6_000
SLACK_MS = 100  # the delays of messages
LOST_RESPONSES = 0.05


class World:
    """Everything that the members share.

    Arguments:
        chance: draws everything random.
        service: the coordination service.

    Attributes:
        ends: the log end offset of each partition.
        offsets: what is committed.
        processed: the first offset of each partition that no stream has returned.
        disturbed: (member, partition) whose owner an administrator has deleted.
        faulty: the offset storage and the listeners have faults.
        problems: reported by members.
        foreign: the owners that belong to no member.
    """

    def __init__(self, chance: random.Random, service: Any) -> None:
        self.chance = chance
        self.service = service
        self.schedule = service.schedule
        self.service.changed = self._changed
        self.service.loses_response = lambda: self.faulty and chance.random() < LOST_RESPONSES
        self.ends: dict[TopicPartition, int] = {}
        self.offsets: dict[TopicPartition, int] = {}
        self.processed: dict[TopicPartition, int] = {}
        self.members: list[Member] = []
        self.disturbed: set[tuple[Member, TopicPartition]] = set()
        self.faulty = True
        self.problems: list[str] = []
        self.foreign: set[str] = set()
        for path in ("/consumers", "/brokers", "/brokers/ids", "/brokers/topics"):
            assert self.service.change(Create(path))

    @property
    def live(self) -> list[Member]:
        """The members that run."""
        return [member for member in self.members if not member.ended]

    # Topics.

    def topics(self) -> list[str]:
        return list(self.service.tree.children("/brokers/topics")[0])

    def partitions(self) -> dict[str, tuple[int, ...]]:
        """The partitions of each topic whose node is valid."""
        found = {}
        for topic in self.topics():
            try:
                node = decode_topic(topic, self.service.tree.get(topic_path(topic))[0])
            except ZnodeError:
                continue
            found[topic] = tuple(node.replicas)
        return found

    def paths(self, prefix: str) -> list[str]:
        return [path for path, _ in self.service.tree.walk() if path.startswith(prefix)]

    def create_topic(self, topic: str, partitions: int) -> None:
        node = TopicNode(None, dict.fromkeys(range(partitions), (0,)))
        if self.service.change(Create(topic_path(topic), encode_topic(node))):
            self._grow(topic, partitions)

    def grow_topic(self, topic: str, partitions: int) -> None:
        node = TopicNode(None, dict.fromkeys(range(partitions), (0,)))
        if self.service.change(Set(topic_path(topic), encode_topic(node))):
            self._grow(topic, partitions)

    def delete_topic(self, topic: str) -> None:
        self.service.change(Delete(topic_path(topic)))

    def _grow(self, topic: str, partitions: int) -> None:
        for index in range(partitions):
            self.ends.setdefault(TopicPartition(topic, index), 0)

    # Checks.

    def process(self, member: Member, partition: TopicPartition, start: int, end: int) -> None:
        """A stream returns the records from `start` to `end`."""
        self.check_owner(member, partition)
        done = self.processed.get(partition, 0)
        assert start <= done, f"{partition}: a stream returns {start}, the records from {done} on are skipped"
        self.processed[partition] = max(done, end)

    def check_fetch(self, member: Member, starts: Mapping[TopicPartition, FetchStart]) -> None:
        for partition, start in starts.items():
            assert (start.offset or 0) <= self.processed.get(partition, 0), f"{partition}: {start.offset} skips records"
            assert start.offset == self.offsets.get(partition), (
                f"{partition}: fetched from {start.offset}, not the commit"
            )
            self.check_owner(member, partition)

    def check_commit(self, member: Member, offsets: Positions) -> None:
        """A member begins to commit."""
        for partition, offset in offsets.items():
            assert offset <= self.processed.get(partition, 0), (
                f"{partition}: {offset} is committed before it is returned"
            )
            self.check_owner(member, partition)

    def write_offset(self, member: Member, session: Any, partition: TopicPartition, offset: int) -> None:
        """A commit is executed.

        Arguments:
            member: has begun it.
            session: of the member at that time; a write may be under way when it ends.
            partition, offset: what is committed.
        """
        if not member.ended and session is member.session:
            self.check_owner(member, partition)
        self.offsets[partition] = offset

    def check_left(self, member: Member, session: Any) -> None:
        """A member that has shut down with a session has deleted its nodes."""
        if member.error is None and session.connected:
            assert not self.service.tree.sessions.get(session.session_id), "the consumer ended before its nodes"

    def check_owner(self, member: Member, partition: TopicPartition) -> None:
        """The first invariant."""
        session = member.session
        if session is None or (member, partition) in self.disturbed:
            return
        if self._owner(partition) == session.session_id:
            return
        expired = session.session_id not in self.service.tree.sessions
        away = not session.connected and self.schedule.now_ms - session.disconnected_at <= TIMEOUT_MS + SLACK_MS
        known = session.connected and not session.over  # the server has ended the session, the message is under way
        assert expired and (away or known), f"{partition}: {member.settings.consumer_id} does not own it"

    def _owner(self, partition: TopicPartition) -> int | None:
        node = self.service.tree.find(owner_path(GROUP, *partition))
        return None if node is None else node.owner

    def _changed(self, session: int, operations: tuple[Operation, ...]) -> None:
        prefix = owners_path(GROUP) + "/"
        for operation in operations:
            if not operation.path.startswith(prefix) or operation.path.count("/") != prefix.count("/") + 1:
                continue
            topic, _, number = operation.path.removeprefix(prefix).partition("/")
            partition = TopicPartition(topic, int(number))
            if isinstance(operation, Delete):
                self._deleted(session, partition)
            else:  # what was deleted before does not matter
                self.disturbed = {each for each in self.disturbed if each[1] != partition or not each[0].has(session)}
            for member in self.live:
                if partition in member.positions:
                    self.check_owner(member, partition)

    def _deleted(self, session: int, partition: TopicPartition) -> None:
        if session == self.service.session:
            owners = [each for each in self.live if partition in each.machine.state.held.keys() | each.positions.keys()]
            self.disturbed |= {(member, partition) for member in owners}

    def check_owner_text(self, partition: TopicPartition, member: Member) -> None:
        """The owner node names the stream that fetches."""
        path = owner_path(GROUP, *partition)
        owner = decode_owner(path, self.service.tree.get(path)[0])
        assert owner == (member.settings.consumer_id, member.streams[partition]), f"{path}: {owner}"
