"""aiokafka's assignor "sticky"."""

from kafkalite_sdk.compat.aiokafka.coordinator.assignors.builtin import BuiltinPartitionAssignor


class StickyPartitionAssignor(BuiltinPartitionAssignor):
    """The assignor "sticky" of the engine."""

    name = "sticky"
