"""ElectLeaders, key 43, v0-2: elects the preferred leaders of partitions, or leaders out of sync (KIP-183, KIP-460).

The controller answers; other brokers answer NOT_CONTROLLER. `cluster/controller/leader_elections` decides. A request
for all partitions returns only those that need an election, as in Kafka.
"""

from collections.abc import Generator, Iterable, Mapping

from kafkalite.cluster.changes import Refusal
from kafkalite.cluster.controller.leader_elections import UNKNOWN, ElectionType, election_refusal
from kafkalite.cluster.metadata.image import ClusterImage, TopicImage
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from kafkalite.server.requests.call import AdminCall

Result = ElectLeadersResponse.ReplicaElectionResult
Elected = Result.PartitionResult
ELECTION_TYPES = frozenset(ElectionType)
NOT_CONTROLLER = Refusal(KafkaErrorCode.NOT_CONTROLLER, "This broker is not the controller.")


def elect_leaders(call: AdminCall, request: ElectLeadersRequest) -> ElectLeadersResponse | None:
    """Answer for each partition once, whatever its order and repetitions in the request."""
    if request.election_type not in ELECTION_TYPES:
        return ElectLeadersResponse(error_code=KafkaErrorCode.INVALID_REQUEST, replica_election_results=[])
    call.answer_from(elect_each(call, request), objects_of(call, request))
    return None


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
