"""aiokafka's topic to create."""

from collections.abc import Mapping, Sequence

from kafkalite_sdk.compat.aiokafka.errors import IllegalArgumentError


class NewTopic:
    """A topic.

    Arguments:
        name: its name.
        num_partitions: number of partitions, -1 with `replica_assignments`.
        replication_factor: replicas of each partition, -1 with `replica_assignments`.
        replica_assignments: broker ids of the replicas of each partition.
        topic_configs: its configs by name.

    Raises: IllegalArgumentError for both or neither of counts and assignments.
    """

    def __init__(
        self,
        name: str,
        num_partitions: int,
        replication_factor: int,
        replica_assignments: Mapping[int, Sequence[int]] | None = None,
        topic_configs: Mapping[str, str] | None = None,
    ) -> None:
        if (num_partitions == -1 or replication_factor == -1) == (replica_assignments is None):
            raise IllegalArgumentError("pass either num_partitions and replication_factor, or replica_assignments")
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = replica_assignments or {}
        self.topic_configs = topic_configs or {}
