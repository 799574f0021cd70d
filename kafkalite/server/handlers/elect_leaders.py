"""ElectLeaders, key 43, v0-2: elects the preferred leaders of partitions, or leaders out of sync (KIP-183, KIP-460).

The controller answers; other brokers answer NOT_CONTROLLER. A controller elects as `state/controller` decides, and
answers when the states are written. A broker that is alone has nothing to elect: `cluster/controller/election_refusals`
says why. A request for all partitions returns only those that need an election, as in Kafka.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby

from kafkalite.cluster.changes import Refusal
from kafkalite.cluster.controller.election_refusals import UNKNOWN, ElectionType, election_refusal, reason_of
from kafkalite.cluster.metadata.image import ClusterImage, TopicImage
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from kafkalite.server.requests.call import AdminCall
from kafkalite.state.controller.effects import Completion

Result = ElectLeadersResponse.ReplicaElectionResult
Elected = Result.PartitionResult
ELECTION_TYPES = frozenset(ElectionType)
NOT_CONTROLLER = Refusal(KafkaErrorCode.NOT_CONTROLLER, "This broker is not the controller.")


def elect_leaders(call: AdminCall, request: ElectLeadersRequest) -> ElectLeadersResponse | None:
    """Answer for each partition once, whatever its order and repetitions in the request."""
    if request.election_type not in ELECTION_TYPES:
        return ElectLeadersResponse(error_code=KafkaErrorCode.INVALID_REQUEST, replica_election_results=[])
    controller = call.context.local_controller
    if controller is None or not call.context.is_controller:
        call.answer_from(elect_each(call, request), objects_of(call, request))
        return None

    def listed(wanted: Mapping[str, Iterable[int]]) -> None:
        partitions = [TopicPartition(name, index) for name, indexes in wanted.items() for index in indexes]
        controller.elect_leaders(
            partitions,
            unclean=request.election_type == ElectionType.UNCLEAN,
            timeout_s=max(0, request.timeout_ms) / 1000,
            then=call.guard(partial(answer_elected, call, request, partitions)),
        )

    call.in_slices(partitions_of(call.context.image, request), objects_of(call, request), listed)
    return None


def answer_elected(
    call: AdminCall, request: ElectLeadersRequest, partitions: Sequence[TopicPartition], result: Completion
) -> None:
    """Answer with the results of the controller."""
    call.answer_from(election_response(call, request, partitions, result), len(partitions))


def election_response(
    call: AdminCall, request: ElectLeadersRequest, partitions: Sequence[TopicPartition], result: Completion
) -> Generator[None, None, ElectLeadersResponse]:
    """Return the response: the error of the whole request is that of each partition, too."""
    errors = [result.error] * len(partitions) if result.error else [each.error for each in result.outcomes]
    every = request.topic_partitions is None
    results = call.elements()
    for name, found in groupby(zip(partitions, errors, strict=True), lambda each: each[0].topic):
        rows, count = call.elements(), 0
        for key, error in found:
            if not every or error != KafkaErrorCode.ELECTION_NOT_NEEDED:
                rows.add(
                    Elected(partition_id=key.partition, error_code=error, error_message=message_of(call, key, error))
                )
                count += 1
            yield
        if count:
            results.add(Result(topic=name, partition_result=rows.finish()))
    whole = result.error if result.error == KafkaErrorCode.NOT_CONTROLLER else 0
    return ElectLeadersResponse(error_code=whole, replica_election_results=results.finish())


def message_of(call: AdminCall, key: TopicPartition, error: int) -> str | None:
    """Why no leader was elected."""
    topic = call.context.image.topics.get(key.topic)
    return reason_of(error, None if topic is None else topic.partition(key.partition))


def objects_of(call: AdminCall, request: ElectLeadersRequest) -> int:
    """The number of requested partitions."""
    if request.topic_partitions is None:
        return sum(len(topic.partitions) for topic in call.context.image.topics.values())
    return sum(1 + len(topic.partitions) for topic in request.topic_partitions)


def elect_each(call: AdminCall, request: ElectLeadersRequest) -> Generator[None, None, ElectLeadersResponse]:
    results, controller = call.elements(), call.context.is_controller
    wanted = yield from partitions_of(call.context.image, request)
    for name, indexes in wanted.items():
        partitions, count = call.elements(), 0
        topic = call.context.image.topics.get(name)
        for index in indexes:
            refusal = outcome(call, topic, index, request.election_type) if controller else NOT_CONTROLLER
            if request.topic_partitions is not None or refusal.error != KafkaErrorCode.ELECTION_NOT_NEEDED:
                partitions.add(Elected(partition_id=index, error_code=refusal.error, error_message=refusal.message))
                count += 1
            yield
        if count:
            results.add(Result(topic=name, partition_result=partitions.finish()))
    error = 0 if controller else KafkaErrorCode.NOT_CONTROLLER
    return ElectLeadersResponse(error_code=error, replica_election_results=results.finish())


def partitions_of(
    image: ClusterImage, request: ElectLeadersRequest
) -> Generator[None, None, Mapping[str, Iterable[int]]]:
    """Return the requested partitions by topic, each once."""
    if request.topic_partitions is None:
        return {name: range(len(topic.partitions)) for name, topic in image.topics.items()}
    found: dict[str, dict[int, None]] = {}
    for asked in request.topic_partitions:
        indexes = found.setdefault(asked.topic, {})
        for index in asked.partitions:
            indexes[index] = None
            yield
        yield
    return found


def outcome(call: AdminCall, topic: TopicImage | None, index: int, election_type: int) -> Refusal:
    """The result of one partition."""
    if topic is None:
        return UNKNOWN
    partition = topic.partition(index)
    offline = () if partition is None else partition.offline_replicas
    if index in call.context.offline_partitions(topic.topic_id):  # of a broker that is alone
        offline = (*offline, call.context.broker_id)
    return election_refusal(partition, offline, ElectionType(election_type))
