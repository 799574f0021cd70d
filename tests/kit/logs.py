"""Creates and reads logs for tests and micro benchmarks; a broker creates partitions with `storage.log_creation`."""

import os

from kafkalite._speedups.storage.file import Disk, FileRegion
from kafkalite._speedups.storage.page_cache import PageCacheMiss, ReadAttempt
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.storage import names
from kafkalite.storage.log.leader_epoch_cache import LeaderEpochCache
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.segment import Segment


def new_log(disk: Disk, directory: str, topic: str, partition: int, config: TopicConfig) -> Log:
    """An empty log in a directory, which is made. Raises OSError."""
    disk.make_dir(directory)
    segment = Segment(0, directory, disk, config).create()
    epochs = LeaderEpochCache(disk, os.path.join(directory, names.LEADER_EPOCH_CHECKPOINT))
    return Log(disk, directory, topic, partition, config, [segment], epochs)


def read_log(
    log: Log, offset: int, max_bytes: int, end_offset: int, *, min_one: bool = True
) -> list[FileRegion] | KafkaErrorCode:
    """Read whole batches, waiting for the disk; the arguments are those of `ReadAttempt`. Raises OSError."""
    result = log.read(ReadAttempt(offset, max_bytes, end_offset, min_one=min_one, wait=True))
    assert not isinstance(result, PageCacheMiss)
    return result
