"""aiokafka's assignor "range"."""

from kafkalite_sdk.compat.aiokafka.coordinator.assignors.builtin import BuiltinPartitionAssignor


class RangePartitionAssignor(BuiltinPartitionAssignor):
    """The assignor "range" of the engine."""

    name = "range"
