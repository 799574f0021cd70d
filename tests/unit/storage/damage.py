"""A partition's directory made by appending, and the ways in which it is damaged: for recovery and for the judges."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kafkalite._speedups.records.batch_builder import Builder
from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Outcome, outcome_of
from kafkalite.config.topic import TopicConfig
from kafkalite.storage.log.log import Log
from kafkalite.storage.log_creation import NewPartition
from kafkalite.storage.manager import LogManager
from kafkalite.testing.virtual_clock import InlineOffload
from tests.kit.logs import new_log

CONFIG = replace(TopicConfig(), segment_bytes=20_000, index_interval_bytes=1_000)
HEADER = 61


def batch(count: int = 3, timestamp: int = 1_000, size: int = 100, value: bytes = b"v", **fields: int) -> bytearray:
    """A batch of `count` records, one millisecond apart; `fields` as for Builder.build."""
    builder = Builder(1 << 24)
    for index in range(count):
        builder.append(timestamp + index, b"k%d" % index, value * size)
    return bytearray(builder.build(**fields))  # type: ignore[arg-type]


def filled(directory: Path, batches: int = 120, disk: Disk | None = None, config: TopicConfig = CONFIG) -> Log:
    """A log of `batches` batches of three records in several segments and epochs; not closed."""
    log = new_log(disk or Disk(), str(directory), "t", 0, config)
    for number in range(batches):
        assert log.append(batch(3, 1_000 * number), None, number // 50) == 3 * number
        if number % 4 == 3:
            assert log.write() == 0
    assert log.write() == 0
    return log


def make(
    manager: LogManager,
    path: str,
    topic: str,
    partition: int,
    topic_id: bytes,
    config: TopicConfig,
    done: Callable[[Outcome], object],
) -> None:
    """Create the files of a partition and open its log; `done` gets the log that the manager looks after."""

    def created(outcome: Outcome) -> None:
        if outcome.error is not None:
            done(outcome)
        elif (topic, partition) in outcome.value:
            done(Outcome(error=outcome.value[topic, partition]))
        else:
            done(outcome_of(manager.open_created, (topic, partition, config)))

    manager.create(path, [NewPartition(topic, partition, topic_id)], created)


def made(
    manager: LogManager,
    offload: InlineOffload,
    path: str,
    topic: str,
    partition: int,
    topic_id: bytes,
    config: TopicConfig,
) -> Log:
    """A new log that the manager looks after."""
    found: list[Outcome] = []
    make(manager, path, topic, partition, topic_id, config, found.append)
    while not found:
        assert offload.drain(), "its files are made by a job"
    log = found[0].result()
    assert isinstance(log, Log)
    return log


def last_log(directory: Path) -> Path:
    return max(directory.glob("*.log"))


def patch(path: Path, offset: int, data: bytes) -> None:
    """Overwrite bytes of a file; a negative offset counts from its end."""
    content = bytearray(path.read_bytes())
    offset %= len(content)
    content[offset : offset + len(data)] = data
    path.write_bytes(content)


def flip_a_record(directory: Path) -> None:
    """A bit of the last batch's records changes."""
    path = last_log(directory)
    patch(path, -20, bytes([path.read_bytes()[-20] ^ 1]))


def tear_the_tail(directory: Path) -> None:
    """The last batch is truncated to its half."""
    path = last_log(directory)
    path.write_bytes(path.read_bytes()[:-150])


def lose_a_batch(directory: Path) -> None:
    """The second batch of the first segment is missing: a gap in the offsets."""
    path = min(directory.glob("*.log"))
    content = path.read_bytes()
    size = 12 + int.from_bytes(content[8:12], "big")
    path.write_bytes(content[:size] + content[2 * size :])
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).unlink()


def reference_nothing(directory: Path) -> None:
    """An entry of an offset index names an offset that its position does not hold."""
    path = min(directory.glob("*.index"))
    patch(path, 3, bytes([path.read_bytes()[3] + 1]))


def lie_about_time(directory: Path) -> None:
    """An entry of a time index claims another timestamp."""
    path = min(directory.glob("*.timeindex"))
    patch(path, 7, bytes([path.read_bytes()[7] ^ 1]))


DAMAGES: dict[str, Callable[[Path], None]] = {
    "flipped record": flip_a_record,
    "torn tail": tear_the_tail,
    "lost batch": lose_a_batch,
    "wrong offset index": reference_nothing,
    "wrong time index": lie_about_time,
}
