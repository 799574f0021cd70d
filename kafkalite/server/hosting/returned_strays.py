"""Returns strays to their partitions at the start of a broker of a cluster, before its logs are loaded.

A log that the controller did not assign became a stray, for example because an older tree was restored. If the tree
assigns its partition to this broker again, with the same topic id, the stray becomes the log of the partition. A stray
stays what it is if the partition has files, or if there is another stray of it: which one is right is not known.
`storage.partition_adoption` has the steps; a kill at any of them loses nothing.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from kafkalite._speedups.storage.file import Disk
from kafkalite.cluster.metadata.store import await_completion
from kafkalite.config.topic import TopicConfig
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import NoNodeError
from kafkalite.model import TopicPartition
from kafkalite.storage import names, partition_adoption
from kafkalite.storage.dirs import stray_partitions
from kafkalite.storage.dirs.stray_partitions import Stray
from kafkalite.storage.partition_adoption import AdoptionError

LOGGER = logging.getLogger("kafkalite.server")


def find(disk: Disk, directories: Iterable[str]) -> list[Stray]:
    """Return the strays of log directories with a topic id. An unreadable directory has none; its load reports it."""
    found: list[Stray] = []
    for directory in directories:
        try:
            found += stray_partitions.find(disk, directory)
        except OSError as error:
            LOGGER.error("%s: cannot be searched for strays: %s", directory, error)
    return [one for one in found if one.topic_id is not None]


async def find_assigned(strays: Sequence[Stray], broker_id: int, session: Coordination) -> list[Stray]:
    """Return the strays whose topic id and partition the tree assigns to a broker. Raises CoordinationError."""
    topics = {name: await _topic(session, name) for name in {one.topic for one in strays}}
    return [one for one in strays if _is_assigned(one, topics[one.topic], broker_id)]


async def _topic(session: Coordination, name: str) -> znodes.TopicNode | None:
    path = znodes.topic_path(name)
    try:
        data, _stat = await await_completion(partial(session.get, path))
        return znodes.decode_topic(path, data)
    except NoNodeError:
        return None
    except znodes.ZnodeError as error:
        LOGGER.error("%s; strays of topic %s are kept", error, name)
        return None


def _is_assigned(stray: Stray, node: znodes.TopicNode | None, broker_id: int) -> bool:
    if node is None or node.topic_id != stray.topic_id:
        return False
    return broker_id in node.replicas.get(stray.partition, ())


def return_strays(disk: Disk, strays: Sequence[Stray], config_of: Callable[[str], TopicConfig]) -> None:
    """Make assigned strays the logs of their partitions; blocks. One that cannot be returned is kept, with a log line.

    Arguments:
        disk: holds the log directories, which are locked.
        strays: from `find_assigned`.
        config_of: returns the configs of a topic.
    """
    number = Counter(TopicPartition(one.topic, one.partition) for one in strays)
    for stray in strays:
        key = TopicPartition(stray.topic, stray.partition)
        try:
            if number[key] > 1:
                raise AdoptionError(f"{stray.directory}: there is another stray of {key}")
            _return(disk, stray, key, config_of(stray.topic))
        except (AdoptionError, OSError) as error:
            LOGGER.error("%s: the stray is kept: %s", key, error)
        else:
            LOGGER.warning("%s: the stray %s is its log again", key, stray.name)


def _return(disk: Disk, stray: Stray, key: TopicPartition, config: TopicConfig) -> None:
    data = os.path.dirname(stray.directory)
    path = os.path.join(data, names.directory_name(*key))
    if disk.exists(path):
        raise AdoptionError(f"{path} exists")
    (candidate,) = partition_adoption.of_strays([stray])
    partition_adoption.fetch(disk, candidate, data, move=True, advance=lambda _bytes: None)
    ready = partition_adoption.make_ready(disk, candidate, data, config)
    partition_adoption.write_checkpoints(disk, data, {key: ready})
    partition_adoption.install(disk, candidate, data)
    stray_partitions.forget(disk, path)
