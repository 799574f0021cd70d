"""Compares the journal with a log directory, without changing either: reports what the next start would.

`log verify` and `log recover --dry-run` use it; it works on read-only copies.
"""

import os
from collections.abc import Iterator
from urllib.parse import unquote

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Clock
from kafkalite.cluster.metadata.image import TopicImage
from kafkalite.cluster.metadata.store import MetadataStore
from kafkalite.coordination import journal, znodes
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.coordination.znodes import ZnodeError
from kafkalite.server.process.resources import JOURNAL
from kafkalite.storage import checkpoints, names
from kafkalite.storage.dirs import stray_partitions
from kafkalite.storage.dirs.log_directory import DirectoryError, LogDirectory

NO_IDENTITY = (
    "is missing; restore it from a backup. Without the id in it, partitions that are missing here cannot be reported"
)


async def compare(disk: Disk, clock: Clock, log_dir: str) -> list[str]:
    """Return warnings about a log directory, one line each: strays, and differences from the journal.

    Without a journal, which is in another log directory then, only strays are reported. Raises OSError.
    """
    path = os.path.join(log_dir, JOURNAL)
    found = [
        f"{one.directory}: a stray; `kafkalite log stray {log_dir}` adopts or deletes it"
        for one in stray_partitions.find(disk, log_dir)
    ]
    if not disk.exists(path):
        return found
    try:
        loaded = journal.load(disk.read_bytes(path))
        identity = LogDirectory(disk, log_dir).identity()
        if identity is None:
            return [*found, f"{os.path.join(log_dir, checkpoints.META_PROPERTIES)}: {NO_IDENTITY}"]
        zxid = loaded.tree.zxid  # a session, as below, begins with a transaction of its own
        service = EmbeddedCoordination(clock, loaded.tree)
        store = MetadataStore(service.connect(), clock)
        store.register(identity.broker_id)
        topics = await store.topics()
    except journal.JournalError as error:
        return [*found, f"{path}: {error}; {error.next_step}"]
    except ZnodeError as error:
        return [*found, f"{path}: {error}; restore it from a backup"]
    except DirectoryError as error:
        return [*found, str(error)]
    if loaded.torn:
        text = (
            f"its last {loaded.torn:,} bytes are an unfinished write; after a crash that is normal, a copy is partial"
        )
        found.append(f"{path}: {text}")
    found += checkpoints.older_journal(disk, path, zxid)
    return [*found, *_unknown(disk, log_dir, topics), *_missing(disk, log_dir, topics, store)]


def compacted_topics(disk: Disk, log_dir: str) -> set[str]:
    """Return the topics with cleanup.policy=compact in the journal of a log directory. Raises OSError.

    Empty without a journal, or where it cannot be read, which `compare` reports.
    """
    path = os.path.join(log_dir, JOURNAL)
    if not disk.exists(path):
        return set()
    try:
        configs = dict(_topic_configs(disk.read_bytes(path)))
    except (journal.JournalError, ZnodeError):
        return set()
    return {topic for topic, found in configs.items() if "compact" in found.get("cleanup.policy", "").split(",")}


def _topic_configs(data: bytes) -> Iterator[tuple[str, dict[str, str]]]:
    tree = journal.load(data).tree
    topics = tree.find(znodes.TOPIC_CONFIGS)
    for name in topics.children if topics is not None else ():
        path = f"{znodes.TOPIC_CONFIGS}/{name}"
        node = tree.find(path)
        if node is not None:
            yield unquote(name), znodes.decode_configs(path, node.data)


def _unknown(disk: Disk, log_dir: str, topics: list[TopicImage]) -> list[str]:
    ids = {(topic.topic_id, index) for topic in topics for index in range(len(topic.partitions))}
    found = []
    for name in sorted(disk.list(log_dir)):
        key, directory = names.parse_directory_name(name), os.path.join(log_dir, name)
        if key is None or not disk.is_dir(directory):
            continue
        try:
            topic_id = checkpoints.read_topic_id(disk, directory)
        except checkpoints.BadCheckpoint:
            continue  # a violation of its own
        if topic_id is not None and (topic_id, key[1]) not in ids:
            text = "its topic is not in kafkalite.journal, perhaps an older copy; a start makes it a stray and keeps it"
            found.append(f"{directory}: {text}")
    return found


def _missing(disk: Disk, log_dir: str, topics: list[TopicImage], store: MetadataStore) -> list[str]:
    properties = disk.read_bytes(os.path.join(log_dir, checkpoints.META_PROPERTIES)).decode(errors="replace")
    own = next((line[13:] for line in properties.splitlines() if line.startswith("directory.id=")), "")
    found = []
    for topic in topics:
        for index in range(len(topic.partitions)):
            directory = os.path.join(log_dir, names.directory_name(topic.name, index))
            if store.noted_directory(topic.topic_id, index) in (own, log_dir) and not disk.exists(directory):
                text = "is missing, so the partition will be offline; restore it, or delete the topic"
                found.append(f"{directory}: {text}")
    return found
