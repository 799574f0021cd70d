"""DeleteTopics, key 20, v1-6. Deletes topics.

Version notes: v5 error messages; v6 topics by id (KIP-516).
Source: DeleteTopicsRequest.json, DeleteTopicsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, string, uuid


class DeleteTopicsRequest(Request, key=20, versions=(1, 6), flexible=4):
    """Topics by name or id."""

    class DeleteTopicState(Struct):
        name: string | None = None
        topic_id: uuid

    topics: list[DeleteTopicState] = field(since=6, factory=list)
    topic_names: list[string] = field(until=5, factory=list)
    timeout_ms: int32


class DeleteTopicsResponse(Response, key=20, versions=(1, 6), flexible=4):
    """The result for each topic."""

    class DeletableTopicResult(Struct):
        name: string | None = field(nullable_since=6)
        topic_id: uuid = field(since=6, default=ZERO_UUID)
        error_code: int16 = 0
        error_message: string | None = field(since=5, default=None)

    throttle_time_ms: int32 = 0
    responses: list[DeletableTopicResult]
