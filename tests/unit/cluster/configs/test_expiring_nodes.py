"""Nodes that expire: notifications of config changes and records of deleted topics (HARDENING C4)."""

import asyncio
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.cluster.configs.expiring_nodes import EXPIRATION_MS, EXPIRED_MAX
from kafkalite.cluster.configs.writes import topic_node
from kafkalite.cluster.metadata.image import PartitionImage, TopicImage
from kafkalite.cluster.metadata.store import EXPIRATION_CHECK_S, EXPIRATION_PAUSE_S, MetadataStore
from kafkalite.coordination import znodes
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.errors import KafkaErrorCode
from kafkalite.testing.faulty_disk import FaultyDisk
from kafkalite.testing.virtual_clock import VirtualClock

ID = bytes(range(16))


class Rig:
    """A store on a tree with a topic `t`; `disk` keeps the journal."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.clock, self.outcomes = VirtualClock(), list[int]()
        self.service = EmbeddedCoordination.open(disk or Disk(), str(path / "journal"), self.clock)
        self.store = MetadataStore(self.service.connect(), self.clock)
        asyncio.run(self.store.prepare())
        self.deleted = asyncio.run(self.store.load_notices())

    def create(self, topic_id: bytes = ID) -> TopicImage:
        topic = TopicImage("t", topic_id, (PartitionImage((1,), (1,), 1, 0),), {})
        self.store.create_topic(topic, self.outcomes.append)
        return topic

    def configure(self, count: int) -> None:
        for number in range(count):
            self.replace("t", {"retention.ms": str(number)})

    def replace(self, topic: str, configs: dict[str, str]) -> None:
        self.store.configs.change(
            topic_node(topic), lambda _current: configs, lambda written: self.outcomes.append(written.error)
        )

    def nodes(self) -> int:
        """Notifications and records of deletions."""
        found = self.service.tree.find(znodes.CONFIG_CHANGES), self.service.tree.find(znodes.DELETED_TOPICS)
        return sum(len(node.children) for node in found if node is not None)


def test_notifications_of_config_changes_expire_as_in_kafka(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.create()
    rig.configure(300)
    rig.clock.advance(EXPIRATION_MS)
    rig.configure(1)
    assert rig.nodes() == 301, "none is older than 15 minutes"
    rig.clock.advance(1)
    rig.configure(3)
    assert rig.nodes() == 4, "300 are deleted, at most 100 by each transaction"
    assert rig.outcomes == [0] * 305


def test_expired_nodes_are_deleted_without_further_changes(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.create()
    rig.configure(2 * EXPIRED_MAX + 50)
    rig.store.delete_expired()
    rig.clock.advance(EXPIRATION_MS)
    assert rig.nodes() == 2 * EXPIRED_MAX + 50
    rig.clock.advance(EXPIRATION_CHECK_S * 1000)
    counts = [rig.nodes()]
    for _ in range(2):
        rig.clock.advance(EXPIRATION_PAUSE_S * 1000)
        counts.append(rig.nodes())
    assert counts == [EXPIRED_MAX + 50, 50, 0], "at most 100 by each transaction"
    rig.configure(1)
    rig.clock.advance(EXPIRATION_MS + EXPIRATION_CHECK_S * 1000)
    assert rig.nodes() == 0


def test_expired_nodes_of_a_full_disk_or_another_broker_are_deleted_later(tmp_path: Path) -> None:
    disk = FaultyDisk()
    rig = Rig(tmp_path, disk)
    rig.create()
    rig.configure(10)
    node = rig.service.tree.find(znodes.CONFIG_CHANGES)
    assert node is not None
    rig.clock.advance(EXPIRATION_MS + 1)
    disk.fail("write", 28, repeat=True)
    rig.store.delete_expired()
    assert rig.nodes() == 10
    disk.heal()
    gone = f"{znodes.CONFIG_CHANGES}/{sorted(node.children)[1]}"
    rig.service.connect().delete(gone, lambda outcome: rig.outcomes.append(int(outcome.error is not None)))
    rig.clock.advance(EXPIRATION_CHECK_S * 1000)
    assert rig.nodes() == 0 and rig.outcomes == [0] * 12


def test_next_incarnation_deletes_expired_nodes(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.create()
    rig.configure(EXPIRED_MAX // 2)
    rig.service.close()
    again = Rig(tmp_path)
    again.clock.advance(EXPIRATION_MS + 60_000)
    again.configure(1)
    assert again.nodes() == 1 and again.outcomes == [0]


def test_a_deleted_topic_is_recorded_until_the_record_expires(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.store.delete_topic(rig.create(), rig.outcomes.append)
    rig.service.close()
    again = Rig(tmp_path)
    assert again.deleted == {ID}
    again.clock.advance(EXPIRATION_MS + 60_000)
    again.store.delete_topic(again.create(bytes(16)), again.outcomes.append)
    assert again.nodes() == 1
    again.service.close()
    assert Rig(tmp_path).deleted == {bytes(16)} and again.outcomes == [0, 0]


@pytest.mark.parametrize("failing", [1, 2])
def test_nodes_kept_by_a_full_disk_are_deleted_later(tmp_path: Path, failing: int) -> None:
    disk = FaultyDisk()
    rig = Rig(tmp_path, disk)
    rig.create()
    rig.configure(10)
    rig.clock.advance(EXPIRATION_MS + 1)
    disk.fail("write", 28, repeat=True)
    rig.configure(failing)
    assert rig.nodes() == 10
    disk.heal()
    rig.configure(1)
    assert rig.nodes() == 1
    assert rig.outcomes[:11] == [0] * 11 and rig.outcomes[-1] == 0 and 0 not in rig.outcomes[11:-1]


def test_a_transaction_succeeds_although_another_broker_deleted_an_expired_node(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.create()
    rig.configure(3)
    rig.clock.advance(EXPIRATION_MS + 1)
    node = rig.service.tree.find(znodes.CONFIG_CHANGES)
    assert node is not None
    gone = f"{znodes.CONFIG_CHANGES}/{sorted(node.children)[1]}"
    rig.service.connect().delete(gone, lambda outcome: rig.outcomes.append(int(outcome.error is not None)))
    rig.configure(2)
    assert rig.outcomes == [0] * 7 and rig.nodes() == 2


def test_change_of_a_deleted_topic_fails_and_expired_nodes_are_deleted_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.create()
    rig.configure(3)
    rig.clock.advance(EXPIRATION_MS + 1)
    rig.replace("unknown", {})
    assert rig.outcomes[-1] == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION and rig.nodes() == 0
    rig.configure(1)
    assert rig.outcomes[-1] == 0 and rig.nodes() == 1
