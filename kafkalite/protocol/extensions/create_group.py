"""CreateGroup, key 10001, v0. Defines a group before it has members; any broker serves it."""

from kafkalite.protocol.schema import Request, Response, boolean, field, int16, int32, string


class CreateGroupRequest(Request, key=10001, versions=(0, 0), flexible=0):
    """The definition of a group.

    Attributes:
        group_id: the group.
        session_timeout_ms: time without a heartbeat after which a member is removed, in milliseconds.
        topics: the topics that the group reads, null with a pattern.
        topic_pattern: regular expression (RE2) of the topics that the group reads, null with topics.
        assignor: the partition assignor: range, roundrobin, sticky or uniform.
        ephemeral: whether the group is deleted when its last member leaves.
        coordinator_only: whether the request fails unless the broker coordinates the group; for brokers.
    """

    group_id: string
    session_timeout_ms: int32
    topics: list[string] | None = None
    topic_pattern: string | None = None
    assignor: string
    ephemeral: boolean = False
    coordinator_only: boolean = field(tag=0, default=False)


class CreateGroupResponse(Response, key=10001, versions=(0, 0), flexible=0):
    """Broker id of the coordinator.

    Attributes:
        error_code: the error, 0 = none.
        controller_id: the broker that coordinates the group.
        controller_host: its host.
        controller_port: its port.
    """

    error_code: int16 = 0
    controller_id: int32
    controller_host: string
    controller_port: int32
