"""Nodes of topics with many partitions: few at a creation, several transactions at a deletion, no half after a kill."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Outcome
from kafkalite.cluster.configs.expiring_nodes import EXPIRATION_MS
from kafkalite.cluster.configs.writes import topic_node
from kafkalite.cluster.metadata import topic_node_removal
from kafkalite.cluster.metadata.image import PartitionImage, TopicImage, new_partition
from kafkalite.cluster.metadata.store import MetadataStore
from kafkalite.coordination import journal, znodes
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.coordination.tree import Operation
from kafkalite.errors import KafkaErrorCode
from kafkalite.testing.faulty_disk import FaultyDisk
from kafkalite.testing.virtual_clock import VirtualClock

ID, OTHER = bytes(range(16)), bytes(range(1, 17))
AT_ONCE = 4
PARTITIONS = 3 * AT_ONCE
NAME = "t"
EMPTY_TOPIC_NODES = 4
NODES = EMPTY_TOPIC_NODES + 3 * PARTITIONS  # two for a state, one for a directory


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_node_removal, "PARTITIONS_AT_ONCE", AT_ONCE)


class Rig:
    """A broker's store on the journal at `path`, after a start."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path, self.clock, self.outcomes = path, VirtualClock(), list[int]()
        self.service = EmbeddedCoordination.open(disk or Disk(), str(path), self.clock)
        self.store = MetadataStore(self.service.connect(), self.clock)
        asyncio.run(self.store.prepare())
        self.store.register(1)
        self.topics = asyncio.run(self.store.topics())
        self.deleted = asyncio.run(self.store.load_notices())

    def create(self, topic_id: bytes = ID, partitions: int = PARTITIONS, name: str = NAME) -> TopicImage:
        topic = TopicImage(name, topic_id, (new_partition((1,)),) * partitions, {"retention.ms": "1"})
        self.store.create_topic(topic, self.outcomes.append)
        return topic

    def fill(self, topic: TopicImage) -> TopicImage:
        """Give each partition a state and a directory."""
        raised = {(NAME, at): one._replace(leader_epoch=1) for at, one in enumerate(topic.partitions)}
        assert asyncio.run(self.store.change_leader_epochs(raised, lambda operations: None))
        all_partitions = [(topic.topic_id, at) for at in range(len(topic.partitions))]
        self.store.note_directories(all_partitions, "here", self.outcomes.append)
        return replace(topic, partitions=tuple(raised.values()))

    def delete(self, topic: TopicImage) -> None:
        self.store.delete_topic(topic, self.outcomes.append)

    def nodes(self) -> int:
        """Nodes of topics, their configs and directories."""
        all_partitions = (znodes.TOPICS, znodes.TOPIC_CONFIGS, znodes.DIRECTORIES)
        return sum(
            path.startswith(tuple(f"{parent}/" for parent in all_partitions)) for path, _ in self.service.tree.walk()
        )

    def recorded(self) -> bool:
        return self.service.tree.exists(znodes.deleted_topic_path(ID)) is not None


def ends(data: bytes) -> list[int]:
    """Where each transaction ends in a journal."""
    found, at = [], len(journal.header())
    while (record := journal.read_record(data, at)) is not None:
        at = record.end
        found.append(at)
    assert at == len(data)
    return found


def test_a_new_partition_has_no_nodes_of_its_own(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "j")
    topic = rig.create(partitions=2)
    grown = replace(topic, partitions=(new_partition((1,)),) * PARTITIONS)
    rig.store.update_topic(grown, rig.outcomes.append)
    assert rig.nodes() == EMPTY_TOPIC_NODES and rig.outcomes == [0, 0]
    assert Rig(tmp_path / "j").topics == [grown]


def test_the_state_of_a_partition_is_kept_when_it_differs_from_a_new_one(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "j")
    odd = PartitionImage((1,), (1,), 1, 7)
    topic = TopicImage(NAME, ID, (new_partition((1,)), odd, new_partition((1,))), {})
    rig.store.create_topic(topic, rig.outcomes.append)
    for epoch in (8, 9):
        changed = {(NAME, at): odd._replace(leader_epoch=epoch) for at in (1, 2)}
        rig = Rig(tmp_path / "j")
        assert asyncio.run(rig.store.change_leader_epochs(changed, lambda operations: None))
        rig.service.close()
    (found,) = Rig(tmp_path / "j").topics
    assert [one.leader_epoch for one in found.partitions] == [0, 9, 9]


def test_a_kill_leaves_a_topic_whole_or_deleted(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "j")
    before = rig.nodes()
    topic = rig.fill(rig.create())
    assert rig.nodes() - before == NODES
    rig.delete(topic)
    assert rig.recorded() and rig.nodes() - before == NODES, "the record comes first"
    rig.clock.advance(0)
    assert rig.nodes() == before and rig.outcomes == [0, 0, 0]
    rig.service.close()
    data = (tmp_path / "j").read_bytes()
    seen = set()
    for end in ends(data):
        try:
            journal.load(data[:end])
        except journal.JournalError:
            continue  # within the snapshot, which is renamed into place
        seen.add(check_killed(tmp_path / "killed", data[:end], before))
    assert {(False, before), (True, before), (True, before + NODES)} < seen
    assert len(seen) > 5, "the nodes are deleted by several transactions"


def check_killed(path: Path, data: bytes, before: int) -> tuple[bool, int]:
    path.write_bytes(data)
    rig = Rig(path)
    found = rig.recorded(), rig.nodes()
    for topic in rig.topics:
        assert not found[0] and len(topic.partitions) == PARTITIONS and topic.configs == {"retention.ms": "1"}
        assert {one.leader_epoch for one in topic.partitions} in ({0}, {1})
        assert len({rig.store.noted_directory(ID, at) for at in range(PARTITIONS)}) == 1
    assert bool(rig.topics) == (not found[0] and found[1] > before)
    assert rig.deleted == ({ID} if found[0] else set())
    if found[0]:
        rig.store.finish_deletions()
        rig.clock.advance(0)
        assert rig.nodes() == before
        rig.create(OTHER)
        assert rig.outcomes == [0]
    rig.service.close()
    return found


def test_a_topic_of_the_same_name_is_created_after_the_nodes_of_the_deleted_one(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "j")
    rig.delete(rig.fill(rig.create()))
    rig.create(OTHER)
    assert rig.outcomes == [0, 0, 0]
    rig.clock.advance(0)
    assert rig.outcomes == [0, 0, 0, 0]
    rig.service.close()
    (topic,) = Rig(tmp_path / "j").topics
    assert topic.topic_id == OTHER


def test_no_directory_is_recorded_for_a_deleted_topic(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "j")
    rig.delete(rig.fill(rig.create()))
    rig.store.note_directories([(ID, PARTITIONS)], "here", rig.outcomes.append)
    assert rig.outcomes == [0, 0, 0, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_deletion_does_not_count_on_directories_that_are_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directories of two topics are recorded together while one of them is being deleted, then the other, too."""
    rig = Rig(tmp_path / "j")
    first, second = rig.create(partitions=1), rig.create(OTHER, 1, "u")
    multi, ends = rig.store._session.multi, list[Callable[[], object]]()

    def ended_later(operations: Sequence[Operation], then: Callable[[Outcome], object]) -> None:
        multi(operations, lambda outcome: ends.append(lambda: then(outcome)))

    monkeypatch.setattr(rig.store._session, "multi", ended_later)
    rig.delete(first)
    rig.store.note_directories([(ID, 0), (OTHER, 0)], "here", rig.outcomes.append)
    rig.delete(second)
    for end in ends:
        end()
    assert sorted(rig.outcomes) == [0, 0, 0, 0, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert rig.outcomes[-1] == 0


@pytest.mark.parametrize("failing", range(1, 8))
def test_a_full_disk_leaves_nodes_that_a_creation_deletes(tmp_path: Path, failing: int) -> None:
    disk = FaultyDisk()
    rig = Rig(tmp_path / "j", disk)
    before = rig.nodes()
    topic = rig.fill(rig.create())
    disk.fail("write", 28, when=failing, repeat=True)
    rig.delete(topic)
    rig.clock.advance(0)
    assert rig.nodes() > before and rig.recorded() == (failing > 1)
    rig.create(OTHER)
    rig.clock.advance(0)
    assert rig.outcomes[:2] == [0, 0] and rig.outcomes[-1] != 0
    disk.heal()
    if failing == 1:
        assert rig.outcomes[2] == KafkaErrorCode.KAFKA_STORAGE_ERROR
        rig.delete(topic)
    rig.create(OTHER)
    rig.clock.advance(0)
    assert rig.outcomes[-1] == 0 and rig.nodes() == before + EMPTY_TOPIC_NODES


def test_deletion_record_does_not_expire_before_the_nodes_are_deleted(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "j")
    rig.delete(rig.fill(rig.create()))
    rig.service.close()
    rig = Rig(tmp_path / "j")
    rig.clock.advance(EXPIRATION_MS + 60_000)
    rig.create(OTHER, name="u")
    rig.store.configs.change(topic_node("u"), lambda _: {}, lambda written: rig.outcomes.append(written.error))
    assert rig.recorded() and rig.outcomes == [0, 0]
    rig.store.finish_deletions()
    rig.clock.advance(EXPIRATION_MS + 1)
    rig.store.configs.change(topic_node("u"), lambda _: {}, lambda written: rig.outcomes.append(written.error))
    assert not rig.recorded() and rig.outcomes == [0, 0, 0]
