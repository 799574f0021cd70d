"""Metadata, key 3, v0-13. Brokers, topics and where their partitions are led; creates a missing topic when that is
allowed.

Version notes: v0 empty list = all topics, v1 null = all; v4 allow_auto_topic_creation; v10 topic ids; v12 topics asked
by id, before that INVALID_REQUEST (MetadataRequest.java), the name beside an id is not looked at (Java sends an empty
one); v13 top-level error. Brokers are named by the address this connection reached us at unless `advertised.listeners`
is set. Deviations: an auto-created topic is answered with its partitions at once instead of LEADER_NOT_AVAILABLE first.
"""

from collections.abc import Iterator, Mapping

from kafkalite.cluster.image import UNASSIGNED_ID, TopicImage
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite.server.call import Call
from kafkalite.server.handlers.described import describe_all
from kafkalite.state.topic_names import complaint, is_internal

NAMES_EMPTY_MEANS_ALL = 0
AUTO_CREATION_SINCE = 4
TOPIC_ID_SINCE = 12

Broker = MetadataResponse.MetadataResponseBroker
Topic = MetadataResponse.MetadataResponseTopic
Partition = Topic.MetadataResponsePartition


def metadata(call: Call, request: MetadataRequest) -> MetadataResponse | None:
    """Describe the cluster as this broker sees it now, after creating what may be created."""
    if call.version < TOPIC_ID_SINCE and any(by_id_only(wanted) for wanted in request.topics or ()):
        return refused(request)
    asked = request.topics or ()
    names = [wanted.name for wanted in asked if wanted.name is not None and wanted.topic_id == UNASSIGNED_ID]
    missing = [name for name in names if is_missing(call, name)]
    may_create = request.allow_auto_topic_creation or call.version < AUTO_CREATION_SINCE
    if not missing or not may_create:
        return answer(call, request, {})

    def created(errors: Mapping[str, int]) -> None:
        call.answer(answer(call, request, errors))

    call.broker.topics.create_on_demand(missing, call.later(created))
    return None


def by_id_only(wanted: MetadataRequest.MetadataRequestTopic) -> bool:
    return wanted.name is None or wanted.topic_id != UNASSIGNED_ID


def refused(request: MetadataRequest) -> MetadataResponse:
    """v10 and v11 have ids in the request, but must not use them; their answer cannot even say a null name."""
    error = KafkaErrorCode.INVALID_REQUEST
    return MetadataResponse(
        brokers=[],
        topics=[
            Topic(error_code=error, name=wanted.name or "", topic_id=wanted.topic_id, partitions=[])
            for wanted in request.topics or ()
        ],
    )


def is_missing(call: Call, name: str) -> bool:
    return name not in call.broker.image.topics and complaint(name) is None


def answer(call: Call, request: MetadataRequest, errors: Mapping[str, int]) -> MetadataResponse:
    image = call.broker.image
    nodes = call.broker.nodes(call.connection)
    return MetadataResponse(
        brokers=[Broker(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack) for node in nodes],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=list(answered_topics(call, request, errors)),
    )


def answered_topics(call: Call, request: MetadataRequest, errors: Mapping[str, int]) -> Iterator[Topic]:
    asked = request.topics
    if asked is None or (call.version == NAMES_EMPTY_MEANS_ALL and not asked):
        yield from (describe(call, topic) for topic in call.broker.image.topics.values())
        return
    # Each once, as in Kafka: an answer may be a thousand times as long as the name that asks for it.
    for name, topic_id in dict.fromkeys((wanted.name, wanted.topic_id) for wanted in asked):
        yield by_id(call, topic_id) if name is None or topic_id != UNASSIGNED_ID else by_name(call, name, errors)


def by_id(call: Call, topic_id: bytes) -> Topic:
    topic = call.broker.image.topics_by_id.get(topic_id)
    if topic is None:
        return Topic(error_code=KafkaErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id, partitions=[])
    return describe(call, topic)


def by_name(call: Call, name: str, errors: Mapping[str, int]) -> Topic:
    topic = call.broker.image.topics.get(name)
    if topic is not None:
        return describe(call, topic)
    unknown = KafkaErrorCode.INVALID_TOPIC_EXCEPTION if complaint(name) else KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    error = errors.get(name) or unknown
    return Topic(error_code=error, name=name, topic_id=UNASSIGNED_ID, is_internal=is_internal(name), partitions=[])


def describe(call: Call, topic: TopicImage) -> Topic:
    return Topic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=describe_all(call, topic, Partition),
    )
