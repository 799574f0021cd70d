"""CreateGroup, key 10001, v0. Defines a group before it has members; any broker takes it."""

from kafkalite.protocol.schema import Request, Response, boolean, int16, int32, string


class CreateGroupRequest(Request, key=10001, versions=(0, 0), flexible=0):
    """The definition of a group.

    Attributes:
        group_id: the group.
        session_timeout_ms: how long a member may be silent, in milliseconds.
        topics: the topics that the group reads, or null if there is a pattern.
        topic_pattern: a regular expression (RE2) for the topics that the group reads, or null if there are topics.
        assignor: how partitions are given to members: range, roundrobin, sticky or uniform.
        ephemeral: whether the group ends with its last member.
    """

    group_id: string
    session_timeout_ms: int32
    topics: list[string] | None = None
    topic_pattern: string | None = None
    assignor: string
    ephemeral: boolean = False


class CreateGroupResponse(Response, key=10001, versions=(0, 0), flexible=0):
    """Broker id of the coordinator.

    Attributes:
        error_code: the error, or 0 if there was none.
        controller_id: the broker that coordinates the group.
        controller_host: its host.
        controller_port: its port.
    """

    error_code: int16 = 0
    controller_id: int32
    controller_host: string
    controller_port: int32
