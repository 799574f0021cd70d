"""CreateTopics, key 19, v2-7: creates topics with a partition count or an explicit assignment, and configs.

Version notes: from v4 on, -1 for partitions or replication factor means the broker's default; v5 returns the created
topics with their configs; v7 returns topic ids. A name that occurs twice in a request fails with INVALID_REQUEST, as in
Kafka. Sources: KIP-4, ReplicationControlManager.
"""

from collections import defaultdict
from collections.abc import Generator
from functools import partial

from kafkalite.cluster.changes import Refusal, RefusedError
from kafkalite.cluster.topics.manager import NewTopic
from kafkalite.config.describe_and_alter import describe_topic
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kafkalite.server.requests.call import TopicCall
from kafkalite.server.requests.topic_log import log_created
from kafkalite.state.authorizer.acls import AclOperation, AclResourceType

DEFAULT = -1
STRICT_SINCE = 6  # clients know THROTTLING_QUOTA_EXCEEDED
OBJECTS_EACH = 40  # a topic has some 35 settings

Result = CreateTopicsResponse.CreatableTopicResult
Config = Result.CreatableTopicConfigs


def create_topics(call: TopicCall, request: CreateTopicsRequest) -> None:
    """Create each topic independently; the response is sent when all of them are durable."""
    objects = sum(1 + len(topic.assignments) for topic in request.topics)
    call.in_slices(asked_topics(request), objects, partial(create, call, request), changes=True)


def asked_topics(request: CreateTopicsRequest) -> Generator[None, None, tuple[list[str], list[NewTopic]]]:
    """Return the names that occur twice, and the topics of all other names."""
    times: dict[str, int] = defaultdict(int)
    for topic in request.topics:
        times[topic.name] += 1
        yield
    asked = []
    for topic in request.topics:
        if times[topic.name] == 1:
            asked.append(new_topic(topic))
        yield
    return sorted(name for name, count in times.items() if count > 1), asked


def create(call: TopicCall, request: CreateTopicsRequest, found: tuple[list[str], list[NewTopic]]) -> None:
    """Create the topics, and reject the names that occur twice."""
    twice, named = found
    asked, throttled = call.admit_mutations(named, partial(count_new, call, request.validate_only), STRICT_SINCE)

    def created(outcomes: list[Refusal | None]) -> None:
        steps = results(call, request.validate_only, twice, [*zip(asked, outcomes, strict=True), *throttled])
        if not request.validate_only:
            log_created(call, [new.name for new, refusal in zip(asked, outcomes, strict=True) if not refusal])
        call.answer_from(steps, OBJECTS_EACH * len(named) + len(twice))

    call.context.topics.create(
        asked, validate_only=request.validate_only, then=call.guard(created), timeout_ms=request.timeout_ms
    )


def count_new(call: TopicCall, validate_only: bool, new: NewTopic) -> int:
    """Return the number of partitions that are created; 0 for a topic that is rejected."""
    if validate_only or new.name in call.context.tables.topics:
        return 0
    try:
        return len(call.context.topics.validate(new).partitions)
    except RefusedError:
        return 0


def results(
    call: TopicCall, validate_only: bool, twice: list[str], outcomes: list[tuple[NewTopic, Refusal | None]]
) -> Generator[None, None, CreateTopicsResponse]:
    topics = call.elements()
    for name in twice:
        topics.add(refuse(name, Refusal(KafkaErrorCode.INVALID_REQUEST, "Duplicate topic name.")))
        yield
    for new, refusal in outcomes:
        result = refuse(new.name, refusal) if refusal else describe_created(call, new, validate_only)
        topics.add(result, 1 + len(result.configs or ()))
        yield
    return CreateTopicsResponse(topics=topics.finish())


def new_topic(topic: CreateTopicsRequest.CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=None if topic.num_partitions == DEFAULT else topic.num_partitions,
        replication_factor=None if topic.replication_factor == DEFAULT else topic.replication_factor,
        assignments={entry.partition_index: tuple(entry.broker_ids) for entry in topic.assignments},
        assignment_count=len(topic.assignments),
        configs={entry.name: entry.value for entry in topic.configs},
    )


def refuse(name: str, refusal: Refusal) -> Result:
    return Result(name=name, error_code=refusal.error, error_message=refusal.message)


def describe_created(call: TopicCall, new: NewTopic, validate_only: bool) -> Result:
    """Describe a topic that was created, or that would have been, with its effective configs."""
    try:
        image = call.context.topics.validate(new) if validate_only else call.context.tables.topics[new.name]
    except (
        KeyError,
        RefusedError,
    ):  # deleted, or created by another request, while the other topics of this one were created
        return Result(name=new.name, error_code=0, error_message=None)
    authorization = call.authorization
    if authorization is not None and not authorization.allows(
        AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, new.name, log_denied=False
    ):
        return Result(
            name=new.name,
            topic_id=bytes(16) if validate_only else image.topic_id,
            error_code=0,
            error_message=None,
            topic_config_error_code=KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    configs = {key: value for key, value in new.configs.items() if value is not None}
    settings = describe_topic(call.context.config, configs)
    return Result(
        name=new.name,
        topic_id=bytes(16) if validate_only else image.topic_id,
        error_code=0,
        error_message=None,
        num_partitions=len(image.partitions),
        replication_factor=len(image.partitions[0].replicas),
        configs=[
            Config(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in settings
        ],
    )
