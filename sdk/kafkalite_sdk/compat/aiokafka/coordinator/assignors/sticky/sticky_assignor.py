"""aiokafka's assignor "sticky"."""

from kafkalite_sdk.compat.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor


class StickyPartitionAssignor(AbstractPartitionAssignor):
    """The assignor "sticky" of the engine."""

    name = "sticky"
