"""The queues of a producer, one per partition."""

from collections import deque
from typing import Any, final

from kafkalite_sdk._speedups.deliveries import ProducerBatch

__all__ = ["PartitionQueue"]

@final
class PartitionQueue:
    """The unsent batches of one partition.

    Attributes:
        open: the batch that takes records; None = the next record opens one.
        full: the batches before it, oldest first; the sender takes them, and puts them back to retry.
        leaderless: the partition has no leader.
        sender: its PartitionSender; set by the sender.
    """

    sender: Any

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def open(self) -> ProducerBatch | None: ...
    @property
    def full(self) -> deque[ProducerBatch]: ...
    @property
    def leaderless(self) -> bool: ...
