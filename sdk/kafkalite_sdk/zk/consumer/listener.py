"""The callbacks of an application for rebalances: ConsumerRebalanceListener of Kafka 0.8.2 to 1.1."""

from collections.abc import Awaitable, Collection, Mapping

from kafkalite.coordination.znodes.consumers import StreamId
from kafkalite.model import TopicPartition


class ConsumerRebalanceListener:
    """Base class for listeners of `ConsumerConnector`. Methods are plain or async; those not overridden do nothing.

    A method that does not return within `rebalance_max_retries` * `rebalance_backoff_ms` ends the consumer with
    ReleaseTimeoutError; one that raises ends it with its error. An async method must not wait for a record of a stream.
    """

    def before_releasing_partitions(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """No stream returns records of these partitions any more; other consumers do not own them yet.

        After the loss of a session other consumers may own them already.
        """

    def before_starting_fetchers(
        self, consumer_id: str, assignment: Mapping[TopicPartition, StreamId]
    ) -> Awaitable[None] | None:
        """The owners of a rebalance are written.

        Arguments:
            consumer_id: of this consumer.
            assignment: the stream that owns each partition, in the whole group, as far as this consumer's topics go.
        """
