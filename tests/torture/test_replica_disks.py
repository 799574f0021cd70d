"""Brokers with replicated partitions lose their power, their disks, or bits of them; disks are full and slow.

Each broker has a disk in an image, whose unflushed data a power cut loses (`tests/kit/replicated_brokers.py`). One
cluster for all tests of a series, over a coordination directory in the first series, over ZooKeeper in the others. Each
test leaves it complete, and compares the files of all replicas.

Within the bounds (power cuts of fewer machines than min.insync.replicas between two moments with a complete ISR, or
flush.messages=1) each acknowledged record is kept. Beyond them the end of a partition may be missing, and only that.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import confluent_kafka as ck
import pytest

from tests.kit import jvm
from tests.kit.broker_processes import IDS, image_of
from tests.kit.brokers import wait_until
from tests.kit.checker import ACKNOWLEDGED, History, Partition, check
from tests.kit.load import Sender
from tests.kit.readers import read_by_librdkafka
from tests.kit.replica_logs import read_log
from tests.kit.replicated_brokers import FACTOR, ReplicatedBrokers, ReplicatedLoad
from tests.kit.rig import assert_kept
from tests.kit.traced import SYNC
from tests.kit.zookeeper import start_zookeeper

pytestmark = [
    pytest.mark.torture,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("replica-power-cuts"),
]
CHROOT = "/kafka"
TICK_MS = 500
PARTITIONS = 3
ACKS_MAX = 300
PAUSE_S = 5.0  # longer than a session
SLOW_S = 0.2
SLOW_REQUESTS = 5
SEGMENT_BYTES = 1 << 20
FIRST = "00000000000000000000.log"
LOST = "the controller says that they are in sync, but their files are missing or damaged"
HEADER_BYTES = 61  # of a batch, before its records
COMMAND_S = 60.0

_topics = (f"orders-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def cluster(power_series: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedBrokers]:
    directory = tmp_path_factory.mktemp("cluster")
    with ExitStack() as opened:
        coordination = {"kafkalite.coordination.directory": str(directory / "shared")}
        if power_series:
            if (reason := jvm.java_missing()) is not None:
                pytest.skip(f"Apache ZooKeeper: {reason}")
            zookeeper = start_zookeeper(directory / "zookeeper", tick_ms=TICK_MS)
            opened.callback(zookeeper.kill)
            coordination = {"zookeeper.connect": zookeeper.address + CHROOT}
        yield opened.enter_context(ReplicatedBrokers(directory, coordination))


def test_power_cut_of_one_broker_in_three_loses_nothing(cluster: ReplicatedBrokers, random: Random) -> None:
    """Of a follower, and of the leader while the others are killed; without a flush before the acknowledgement.

    In the second case the broker that has lost records is back first: it leaves the ISR, and does not lead.
    """
    with ReplicatedLoad(cluster, next(_topics)) as load:
        (partition,) = load.partitions
        leader = cluster.leader(partition)
        follower = random.choice([each for each in IDS if each != leader])
        load.progress(random.randint(1, ACKS_MAX))
        cluster.cut_power(follower)
        load.progress()
        cluster.return_power(follower)
        cluster.until_in_sync(load.partitions)
        load.progress(random.randint(1, ACKS_MAX))
        cluster.until_in_sync(load.partitions)
        others = [each for each in IDS if each != leader]
        cluster.cut_power(leader, kill=others)
        cluster.return_power(leader)
        cluster.until_state(partition, {-1}, set(others))
        cluster.start(*others)
        load.progress()
        load.finish()


@pytest.mark.long_form
@pytest.mark.parametrize("back", ["power first", "pauses end first"])
def test_power_cut_of_one_broker_and_pauses_of_the_others_lose_nothing(cluster: ReplicatedBrokers, back: str) -> None:
    """The others are suspended beyond their sessions; all replicas are equal at the end."""
    with ReplicatedLoad(cluster, next(_topics), PARTITIONS) as load:
        load.progress()
        victim = cluster.leader(load.partitions[0])
        others = [each for each in IDS if each != victim]
        cluster.cut_power(victim)
        for each in others:
            cluster.freeze(each)
        if back == "power first":
            cluster.boot(victim)
            cluster.brokers[victim].launch()
        with pytest.raises(AssertionError, match="not in time"):
            wait_until(lambda: False, "the sessions end", seconds=PAUSE_S)
        for each in others:
            cluster.thaw(each)
        if back == "power first":
            cluster.brokers[victim].wait_ready()
        else:
            load.progress()
            cluster.return_power(victim)
        load.progress()
        load.finish()


@pytest.mark.long_form
@pytest.mark.parametrize("flush", [{"flush_messages": "1"}, {}], ids=["flushed", "default"])
def test_power_cut_of_the_last_in_sync_replica(
    cluster: ReplicatedBrokers, random: Random, flush: dict[str, str], record_property: pytest.RecordProperty
) -> None:
    """The partition waits for it; then an eligible replica leads, and it truncates its log to that of this one."""
    with ReplicatedLoad(cluster, next(_topics), **flush) as load:
        (partition,) = load.partitions
        load.progress(random.randint(1, ACKS_MAX))
        last = cluster.leader(partition)
        others = [each for each in IDS if each != last]
        for each in others:
            cluster.kill(each)
        cluster.until_state(partition, {last}, {last})
        cluster.cut_power(last)
        load.sender.give_up()
        cluster.start(*others)
        cluster.until_state(partition, {-1}, {last})
        cluster.return_power(last)
        lost = after_the_loss(cluster, load)
    assert lost == 0
    record_property("summary", f"power cut of the last in-sync replica, {flush or 'default flush'}: {lost} lost")


@pytest.mark.long_form
@pytest.mark.parametrize("flush", [{"flush_messages": "1"}, {}], ids=["flushed", "default"])
def test_power_cut_of_all_brokers(
    cluster: ReplicatedBrokers, random: Random, flush: dict[str, str], record_property: pytest.RecordProperty
) -> None:
    with ReplicatedLoad(cluster, next(_topics), PARTITIONS, **flush) as load:
        load.progress(random.randint(1, ACKS_MAX))
        cluster.cut_power(*IDS)
        if not flush:
            load.sender.give_up()
        cluster.return_power(*random.sample(IDS, len(IDS)))
        if flush:
            load.progress()
            load.finish()
        lost = after_the_loss(cluster, load)
    assert lost == 0 or not flush
    record_property("summary", f"power cut of all brokers, {flush or 'default flush'}: {lost} lost")


def after_the_loss(cluster: ReplicatedBrokers, load: ReplicatedLoad) -> int:
    """Only ends of partitions are missing, the replicas are equal, and serve on; how many acknowledged records are
    missing."""
    cluster.until_in_sync(load.partitions)
    history, name = load.sender.history, "after the loss"
    read_by_librdkafka(name, cluster.bootstrap, load.partitions, history)
    assert_kept([each for each in check(history, name) if each.name != "unseen"])
    cluster.check_replicas(load.partitions)
    seen = {number for found in history.reads[name].values() for _, number in found}
    return sum(send.outcome == ACKNOWLEDGED and number not in seen for number, send in history.sends.items())


def test_follower_with_a_full_disk_leaves_the_isr_and_returns(cluster: ReplicatedBrokers, random: Random) -> None:
    with ReplicatedLoad(cluster, next(_topics)) as load:
        (partition,) = load.partitions
        load.progress()
        leader = cluster.leader(partition)
        full = random.choice([each for each in IDS if each != leader])
        filler = cluster.disks[full].fill()
        cluster.until_state(partition, {leader}, set(IDS) - {full})
        load.progress()
        filler.unlink()
        cluster.until_in_sync(load.partitions)
        assert cluster.brokers[full].running()
        load.finish()


async def test_slow_fsyncs_of_a_follower_delay_its_flushed_partition_only(
    cluster: ReplicatedBrokers, random: Random, record_property: pytest.RecordProperty
) -> None:
    """Records are acknowledged when the in-sync follower has flushed them; records of other partitions do not wait."""
    names = {name: next(_topics) for name in ("slow", "quick")}
    (slow,) = await asyncio.to_thread(cluster.create_topic, names["slow"], 1, FACTOR, flush_messages="1")
    (quick,) = await asyncio.to_thread(cluster.create_topic, names["quick"], 1, FACTOR)
    leader = await asyncio.to_thread(cluster.leader, slow)
    follower = random.choice([each for each in IDS if each != leader])
    files = [cluster.directory_of(follower, slow) / FIRST]
    with cluster.traced(follower, f"{SYNC}:delay_exit={SLOW_S * 1e6:.0f}", files) as traced:
        await asyncio.to_thread(cluster.until_in_sync, [slow, quick])
        history, numbers = History(), itertools.count()
        times_s: dict[Partition, list[float]] = {slow: [], quick: []}
        for partition in [slow, quick] * SLOW_REQUESTS:
            sender = Sender(f"{partition} {len(times_s[partition])}", history, numbers, random, [partition])
            began = time.monotonic()
            await sender.run(cluster.address(await asyncio.to_thread(cluster.leader, partition)), requests=1)
            assert sender.acks == 1, sender.refusals
            times_s[partition].append(time.monotonic() - began)
        assert traced.injected(SYNC) >= SLOW_REQUESTS
        assert min(times_s[slow]) >= SLOW_S, "acknowledged before a member of the ISR had flushed"
        assert statistics.median(times_s[quick]) < SLOW_S, times_s[quick]
    await asyncio.to_thread(cluster.until_in_sync, [slow, quick])
    await asyncio.to_thread(read_by_librdkafka, "at the end", cluster.bootstrap, [slow, quick], history)
    assert_kept(check(history, "at the end"))
    cluster.check_replicas([slow, quick])
    said = ", ".join(
        f"{name} {statistics.median(times_s[each]) * 1000:.0f} ms" for name, each in zip(names, times_s, strict=True)
    )
    record_property("summary", f"median time until an acknowledgement: {said}")


@pytest.mark.long_form
def test_replaced_broker_restores_its_replicas(cluster: ReplicatedBrokers, random: Random) -> None:
    """A machine with an empty disk and another address, under the id of a follower and then of the leader."""
    with ReplicatedLoad(cluster, next(_topics), PARTITIONS) as load:
        leader = cluster.leader(load.partitions[0])
        for lost in (random.choice([each for each in IDS if each != leader]), leader):
            load.progress()
            cluster.lose_disk(lost)
            load.progress()
            cluster.start(lost)
            cluster.until_in_sync(load.partitions)
        load.finish()


@pytest.mark.long_form
@pytest.mark.parametrize("eligible", ["complete", "lost, too"])
def test_lost_disk_of_the_only_in_sync_replica_is_not_led_empty(cluster: ReplicatedBrokers, eligible: str) -> None:
    """The partition has no leader until an unclean election of a replica that has the records: of the eligible one, or
    of the other if its disk is lost, too.
    """
    with ReplicatedLoad(cluster, next(_topics)) as load:
        (partition,) = load.partitions
        load.progress()
        load.sender.finish()
        cluster.until_in_sync(load.partitions)
        last = cluster.leader(partition)
        first, second = [each for each in IDS if each != last]
        cluster.kill(first)
        cluster.until_state(partition, {last}, {last, second})
        cluster.kill(second)
        cluster.until_state(partition, {last}, {last})
        lost = [last] if eligible == "complete" else [last, second]
        for each in lost:
            cluster.lose_disk(each)
        cluster.start(*IDS)
        wait_until(lambda: LOST in cluster.brokers[last].said(), "the broker reports the lost replica")
        if eligible != "complete":
            wait_until(lambda: LOST in cluster.brokers[second].said(), "the broker reports the lost eligible replica")
        cluster.until_state(partition, {-1}, {last})
        unavailable = kafkalite("topic", "describe", "--unavailable", bootstrap=cluster.bootstrap)
        assert partition[0] in unavailable
        elect_uncleanly(cluster, last)
        load.finish()


def test_flipped_bit_of_one_replica_is_refused_and_repaired(cluster: ReplicatedBrokers, random: Random) -> None:
    """In a closed segment of the leader: consumers and followers refuse the batch; the other replicas have it."""
    with ReplicatedLoad(cluster, next(_topics), pause_s=0.0, segment_bytes=str(SEGMENT_BYTES)) as load:
        (partition,) = load.partitions
        leader = cluster.leader(partition)
        directory = cluster.directory_of(leader, partition)
        wait_until(lambda: len(list(directory.glob("*.log"))) > 2, "segments are closed")
        load.sender.finish()
        offset = flip_a_bit(directory / FIRST, random)
        with pytest.raises(ck.KafkaException):
            load.read_all("of a damaged leader")
        follower = random.choice([each for each in IDS if each != leader])
        cluster.lose_disk(follower)
        cluster.start(follower)
        wait_until(lambda: "CRC" in cluster.brokers[follower].said(), "the follower refuses the batch")
        copy = read_log(cluster.directory_of(follower, partition))
        assert copy is None or copy.end_offset <= offset
        cluster.until_state(partition, {leader}, set(IDS) - {follower})
        assert cluster.brokers[leader].stop() == 0
        shutil.rmtree(directory)
        cluster.start(leader)
        cluster.until_in_sync(load.partitions)
        load.finish()


def elect_uncleanly(cluster: ReplicatedBrokers, broker_id: int) -> None:
    """Elect leaders for all partitions without one, which a broker knows."""
    image = image_of(cluster.address(broker_id))
    assert image is not None
    offline = [f"{topic}:{index}" for (topic, index), leader in image.leaders.items() if leader < 0]
    kafkalite("topic", "elect-leaders", "--unclean", *offline, bootstrap=cluster.bootstrap)


def flip_a_bit(segment: Path, random: Random) -> int:
    """Flip a bit of the records of a batch in the middle of a segment; returns the offset of the batch."""
    log = read_log(segment.parent)
    assert log is not None
    batches = log.batches[: len(log.batches) // 4]
    number = random.randrange(1, len(batches))
    position = sum(len(each.data) for each in batches[:number]) + random.randrange(
        HEADER_BYTES, len(batches[number].data)
    )
    with open(segment, "r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1 << random.randrange(8)]))
    return batches[number].base_offset


def kafkalite(*command: str, bootstrap: str) -> str:
    """Run a command of kafkalite; returns what it prints."""
    whole = [sys.executable, "-m", "kafkalite", *command, "-b", bootstrap]
    done = subprocess.run(whole, capture_output=True, text=True, timeout=COMMAND_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
