"""ListGroups+, key 10000, v0. Groups with their members and what these own; any broker answers."""

from kafkalite.protocol.schema import Request, Response, Struct, int16, int32, string


class ListGroupsPlusRequest(Request, key=10000, versions=(0, 0), flexible=0):
    """Groups by name.

    Attributes:
        groups: the names; none means all groups.
    """

    groups: list[string]


class ListGroupsPlusResponse(Response, key=10000, versions=(0, 0), flexible=0):
    """The type, state and coordinator of each group.

    Attributes:
        groups: one entry for each group.
    """

    class ListedGroup(Struct):
        """One group.

        Attributes:
            error_code: the error, or 0 if there was none.
            group_id: the group.
            group_state: the state, by the names of DescribeGroups.
            generation_id: the generation, -1 if there has not been one.
            members: the members of this generation.
            topics: the topics that the group reads.
            session_timeout_ms: how long a member may be silent, in milliseconds.
            controller_id: the broker that coordinates the group.
            controller_host: its host.
            controller_port: its port.
        """

        class Member(Struct):
            """One member.

            Attributes:
                consumer_id: the consumer id.
                owned_partitions: what it owns, by topic.
            """

            class OwnedTopic(Struct):
                """One topic.

                Attributes:
                    name: the topic.
                    partitions: the numbers of the partitions.
                """

                name: string
                partitions: list[int32]

            consumer_id: string
            owned_partitions: list[OwnedTopic]

        error_code: int16 = 0
        group_id: string
        group_state: string
        generation_id: int32 = -1
        members: list[Member]
        topics: list[string]
        session_timeout_ms: int32
        controller_id: int32
        controller_host: string
        controller_port: int32

    groups: list[ListedGroup]
