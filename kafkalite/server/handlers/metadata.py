"""Metadata, key 3, v0-13: returns brokers, topics and partition leaders; creates missing topics if that is allowed.

Version notes: in v0 an empty list means all topics, from v1 on null does; v4 allow_auto_topic_creation; v10 topic ids;
v12 topics by id, before that INVALID_REQUEST (MetadataRequest.java); the name beside an id is ignored, as Java sends an
empty one; v13 top-level error. In a cluster, brokers without the listener of the client are left out. A broker that is
alone has the address that this connection used, unless `advertised.listeners` is set. Deviation: if a broker that is
alone creates a topic, its partitions are returned at once, not first with LEADER_NOT_AVAILABLE.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from functools import partial

from kafkalite.cluster.metadata.image import UNASSIGNED_ID, ClusterImage, TopicImage
from kafkalite.cluster.topics.auto_creation import create_on_demand, is_allowed
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite.server.requests.authorized_operations import cluster_operations, topic_operations
from kafkalite.server.requests.call import OBJECTS_MAX, TopicCall
from kafkalite.server.requests.partition_description import describe_all
from kafkalite.server.requests.topic_log import log_created
from kafkalite.slicing import Steps
from kafkalite.state.authorizer.acls import AclOperation, AclResourceType
from kafkalite.state.topic_names import complaint, is_internal

NAMES_EMPTY_MEANS_ALL = 0
AUTO_CREATION_SINCE = 4
TOPIC_ID_SINCE = 12

Broker = MetadataResponse.MetadataResponseBroker
Topic = MetadataResponse.MetadataResponseTopic
Partition = Topic.MetadataResponsePartition
TopicSteps = Generator[None, None, Topic]


def metadata(call: TopicCall, request: MetadataRequest) -> None:
    """Create missing topics if that is allowed, then describe the cluster, once it is known."""
    first_image = call.context.first_image
    if first_image is None:
        create_and_describe(call, request)
    else:
        first_image.wait(call.guard(partial(create_and_describe, call, request)))


def create_and_describe(call: TopicCall, request: MetadataRequest) -> None:
    """Create missing topics if that is allowed, then describe the cluster."""
    if call.version == NAMES_EMPTY_MEANS_ALL and not request.topics:
        request.topics = None
    objects = len(request.topics or ())
    call.in_slices(missing_names(call, request), objects, partial(create_missing, call, request))


def missing_names(call: TopicCall, request: MetadataRequest) -> Generator[None, None, list[str] | None]:
    """Return the topics to create; None if the request is rejected."""
    requested = request.allow_auto_topic_creation or call.version < AUTO_CREATION_SINCE
    may_create = is_allowed(call.context.config, requested=requested)
    ids_refused = call.version < TOPIC_ID_SINCE
    missing = []
    if call.authorization is not None:
        yield from refuse_topics(call, request, may_create)
    for wanted in request.topics or () if may_create or ids_refused else ():
        if ids_refused and by_id_only(wanted):
            return None
        name = wanted.name
        if may_create and name is not None and wanted.topic_id == UNASSIGNED_ID and is_missing(call, name):
            missing.append(name)
        yield
    return missing


def refuse_topics(call: TopicCall, request: MetadataRequest, may_create: bool) -> Steps:
    """Remove the topics from a request that its sender may not describe, or create where they are missing; the response
    says so. By id it has the id and no name, by name no id (KafkaApis.handleTopicMetadataRequest).
    """
    from kafkalite.server.requests.authorization.metadata_checks import split_topics  # with an authorizer only

    if request.topics is not None and not (
        call.version < TOPIC_ID_SINCE and any(by_id_only(each) for each in request.topics)
    ):
        yield from split_topics(
            call, request, partial(image_of, call.context.image), partial(is_missing, call), may_create
        )


def shown_topics(call: TopicCall, image: ClusterImage) -> list[TopicImage]:
    """Return the topics that the client may describe."""
    topics = list(image.topics.values())
    authorization = call.authorization
    if authorization is None:
        return topics
    names = authorization.allowed_names(AclOperation.DESCRIBE, AclResourceType.TOPIC, image.topics, log_denied=False)
    return [topic for topic in topics if topic.name in names]


def create_missing(call: TopicCall, request: MetadataRequest, missing: list[str] | None) -> None:
    """Create the missing topics, then answer."""
    if missing is None:
        call.answer(refuse(request))
    elif missing:
        call.admit_mutations(missing, lambda _name: call.context.config.num_partitions, None)  # all are
        created = call.guard(partial(answer_created, call, request, missing))
        create_on_demand(call.context.topics, call.context.config, missing, created)
    else:
        answer(call, request, {})


def answer_created(call: TopicCall, request: MetadataRequest, missing: list[str], errors: Mapping[str, int]) -> None:
    """Log the created topics, and answer."""
    topics = call.context.image.topics
    log_created(call, [name for name in dict.fromkeys(missing) if name in topics and name not in errors])
    answer(call, request, errors)


def by_id_only(wanted: MetadataRequest.MetadataRequestTopic) -> bool:
    return wanted.name is None or wanted.topic_id != UNASSIGNED_ID


def refuse(request: MetadataRequest) -> MetadataResponse:
    """Return INVALID_REQUEST: v10 and v11 must not use the ids of the request, and their response cannot hold a null
    name.
    """
    error = KafkaErrorCode.INVALID_REQUEST
    return MetadataResponse(
        brokers=[],
        topics=[
            Topic(error_code=error, name=wanted.name or "", topic_id=wanted.topic_id, partitions=[])
            for wanted in request.topics or ()
        ],
    )


def is_missing(call: TopicCall, name: str) -> bool:
    return name not in call.context.tables.topics and complaint(name) is None


def answer(call: TopicCall, request: MetadataRequest, errors: Mapping[str, int]) -> None:
    """Send one image of the cluster, whatever changes meanwhile; `errors`: of topics that were not created."""
    image, asked = call.context.image, request.topics
    if asked is None:
        topics = shown_topics(call, image)
        described_topics = map(partial(describe, call, image), topics)
        call.answer_from(build_response(call, request, image, described_topics), objects_of(topics))
        return
    named = [] if len(asked) > OBJECTS_MAX else [image_of(image, wanted.name, wanted.topic_id) for wanted in asked]
    objects = len(asked) + objects_of([topic for topic in named if topic is not None])
    call.answer_from(build_response(call, request, image, asked_topics(call, image, asked, errors)), objects)


def objects_of(topics: list[TopicImage]) -> int:
    """Estimate the number of objects in the response for these topics."""
    return len(topics) if len(topics) > OBJECTS_MAX else sum(1 + len(topic.partitions) for topic in topics)


def asked_topics(
    call: TopicCall, image: ClusterImage, asked: list[MetadataRequest.MetadataRequestTopic], errors: Mapping[str, int]
) -> Iterator[TopicSteps | None]:
    """Yield each topic once, then None: a response may be a thousand times as long as the name in the request."""
    seen = set()
    for wanted in asked:
        name, topic_id = wanted.name, wanted.topic_id
        key = name if topic_id == UNASSIGNED_ID else (name, topic_id)
        yield None if key in seen else describe_or_fail(call, image, errors, name, topic_id)
        seen.add(key)


def build_response(
    call: TopicCall, request: MetadataRequest, image: ClusterImage, topics: Iterable[TopicSteps | None]
) -> Generator[None, None, MetadataResponse]:
    """Build the response from generators that each return a topic; None for a topic that is skipped."""
    answered = call.elements()
    for topic in topics:
        if topic is not None:
            found = yield from topic
            if request.include_topic_authorized_operations and found.error_code != KafkaErrorCode.UNKNOWN_TOPIC_ID:
                found.topic_authorized_operations = topic_operations(call, found.name or "")
            answered.add(found)
        yield
    nodes = call.context.nodes(image, call.connection)
    return MetadataResponse(
        brokers=[Broker(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack) for node in nodes],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=answered.finish(),
        cluster_authorized_operations=cluster_operations(call, asked=request.include_cluster_authorized_operations),
    )


def image_of(image: ClusterImage, name: str | None, topic_id: bytes) -> TopicImage | None:
    """Return the requested topic, by id where the request has one."""
    if name is None or topic_id != UNASSIGNED_ID:
        return image.topics_by_id.get(topic_id)
    return image.topics.get(name)


def describe_or_fail(
    call: TopicCall, image: ClusterImage, errors: Mapping[str, int], name: str | None, topic_id: bytes
) -> TopicSteps:
    """Describe a topic, or build the error of one that does not exist.

    Arguments:
        call: of the request.
        image: the cluster.
        errors: error codes of topics that could not be created, by name.
        name: of the topic; None = asked for by id.
        topic_id: 16 bytes, zeros = asked for by name.
    """
    topic = image_of(image, name, topic_id)
    if topic is not None:
        return (yield from describe(call, image, topic))
    if name is None or topic_id != UNASSIGNED_ID:
        return Topic(error_code=KafkaErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id, partitions=[])
    unknown = KafkaErrorCode.INVALID_TOPIC_EXCEPTION if complaint(name) else KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    error = errors.get(name) or unknown
    return Topic(error_code=error, name=name, topic_id=UNASSIGNED_ID, is_internal=is_internal(name), partitions=[])


def describe(call: TopicCall, image: ClusterImage, topic: TopicImage) -> TopicSteps:
    partitions = yield from describe_all(call, image, topic, Partition)
    return Topic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=partitions,
    )
