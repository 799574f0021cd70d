"""Heartbeat+, key 10004, v0. Extends the session of a registered consumer; after an error it must register again."""

from kafkalite.protocol.schema import Request, Response, int16, int32, string


class HeartbeatPlusRequest(Request, key=10004, versions=(0, 0), flexible=0):
    """The member that sends the heartbeat, and its generation.

    Attributes:
        group_id: the group.
        consumer_id: the consumer id.
        generation_id: the generation that the consumer knows.
        session_timeout_ms: how long the consumer may be silent from now on, in milliseconds; 0 means as before.
    """

    group_id: string
    consumer_id: string
    generation_id: int32
    session_timeout_ms: int32


class HeartbeatPlusResponse(Response, key=10004, versions=(0, 0), flexible=0):
    """The generation to use from now on.

    Attributes:
        error_code: the error, or 0 if there was none.
        generation_id: the generation. It grows without an error where a rewind left this consumer's partitions alone.
    """

    error_code: int16 = 0
    generation_id: int32 = -1
