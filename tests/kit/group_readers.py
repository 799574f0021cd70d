"""librdkafka's consumers in groups that commit all the time, and what the broker has promised them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import confluent_kafka as ck

from tests.kit.clients.groups import committed, member_ids
from tests.kit.clients.members import Crowd, Kind, Librdkafka, Seen, TopicPartition, Wish

SESSION_MS = 60_000  # longer than any broker needs to come back
# Results of a commit when the broker ends, comes back, or fences the member; the next commit decides.
PASSING = {
    ck.KafkaError._TRANSPORT,
    ck.KafkaError._TIMED_OUT,
    ck.KafkaError._WAIT_COORD,
    ck.KafkaError._ASSIGNMENT_LOST,
    ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    ck.KafkaError.COORDINATOR_NOT_AVAILABLE,
    ck.KafkaError.NOT_COORDINATOR,
    ck.KafkaError.REBALANCE_IN_PROGRESS,
    ck.KafkaError.ILLEGAL_GENERATION,
    ck.KafkaError.UNKNOWN_MEMBER_ID,
    ck.KafkaError.STALE_MEMBER_EPOCH,
    ck.KafkaError.FENCED_MEMBER_EPOCH,
}


class Reader(Librdkafka):
    """A consumer that commits how far it has read after every poll, also when that is where it was.

    Attributes:
        acknowledged: what the broker has taken, by place.
    """

    def __init__(self, crowd: Crowd, wish: Wish, **more: Any) -> None:
        super().__init__(crowd, wish, **more)
        self.acknowledged: dict[TopicPartition, int] = {}

    def _poll(self) -> list[Seen]:
        fresh = super()._poll()
        try:
            taken = self._consumer.commit_positions()
        except ck.KafkaException as error:
            if error.args[0].code() not in PASSING:
                raise
            return fresh
        with self._crowd.changed:
            self.acknowledged |= taken
            self._crowd.changed.notify_all()
        return fresh


def _kind(name: str, setting: str, value: str) -> Kind:
    return Kind(name, lambda crowd, wish: Reader(crowd, wish, **{setting: value}))


KINDS = (
    _kind("eager", "partition.assignment.strategy", "range"),
    _kind("cooperative", "partition.assignment.strategy", "cooperative-sticky"),
    _kind("consumer", "group.protocol", "consumer"),
)


class Readers:
    """Two consumers of one kind in one group, through one end of the broker after the other. For a thread: it waits."""

    def __init__(self, crowd: Crowd, kind: Kind, topic_partitions: Sequence[TopicPartition]) -> None:
        self.group = f"readers {kind.name}"
        self.topic_partitions = topic_partitions
        self.crowd = crowd
        self._kind = kind
        self._members: list[Any] = []
        self._ever: list[Any] = []  # with those who have left: who came after them has nothing to commit, perhaps
        self._guest: Any = None
        self._rewound = False
        self._before: object = None
        self._seen: dict[Any, int] = {}
        self._promised: dict[TopicPartition, int] = {}
        for _ in range(2):
            self._join()

    def _join(self) -> Any:
        (topic,) = {topic for topic, _ in self.topic_partitions}
        member = self.crowd.join(self._kind, Wish(self.group, (topic,), session_ms=SESSION_MS))
        self._members.append(member)
        self._ever.append(member)
        return member

    def resolve(self, ends: dict[TopicPartition, int]) -> None:
        """Wait until the members share all places, and have committed all that is there."""
        self.crowd.share(self.topic_partitions, *self._members)
        self.crowd.wait(lambda: self._acknowledged() == ends, f"{self.group} has committed {ends}")
        for member in self._members:  # it may not have reported its own part of the last rebalance yet
            for _ in range(2):
                member.ask(lambda: None)

    def _acknowledged(self) -> dict[TopicPartition, int]:
        """The last promise for each place: it only moves on, from member to member, too."""
        found: dict[TopicPartition, int] = {}
        for member in self._ever:
            for topic_partition, offset in dict(member.acknowledged).items():
                found[topic_partition] = max(offset, found.get(topic_partition, -1))
        return found

    def _standing(self) -> object:
        """The partitions that a member loses when it has to join again."""
        ids = member_ids(self.crowd.address, [self.group])
        return ids, [(member.assignments, member.assigned) for member in self._members]

    def note(self) -> None:
        """A round begins, in which nothing may happen to this group."""
        self._before = self._standing()

    def expect_guest(self) -> None:
        """A third member is going to join."""
        self._guest = self._join()

    def expect_rewind(self) -> None:
        """All places are going to be rewound to 0."""
        self._rewound = True
        self._seen = {member: len(member.seen) for member in self._members}

    def note_promises(self) -> None:
        """Record what the stopped broker has acknowledged: no further response is received."""
        self._promised = self._acknowledged()

    def judge(self) -> None:
        """The broker is back, and whatever it was asked for is done."""
        if self._rewound:
            self._read_again()
            return
        found = committed(self.crowd.address, self.group, list(self.topic_partitions))
        lost = {
            topic_partition: offset
            for topic_partition, offset in self._promised.items()
            if found[topic_partition] < offset
        }
        assert not lost, f"{self.group}: {lost} was promised, {found} is there"

    def _read_again(self) -> None:
        wanted = {
            Seen(*topic_partition, offset) for topic_partition, end in self._promised.items() for offset in range(end)
        }

        def reread() -> bool:
            return wanted <= {seen for member, before in self._seen.items() for seen in member.seen[before:]}

        self.crowd.wait(reread, f"{self.group} has read {len(wanted)} records again")
        for member in self._ever:
            member.acknowledged = {}  # what was promised before the rewind

    def end_step(self, ends: dict[TopicPartition, int]) -> int:
        """All is read and committed; returns how many members have kept their member id."""
        self.resolve(ends)
        if self._guest is not None:
            self._guest.leave()
            self._members.remove(self._guest)
            self.resolve(ends)
        elif not self._rewound:
            assert self._standing() == self._before, f"{self.group}: somebody had to join anew"
            return len(self._members)
        self._guest, self._rewound = None, False
        return 0
