"""Errors of consumers whose group is in ZooKeeper."""

from kafkalite.errors import KafkaError


class ConsumerRebalanceFailedError(KafkaError):
    """The consumer did not own its partitions within `rebalance.max.retries` (ConsumerRebalanceFailedException)."""


class ConsumerIdInUseError(KafkaError):
    """Another session has registered the id of this consumer, for longer than two session timeouts."""


class NotRegisteredError(KafkaError):
    """The registration of this consumer was deleted."""


class ReleaseTimeoutError(KafkaError):
    """The streams or the rebalance listener did not return in time."""


class OffsetsTimeoutError(KafkaError):
    """The offset storage did not answer in time."""


class OffsetCommitError(KafkaError):
    """Offsets were not committed after all retries."""


class SessionLostError(KafkaError):
    """The session with ZooKeeper is over, or the consumer shuts down, before a commit was complete."""
