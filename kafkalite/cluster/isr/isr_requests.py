"""What a broker needs to change the ISR of the partitions that it leads: one object per broker of a cluster.

A broker that is alone has none, and does not import these modules at its start.
"""

from collections.abc import Callable

from kafkalite.clock import Clock
from kafkalite.cluster.isr.alter_partition_sender import AlterPartitionSender, ControllerCalls
from kafkalite.cluster.isr.check_timer import IsrCheckTimer
from kafkalite.cluster.isr.isr_changes import IsrChanges, IsrCounts, IsrHost, IsrLeader, IsrPartition
from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.metrics import Registry


class IsrRequests:
    """The ISR changes of all partitions that this broker leads.

    Arguments:
        clock: of the broker.
        controller: where the requests go.
        broker_id: of this broker.
        broker_epoch: returns that of the present registration; with each registration, leaderships begin again.
        lag_max_ms: returns how long a follower may lag (`replica.lag.time.max.ms`).
        registry: of the broker's metrics.

    Attributes:
        sender: sends the changes.
        lag_checks: removes lagging followers from the ISR.
        counts: of the changes.
    """

    def __init__(
        self,
        clock: Clock,
        controller: ControllerCalls,
        broker_id: int,
        broker_epoch: Callable[[], int],
        lag_max_ms: Callable[[], int],
        registry: Registry,
    ) -> None:
        self._broker_epoch = broker_epoch
        self.sender = AlterPartitionSender(clock, controller, broker_id, broker_epoch)
        self.lag_checks = IsrCheckTimer(clock, lag_max_ms)
        self.counts = IsrCounts(registry)
        registry.gauge(
            "kafkalite_pending_isr_changes", "ISR changes that the controller has not answered.", self.sender.__len__
        )

    def begin(self, partition: IsrPartition, leader: IsrLeader, host: IsrHost, state: PartitionImage) -> IsrChanges:
        """Begin a leadership with followers; `end` of the result ends it.

        Arguments:
            partition: the partition.
            leader: its leadership, which uses the ISR.
            host: the broker.
            state: with which the leadership begins.
        """
        return IsrChanges(partition, leader, host, self, state)

    def broker_epoch(self) -> int:
        """Of the present registration of this broker."""
        return self._broker_epoch()

    def close(self) -> None:
        """Send and check nothing any more."""
        self.sender.close()
        self.lag_checks.close()
