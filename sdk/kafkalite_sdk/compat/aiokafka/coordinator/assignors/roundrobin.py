"""aiokafka's assignor "roundrobin"."""

from kafkalite_sdk.compat.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor


class RoundRobinPartitionAssignor(AbstractPartitionAssignor):
    """The assignor "roundrobin" of the engine."""

    name = "roundrobin"
