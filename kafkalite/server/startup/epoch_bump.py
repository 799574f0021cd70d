"""Leader epochs after a start: raised where records may have been lost, so that clients notice it (KIP-320).

Kafka elects a leader for each partition when a broker comes back, in a new epoch. A consumer that has read beyond the
end of the log then gets FENCED_LEADER_EPOCH, asks where its last epoch ended, and learns where the log was truncated.
Here the start takes the part of the election:

1. A partition whose log was not closed cleanly gets a new epoch. How much was lost is unknown: a log that ends at its
   recovery point may have ended above it.
2. So does one whose log has a higher epoch than the journal, which was restored from an older copy. Epochs never fall.
3. A clean start changes no epoch. A partition without files has no epoch to raise: it never had a record. One with
   empty files, which is not opened (`LogManager.created`), may have lost all its records.

All new epochs are one transaction of the journal, durable before the first client connects. If the broker ends before
that, its next start is unclean, too.

Sources: Partition.makeLeader, ReplicationControlManager (elections), KIP-320.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from kafkalite.cluster.metadata.image import PartitionImage, TopicImage
from kafkalite.cluster.metadata.store import MetadataStore
from kafkalite.coordination.tree import Operation
from kafkalite.model import TopicPartition
from kafkalite.storage.manager import LogManager
from kafkalite.storage.recovery.load_logs import LoadedDirectory

LOGGER = logging.getLogger("kafkalite.server")


async def raise_leader_epochs(
    store: MetadataStore,
    topics: Iterable[TopicImage],
    logs: LogManager,
    loaded: Iterable[LoadedDirectory],
    later: Callable[[Sequence[Operation]], object],
) -> tuple[list[TopicImage], list[TopicPartition]]:
    """Raise the leader epochs that a start has to raise.

    Arguments:
        store: writes the new epochs to the journal.
        topics: as the journal has them.
        logs: the loaded logs; `loaded` shows which were closed cleanly.
        later: makes a change that a full disk refused durable with the next one.

    Returns the topics with the new epochs, and the partitions to which rule 2 applies. Raises CoordinationError.
    """
    unclean = {key for one in loaded for key in one.unclean}
    raised: dict[TopicPartition, PartitionImage] = {}
    behind: list[TopicPartition] = []
    images = [_raised(topic, logs, unclean, raised, behind) for topic in topics]
    if raised and not await store.change_leader_epochs(raised, later):
        LOGGER.warning("cannot write the journal: %d new leader epochs are written with its next change", len(raised))
    return images, behind


def _raised(
    topic: TopicImage,
    logs: LogManager,
    unclean: set[TopicPartition],
    raised: dict[TopicPartition, PartitionImage],
    behind: list[TopicPartition],
) -> TopicImage:
    partitions = list(topic.partitions)
    for index, partition in enumerate(partitions):
        key = TopicPartition(topic.name, index)
        log = logs.find(*key)
        if (log is None and key not in logs.created) or logs.topic_ids.get(key) != topic.topic_id:
            continue
        latest = partition.leader_epoch if log is None else log.epochs.latest
        if latest > partition.leader_epoch:
            behind.append(key)
        if key in unclean or latest > partition.leader_epoch:
            raised[key] = partitions[index] = partition._replace(leader_epoch=max(latest, partition.leader_epoch) + 1)
    return replace(topic, partitions=tuple(partitions))
