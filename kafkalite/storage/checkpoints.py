"""Reads and writes the small text files of a log directory (CheckpointFile.java, PartitionMetadata.java).

A file with any deviation from its format raises `BadCheckpoint` with its path and the reason.
"""

import base64
import json
import os
import re
from collections.abc import Collection

from kafkalite._speedups.storage.file import Disk
from kafkalite.model import TopicPartition
from kafkalite.storage import names

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
_NUMBER = re.compile(r"[0-9]{1,19}")
_TOPIC_ID = re.compile(r"version: 0\ntopic_id: ([A-Za-z0-9_-]{22})\n?")

Offsets = dict[TopicPartition, int]
OffsetsByPartition = dict[TopicPartition, tuple[int, int]]  # recovery point and log start


class BadCheckpoint(ValueError):
    """A file of a log directory cannot be read; the message contains its path and the reason."""


def _entries(disk: Disk, path: str) -> list[list[str]]:
    """The fields of every entry of a checkpoint of version 0; a missing file has no entries."""
    try:
        lines = disk.read_bytes(path).decode().splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise BadCheckpoint(f"{path}: not text") from error
    if not lines or lines[0] != "0":
        raise BadCheckpoint(f"{path}: expected version 0")
    if len(lines) < 2 or lines[1] != str(len(lines) - 2):
        raise BadCheckpoint(f"{path}: {len(lines) - 2} entries, but line 2 has another count")
    return [line.split(" ") for line in lines[2:]]


def _write(disk: Disk, path: str, lines: list[str], sync: bool) -> None:
    disk.write_atomic(path, _content(lines), sync=sync)


def _content(lines: list[str]) -> bytes:
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def _number(path: str, text: str, highest: int) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > highest:
        raise BadCheckpoint(f"{path}: {text[:40]!r} is not a number from 0 to {highest}")
    return int(text)


def read_offsets(disk: Disk, path: str, *, empty: bool = False) -> Offsets:
    """`<topic> <partition> <offset>` per line. Raises BadCheckpoint, OSError.

    Arguments:
        empty: accept an empty file as one without entries; Apache Kafka creates such files in advance.
    """
    offsets: Offsets = {}
    if empty and disk.exists(path) and disk.size(path) == 0:
        return offsets
    for fields in _entries(disk, path):
        if len(fields) != 3:
            raise BadCheckpoint(f"{path}: {' '.join(fields)!r} is not topic, partition, offset")
        offsets[TopicPartition(fields[0], _number(path, fields[1], INT32_MAX))] = _number(path, fields[2], INT64_MAX)
    return offsets


def write_offsets(disk: Disk, path: str, offsets: Offsets, *, sync: bool = True) -> None:
    """Replace the checkpoint `path` on `disk` by `offsets`; without `sync` a crash may lose it. Raises OSError."""
    lines = [line(topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())]
    _write(disk, path, lines, sync)


def line(topic: str, partition: int, offset: int) -> str:
    """One entry of a checkpoint: the `offset` of the `partition` with this index of `topic`."""
    return f"{topic} {partition} {offset}"


def write_lines(disk: Disk, path: str, lines: list[str]) -> None:
    """Job: replace a checkpoint of offsets by finished lines, of which there may be thousands. Raises OSError.

    Arguments:
        disk: that has the file.
        path: of the checkpoint.
        lines: as of `line`.
    """
    _write(disk, path, lines, sync=True)


def read_epochs(disk: Disk, path: str) -> list[tuple[int, int]]:
    """`<epoch> <start offset>` per line, both growing. Raises BadCheckpoint, OSError."""
    entries: list[tuple[int, int]] = []
    for fields in _entries(disk, path):
        if len(fields) != 2:
            raise BadCheckpoint(f"{path}: {' '.join(fields)!r} is not two integers, an epoch and an offset")
        entry = _number(path, fields[0], INT32_MAX), _number(path, fields[1], INT64_MAX)
        if entries and (entry[0] <= entries[-1][0] or entry[1] < entries[-1][1]):
            raise BadCheckpoint(f"{path}: epochs must increase")
        entries.append(entry)
    return entries


def write_epochs(disk: Disk, path: str, entries: list[tuple[int, int]], *, sync: bool = False) -> None:
    """Replace the checkpoint `path` on `disk` by `entries`, (epoch, start offset) each.

    Without `sync` a crash may lose it, and recovery reads the epochs from the batches.
    """
    disk.write_atomic(path, epochs_content(entries), sync=sync)


def epochs_content(entries: list[tuple[int, int]]) -> bytes:
    """The content of `leader-epoch-checkpoint`."""
    return _content([f"{epoch} {offset}" for epoch, offset in entries])


def read_topic_id(disk: Disk, directory: str) -> bytes | None:
    """The 16 bytes in `partition.metadata`, None where there is no such file. Raises BadCheckpoint, OSError."""
    path = os.path.join(directory, names.PARTITION_METADATA)
    try:
        text = disk.read_bytes(path).decode(errors="replace")
    except FileNotFoundError:
        return None
    found = _TOPIC_ID.fullmatch(text)
    if found is None:
        raise BadCheckpoint(f"{path}: not a version and a topic id")
    return base64.urlsafe_b64decode(found[1] + "==")


def write_topic_id(disk: Disk, directory: str, topic_id: bytes) -> None:
    """Write the topic id to `partition.metadata`. Raises OSError."""
    path = os.path.join(directory, names.PARTITION_METADATA)
    disk.write_atomic(path, topic_id_text(topic_id), sync=True)


def topic_id_text(topic_id: bytes) -> bytes:
    """The content of `partition.metadata`."""
    text = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
    return f"version: 0\ntopic_id: {text}".encode()


def take_clean_shutdown(disk: Disk, directory: str) -> set[TopicPartition] | None:
    """`read_clean_shutdown`, then remove the mark, so that a crash from now on is detected. Raises OSError."""
    unclean = read_clean_shutdown(disk, directory)
    path = os.path.join(directory, CLEAN_SHUTDOWN)
    if disk.exists(path):
        disk.remove(path)
        disk.sync_dir(directory)
    return unclean


def read_clean_shutdown(disk: Disk, directory: str) -> set[TopicPartition] | None:
    """The partitions that the mark of a clean shutdown excludes; None if there is no mark or it cannot be read.

    Apache Kafka may leave an empty mark. Raises OSError.
    """
    try:
        text = disk.read_bytes(os.path.join(directory, CLEAN_SHUTDOWN))
    except FileNotFoundError:
        return None
    try:
        mark = json.loads(text) if text else {}
        return {TopicPartition(str(topic), int(partition)) for topic, partition in mark.get("unclean", ())}
    except (AttributeError, TypeError, ValueError):
        return None


def read_broker_epoch(disk: Disk, directory: str) -> int:
    """The broker epoch in the mark of a clean shutdown, -1 without a mark or an epoch in it. Raises OSError."""
    return _number_in_mark(disk, directory, "brokerEpoch", 18)


def read_tree_zxid(disk: Disk, directory: str) -> int:
    """The last change of the cluster's tree in the mark of a clean shutdown, -1 where it is unknown. Raises OSError."""
    return _number_in_mark(disk, directory, "treeZxid", 19)


def read_unclean_since(disk: Disk, directory: str) -> int:
    """`unclean_since` in the mark of a clean shutdown, -1 without a mark or the field. Raises OSError."""
    return _number_in_mark(disk, directory, "uncleanSince", 19)


def _number_in_mark(disk: Disk, directory: str, field: str, digits_max: int) -> int:
    path = os.path.join(directory, CLEAN_SHUTDOWN)
    text = disk.read_bytes(path).decode(errors="replace") if disk.exists(path) else ""
    found = re.search(rf'"{field}": *([0-9]{{1,{digits_max}}})\b', text)
    return -1 if found is None else int(found[1])


def older_journal(disk: Disk, path: str, zxid: int) -> list[str]:
    """Return a warning where the journal is older than the last clean shutdown of its log directory. Raises OSError.

    After an unclean shutdown there is no record, and an older journal shows only by the topics that it lacks.

    Arguments:
        disk: holds both.
        path: of the journal.
        zxid: the last transaction of the journal.
    """
    noted = read_broker_epoch(disk, os.path.dirname(path))
    if zxid >= noted:
        return []
    return [
        f"{path}: an older copy: its last change is {zxid:,}, at the last shutdown it was "
        f"{noted:,}. Topics and settings that were changed since are missing; put the newer file back, see "
        "docs/operations.md, Restore"
    ]


def write_clean_shutdown(
    disk: Disk,
    directory: str,
    broker_epoch: int = -1,
    unclean: Collection[TopicPartition] = frozenset(),
    tree_zxid: int = -1,
    unclean_since: int = -1,
) -> None:
    """Write the mark of a clean shutdown: every log of the directory is complete on the disk. Raises OSError.

    Arguments:
        broker_epoch: of the last registration in a cluster, or the last flushed zxid of the journal of a broker that is
            alone; -1 where it is unknown (CleanShutdownFileHandler.java).
        unclean: partitions that are not complete: the next start checks them. Apache Kafka ignores this field.
        tree_zxid: in a cluster the last change of the tree that the broker has seen, so that a start notices an older
            tree. Apache Kafka ignores this field, too.
        unclean_since: the broker epoch of the first registration since the last unclean start, 0 = there was none
            since, -1 = there was no unclean start. Apache Kafka ignores this field, too.
    """
    mark: dict[str, object] = {"version": 0, "brokerEpoch": broker_epoch}
    if tree_zxid >= 0:
        mark["treeZxid"] = tree_zxid
    if unclean_since >= 0:
        mark["uncleanSince"] = unclean_since
    if unclean:
        mark["unclean"] = sorted(unclean)
    text = json.dumps(mark, separators=(",", ":"))
    disk.write_atomic(os.path.join(directory, CLEAN_SHUTDOWN), text.encode(), sync=True)
