"""Heartbeat+, key 10004, v0. Extends the session of a registered consumer; after an error it registers again."""

from kafkalite.protocol.schema import ZERO_UUID, Request, Response, field, int16, int32, string, uuid


class HeartbeatPlusRequest(Request, key=10004, versions=(0, 0), flexible=0):
    """The member that sends the heartbeat, and its generation.

    Attributes:
        group_id: the group.
        consumer_id: the consumer id.
        generation_id: the generation of the consumer.
        session_timeout_ms: the new session timeout, in milliseconds; 0 = unchanged.
        process_id: id of the process, as in RegisterConsumer; zeros = none.
    """

    group_id: string
    consumer_id: string
    generation_id: int32
    session_timeout_ms: int32
    process_id: uuid = field(tag=0, default=ZERO_UUID)


class HeartbeatPlusResponse(Response, key=10004, versions=(0, 0), flexible=0):
    """The generation to use.

    Attributes:
        error_code: the error, 0 = none.
        generation_id: the generation. It increases without an error after a rewind of other consumers' partitions.
    """

    error_code: int16 = 0
    generation_id: int32 = -1
