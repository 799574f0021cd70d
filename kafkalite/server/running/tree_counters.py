"""Raises the counters of a cluster's tree above what this broker knows: at its start, and before each registration.

An older tree may have been restored since: while the broker was stopped, or while it had no session. The producer ids
of its logs, the ids that it assigns, and its own generated broker id must not be given out again. Leader epochs are
compared when the controller assigns a partition (`AssignedPartitions`).
"""

import logging
from collections.abc import Iterable, Sequence

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Outcome, Then
from kafkalite.cluster.generated_broker_ids import raise_sequence
from kafkalite.cluster.producer_id_blocks import NO_ID, raise_above
from kafkalite.cluster.producer_ids import ProducerIds
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.znodes import ZnodeError
from kafkalite.model import TopicPartition
from kafkalite.server.running.older_tree import OlderTree, largest_id, older_change
from kafkalite.storage import checkpoints
from kafkalite.storage.manager import LogManager
from kafkalite.storage.recovery.largest_producer_id import largest_of_logs
from kafkalite.storage.recovery.load_logs import LoadedDirectory

LOGGER = logging.getLogger("kafkalite.server")
NEXT_STEP = "restore the newer tree, see docs/cluster.md"
UNKNOWN_ZXID = -1


class TreeCounters:
    """The counters, as one broker raises them.

    Arguments:
        tree: the address of the tree, for the log.
        logs: of this broker.
        reserved_id_max: reserved.broker.max.id; None if broker ids are not generated.

    Attributes:
        broker_id: of this broker, once it is known.
        producer_ids: the ids that this broker assigns, once there is a broker.
        last_zxid: the last change of the tree that this broker has seen, also in earlier processes; -1 = unknown.
    """

    def __init__(self, tree: str, logs: LogManager, reserved_id_max: int | None) -> None:
        self.broker_id = -1
        self.producer_ids: ProducerIds | None = None
        self.last_zxid = UNKNOWN_ZXID
        self._logs = logs
        self._reserved_id_max = reserved_id_max
        self._older = OlderTree(tree, NEXT_STEP)
        self._largest_at_start = NO_ID

    def read_marks(self, disk: Disk, directories: Iterable[str]) -> None:
        """Read the last change that the marks of the clean shutdown have; the load of the logs removes them."""
        for path in directories:
            try:
                self.seen(checkpoints.read_tree_zxid(disk, path))
            except OSError as error:
                LOGGER.error("%s: the mark of the clean shutdown cannot be read: %s", path, error)

    def loaded(self, disk: Disk, loaded: Iterable[LoadedDirectory]) -> None:
        """The logs are loaded."""
        self._largest_at_start = largest_id(disk, loaded)

    def seen(self, zxid: int) -> None:
        """The session has seen this change of the tree."""
        self.last_zxid = max(self.last_zxid, zxid)

    def raise_in(self, session: Coordination, zxid: int, then: Then) -> None:
        """Raise the counters, and report an older tree. It can be repeated after a CoordinationError.

        Arguments:
            session: with the coordination service.
            zxid: the last change that this session has seen.
            then: called with the outcome.
        """
        older = self._older
        older.last_change = older_change(zxid, self.last_zxid)

        def ids_raised(outcome: Outcome) -> None:
            if isinstance(outcome.error, ZnodeError):
                LOGGER.error("%s; no producer ids are assigned until it is repaired", outcome.error)
            elif outcome.error is not None:
                then(outcome)
                return
            older.ids = outcome.value
            if self._reserved_id_max is None:
                sequence_raised(Outcome())
            else:
                raise_sequence(session, self.broker_id, self._reserved_id_max, sequence_raised)

        def sequence_raised(outcome: Outcome) -> None:
            if outcome.error is None:
                older.broker_id = None if outcome.value is None else (self.broker_id, outcome.value)
                older.report()
                self.last_zxid = zxid
            then(outcome)

        raise_above(session, self.broker_id, self._largest_id(), ids_raised, force=bool(older.last_change))

    def _largest_id(self) -> int:
        """The largest producer id of logs, and of those that this broker may have assigned."""
        if self.producer_ids is None:
            return self._largest_at_start
        return max(self._largest_at_start, self.producer_ids.last, largest_of_logs(self._logs.all()))

    def epochs_behind(self, partitions: Sequence[TopicPartition]) -> None:
        """The tree has lower leader epochs than the logs of these partitions, and is raised."""
        if self._older.reported:
            LOGGER.info("leader epochs of %d partitions are raised above those of their logs", len(partitions))
        else:
            self._older.epochs = list(partitions)
            self._older.report()
