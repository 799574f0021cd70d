"""DeleteTopics, key 20, v1-6: deletes topics by name, from v6 on also by id; delayed fetches on them complete at once.

A topic that occurs twice in a request is kept and fails with INVALID_REQUEST, as in Kafka. If `delete.topic.enable` is
false, every topic fails, also an unknown one: with TOPIC_DELETION_DISABLED from v3 on, with INVALID_REQUEST before.
Source: ControllerApis.
"""

from collections import defaultdict
from collections.abc import Generator, Iterator
from functools import partial

from kafkalite.cluster.changes import Refusal
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kafkalite.server.requests.call import TopicCall
from kafkalite.server.requests.topic_log import log_deleted

BOTH_FORMS_SINCE = 6
STRICT_SINCE = 5  # clients know THROTTLING_QUOTA_EXCEEDED
DISABLED_SINCE = 3  # older clients do not know the code

Result = DeleteTopicsResponse.DeletableTopicResult
Asked = tuple[str | None, bytes]


def delete_topics(call: TopicCall, request: DeleteTopicsRequest) -> None:
    """Delete each topic independently; the response is sent when all deletions are durable."""
    if call.version >= BOTH_FORMS_SINCE:
        asked: list[Asked] = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        asked = [(name, bytes(16)) for name in request.topic_names]
    if not call.context.config.delete_topic_enable:
        refusal = disabled_refusal(call.version)
        call.answer(DeleteTopicsResponse(responses=[result(name, topic_id, refusal) for name, topic_id in asked]))
        return
    call.in_slices(find_each(call, asked), len(asked), partial(delete, call, request.timeout_ms), changes=True)


def delete(call: TopicCall, timeout_ms: int, found: dict[Asked, str | Refusal]) -> None:
    """Delete the topics that exist."""
    named = [outcome for outcome in found.values() if isinstance(outcome, str)]
    names, throttled = call.admit_mutations(named, partial(count_partitions, call), STRICT_SINCE)
    if throttled:
        refused = dict(throttled)
        found = {asked: refused.get(name, name) if isinstance(name, str) else name for asked, name in found.items()}
    ids = {name: call.context.tables.topics[name].topic_id for name in names}

    def deleted(refusals: list[Refusal | None]) -> None:
        log_deleted(call, [name for name, refusal in zip(names, refusals, strict=True) if refusal is None])
        call.answer_from(results(call, found, ids, iter(refusals)), len(found))

    call.context.topics.delete(names, call.guard(deleted), timeout_ms)


def count_partitions(call: TopicCall, name: str) -> int:
    """Return the number of partitions of a topic."""
    return len(call.context.tables.topics[name].partitions)


def results(
    call: TopicCall, found: dict[Asked, str | Refusal], ids: dict[str, bytes], refusals: Iterator[Refusal | None]
) -> Generator[None, None, DeleteTopicsResponse]:
    responses = call.elements()
    for (name, topic_id), outcome in found.items():
        if isinstance(outcome, Refusal):
            responses.add(result(name, topic_id, outcome))
        else:
            responses.add(result(outcome, ids[outcome], next(refusals)))
        yield
    return DeleteTopicsResponse(responses=responses.finish())


def disabled_refusal(version: int) -> Refusal:
    """Return the error for clients of this version where topic deletion is disabled."""
    known = version >= DISABLED_SINCE
    code = KafkaErrorCode.TOPIC_DELETION_DISABLED if known else KafkaErrorCode.INVALID_REQUEST
    return Refusal(code, "Topic deletion is disabled.")


def find_each(call: TopicCall, asked: list[Asked]) -> Generator[None, None, dict[Asked, str | Refusal]]:
    """Return the name of each topic, or its error. A topic named once by name and once by id occurs twice."""
    found: dict[Asked, str | Refusal] = {}
    times: dict[Asked, int] = defaultdict(int)
    for each in asked:
        times[each] += 1
        if each not in found:
            found[each] = find(call, *each)
        yield
    reached: dict[str | Refusal, int] = defaultdict(int)
    for outcome in found.values():
        reached[outcome] += 1
        yield

    def validate(each: Asked, outcome: str | Refusal) -> str | Refusal:
        if times[each] > 1:
            return Refusal(KafkaErrorCode.INVALID_REQUEST, f"Duplicate topic {'id' if each[0] is None else 'name'}.")
        if isinstance(outcome, str) and reached[outcome] > 1:
            return Refusal(KafkaErrorCode.INVALID_REQUEST, f"Topic '{outcome}' is named, and its id is given, too.")
        return outcome

    for each, outcome in found.items():  # no key is added
        found[each] = validate(each, outcome)
        yield
    return found


def find(call: TopicCall, name: str | None, topic_id: bytes) -> str | Refusal:
    """Return the name of a topic, or why it cannot be deleted."""
    tables = call.context.tables
    if name is not None and any(topic_id):
        return Refusal(KafkaErrorCode.INVALID_REQUEST, "Name the topic or give its id, not both.")
    if name is not None:
        return name if name in tables.topics else Refusal(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not any(topic_id):
        return Refusal(KafkaErrorCode.INVALID_REQUEST, "Neither a topic name nor an id was given.")
    topic = tables.topics_by_id.get(topic_id)
    return topic.name if topic is not None else Refusal(KafkaErrorCode.UNKNOWN_TOPIC_ID)


def result(name: str | None, topic_id: bytes, refusal: Refusal | None) -> Result:
    if refusal is None:
        return Result(name=name, topic_id=topic_id, error_code=0, error_message=None)
    return Result(name=name, topic_id=topic_id, error_code=refusal.error, error_message=refusal.message)
