"""aiokafka's assignor "roundrobin"."""

from kafkalite_sdk.compat.aiokafka.coordinator.assignors.builtin import BuiltinPartitionAssignor


class RoundRobinPartitionAssignor(BuiltinPartitionAssignor):
    """The assignor "roundrobin" of the engine."""

    name = "roundrobin"
