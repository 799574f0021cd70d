"""Tests the adoption of Apache Kafka's partitions: what is kept, what is skipped, and that a kill loses nothing.

Our own log writes the directories, as its files are Kafka's; tests/compat has one that Kafka itself wrote.
"""

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite._speedups.records.batches import batches
from kafkalite._speedups.storage.file import Disk, FileRegion
from kafkalite.cluster.partition.partition import Partition
from kafkalite.coordination import znodes
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import uuid_text
from kafkalite.server.adoption.topic_adoption import COMPACTED, KEEP_ALL, AdoptedTopic, TopicAdoption
from kafkalite.server.broker import Broker
from kafkalite.server.process.resources import JOURNAL
from kafkalite.server.running.running_broker import RunningBroker
from kafkalite.storage.checkpoints import CLEANER_OFFSETS, read_offsets
from kafkalite.storage.dirs.log_directory import DirectoryError, LogDirectory
from kafkalite.storage.partition_adoption import ADOPTING, AdoptionError
from kafkalite.storage.retention import count_expired
from kafkalite.storage.verify.verify import verify_directory
from kafkalite.testing.faulty_disk import Crash, FaultyDisk
from kafkalite.testing.virtual_clock import SeededRandom, VirtualClock
from tests.kit.logs import read_log
from tests.kit.seeds import chosen_seed
from tests.unit.storage.damage import filled, tear_the_tail

SEED = chosen_seed()
IDS = {"orders": "377HDq6gTzKDLPeUGOHV6A", "__consumer_offsets": "AAECAwQFBgcICQoLDA0ODw"}
BATCHES = 6
STRIDE = 13  # of the steps before which is a crash: another run has others


@pytest.fixture
def kafka(tmp_path: Path) -> Path:
    """A log directory as a stopped Apache Kafka leaves it; `orders` was at leader epoch 7."""
    source = tmp_path / "kafka"
    for name in ("orders-0", "orders-2", "__consumer_offsets-0", "__cluster_metadata-0"):
        filled(source / name, BATCHES).close()
        topic = name.rpartition("-")[0]
        if topic in IDS:
            (source / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {IDS[topic]}")
    (source / "orders-0/leader-epoch-checkpoint").write_text(f"0\n2\n0 0\n7 {3 * BATCHES}\n")
    (source / f"gone-0.{32 * 'b'}-delete").mkdir()
    recovery_points = [f"{name.rpartition('-')[0]} {name[-1]} {3 * BATCHES}" for name in ("orders-0", "orders-2")]
    recovery_points.append(f"__consumer_offsets 0 {3 * BATCHES}")
    (source / "recovery-point-offset-checkpoint").write_text("\n".join(["0", "3", *recovery_points, ""]))
    (source / "log-start-offset-checkpoint").write_text("0\n1\norders 0 4\n")
    (source / "meta.properties").write_text("version=1\nnode.id=9\ncluster.id=theirs\n")
    (source / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":3}')
    (source / ".lock").write_bytes(b"")
    return source


def adopt(source: Path, data: Path, disk: Disk | None = None, *, move: bool = False) -> AdoptedTopic:
    disk = disk or Disk()
    directory = LogDirectory(disk, str(data))
    directory.lock()
    try:
        adoption = TopicAdoption(disk, VirtualClock(), SeededRandom(5), str(source), directory, move=move)
        return asyncio.run(adoption.run(lambda size: lambda done: None))
    finally:
        directory.unlock()


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


async def ends(
    data: Path, look: Callable[[RunningBroker], object] = lambda broker: None
) -> dict[str, tuple[int, int, int]]:
    """(log start, log end, leader epoch) of each partition of a broker on this data; -1 for an offset without files."""
    async with Broker(str(data)) as embedded:
        broker = embedded.running
        look(broker)
        return {
            f"{topic.name}-{partition.index}": (
                -1 if partition.log is None else partition.log.log_start_offset,
                -1 if partition.log is None else partition.log.log_end_offset,
                broker.image.topics[topic.name].partitions[partition.index].leader_epoch,
            )
            for topic in broker.replicas
            for partition in topic.partitions.values()
        }


WHOLE = {
    "orders-0": (4, 3 * BATCHES, 8),
    "orders-1": (-1, -1, 0),
    "orders-2": (0, 3 * BATCHES, 1),
    "__consumer_offsets-0": (0, 3 * BATCHES, 1),
}


@pytest.mark.parametrize("move", [False, True])
async def test_adopted_topics_keep_ids_offsets_and_leader_epochs(kafka: Path, tmp_path: Path, move: bool) -> None:
    before, data = files(kafka), tmp_path / "ours"
    found = await asyncio.to_thread(adopt, kafka, data, move=move)
    assert found.topics == {"orders": 3, "__consumer_offsets": 1}
    assert (found.partitions, found.missing, found.bytes_dropped) == (3, ["orders-1"], 0)
    assert found.left_out == ["__cluster_metadata-0", f"gone-0.{32 * 'b'}-delete"]
    assert verify_directory(Disk(), str(data)) == []
    assert files(kafka) == before if not move else not (kafka / "orders-0").exists()

    def look(broker: RunningBroker) -> None:
        assert [loaded.clean for loaded in broker.loaded] == [True]
        for name, text in IDS.items():
            assert uuid_text(broker.image.topics[name].topic_id) == text
        assert broker.image.topics["orders"].configs == KEEP_ALL
        assert broker.image.topics["__consumer_offsets"].configs == COMPACTED
        partition = broker.replicas.partition("orders", b"", 0, by_id=False)
        assert isinstance(partition, Partition) and partition.log is not None
        regions = read_log(partition.log, 4, 1 << 20, 3 * BATCHES)
        assert isinstance(regions, list) and isinstance(regions[0], FileRegion)
        assert [one.base_offset for one in batches(regions[0].read())] == list(range(3, 3 * BATCHES, 3))

    assert await ends(data, look) == WHOLE
    assert verify_directory(Disk(), str(data)) == []


@pytest.mark.parametrize("move", [False, True])
@pytest.mark.parametrize("power", [False, True])
def test_adoption_killed_at_any_step_can_be_repeated(kafka: Path, tmp_path: Path, move: bool, power: bool) -> None:
    """After each step: killed, or without power so that what was not synced is gone; then the same call again."""
    print(f"KAFKALITE_SEED={SEED}")
    chance, steps = random.Random(SEED), SEED % STRIDE
    while True:
        source, data = tmp_path / f"kafka-{steps}", tmp_path / f"ours-{steps}"
        shutil.copytree(kafka, source)
        disk = FaultyDisk()
        disk.stop_at = steps
        try:
            adopt(source, data, disk, move=move)
        except Crash:
            if power:
                disk.crash(chance)
        else:
            break
        adopt(source, data, move=move)
        assert verify_directory(Disk(), str(data)) == [], f"after a crash before step {steps}"
        for name in ("orders-0", "orders-2", "__consumer_offsets-0"):
            log = data / name / "00000000000000000000.log"
            assert log.read_bytes() == (kafka / name / log.name).read_bytes(), f"before step {steps}"
        assert sorted(path.name for path in data.glob("*-*") if path.is_dir()) == [
            "__consumer_offsets-0", "orders-0", "orders-2",
        ]  # fmt: skip
        steps += STRIDE
    assert steps > 60


async def test_registered_partition_is_offline_until_its_directory_is_renamed(kafka: Path, tmp_path: Path) -> None:
    data, disk = tmp_path / "ours", FaultyDisk()

    def stop(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith(f"orders-2{ADOPTING}"):
            raise Crash("here")

    disk.hook = stop
    with pytest.raises(Crash):
        await asyncio.to_thread(adopt, kafka, data, disk, move=True)

    def look(broker: RunningBroker) -> None:
        partition = broker.replicas.partition("orders", b"", 2, by_id=False)
        assert isinstance(partition, Partition) and partition.error == KafkaErrorCode.KAFKA_STORAGE_ERROR

    assert (await ends(data, look))["orders-2"][1] == -1
    await asyncio.to_thread(adopt, kafka, data, move=True)
    served = {"orders-0": (4, 3 * BATCHES, 9), "__consumer_offsets-0": (0, 3 * BATCHES, 2)}  # by an unclean start
    assert await ends(data) == {**WHOLE, **served}


async def test_retention_expires_no_adopted_record(kafka: Path, tmp_path: Path) -> None:
    """The records are of 1970, so the default of seven days would delete them all."""
    await asyncio.to_thread(adopt, kafka, tmp_path / "ours")

    def look(broker: RunningBroker) -> None:
        for name, index in (("orders", 0), ("orders", 2), ("__consumer_offsets", 0)):
            log = broker.logs.find(name, index)
            assert log is not None and log.log_end_offset > 0
            assert count_expired(log, broker.clock.wall_ms(), log.log_end_offset) == 0, name

    await ends(tmp_path / "ours", look)


@pytest.mark.parametrize("clean", [False, True])
async def test_adopted_compacted_topic_stays_compacted(kafka: Path, tmp_path: Path, clean: bool) -> None:
    """Where the cleaner of the other broker left a gap between two segments, nothing behind the gap is dropped."""
    shutil.rmtree(kafka / "orders-2")
    log = filled(kafka / "orders-2")
    log.close()
    end = log.log_end_offset
    (kafka / "orders-2/partition.metadata").write_text((kafka / "orders-0/partition.metadata").read_text())
    second = sorted(path.stem for path in (kafka / "orders-2").glob("*.log"))[1]
    for path in (kafka / "orders-2").glob(f"{second}.*"):
        path.unlink()
    (kafka / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 2 {end - 3}\n")
    if not clean:
        (kafka / ".kafka_cleanshutdown").unlink()
        (kafka / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    before, data = files(kafka / "orders-2"), tmp_path / "ours"
    found = await asyncio.to_thread(adopt, kafka, data)
    assert found.bytes_dropped == 0
    assert verify_directory(Disk(), str(data)) == []
    kept = files(data / "orders-2")
    assert {name: content for name, content in kept.items() if name.endswith(".log")} == {
        name: content for name, content in before.items() if name.endswith(".log")
    }
    assert read_offsets(Disk(), str(data / CLEANER_OFFSETS)) == {("orders", 2): end - 3}

    def look(broker: RunningBroker) -> None:
        assert broker.image.topics["orders"].configs == {**KEEP_ALL, "cleanup.policy": "compact"}

    assert (await ends(data, look))["orders-2"][:2] == (0, end)


async def test_adoption_recovers_unclean_logs(kafka: Path, tmp_path: Path) -> None:
    (kafka / ".kafka_cleanshutdown").unlink()
    (kafka / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    tear_the_tail(kafka / "orders-2")
    data = tmp_path / "ours"
    found = await asyncio.to_thread(adopt, kafka, data)
    assert found.bytes_dropped > 0
    assert (await ends(data))["orders-2"] == (0, 3 * BATCHES - 3, 1)


def test_second_adoption_changes_nothing(kafka: Path, tmp_path: Path) -> None:
    data = tmp_path / "ours"
    adopt(kafka, data)
    before = files(data)
    found = adopt(kafka, data)
    assert (found.topics, sorted(found.there_before)) == ({}, ["__consumer_offsets-0", "orders-0", "orders-2"])
    changed = {name for name, content in files(data).items() if before.get(name) != content}
    assert changed <= {JOURNAL}


async def test_partitions_of_two_brokers_are_adopted_one_after_the_other(kafka: Path, tmp_path: Path) -> None:
    other, data = tmp_path / "other", tmp_path / "ours"
    filled(other / "orders-1", 3).close()
    (other / "orders-1/partition.metadata").write_text((kafka / "orders-0/partition.metadata").read_text())
    (other / "meta.properties").write_text("version=1\nnode.id=10\ncluster.id=theirs\n")
    await asyncio.to_thread(adopt, kafka, data)
    await asyncio.to_thread(adopt, other, data)
    assert await ends(data) == {**WHOLE, "orders-1": (0, 9, 1)}


async def test_topics_without_id_get_one(kafka: Path, tmp_path: Path) -> None:
    data = tmp_path / "ours"
    for path in kafka.glob("orders-*/partition.metadata"):
        path.unlink()
    await asyncio.to_thread(adopt, kafka, data)
    await asyncio.to_thread(adopt, kafka, data)
    assert await ends(data) == WHOLE
    texts = {path.read_text() for path in data.glob("orders-*/partition.metadata")}
    assert len(texts) == 1


def another_topic(kafka: Path, data: Path) -> None:
    adopt(kafka, data)
    for path in kafka.glob("orders-*/partition.metadata"):
        path.write_text("version: 0\ntopic_id: ZZECAwQFBgcICQoLDA0ODw")


def two_ids(kafka: Path, _data: Path) -> None:
    (kafka / "orders-2/partition.metadata").write_text("version: 0\ntopic_id: ZZECAwQFBgcICQoLDA0ODw")


def old_messages(kafka: Path, _data: Path) -> None:
    (kafka / ".kafka_cleanshutdown").unlink()
    path = kafka / "orders-0/00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:16] + b"\1" + path.read_bytes()[17:])


def damage(kafka: Path, _data: Path) -> None:
    (kafka / ".kafka_cleanshutdown").unlink()
    path = kafka / "orders-0/00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:500] + b"\xff" + path.read_bytes()[501:])


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (another_topic, "has another topic with this name"),
        (two_ids, "the topic id differs"),
        (old_messages, r"before 0\.11"),
        (damage, "which was flushed; the log is not truncated"),
        (lambda kafka, data: (kafka / "orders-0/partition.metadata").write_text("?"), "not a version and a topic id"),
        (lambda kafka, data: (kafka / "log-start-offset-checkpoint").write_text("?"), "expected version 0; restore"),
        (lambda kafka, data: (kafka / "cleaner-offset-checkpoint").write_text("?"), "start and stop the broker of"),
        (
            lambda kafka, data: (kafka / JOURNAL).touch(),
            "a log directory of kafkalite already; start it: kafkalite serve --data",
        ),
    ],
)
def test_invalid_topic_is_rejected_before_registration(
    kafka: Path, tmp_path: Path, spoil: Callable[[Path, Path], object], complaint: str
) -> None:
    data = tmp_path / "ours"
    spoil(kafka, data)
    before, known = files(kafka), topics(data)
    with pytest.raises(AdoptionError, match=complaint):
        adopt(kafka, data)
    assert files(kafka) == before
    assert topics(data) == known


def topics(data: Path) -> list[str]:
    if not (data / JOURNAL).exists():
        return []
    service = EmbeddedCoordination.open(Disk(), str(data / JOURNAL), VirtualClock())
    try:
        return service.tree.children(znodes.TOPICS)[0] if service.tree.find(znodes.TOPICS) else []
    finally:
        service.close()


def test_adoption_checks_free_space_before_copying(kafka: Path, tmp_path: Path) -> None:
    class Full(Disk):
        def free_bytes(self, path: str) -> tuple[int, int]:
            return 10, 1 << 30

    with pytest.raises(DirectoryError, match="use --move"):
        adopt(kafka, tmp_path / "ours", Full())
    assert not list((tmp_path / "ours").glob("orders*"))
