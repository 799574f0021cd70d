"""The transactions in flight: what the result of each is for. `write_results` has the functions."""

from typing import NamedTuple, TypeAlias

from kafkalite.state.controller.effects import Operation
from kafkalite.state.controller.known_topics import Partition, Topic

RESULT_UNKNOWN = -1  # instead of the index of the operation that was rejected


class StateWrite(NamedTuple):
    """States of partitions; the partition of each operation, None for the node above the partitions."""

    partitions: tuple[Partition | None, ...]


class TopicIdWrite(NamedTuple):
    """The id of a topic."""

    topic: Topic


class NodeRemoval(NamedTuple):
    """A part of the nodes of a deleted topic."""

    topic: Topic
    operations: tuple[Operation, ...]


class RequestRemoval(NamedTuple):
    """A request to delete a topic that does not exist, or must not be deleted."""

    topic: str


class FeatureWrite(NamedTuple):
    """The features node."""

    version: int | None


class EpochCheck(NamedTuple):
    """Whether this broker still is the controller."""


PendingWrite: TypeAlias = StateWrite | TopicIdWrite | NodeRemoval | RequestRemoval | FeatureWrite | EpochCheck
