"""CreatePartitions, key 37, v0-3: adds partitions to topics, placed by the broker or by an explicit assignment
(KIP-195).
"""

from collections import Counter
from functools import partial

from kafkalite.cluster.changes import Refusal
from kafkalite.cluster.topics.manager import NewPartitions
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from kafkalite.server.requests.call import TopicCall

STRICT_SINCE = 3  # clients know THROTTLING_QUOTA_EXCEEDED

Result = CreatePartitionsResponse.CreatePartitionsTopicResult


def create_partitions(call: TopicCall, request: CreatePartitionsRequest) -> None:
    """Add partitions to each topic independently; the response is sent when all changes are durable."""
    twice = {name for name, count in Counter(topic.name for topic in request.topics).items() if count > 1}
    asked = [
        NewPartitions(
            name=topic.name,
            count=topic.count,
            assignments=None
            if topic.assignments is None
            else [tuple(assignment.broker_ids) for assignment in topic.assignments],
        )
        for topic in request.topics
        if topic.name not in twice
    ]
    asked, throttled = call.admit_mutations(asked, partial(count_added, call, request.validate_only), STRICT_SINCE)
    results = [
        Result(name=name, error_code=KafkaErrorCode.INVALID_REQUEST, error_message="Duplicate topic in request.")
        for name in sorted(twice)
    ]

    def grown(outcomes: list[Refusal | None]) -> None:
        for more, refusal in [*zip(asked, outcomes, strict=True), *throttled]:
            error, message = (refusal.error, refusal.message) if refusal else (0, None)
            results.append(Result(name=more.name, error_code=error, error_message=message))
        call.answer(CreatePartitionsResponse(results=results))

    call.context.topics.grow(
        asked, validate_only=request.validate_only, then=call.guard(grown), timeout_ms=request.timeout_ms
    )


def count_added(call: TopicCall, validate_only: bool, more: NewPartitions) -> int:
    """Return the number of partitions that are added; 0 for a topic that is unknown."""
    topic = call.context.tables.topics.get(more.name)
    return 0 if validate_only or topic is None else max(0, more.count - len(topic.partitions))
