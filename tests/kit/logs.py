"""New logs for tests and micro benchmarks; a broker creates the files of partitions in batches (`storage.making`)."""

import os

from kafkalite._speedups.storage.file import Disk
from kafkalite.config.topic import TopicConfig
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
