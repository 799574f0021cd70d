"""A shard that is read again: whole, in order, in bounded steps, and past whatever is no record."""

import errno
import gc
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite.cluster.partition.append import Append, OwnAppend
from kafkalite.coordinators.runtime.loader import CoordinatorLoader
from kafkalite.gc_pause import PAUSE
from kafkalite.protocol.stored.group_records import OffsetCommitKey, OffsetCommitValue
from kafkalite.protocol.stored.record_types import write
from kafkalite.records import Builder
from kafkalite.records.control import ControlType, Marker, build_marker
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import TopicFetch
from tests.story.groups.simulated_shard import delete_topic
from tests.unit.coordinators.rig import COMPACTED, LOADING, NOT_HERE, Rig, commit, groups, offsets_of, warnings
from tests.unit.protocol.values import seed

Pairs = list[tuple[bytes | None, bytes | None]]


def stored(
    group: str, offset: int | None, partition: int = 0, topic: str = "t", metadata: str = ""
) -> tuple[bytes, bytes | None]:
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    if offset is None:
        return write(key, None)
    return write(key, OffsetCommitValue(offset=offset, metadata=metadata, commit_timestamp=1))


def put(rig: Rig[GroupMachine], pairs: Pairs, *, codec: int = 0, producer: int = -1) -> None:
    """Append a batch as it stands."""
    builder = Builder()
    for key, value in pairs:
        builder.append(1, key, value)
    epoch = 0 if producer >= 0 else -1
    batch = builder.build(codec, producer_id=producer, producer_epoch=epoch, transactional=producer >= 0)
    put_batch(rig, bytearray(batch))


def put_batch(rig: Rig[GroupMachine], batch: bytearray) -> None:
    def done(append: Append) -> None:
        assert not append.error

    rig.partition.append_internal(OwnAppend(batch, done))
    rig.replicas.write_pending()


def mark(rig: Rig[GroupMachine], producer: int, kind: ControlType) -> None:
    put_batch(rig, bytearray(build_marker(Marker(kind, 0), producer, 0, 1)))


def loaded(rig: Rig[GroupMachine]) -> GroupMachine:
    rig.load()
    machine = rig.runtime.machine(0)
    assert machine is not None
    return machine


@pytest.mark.parametrize("codec", [0, 1, 3])
@pytest.mark.parametrize("buffer", ["1", "300", "5242880"])
def test_last_record_of_a_key_counts_for_every_chunk_size(tmp_path: Path, codec: int, buffer: str) -> None:
    rng = random.Random(f"{seed()} {codec} {buffer}")
    rig = Rig(tmp_path, groups, settings={"offsets.load.buffer.size": buffer})
    model: dict[tuple[str, int], int] = {}
    for step in range(150):
        pairs: Pairs = []
        for _ in range(rng.randint(1, 6)):
            group, partition = f"g{rng.randrange(5)}", rng.randrange(3)
            offset = None if rng.random() < 0.2 else step
            pairs.append(stored(group, offset, partition))
            model.pop((group, partition), None)
            if offset is not None:
                model[group, partition] = offset
        put(rig, pairs, codec=codec)
    machine = loaded(rig)
    found = {
        (group, one.partition): one.offset
        for group in (f"g{at}" for at in range(5))
        for one in machine.offsets.fetch(group, None, require_stable=False)
    }
    assert found == model and len(machine.offsets) == len(model)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """How many records were held back, and how many bytes of them, each time when they were applied."""
    found: list[tuple[int, int]] = []
    apply_held = CoordinatorLoader._apply_pending

    def noted(loading: CoordinatorLoader) -> Iterator[None]:
        sizes = [len(key) + len(record.value or b"") for key, record in loading._last_of_key.items()]
        found.append((len(sizes), sum(sizes)))
        return apply_held(loading)

    monkeypatch.setattr(CoordinatorLoader, "_apply_pending", noted)
    return found


def test_number_of_pending_records_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr("kafkalite.coordinators.runtime.loader.PENDING_RECORDS_MAX", 10)
    rig = Rig(tmp_path, groups, settings={"offsets.load.buffer.size": "1"})
    for at in range(100):
        put(rig, [stored(f"g{at % 40}", at)])
    assert len(loaded(rig).offsets) == 40
    assert rig.now(offsets_of("g7")) == {("t", 0): 87}
    assert [records for records, _ in held] == [11] * 9 + [1]


def test_bytes_of_pending_records_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: list[tuple[int, int]]
) -> None:
    """Also where a record takes the place of a smaller one."""
    monkeypatch.setattr("kafkalite.coordinators.runtime.loader.PENDING_BYTES_MAX", 1_000)
    rig = Rig(tmp_path, groups, settings={"offsets.load.buffer.size": "1"})
    for at in range(30):
        put(rig, [stored(f"g{at % 3}", at, metadata="x" * 50 * at)])
    assert len(loaded(rig).offsets) == 3
    largest = sum(len(part or b"") for part in stored("g0", 29, metadata="x" * 50 * 29))
    assert len(held) > 5 and max(size for _, size in held) <= 1_000 + largest
    assert min(size for _, size in held[:-1]) > 1_000


@pytest.mark.usefixtures("collector_restored")
@pytest.mark.parametrize("ours", [False, True])
def test_requests_are_rejected_while_a_shard_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: bool) -> None:
    """The collector pauses meanwhile where the process is ours, and is not touched elsewhere."""
    PAUSE.enabled = ours
    monkeypatch.setattr("kafkalite.coordinators.runtime.loader.SLICE_WEIGHT", 1)
    rig = Rig(tmp_path, groups)
    put(rig, [stored("g", 5)])
    put(rig, [stored("h", 6)])
    rig.offload.held = True
    rig.runtime.create_shards()
    assert rig.do(offsets_of("g")).received == [LOADING]
    rig.runtime.submit(0, lambda machine, _token, _now: delete_topic(machine, "t"))  # ours: it waits
    assert gc.isenabled() == (not ours)
    rig.offload.release()
    rig.offload.drain()  # the first of two slices
    assert rig.do(offsets_of("g")).received == [LOADING]
    rig.work()
    assert gc.isenabled()
    assert rig.now(offsets_of("g")) == {} and rig.now(offsets_of("h")) == {}


def test_stop_ends_a_load(tmp_path: Path) -> None:
    rig = Rig(tmp_path, groups)
    put(rig, [stored("g", 5)])
    rig.offload.held = True
    rig.runtime.create_shards()
    rig.runtime.close()
    rig.offload.release()
    rig.work()
    assert gc.isenabled() and rig.runtime.machine(0) is None
    assert rig.do(offsets_of("g")).received == [NOT_HERE]


def test_two_shards_are_loaded_at_a_time(tmp_path: Path) -> None:
    """A stop takes those that wait out of the queue, too."""
    rig = Rig(tmp_path, groups, partitions=300)
    for shard in range(0, 300, 100):
        rig.runtime.create_shards()
        rig.work()
        assert not isinstance(rig.now(commit("g", shard), shard), int)
    rig.runtime.close()
    rig.runtime = rig.new_runtime()
    rig.offload.held = True
    rig.runtime.create_shards()  # the empty ones are there at once
    loading = [shard for shard in rig.runtime.partitions() if rig.runtime.machine(shard) is None]
    assert loading[:3] == [0, 100, 101] and rig.offload.waiting == 2
    rig.runtime.close()
    rig.offload.release()
    rig.work()
    assert gc.isenabled()
    rig.runtime = rig.new_runtime()
    rig.load()
    assert {rig.now(offsets_of("g"), shard)["t", 0] for shard in range(0, 300, 100)} == set(range(0, 300, 100))


def test_load_reads_pages_that_are_not_cached(tmp_path: Path) -> None:
    rig = Rig(
        tmp_path, groups, settings={"offsets.load.buffer.size": "200"}, config=replace(COMPACTED, segment_bytes=400)
    )
    for at in range(60):
        put(rig, [stored(f"g{at % 7}", at)])
    rig.disk.resident = lambda _path, _offset, _size: 0
    assert len(loaded(rig).offsets) == 7
    assert rig.now(offsets_of("g0")) == {("t", 0): 56}


@pytest.mark.parametrize("reading", [1, 2])
def test_load_of_an_unreadable_log_is_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture, reading: int) -> None:
    rig = Rig(tmp_path, groups)
    put(rig, [stored("g", 5)])
    rig.disk.fail("read", errno.EIO, when=reading, repeat=True, path=".log")
    rig.runtime.create_shards()
    rig.work()
    assert rig.do(offsets_of("g")).received == [NOT_HERE] and "Input/output error" in warnings(caplog)[-1]
    rig.disk.heal()
    rig.recover()
    assert rig.now(offsets_of("g")) == {("t", 0): 5}


def test_load_of_a_damaged_log_is_retried_with_growing_delay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(tmp_path, groups)
    put(rig, [stored("g", 5)])
    rig.disk.fail("read", errno.EIO, when=1, repeat=True, path=".log")
    rig.runtime.create_shards()
    times = []
    for second in range(300):
        rig.work()
        times += [second] if warnings(caplog) else []
        caplog.clear()
        rig.clock.advance(1_000)
    assert times == [0, 1, 3, 7, 15, 31, 63, 127, 191, 255]
    rig.disk.heal()
    for _ in range(20):
        rig.work()
        rig.clock.advance(1_000)
    assert rig.now(offsets_of("g")) == {("t", 0): 5}


# what is no record


KEY, VALUE = stored("garbage", 1)
assert VALUE is not None
GARBAGE: dict[str, tuple[bytes | None, bytes | None]] = {
    "no key": (None, b"value"),
    "an empty key": (b"", b"value"),
    "half a type": (b"\x00", b"value"),
    "a type of a later Kafka": (b"\x00\x63whatever", b"value"),
    "a type below zero": (b"\xff\xffwhatever", b"value"),
    "a type of ours that is not known": (b"\x27\x73\x00\x01g", b"value"),
    "a damaged definition": (b"\x27\x10\x00\x01g", b"\x00\x00\x00\x00\x17"),
    "a damaged claim": (b"\x27\x11\x00\x01g\x00\x01c", b"\x00\x00\x7f"),
    "a damaged mark": (b"\x27\x12\x00\x01g\x00\x01t\x00\x00\x00\x00", b"value"),
    "a damaged generation": (b"\x27\x13\x00\x01g", b"\x00\x00\x00\x00\x00\x01"),
    "a key that ends too early": (KEY[:-1], VALUE),
    "a key with more behind it": (KEY + b"x", VALUE),
    "a value that ends too early": (KEY, VALUE[:-3]),
    "a value of a later version": (KEY, b"\x00\x63" + VALUE[2:]),
    "an empty value": (KEY, b""),
    "a state that does not exist": (
        b"\x00\x08\x00\x01g\x00\x01m",
        b"\x00\x00" + b"\x00\x00\x00\x01" * 2 + b"\x33\x01\x01\x00",
    ),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_undecodable_record_is_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    rig = Rig(tmp_path, groups)
    put(rig, [stored("g", 5), GARBAGE[name], stored("h", 6)])
    loaded(rig)
    assert rig.now(offsets_of("g")) == {("t", 0): 5} and rig.now(offsets_of("h")) == {("t", 0): 6}
    (line,) = warnings(caplog)
    assert "skipped offset 1" in line
    key = GARBAGE[name][0]
    assert key is None or len(key) < 2 or f"type {int.from_bytes(key[:2], 'big', signed=True)}" in line


def test_many_undecodable_records_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(seed())
    rig = Rig(tmp_path, groups)
    for at in range(200):
        put(rig, [(rng.randbytes(rng.randrange(30)), rng.randbytes(rng.randrange(30))), stored("g", at)])
    loaded(rig)
    assert rig.now(offsets_of("g")) == {("t", 0): 199}
    first, last = warnings(caplog)
    assert "skipped offset 0" in first and "records were skipped" in last


def test_damaged_records_do_not_prevent_the_load_of_others(tmp_path: Path) -> None:
    """Every byte of keys and values that are good, changed at random; the good one at the end is loaded."""
    rng = random.Random(seed())
    good = [stored("g", 5), (b"\x00\x02\x00\x01c", None), (b"\x00\x03\x00\x01k", b"\x00\x00\x00\x00\x00\x07\x00")]
    rig = Rig(tmp_path, groups)
    for _ in range(300):
        key, value = rng.choice(good)
        put(rig, [(damaged(rng, key), None if value is None else damaged(rng, value))])
    put(rig, [stored("end", 6)])
    loaded(rig)
    assert rig.now(offsets_of("end")) == {("t", 0): 6}


def damaged(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(0, 2)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def test_damaged_batch_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(tmp_path, groups)
    put(rig, [stored("g", 5)])
    put(rig, [stored("h", 6)])
    put(rig, [stored("i", 7)])
    log = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    loaded(rig)
    assert rig.now(offsets_of("g")) == {("t", 0): 5} and rig.now(offsets_of("i")) == {("t", 0): 7}
    assert rig.now(offsets_of("h")) == {}
    assert "skipped offset 1: unreadable batch" in warnings(caplog)[0]


# transactions


def state_of(machine: GroupMachine, group: str) -> tuple[dict[int, int], set[int]]:
    """Offsets by partition, and the partitions that are not stable."""
    wanted = [TopicFetch("t", [0, 1, 2])]
    found = machine.offsets.fetch(group, wanted, require_stable=False)
    stable = machine.offsets.fetch(group, wanted, require_stable=True)
    return {one.partition: one.offset for one in found}, {one.partition for one in stable if one.error}


def test_offsets_of_a_transaction_are_pending_until_its_marker(tmp_path: Path) -> None:
    rig = Rig(tmp_path, groups)
    put(rig, [stored("g", 1, 0), stored("g", 1, 1), stored("g", 1, 2)])
    put(rig, [stored("g", 5, 0)], producer=7)
    put(rig, [stored("g", 6, 1)], producer=8)
    put(rig, [stored("g", 7, 2)], producer=9)
    put(rig, [stored("g", 8, 0)])  # overtakes what is pending
    mark(rig, 7, ControlType.COMMIT)
    mark(rig, 8, ControlType.ABORT)
    assert state_of(loaded(rig), "g") == ({0: 8, 1: 1, 2: 1}, {2})
    mark(rig, 9, ControlType.COMMIT)
    rig.restart()
    machine = rig.runtime.machine(0)
    assert machine is not None and state_of(machine, "g") == ({0: 8, 1: 1, 2: 7}, set())


def test_transaction_across_chunks_ends_with_its_marker(tmp_path: Path) -> None:
    rig = Rig(tmp_path, groups, settings={"offsets.load.buffer.size": "1"})
    put(rig, [stored("g", 1, 0)])
    put(rig, [stored("g", 5, 0), stored("g", 5, 1)], producer=7)
    mark(rig, 7, ControlType.COMMIT)
    put(rig, [stored("g", None, 1)])
    assert state_of(loaded(rig), "g") == ({0: 5, 1: -1, 2: -1}, set())


def test_commit_is_restored_by_the_next_incarnation(tmp_path: Path) -> None:
    rig = Rig(tmp_path, groups)
    rig.load()
    rig.now(commit("g", 5, partitions=3))
    rig.restart()
    assert rig.now(offsets_of("g")) == {("t", 0): 5, ("t", 1): 5, ("t", 2): 5}


@pytest.mark.usefixtures("collector_restored")
@pytest.mark.parametrize("ours", [False, True])
def test_loaded_objects_are_frozen_in_a_broker_process(tmp_path: Path, ours: bool) -> None:
    """Else the first collection behind the load looks at all of it; in the process of others nothing is frozen."""
    rig = Rig(tmp_path, groups)
    put(rig, [stored(f"g{at}", 5) for at in range(500)])
    if ours:
        PAUSE.enabled = True
    before = gc.get_freeze_count()
    rig.load()
    frozen = gc.get_freeze_count() - before
    assert rig.now(offsets_of("g499")) == {("t", 0): 5}
    assert frozen > 500 if ours else frozen <= 0  # those of before may be freed


def test_the_end_of_a_load_does_not_count_frozen_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`gc.get_freeze_count` walks all of them: 13 ms for each of 50 shards beside 5,000 topics."""
    counted: list[int] = []
    count = gc.get_freeze_count
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counted.append(count()))
    rig = Rig(tmp_path, groups, partitions=50)
    rig.load()
    assert rig.now(offsets_of("g")) == {}
    assert not counted
