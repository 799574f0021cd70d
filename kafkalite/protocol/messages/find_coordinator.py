"""FindCoordinator, key 10, v0-6. The broker that coordinates a group or a transactional id.

Version notes: v1 key type; v4 several keys at once (KIP-699); v5 TRANSACTION_ABORTABLE (KIP-890); v6 share groups
(KIP-932).
Source: FindCoordinatorRequest.json, FindCoordinatorResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, field, int8, int16, int32, string


class FindCoordinatorRequest(Request, key=10, versions=(0, 6), flexible=3):
    """Groups or transactional ids (key type 0 group, 1 transaction, 2 share)."""

    key: string = field(until=3, default="")
    key_type: int8 = field(since=1, default=0)
    coordinator_keys: list[string] = field(since=4, factory=list)


class FindCoordinatorResponse(Response, key=10, versions=(0, 6), flexible=3):
    """The coordinator: in the top-level fields up to v3, one for each key from v4 on."""

    class Coordinator(Struct):
        key: string
        node_id: int32
        host: string
        port: int32
        error_code: int16 = 0
        error_message: string | None = None

    throttle_time_ms: int32 = field(since=1, default=0)
    error_code: int16 = field(until=3, default=0)
    error_message: string | None = field(since=1, until=3, nullable_since=1, default=None)
    node_id: int32 = field(until=3, default=0)
    host: string = field(until=3, default="")
    port: int32 = field(until=3, default=0)
    coordinators: list[Coordinator] = field(since=4, factory=list)
