"""The meaning of the error of a partition in a Fetch response.

Pure: no I/O, no clock. Sources: FetchCollector.handleInitializeErrors of Apache Kafka 4.3; KIP-320, KIP-392, KIP-951.
"""

from typing import Any

from kafkalite.backoff import exponential_pause
from kafkalite.errors import CorruptRecordError, InvalidMetadataError, KafkaError, KafkaErrorCode, error_for, with_right
from kafkalite.model import Node
from kafkalite.protocol.messages.fetch import FetchResponse
from kafkalite_sdk.client.cluster_view import NO_EPOCH, NO_LEADER, ClusterView, PartitionView
from kafkalite_sdk.consumer.fetch.fetch_node import FetchCall
from kafkalite_sdk.consumer.fetch.fetch_settings import FetchSettings
from kafkalite_sdk.consumer.fetch.partition_buffer import PartitionBuffer
from kafkalite_sdk.consumer.offsets.offset_reset import Loss, ResetPolicy, replacement
from kafkalite_sdk.consumer.offsets.positions import NO_REPLICA, Positions

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData
OUT_OF_RANGE, CORRUPT = KafkaErrorCode.OFFSET_OUT_OF_RANGE, KafkaErrorCode.CORRUPT_MESSAGE
NO_PARTITION = PartitionView(NO_LEADER, NO_EPOCH)
SESSION_ERRORS = (
    KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    KafkaErrorCode.INVALID_FETCH_SESSION_EPOCH,
)


class FetchErrors:
    """Applies the errors of partitions.

    Arguments:
        settings: back-off times.
        positions: the assigned partitions.
        view: the brokers and leaders.
        stale_topics: gets the topics whose leaders are unknown or wrong.
    """

    def __init__(
        self, settings: FetchSettings, positions: Positions, view: ClusterView, stale_topics: set[str]
    ) -> None:
        self._settings = settings
        self._positions = positions
        self._view = view
        self._stale_topics = stale_topics

    @staticmethod
    def is_session_error(error: KafkaError) -> bool:
        """Whether a full request is the remedy."""
        return error.code in SESSION_ERRORS

    def apply(
        self,
        buffer: PartitionBuffer[Any, Any],
        call: FetchCall,
        data: PartitionData,
        response: FetchResponse,
        now: float,
    ) -> bool:
        """Apply the error of a partition.

        Arguments:
            buffer: of the partition.
            call: the request.
            data, response: the error, and the response that it is in.
            now: in seconds of the loop's clock.

        Returns: whether the prefetched records of the partition are invalid.
        """
        state = buffer.state
        from_replica = state.preferred_replica == call.node
        state.preferred_replica = NO_REPLICA
        code, topic = data.error_code, buffer.state.topic_partition.topic
        error = error_for(code, with_right(code, self._text(buffer), "read", topic))
        if isinstance(error, InvalidMetadataError):
            return self._leader_is_wrong(buffer, call, data, response, now, from_replica=from_replica)
        if from_replica and data.error_code == OUT_OF_RANGE:
            return False  # the leader may have the offset
        self._pause(buffer, call, now)
        if data.error_code == CORRUPT:
            topic, number = state.topic_partition
            offset = buffer.next_offset
            reason = "the broker cannot read its log there"
            buffer.error = CorruptRecordError(CORRUPT, topic, number, offset, offset + 1, reason)
        elif data.error_code == OUT_OF_RANGE:
            return self._out_of_range(buffer, error)
        elif not error.retriable and data.error_code != KafkaErrorCode.UNKNOWN_SERVER_ERROR:
            buffer.error = error
        return False

    @staticmethod
    def _text(buffer: PartitionBuffer[Any, Any]) -> str:
        return f"{buffer.state.topic_partition} at offset {buffer.next_offset}"

    def _pause(self, buffer: PartitionBuffer[Any, Any], call: FetchCall, now: float) -> None:
        settings = self._settings
        buffer.failures += 1
        buffer.failed_node = call.node
        buffer.state.retry_at = now + exponential_pause(
            settings.retry_backoff_s, buffer.failures, settings.retry_backoff_max_s
        )

    def _out_of_range(self, buffer: PartitionBuffer[Any, Any], error: KafkaError) -> bool:
        state = buffer.state
        if buffer.size:
            return False  # the records before it come first; then it is fetched again
        found = replacement(self._positions.policy, Loss.OUT_OF_RANGE)
        if isinstance(found, ResetPolicy):
            self._positions.begin_reset(state, found)
            return True
        buffer.error = error
        return False

    def _leader_is_wrong(
        self,
        buffer: PartitionBuffer[Any, Any],
        call: FetchCall,
        data: PartitionData,
        response: FetchResponse,
        now: float,
        *,
        from_replica: bool,
    ) -> bool:
        """Use the leader that the response names or the view knows by now, or ask for metadata."""
        topic, number = name = buffer.state.topic_partition
        if data.current_leader is not None:
            leader = PartitionView(data.current_leader.leader_id, data.current_leader.leader_epoch)
            nodes = [Node(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]
            if self._view.leader_changed(topic, number, leader, nodes):
                self._positions.leader_epoch_changed(buffer.state, leader.leader_epoch)
        asked = call.partitions[name]
        view = self._view.topics.get(topic)
        current = view.partitions[number] if view is not None and number < len(view.partitions) else NO_PARTITION
        if from_replica:
            self._stale_topics.add(topic)  # the leader is next
        elif current.leader in (NO_LEADER, call.node) and current.leader_epoch == asked.leader_epoch:
            self._stale_topics.add(topic)
            self._pause(buffer, call, now)
        return current.leader_epoch != asked.leader_epoch
