"""aiokafka's assignor "range"."""

from kafkalite_sdk.compat.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor


class RangePartitionAssignor(AbstractPartitionAssignor):
    """The assignor "range" of the engine."""

    name = "range"
