"""ListGroups+, key 10000, v0. Lists groups with their members and owned partitions; any broker serves it."""

from kafkalite.protocol.schema import Request, Response, Struct, boolean, field, int16, int32, string


class ListGroupsPlusRequest(Request, key=10000, versions=(0, 0), flexible=0):
    """Groups by name.

    Attributes:
        groups: the names; empty = all groups.
        coordinator_only: whether the broker returns only groups that it coordinates itself; for brokers.
    """

    groups: list[string]
    coordinator_only: boolean = field(tag=0, default=False)


class ListGroupsPlusResponse(Response, key=10000, versions=(0, 0), flexible=0):
    """The type, state and coordinator of each group.

    Attributes:
        groups: one entry for each group.
    """

    class ListedGroup(Struct):
        """One group.

        Attributes:
            error_code: the error, 0 = none.
            group_id: the group.
            group_state: the state, named as in DescribeGroups.
            generation_id: the generation, -1 = none yet.
            members: the members of this generation.
            topics: the topics that the group reads.
            session_timeout_ms: the session timeout, in milliseconds.
            controller_id: the broker that coordinates the group.
            controller_host: its host.
            controller_port: its port.
        """

        class Member(Struct):
            """One member.

            Attributes:
                consumer_id: the consumer id.
                owned_partitions: its partitions, by topic.
            """

            class OwnedTopic(Struct):
                """One topic.

                Attributes:
                    name: the topic.
                    partitions: the partition indexes.
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
