"""Formats and parses Kafka's names of the files and directories of a log (LogFileUtils.java, LocalLog.java)."""

import re

from kafkalite.model import TopicPartition

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
INDEXES = (INDEX, TIME_INDEX, TXN_INDEX)  # of a segment
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
WORK = ".tmp"
DELETE_DIRECTORY = "-delete"
STRAY_DIRECTORY = "-stray"
FUTURE_DIRECTORY = "-future"
ADOPTING = ".adopting"  # ours: a partition's directory while it is being adopted
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
FAILED_FSYNC = "kafkalite.failed-fsync"  # in a log directory whose disk has failed, see `dirs/failed_fsync`
UNCONFIRMED = "kafkalite.unconfirmed"  # in a log directory that may lack partitions, see `server/hosting/missing_logs`

_OFFSET = re.compile(r"(\d{20})(\.[a-z]+)")
_PARTITION = re.compile(r"([A-Za-z0-9._-]{1,249})-(\d{1,10})")
_UNIQUE = re.compile(r"(.+)\.([0-9a-f]{32})-delete")
_STRAY = re.compile(r"([A-Za-z0-9._-]{1,249}-\d{1,10})\.[0-9a-f]{32}-stray")
_FUTURE = re.compile(r"([A-Za-z0-9._-]{1,249}-\d{1,10})\.[0-9a-f]{32}-future")
_DIRECTORY_NAME_MAX = 255


def file_name(offset: int, suffix: str) -> str:
    """`00000000000000000042.log` and its like."""
    return f"{offset:020d}{suffix}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """(offset, suffix) of a file of a log, None for any other name."""
    found = _OFFSET.fullmatch(name)
    return (int(found[1]), found[2]) if found else None


def directory_name(topic: str, partition: int) -> str:
    """`orders-3`."""
    return f"{topic}-{partition}"


def parse_directory_name(name: str) -> TopicPartition | None:
    """(topic, partition) of a partition's directory, None for any other name."""
    found = _PARTITION.fullmatch(name)
    if not found or found[1] in (".", ".."):
        return None
    return TopicPartition(found[1], int(found[2]))


def deleted_directory_name(topic: str, partition: int, unique: str) -> str:
    """The name a partition's directory gets before it is removed; `unique`: 32 hex digits. Cut to fit."""
    suffix = f"-{partition}.{unique}{DELETE_DIRECTORY}"
    return topic[: _DIRECTORY_NAME_MAX - len(suffix)] + suffix


def stray_directory_name(topic: str, partition: int, unique: str) -> str:
    """The name of a partition's directory whose topic is unknown (LocalLog.logStrayDirName).

    Arguments:
        unique: 32 hex digits. A topic that is too long for a file name is shortened.
    """
    suffix = f"-{partition}.{unique}{STRAY_DIRECTORY}"
    return topic[: _DIRECTORY_NAME_MAX - len(suffix)] + suffix


def future_directory_name(topic: str, partition: int, unique: str) -> str | None:
    """The name of the directory in which a partition is copied to another log directory (LocalLog.logFutureDirName).

    Arguments:
        unique: 32 hex digits.

    Returns None where the topic is too long for a file name.
    """
    name = f"{topic}-{partition}.{unique}{FUTURE_DIRECTORY}"
    return name if len(name) <= _DIRECTORY_NAME_MAX else None


def parse_future_directory_name(name: str) -> TopicPartition | None:
    """(topic, partition) of the directory of a future replica, None for any other name."""
    found = _FUTURE.fullmatch(name)
    return None if found is None else parse_directory_name(found[1])


def parse_stray_directory_name(name: str) -> TopicPartition | None:
    """(topic, perhaps shortened, and partition) of a stray directory, None for any other name."""
    found = _STRAY.fullmatch(name)
    return None if found is None else parse_directory_name(found[1])


def is_deleted_directory(name: str) -> bool:
    return _UNIQUE.fullmatch(name) is not None
