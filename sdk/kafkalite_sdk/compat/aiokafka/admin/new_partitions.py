"""aiokafka's number of partitions to create."""

from collections.abc import Sequence


class NewPartitions:
    """The partitions of a topic.

    Arguments:
        total_count: their new number.
        new_assignments: broker ids of the replicas of each new partition; None = the broker chooses.
    """

    def __init__(self, total_count: int, new_assignments: Sequence[Sequence[int]] | None = None) -> None:
        self.total_count = total_count
        self.new_assignments = new_assignments
