"""A scripted transaction coordinator without I/O, for the machine of a transactional producer in virtual time.

It follows Kafka's rules for one transactional id, in both versions of the protocol: epochs, the states, and what a
retry gets. A test scripts errors and lost responses in between.
"""

from collections import deque

from kafkalite_sdk.membership.settings import MemberIdentity
from kafkalite_sdk.producer.transactions.machine import TransactionMachine
from kafkalite_sdk.producer.transactions.reactions import Step
from kafkalite_sdk.producer.transactions.requests import V2_MAX, partition_codes
from kafkalite_sdk.producer.transactions.state import V1, V2, OffsetsToSend, Phase
from kafkalite_sdk.values import OffsetAndMetadata

from kafkalite.backoff import Backoff
from kafkalite.errors import KafkaConnectionError, KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from kafkalite.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from kafkalite.protocol.messages.end_txn import EndTxnResponse
from kafkalite.protocol.messages.init_producer_id import InitProducerIdResponse
from kafkalite.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse

Code = KafkaErrorCode
BROKER = "broker 1 (localhost:9092)"
MEMBER = MemberIdentity("billing", 3, "member-1", None)
PARTITION = TopicPartition("orders", 0)
EPOCH_MAX = 32_766  # of a client; the next one belongs to another producer id
LOST = object()  # the request arrives, its response does not
UNSENT = object()  # neither arrives


class Coordinator:
    """The coordinator of one transactional id.

    Attributes:
        version: of the transaction protocol, by the version of the current request.
        last_epoch: a repeated InitProducerId with it gets the same response; -1 = it is fenced, too.
        ends: the outcomes of its transactions, True = committed.
        committed: the offsets that transactions have committed.
    """

    def __init__(self, version):
        self.version = version
        self.producer_id = 7
        self.epoch = self.last_epoch = -1
        self.ongoing = False
        self.last_end = None  # producer id, epoch before, outcome: a retry of version 2 gets the same response
        self.ends = []
        self.pending = {}
        self.committed = {}

    def handle(self, call):
        self.version = V2 if call.version_max == V2_MAX else V1
        return getattr(self, call.step.name.lower())(call.request)

    def fenced(self, request):
        return (request.producer_id, request.producer_epoch) != (self.producer_id, self.epoch)

    def bump(self):
        self.last_epoch = self.epoch
        if self.epoch >= EPOCH_MAX:
            self.producer_id, self.epoch = self.producer_id + 1, 0
        else:
            self.epoch += 1

    def end_transaction(self, committed):
        if self.ongoing:
            self.ends.append(committed)
        if committed:
            self.committed |= self.pending
        self.pending = {}
        self.ongoing = False

    def init(self, request):
        if request.producer_id >= 0 and self.fenced(request):
            if request.producer_epoch == self.last_epoch:
                return InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=self.epoch)
            return InitProducerIdResponse(error_code=Code.PRODUCER_FENCED, producer_id=-1, producer_epoch=-1)
        if self.ongoing:  # it is aborted, and the producer that has begun it is fenced
            self.end_transaction(False)
            self.bump()
            self.last_epoch = -1
            return InitProducerIdResponse(error_code=Code.CONCURRENT_TRANSACTIONS, producer_id=-1, producer_epoch=-1)
        self.bump()
        return InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=self.epoch)

    def add_partitions(self, request):
        fenced = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch) != (
            self.producer_id,
            self.epoch,
        )
        self.ongoing |= not fenced
        result = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
        topics = [
            result(
                name=topic.name,
                results_by_partition=[
                    result.AddPartitionsToTxnPartitionResult(
                        partition_index=each, partition_error_code=Code.PRODUCER_FENCED if fenced else 0
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
        return AddPartitionsToTxnResponse(results_by_transaction=[], results_by_topic_v3_and_below=topics)

    def add_offsets(self, request):
        if self.fenced(request):
            return AddOffsetsToTxnResponse(error_code=Code.PRODUCER_FENCED)
        self.ongoing = True
        return AddOffsetsToTxnResponse()

    def commit_offsets(self, request):
        code = Code.INVALID_PRODUCER_EPOCH if self.fenced(request) else 0
        if not code and not self.ongoing:
            assert self.version == V2, "version 1 needs AddOffsetsToTxn first"
            self.ongoing = True
        topics = []
        for topic in request.topics:
            partitions = []
            for each in topic.partitions:
                if not code:
                    self.pending[TopicPartition(topic.name, each.partition_index)] = each.committed_offset
                partitions.append(
                    TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic.TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                )
            topics.append(TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        return TxnOffsetCommitResponse(topics=topics)

    def end(self, request):
        identity = (request.producer_id, request.producer_epoch)
        if self.version == V2 and self.last_end == (*identity, request.committed):
            return EndTxnResponse(producer_id=self.producer_id, producer_epoch=self.epoch)
        if self.fenced(request):
            return EndTxnResponse(error_code=Code.PRODUCER_FENCED)
        if not self.ongoing and (self.version == V1 or request.committed):
            done = self.version == V1 and self.ends and self.ends[-1] is request.committed
            return EndTxnResponse(error_code=0 if done else Code.INVALID_TXN_STATE)
        self.end_transaction(request.committed)
        if self.version == V1:
            return EndTxnResponse()
        self.last_end = (*identity, request.committed)
        self.bump()
        return EndTxnResponse(producer_id=self.producer_id, producer_epoch=self.epoch)


class World:
    """A machine, its coordinator and a clock that the test moves.

    Attributes:
        script: what happens to the next requests by step: an error code, LOST, UNSENT, or a function of the response.
        sent: the steps of all requests.
    """

    def __init__(self, version=V2):
        self.now = 0.0
        self.coordinator = Coordinator(version)
        self.version = version  # the level of the cluster
        backoff = Backoff(0.1, 1.0, lambda: 0.5)
        self.machine = TransactionMachine("orders-writer", 60_000, backoff, Backoff(0.02, 1.0, lambda: 0.5))
        self.records_open = False
        self.script = {}
        self.sent = []
        self.outcomes = []

    def script_next(self, step, *outcomes):
        self.script.setdefault(step, deque()).extend(outcomes)

    def step(self):
        """Let one request leave, and its end arrive; return whether there was one."""
        call = self.machine.request(self.now, records_open=self.records_open)
        if call is None:
            return False
        self.sent.append(call.step)
        outcome = self.script[call.step].popleft() if self.script.get(call.step) else None
        if outcome is UNSENT:
            self.machine.lost(call, KafkaConnectionError("connection refused"), self.now, BROKER)
            return True
        if outcome is None or outcome is LOST:
            response = self.coordinator.handle(call)
            if outcome is LOST:
                self.machine.lost(call, KafkaConnectionError("connection lost"), self.now, BROKER)
                return True
        else:
            response = with_code(call, outcome)
        if call.group is None:
            self.machine.version = self.version
        self.machine.answered(call, response, self.now, BROKER)
        return True

    def run(self):
        """Continue until nothing happens any more, through the pauses."""
        for _ in range(100):
            if self.step():
                continue
            at = self.machine.wake_at(self.now)
            if at == float("inf"):
                return
            self.now = at
        raise AssertionError(f"no end: {self.machine.phase}, {self.sent[-10:]}")

    def start(self):
        self.run()
        assert self.machine.phase is Phase.READY
        self.sent.clear()

    def begin(self):
        self.machine.begin()

    def produce(self, *partitions):
        """Records of these partitions are sent and acknowledged."""
        if self.machine.transaction.version == V1:
            self.machine.add(partitions or [PARTITION])
            self.run()
        else:
            self.machine.produced()
            self.coordinator.ongoing = True

    def send_offsets(self, offset=5):
        entry = OffsetsToSend({PARTITION: OffsetAndMetadata(offset)}, MEMBER, self.outcomes.append)
        self.machine.send_offsets(entry)

    def commit(self):
        self.machine.commit()
        self.run()

    def abort(self):
        self.machine.abort()
        self.run()


def with_code(call, code):
    """The response to a request with an error code everywhere."""
    if call.step is Step.INIT:
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    if call.step is Step.END:
        return EndTxnResponse(error_code=code)
    if call.step is Step.ADD_OFFSETS:
        return AddOffsetsToTxnResponse(error_code=code)
    response = Coordinator(V2).handle(call) if call.step is Step.ADD_PARTITIONS else None
    if response is None:
        coordinator = Coordinator(V2)
        coordinator.producer_id, coordinator.epoch = call.request.producer_id, call.request.producer_epoch
        response = coordinator.commit_offsets(call.request)
        for topic in response.topics:
            for each in topic.partitions:
                each.error_code = code
    else:
        for topic in response.results_by_topic_v3_and_below:
            for each in topic.results_by_partition:
                each.partition_error_code = code
    assert set(partition_codes(response).values()) == {code}
    return response
