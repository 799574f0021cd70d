"""Produce, key 0, v3-13 (advertised from 0, KAFKA-18659): appends batches to partitions and answers according to acks.

Version notes: v3 record batches v2 only; v5 log start offset; v7 zstd; v8 record errors; v10 current leaders (KIP-951);
v13 topics by id.

- acks=0 gets no response. An error closes the connection, as nothing else can report it. v0-2 close it, too.
- A transactional batch without a transactional id is rejected (TRANSACTIONAL_ID_AUTHORIZATION_FAILED). The first one of
  a transaction in a partition waits for the transaction coordinator (KIP-890): up to v11 it verifies that the partition
  is in the transaction, from v12 on it adds it. TRANSACTION_ABORTABLE is INVALID_TXN_STATE up to v10.
- Transactional batches of several producers, or epochs, in one request fail with INVALID_PRODUCER_ID_MAPPING.
- A response has only codes of `PARTITION_ERRORS`, so that a client knows whether to repeat a batch. Any other one, as
  an exception outside of the appends, closes the connection: clients repeat the request with the same sequences.
  UNKNOWN_SERVER_ERROR would let idempotent clients append batches twice (KAFKA-14034).

Deviation: the first of these two errors is per partition, not per request.
Sources: ProduceRequest.json, ReplicaManager.appendRecords.
"""

from kafkalite.cluster.partition.append import Append, BatchOwner, TransactionOfAppend
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Node
from kafkalite.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkalite.records.batch_header import ATTRIBUTES_AT, HEADER_SIZE, TRANSACTIONAL_BIT
from kafkalite.server.requests.call import PartitionCall
from kafkalite.server.requests.leader_hints import LeaderHints

TOPIC_ID_SINCE = 13
ZSTD_SINCE = 7
LEADERS_SINCE = 10
ABORTABLE_SINCE = 11
ADDS_SINCE = 12
PRODUCER = slice(43, 53)  # producer id and epoch of a batch
NOT_LEADER = KafkaErrorCode.NOT_LEADER_OR_FOLLOWER
NOTHING = memoryview(b"")
ACKS = (0, 1, -1)
NO_ERROR = 0

# What Apache Kafka answers for a partition (ProduceResponse.java, ReplicaManager.appendToLocalLog).
PARTITION_ERRORS = frozenset(
    {
        KafkaErrorCode.CORRUPT_MESSAGE,
        KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        KafkaErrorCode.NOT_LEADER_OR_FOLLOWER,
        KafkaErrorCode.REQUEST_TIMED_OUT,
        KafkaErrorCode.MESSAGE_TOO_LARGE,
        KafkaErrorCode.INVALID_TOPIC_EXCEPTION,
        KafkaErrorCode.RECORD_LIST_TOO_LARGE,
        KafkaErrorCode.NOT_ENOUGH_REPLICAS,
        KafkaErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaErrorCode.INVALID_REQUIRED_ACKS,
        KafkaErrorCode.INVALID_TIMESTAMP,
        KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaErrorCode.INVALID_PRODUCER_EPOCH,
        KafkaErrorCode.INVALID_PRODUCER_ID_MAPPING,
        KafkaErrorCode.INVALID_TXN_STATE,
        KafkaErrorCode.CONCURRENT_TRANSACTIONS,
        KafkaErrorCode.TRANSACTION_ABORTABLE,
        KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaErrorCode.KAFKA_STORAGE_ERROR,
        KafkaErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaErrorCode.INVALID_RECORD,
        KafkaErrorCode.UNKNOWN_TOPIC_ID,
    }
)

TopicResponse = ProduceResponse.TopicProduceResponse
PartitionResponse = ProduceResponse.TopicProduceResponse.PartitionProduceResponse
RecordError = PartitionResponse.BatchIndexAndErrorMessage
LeaderIdAndEpoch = PartitionResponse.LeaderIdAndEpoch
NodeEndpoint = ProduceResponse.NodeEndpoint


class PendingProduce(BatchOwner):
    """Collects the results of all partitions of a request, and answers after the last one.

    It releases the frame when every batch is written or rejected, so that a request that only waits for a flush or for
    other replicas holds no memory: their fetches may wait for some.
    """

    __slots__ = ("_appends", "_call", "_open", "_request", "_written")

    def __init__(self, call: PartitionCall, request: ProduceRequest) -> None:
        self._call = call
        self._request = request
        self._appends: list[Append] = []
        self._written: set[Append] | None = None  # those that wait without their batch, until the frame is released
        self._open = 1  # the handler itself, until every partition was reached

    def expect(self, records: memoryview | None) -> Append:
        request = self._request
        append = Append(records or NOTHING, request.acks, self, request.timeout_ms)
        self._appends.append(append)
        self._open += 1
        return append

    def batch_released(self, append: Append) -> None:
        self._written = self._written or set()
        self._written.add(append)
        self._release_unused(self._written)

    def _release_unused(self, written: set[Append]) -> None:
        """Release the frame if no batch is used any more."""
        if len(written) == self._open:
            self._written = None
            for topic in self._request.topic_data:
                for data in topic.partition_data:
                    data.records = None
            self._call.large = None
            self._call.reply.release_frame()

    def __call__(self, append: Append | None = None) -> None:
        """An append is finished, or the handler (None) has reached every partition."""
        self._open -= 1
        if self._open:
            if self._written is not None:
                self._written -= {append}
                self._release_unused(self._written)
            return
        try:
            if self._request.acks == 0:
                self._answer_nothing()
            else:
                self._call.answer(self._response())
        except Exception as error:
            self._call.fail(error)

    def _answer_nothing(self) -> None:
        failed = next((append for append in self._appends if append.error), None)
        if failed is None:
            self._call.no_response()
        else:
            self._call.close(f"produce with acks=0 failed: {KafkaErrorCode(failed.error).name}")

    def _response(self) -> ProduceResponse:
        appends = iter(self._appends)
        responses = []
        for topic in self._request.topic_data:
            outcomes = [outcome(data.index, next(appends)) for data in topic.partition_data]
            responses.append(TopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=outcomes))
        response = ProduceResponse(responses=responses)
        if self._call.context.in_cluster and self._call.version >= LEADERS_SINCE:
            add_leaders(self._call, response)
        return response


def outcome(index: int, append: Append) -> PartitionResponse:
    """Convert the result of an append to the response."""
    if not append.error:  # without keywords, which take four times as long
        offset, time_ms, start = append.base_offset, append.log_append_time_ms, append.log_start_offset
        return PartitionResponse.of(index, NO_ERROR, offset, time_ms, start, [], None, None)
    if append.error not in PARTITION_ERRORS:
        raise ValueError(f"error code {append.error} says nothing about the batch")
    return PartitionResponse(
        index=index,
        error_code=append.error,
        base_offset=append.base_offset,
        log_append_time_ms=append.log_append_time_ms,
        log_start_offset=append.log_start_offset,
        record_errors=[
            RecordError(batch_index=at, batch_index_error_message=text) for at, text in append.record_errors
        ],
        error_message=append.message,
    )


def add_leaders(call: PartitionCall, response: ProduceResponse) -> None:
    """Add the current leaders of partitions that this broker does not lead."""
    hints: LeaderHints | None = None
    for topic in response.responses:
        for found in topic.partition_responses:
            if found.error_code == NOT_LEADER:
                hints = hints or LeaderHints(call, by_id=call.version >= TOPIC_ID_SINCE)
                leader_id, leader_epoch = hints.leader(topic.name, topic.topic_id, found.index)
                found.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
    if hints is not None:
        response.node_endpoints = list(map(endpoint, hints.nodes.values()))


def endpoint(node: Node) -> NodeEndpoint:
    """Convert the address of a leader to the response."""
    return NodeEndpoint(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)


def produce(call: PartitionCall, request: ProduceRequest) -> None:
    """Append the batch of each partition; the response is sent when all results are known."""
    answer = PendingProduce(call, request)
    refusal = request_error(request)
    replicas, by_id, zstd_allowed = call.context.replicas, call.version >= TOPIC_ID_SINCE, call.version >= ZSTD_SINCE
    transaction = None
    if request.transactional_id is not None:
        adds, abortable = call.version >= ADDS_SINCE, call.version >= ABORTABLE_SINCE
        transaction = TransactionOfAppend(request.transactional_id, adds, abortable)
    for topic in request.topic_data:
        for data in topic.partition_data:
            append = answer.expect(data.records)
            partition = refusal or replicas.partition(topic.name, topic.topic_id, data.index, by_id=by_id)
            if not isinstance(partition, Partition):  # a check for KafkaErrorCode, an Enum, takes five times as long
                append.reject(partition)
            elif not data.records:
                append.reject(KafkaErrorCode.INVALID_RECORD, "a partition's records are missing")
            else:
                if not zstd_allowed:
                    append.zstd_allowed = False
                if transaction is not None:
                    append.transaction = transaction
                partition.append(append)
    answer()


def request_error(request: ProduceRequest) -> KafkaErrorCode:
    """Return the error that holds for every partition of the request, or NONE."""
    if request.acks not in ACKS:
        return KafkaErrorCode.INVALID_REQUIRED_ACKS
    if request.transactional_id is not None and len(producers_of(request)) > 1:
        return KafkaErrorCode.INVALID_PRODUCER_ID_MAPPING
    return KafkaErrorCode.NONE


def producers_of(request: ProduceRequest) -> set[bytes]:
    """Return id and epoch of the producer of each transactional batch."""
    batches = [data.records for topic in request.topic_data for data in topic.partition_data]
    if len(batches) == 1:
        return set()
    transactional = (
        batch
        for batch in batches
        if batch is not None and len(batch) >= HEADER_SIZE and batch[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT
    )
    return {bytes(batch[PRODUCER]) for batch in transactional}
