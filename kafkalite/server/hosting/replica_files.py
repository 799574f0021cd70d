"""Decides which replicas may begin empty: those with which no acknowledged record is lost.

| a replica without files, or with a damaged log, which the controller assigns | what happens |
|---|---|
| that is new, or of a partition in leader epoch 0: no broker has led it before | it begins empty |
| in log directories that have lost no files (`missing_logs`): its creation was interrupted | it begins empty |
| as another follower | it begins empty, and fetches everything from the leader |
| as a follower in the ISR, or an eligible one: without its records it must not be elected | KAFKA_STORAGE_ERROR |
| as the leader: another in-sync replica has the records | KAFKA_STORAGE_ERROR |
| as the leader after an unclean election (recovery state 1): the loss was accepted | it begins empty |

After KAFKA_STORAGE_ERROR the controller elects another leader, or removes the follower from the ISR. The next state
then lets the replica begin empty. So a broker that replaces a lost one restores its replicas by itself. A damaged log,
or one of another topic id, is renamed to a stray and kept.

Partitions with one replica have no other one to fetch from: `missing_logs` has their rules.
"""

import logging

from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.model import TopicPartition
from kafkalite.server.hosting.missing_logs import FIRST_EPOCH, summarize
from kafkalite.storage.manager import LogManager

LOGGER = logging.getLogger("kafkalite.server")
RECOVERING = 1  # LeaderRecoveryState (KIP-704)
LOST = (
    "%d replica%s offline, the first is %s: the controller says that they are in sync, but their files are missing or "
    "damaged. They begin empty, and fetch the records from their leaders, once they are out of the ISR"
)
EMPTY = "%d replica%s empty, the first is %s: their files were missing or damaged; the records come from their leaders"


class ReplicaFiles:
    """The replicas of this broker whose files are missing or damaged, of partitions with several replicas.

    Arguments:
        broker_id: of this broker.
        logs: the log directories.

    Attributes:
        lost: those that are offline, until a state lets them begin empty.
    """

    def __init__(self, broker_id: int, logs: LogManager) -> None:
        self.lost: set[TopicPartition] = set()
        self._broker_id = broker_id
        self._logs = logs
        self._offline: list[TopicPartition] = []
        self._empty: list[TopicPartition] = []

    def may_begin_empty(self, image: PartitionImage, *, is_new: bool, recovery_state: int) -> bool:
        """Whether a replica may begin without records.

        Arguments:
            image: the state of the partition.
            is_new: whether the controller says that the partition is new.
            recovery_state: of the leader.
        """
        if is_new or image.leader_epoch == FIRST_EPOCH:
            return True
        if image.leader == self._broker_id:
            return recovery_state == RECOVERING
        return self._broker_id not in (*image.isr, *image.eligible)

    def begin_empty(self, key: TopicPartition, *, is_new: bool) -> None:
        """Note for the report that a replica begins without records, which is usual for a new one."""
        if not is_new:
            self._empty.append(key)

    def take_offline(self, key: TopicPartition) -> None:
        """Note for the report that a replica is offline because it has lost its records."""
        self.lost.add(key)
        self._offline.append(key)

    def set_aside(self, key: TopicPartition) -> None:
        """Rename the log of a partition to a stray, if it cannot be used: it is damaged, or of another topic id.

        Without the rename the replica stays offline.
        """
        if self._logs.find(*key) is None and key not in self._logs.refused:
            return
        try:
            renamed = self._logs.set_stray(key, None)
        except OSError as error:
            LOGGER.error("%s: its log cannot be renamed to a stray: %s", key, error)
        else:
            LOGGER.warning("%s: its log is kept as %s, and fetched again", key, renamed)

    def report(self) -> None:
        """Log what was decided since the last call, in a line each."""
        offline, self._offline = self._offline, []
        empty, self._empty = self._empty, []
        if offline:
            LOGGER.error(LOST, *summarize(offline))
        if empty:
            LOGGER.warning(EMPTY, *summarize(empty))
